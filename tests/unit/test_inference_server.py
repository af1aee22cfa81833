"""The server: applies releases at once, or refuses them and stays as it was."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvi import FullGaussian, Gaussian
from fedvi.errors import (
    ImproperError,
    ImproperRelease,
    MalformedRelease,
    NonFiniteRelease,
    OutOfSequence,
    ReleaseRefused,
    UnknownClient,
)
from fedvi.inference import Release, Server
from fedvi.inference.server import server_step
from fedvi.privacy.events import gaussian

DIM = 3


def release(sequence: int = 1, mean: Any = 1.0, precision: Any = 2.0) -> Release:
    factor = Gaussian(jnp.full(DIM, mean), jnp.full(DIM, precision))
    return Release(factor, jnp.int32(sequence))


@pytest.fixture
def coordinator() -> Server:
    return Server.start(Gaussian.standard(DIM), ["a", "b"]).receive("a", release())


def state_bytes(coordinator: Server) -> bytes:
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(coordinator.state))


def test_posterior_is_the_prior_times_all_factors(coordinator: Server) -> None:
    after = coordinator.receive("b", release(1, 5.0, 7.0)).receive("a", release(2, -1.0, 0.5))
    assert after.posterior.natural_mean.tolist() == [4.0] * DIM
    assert after.posterior.precision.tolist() == [8.5] * DIM
    assert int(after.state.version) == 3


def with_nan(value: float) -> Release:
    return Release(Gaussian(jnp.array([0.0, value, 0.0]), jnp.ones(DIM)), jnp.int32(2))


REFUSED: dict[str, tuple[str, Any, type[ReleaseRefused], str]] = {
    "unknown client": ("c", release(1), UnknownClient, "unknown client 'c'; known are a, b"),
    "not a release": ("a", "hello", MalformedRelease, "Expected a Release from client 'a', got str"),
    "NaN": ("a", with_nan(float("nan")), NonFiniteRelease, "Release 2 of client 'a' holds NaN"),
    "infinity": ("a", with_nan(float("inf")), NonFiniteRelease, "NaN or infinity"),
    "wrong size": (
        "a",
        Release(Gaussian.standard(4), jnp.int32(2)),
        MalformedRelease,
        r"Expected Gaussian\(float32\[3\], float32\[3\]\) from client 'a', got Gaussian\(float32\[4\], float32\[4\]\)",
    ),
    "one number for all": ("a", Release(Gaussian.standard(1), jnp.int32(2)), MalformedRelease, "float32.1."),
    "wrong family": ("a", Release(FullGaussian.standard(DIM), jnp.int32(2)), MalformedRelease, "FullGaussian"),
    "wrong dtype": (
        "a",
        Release(Gaussian(jnp.zeros(DIM, jnp.int32), jnp.ones(DIM, jnp.int32)), jnp.int32(2)),
        MalformedRelease,
        "int32",
    ),
    "half precision": (
        "a",
        Release(Gaussian(jnp.zeros(DIM, jnp.float16), jnp.ones(DIM, jnp.float16)), jnp.int32(2)),
        MalformedRelease,
        "float16",
    ),
    "factor is not a factor": ("a", Release(np.zeros(DIM), jnp.int32(2)), MalformedRelease, "ndarray"),  # type: ignore[arg-type]
    "replayed": ("a", release(1), OutOfSequence, "Expected release 2 of client 'a', got release 1"),
    "skipped": ("a", release(4), OutOfSequence, "Expected release 2 of client 'a', got release 4"),
    "no whole number": ("a", Release(Gaussian.standard(DIM), jnp.float32(2)), MalformedRelease, "whole sequence"),
    "improper": ("a", release(2, 0.0, -1.5), ImproperRelease, "would make the posterior improper"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_release_raises_and_changes_nothing(coordinator: Server, case: str) -> None:
    name, bad, error, message = REFUSED[case]
    before = state_bytes(coordinator)
    with pytest.raises(error, match=message):
        coordinator.receive(name, bad)
    assert state_bytes(coordinator) == before
    assert coordinator.receive("a", release(2)).posterior.precision.tolist() == [3.0] * DIM


REFUSED_BY_VALUE = {"NaN": with_nan(float("nan")), "replay": release(1), "improper": release(2, 0.0, -1.5)}


@pytest.mark.parametrize("bad", REFUSED_BY_VALUE.values(), ids=REFUSED_BY_VALUE.keys())
def test_compiled_step_leaves_every_number_alone_when_it_refuses(coordinator: Server, bad: Release) -> None:
    state, verdict = jax.jit(server_step)(coordinator.state, 0, bad)
    assert int(verdict) != 0
    assert state_bytes(Server(coordinator.names, state)) == state_bytes(coordinator)


def test_improper_factor_is_fine_while_the_posterior_is_proper(coordinator: Server) -> None:
    after = coordinator.receive("b", release(1, 0.0, -1.0))
    assert after.posterior.precision.tolist() == [2.0] * DIM


def test_events_are_not_compiled_in() -> None:
    coordinator = Server.start(Gaussian.standard(DIM), "abcd")
    compilations = set()
    for index, name in enumerate("abcd"):
        coordinator = coordinator.receive(name, Release(release().factor, jnp.int32(1), event=gaussian(1.0 + index)))
        compilations.add(jax.jit(server_step)._cache_size())  # type: ignore[attr-defined]
    assert len(compilations) == 1


def test_prior_must_be_proper() -> None:
    with pytest.raises(ImproperError, match="prior is improper"):
        Server.start(Gaussian(jnp.zeros(2), jnp.zeros(2)), ["a"])


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.floats(-1e6, 1e6, width=32), st.floats(0, 1e6, width=32)),
        min_size=1,
        max_size=40,
    )
)
def test_running_product_equals_the_product_of_stored_factors(updates: list[tuple[int, float, float]]) -> None:
    """Values of any size come and go; what remains is exact to rounding of the result, not of what passed through."""
    coordinator = Server.start(Gaussian.standard(1), ["a", "b"])
    sequence = [0, 0]
    for client, mean, precision in updates:
        sequence[client] += 1
        factor = Gaussian(jnp.array([mean], jnp.float32), jnp.array([precision], jnp.float32))
        coordinator = coordinator.receive("ab"[client], Release(factor, jnp.int32(sequence[client])))
    stored = np.asarray(coordinator.state.factors.natural_mean, np.float64).sum()
    assert abs(float(coordinator.posterior.natural_mean[0]) - stored) <= 2e-7 * abs(stored) + 1e-6
