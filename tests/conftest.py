"""Strictness that users are spared: no silent promotion of dtypes or ranks in the tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # processes of one test run share compiled code, with nobody else
    kept = tempfile.TemporaryDirectory(prefix="fedvi-tests-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = kept.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
settings.register_profile("fedvi", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("fedvi")


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are processors: many tests wait for processes that they started."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def x64(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Run the test in both precisions."""
    with jax.enable_x64(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the witnesses of ledgers away from the user's own."""
    path = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("FEDVI_STATE_DIR", str(path))
    return path
