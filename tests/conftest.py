"""Strictness that users are spared: no silent promotion of dtypes or ranks, and arrays as annotations say."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # started in the background, where Ctrl-C means nothing: tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers share the processors; its threads wait by spinning

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # processes of one test run share compiled code, with nobody else
    kept = tempfile.TemporaryDirectory(prefix="fedvi-tests-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = kept.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import jax
import jaxtyping
import pytest
from hypothesis import settings

import shapes

jaxtyping.install_import_hook(shapes.modules(), "shapes.checked")  # before any test imports fedvi
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
settings.register_profile("fedvi", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("fedvi")


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are processors: many tests wait for processes that they started."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker begin with its share of the tests that wait for processes, so that what comes last is short."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = iter([item for item in items if not item.get_closest_marker("slow")])
    ends = [len(items) * (number + 1) // workers for number in range(workers)]
    ordered: list[pytest.Item] = []
    for number, end in enumerate(ends):
        ordered += slow[number::workers]
        ordered += itertools.islice(others, max(end - len(ordered), 0))
    items[:] = [*ordered, *others]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the shapes of arrays in unit tests only."""
    jaxtyping.config.update("jaxtyping_disable", item.path.parent.name != "unit")


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
