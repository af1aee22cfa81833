"""Whatever q a coordinator sends, and whatever rows hold: one row moves a sum by its own numbers alone, at most by C.

Where huge means cancel, all that is left of m'x is rounding. In earlier versions it depended on the other rows: one row
less moved a sum by up to 17 clip norms.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvi import PVI, Budget, FullGaussian, Gaussian, LinearRegression, LogisticRegression, NoiseAwarePVI
from fedvi.audit import Subject
from fedvi.audit.subject import everybody, silent
from fedvi.errors import InputError
from fedvi.inference import Answers, GradientSteps, PrivateClient, Public
from fedvi.numerics import double_precision, on_row_grid, row_lengths
from fedvi.privacy import FullBatchGaussian
from fedvi.privacy.ledger.ledger import read
from fedvi.privacy.sampling import System

ROWS, CLIP, MOST = 100, 1.0, 1 + 1e-6
STEPPED = PVI(GradientSteps(1, 0.5, FullBatchGaussian(1.0, CLIP)))
AWARE = {
    covariance: NoiseAwarePVI(Answers(FullBatchGaussian(1.0, CLIP)), covariance=covariance, questions=14, moments=3)
    for covariance in ("full", "diagonal")
}
KINDS = ["mean-field", "full covariance", "answers, diagonal", "answers, full"]


@functools.cache
def subject(kind: str, dim: int, noise_variance: float = 0.0) -> Subject:
    model = LogisticRegression() if noise_variance == 0 else LinearRegression(noise_variance)
    family = FullGaussian if "full" in kind else Gaussian
    algorithm = AWARE[kind.removeprefix("answers, ")] if kind.startswith("answers") else STEPPED
    return Subject(algorithm, System, model, family, ROWS, dim)


def sent(chosen: Subject, mean: np.ndarray, variances: np.ndarray) -> Any:
    """Return q, or a question about it, as a coordinator may send it."""
    q = chosen.family.from_moments(mean, np.diag(variances) if chosen.family is FullGaussian else variances)
    return chosen.question_at(q) if chosen.algorithm.asks else q


def sums(subject: Subject, x: np.ndarray, y: np.ndarray, q: Any, bound: float = 64.0) -> np.ndarray:
    """Return the sum without noise, in steps of the grid."""
    draws = everybody(silent(subject.draws(1)), len(x))
    return subject.observe(subject.site(x, y, bound), draws, q)[0, 0]


def worst_move(subject: Subject, x: np.ndarray, y: np.ndarray, q: Any, bound: float = 64.0) -> float:
    """Return how far the first row moves the sum, in clip norms; assert that it moves by its own numbers alone."""
    nobody, without = np.zeros((0, x.shape[1])), (x[1:], y[1:])
    moved = sums(subject, x, y, q, bound) - sums(subject, *without, q, bound)
    alone = sums(subject, x[:1], y[:1], q, bound) - sums(subject, nobody, np.zeros(0), q, bound)
    assert np.all(np.abs(moved - alone) <= 1)  # one rounding to the grid
    return float(np.linalg.norm(moved)) * subject.lattice.grid / CLIP


def cancelling(dim: int, largest_mean: float, largest: float, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return a row, means whose product with it is nothing but rounding, and that product."""
    x = (largest * rng.uniform(0.5, 1, dim)).astype(np.float32)
    m = (largest_mean * rng.uniform(-1, 1, dim)).astype(np.float32)
    x[-1], x[-2], m[-1], m[-2] = 1.0, largest, 0.0, 0.0

    def product() -> float:
        return float(sum(Fraction(float(u)) * Fraction(float(v)) for u, v in zip(m, x, strict=True)))

    m[-2] = np.float32(-product() / largest)
    m[-1] = np.float32(-product())
    return x, m, np.float32(product())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("largest_mean", "largest"), [(1e6, 8192.0), (1e6, 8.0), (1e3, 8.0), (1e12, 8.0)])
def test_identical_rows_do_not_flip_together(kind: str, largest_mean: float, largest: float) -> None:
    dim, rng = 58, np.random.default_rng(0)
    chosen = subject(kind, dim, 1e-6)
    for count in (1, 2, 3, 4, 5, 9, 10, 100, 101):
        for _ in range(3):
            x, m, y = cancelling(dim, largest_mean, largest, rng)
            q = sent(chosen, m, np.full(dim, 2.0**-80, np.float32))
            moved = worst_move(chosen, np.tile(x, (count, 1)), np.full(count, y), q, largest)
            assert moved <= MOST


hostile_numbers = st.one_of(
    st.floats(-3, 3), st.sampled_from([0.0, 1.0, -1.0, 64.0, -64.0, 1e-19, 3e38, math.nan, math.inf, -math.inf])
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([0.0, 1e-6, 1.0]),
    st.lists(st.lists(hostile_numbers, min_size=5, max_size=5), min_size=1, max_size=100),
    st.lists(st.floats(-15_000, 15_000), min_size=4, max_size=4),
    st.floats(-18, 9),
    st.booleans(),
)
def test_no_row_moves_a_sum_by_more_than_the_clip_norm(
    kind: str, noise_variance: float, table: list[list[float]], means: list[float], scale: float, alike: bool
) -> None:
    chosen = subject(kind, 4, noise_variance)
    numbers = np.array(table)
    x, y = numbers[:, :4], numbers[:, 4]
    if alike:
        x[1:] = x[0]
    if noise_variance == 0:
        y = np.where(np.nan_to_num(y) > 0, 1.0, -1.0)
    q = sent(chosen, np.array(means), np.exp(np.full(4, scale)))
    assert worst_move(chosen, x, y, q) <= MOST


@pytest.mark.parametrize("kind", KINDS)
def test_sums_do_not_depend_on_the_order_of_rows(kind: str) -> None:
    dim, rng = 58, np.random.default_rng(1)
    chosen = subject(kind, dim)
    x, y = rng.normal(size=(ROWS, dim)), np.sign(rng.normal(size=ROWS))
    q = sent(chosen, rng.normal(size=dim), np.full(dim, 0.3))
    first = sums(chosen, x, y, q)
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(ROWS)
        assert np.array_equal(sums(chosen, x[order], y[order], q), first)


@pytest.mark.parametrize("family", [Gaussian, FullGaussian])
def test_a_row_gives_the_same_bits_at_every_place_of_a_block(family: type[Gaussian] | type[FullGaussian]) -> None:
    """Products and sums of a block are compiled together, and some places may be rounded once instead of twice."""
    model, dim, bound = LogisticRegression(), 3, 64.0

    @jax.jit
    def slopes_of(q: Any, x: Any, y: Any, lengths: Any) -> list[Any]:
        blocks = [part.reshape(2, q.rows_at_once(dim), *part.shape[1:]) for part in (x, y, lengths)]
        with double_precision():
            vectors = model.row_vectors(q, jnp.zeros(0, jnp.float32), jnp.float32(bound))
            found = jax.lax.map(lambda block: vectors(*block).vectors, tuple(blocks))
            numbers = (found.by_mean, found.by_variance, *found.norms)
            return [jax.lax.bitcast_convert_type(part.reshape(-1), jnp.uint32) for part in numbers]

    for seed in range(60):
        rng = np.random.default_rng(seed)
        mean, std = rng.normal(size=dim) * 10 ** rng.uniform(-2, 1.5) / bound, 10 ** rng.uniform(-3, 1, dim) / bound
        spread = np.diag(std**2) if family is FullGaussian else std**2
        q = family.from_moments(mean, spread).coordinates()
        count = 2 * q.rows_at_once(dim)
        x, _ = on_row_grid(np.tile(rng.normal(size=dim) * 20, (count, 1)).astype(np.float32), bound)
        for part in slopes_of(q, x, np.ones(count, np.float32), row_lengths(x)):
            words = np.asarray(part)
            assert np.all(words == words[0])


def opened(path: Path) -> PrivateClient:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(200, 3)), np.sign(rng.normal(size=200))
    public = Public(Gaussian.standard(3), jnp.asarray(1.0), jnp.asarray(200.0))
    return PrivateClient.open(path, table, LogisticRegression(), STEPPED, public, Budget(10.0, 1e-3))


@pytest.mark.parametrize(
    ("mean", "variance"),
    [(2e4, 1.0), (1e12, 1.0), (0.0, 1e9), (float("nan"), 1.0)],
    ids=["far", "absurd", "wide", "NaN"],
)
def test_a_client_refuses_a_q_through_which_rounding_decides_before_it_pays(
    mean: float, variance: float, tmp_path: Path
) -> None:
    with opened(tmp_path / "ledger") as client:
        q = Gaussian.from_moments(np.array([mean, 0.0, 0.0]), np.full(3, variance))
        with pytest.raises((InputError, ArithmeticError), match=r"Expected a posterior whose means|is improper"):
            client.update(q)
        assert read(tmp_path / "ledger").charged == {}
        client.update(Gaussian.from_moments(np.array([1.5e4, 0.0, 0.0]), np.ones(3)))
        assert sum(read(tmp_path / "ledger").charged.values()) == 1
