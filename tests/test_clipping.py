"""Clipped sums: one row moves them by at most the clip norm, in closed form and row by row."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fedvi.models.clipping import double_precision
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from fedvi import CustomModel, FullGaussian, GaussHermite, Gaussian, LinearRegression, LogisticRegression, Model
from fedvi.models import clipping
from fedvi.privacy import Batch

DIM, ROWS = 4, 12
MODELS = {"logistic": LogisticRegression(), "linear": LinearRegression(0.5)}
SPREADS: dict[str, Any] = {"mean-field": np.linspace(0.1, 2, DIM), "full": 0.5 * np.eye(DIM) + 0.3}


def coordinates(family: str, seed: int = 0, scale: float = 1.0) -> Any:
    mean = np.random.default_rng(seed).normal(size=DIM)
    kind: Any = Gaussian if family == "mean-field" else FullGaussian
    return kind.from_moments(mean, scale * SPREADS[family]).coordinates()


def rows(seed: int = 1, size: float = 3.0) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    x, y = size * rng.normal(size=(ROWS, DIM)), np.sign(rng.normal(size=ROWS))
    return jnp.asarray(x, float), jnp.asarray(y, float), jnp.asarray(np.arange(ROWS) < 9, float)


def random_offset(q: Any) -> Any:
    """Anything that a gradient can be: above the diagonal of a Cholesky root there is nothing."""
    rng = np.random.default_rng(2)
    values = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), q)
    return jax.tree.map(lambda v: jnp.asarray(np.tril(v) if v.ndim == 2 else v, float), values)


def flat(tree: Any) -> np.ndarray:
    """All numbers of a sum, which is in double precision."""
    return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)])


def brute_force(model: Model, q: Any, data: Any, clip: float, offset: Any, z: Any) -> np.ndarray:
    """The definition, row by row in NumPy, with gradients by automatic differentiation of the value."""
    x, y, mask = data
    shift: Any = 0.0 if offset is None else np.asarray(ravel_pytree(offset)[0], float)
    total: Any = np.zeros(ravel_pytree(q)[0].size)
    for row in np.flatnonzero(np.asarray(mask)):
        gradient = jax.grad(lambda c, r=row: model.expected_log_likelihood(c, x[r : r + 1], y[r : r + 1], z)[0])(q)
        flat: Any = np.asarray(ravel_pytree(gradient)[0], float) - shift
        total += flat * min(1.0, clip / np.linalg.norm(flat))
    return total


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [1.0, 1e6])
def test_closed_form_is_the_definition(model: str, family: str, clip: float, with_offset: bool) -> None:
    q, data, z = coordinates(family), rows(), jnp.zeros(0)
    offset = random_offset(q) if with_offset else None
    for method in (MODELS[model].clipped_gradient, lambda *a: Model.clipped_gradient(MODELS[model], *a)):
        summed = method(q, *data, z, jnp.asarray(clip), offset)
        truth = brute_force(MODELS[model], q, data, clip, offset, z)
        error = np.abs(flat(summed) - truth) / np.abs(truth).max()
        assert error.max() < 2e-5


def test_custom_models_are_clipped_in_microbatches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CustomModel(lambda w, x, y: -0.5 * (y - jnp.tanh(x @ w)) ** 2, samples=3)
    q, data = coordinates("mean-field"), rows()
    z = jnp.asarray(np.random.default_rng(0).normal(size=(3, DIM)), float)
    truth = brute_force(model, q, data, 0.5, None, z)
    for room in (1, 5 * 2 * DIM * 4, 10**9):
        monkeypatch.setattr(clipping, "MICROBATCH_BYTES", room)
        summed = model.clipped_gradient(q, *data, z, jnp.asarray(0.5), None)
        assert np.allclose(flat(summed), truth, atol=2e-5)


def test_memory_of_row_by_row_clipping_does_not_grow_with_rows() -> None:
    model = CustomModel(lambda w, x, y: -0.5 * (y - x @ w) ** 2, samples=2)
    q = Gaussian.standard(500).coordinates()

    def peak(count: int) -> int:
        x, y = jnp.zeros((count, 500)), jnp.zeros(count)
        step = jax.jit(lambda mask: model.clipped_gradient(q, x, y, mask, jnp.zeros((2, 500)), jnp.asarray(1.0)))
        used: Any = step.lower(jnp.ones(count)).compile().memory_analysis()
        return int(used.temp_size_in_bytes)

    gradients = 40_000 * 1000 * 4
    assert peak(40_000) - peak(4_000) < gradients / 1.5


finite = st.floats(-1e6, 1e6, width=32)
anything = st.one_of(
    finite, st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 1.8e19, 1e17, 1.05e-19, 1e-17, 1e-40, 0.0])
)


@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize("model", MODELS)
@given(
    canary=st.lists(anything, min_size=DIM, max_size=DIM),
    target=anything,
    clip=st.floats(1e-3, 1e3),
    spread=st.sampled_from([1e-37, 1e-12, 1e-4, 1.0, 1e4, 1e12, 1e37]),
    with_offset=st.booleans(),
)
def test_no_row_moves_the_sum_by_more_than_the_clip_norm(
    model: str, family: str, canary: list[float], target: float, clip: float, spread: float, with_offset: bool
) -> None:
    """Of any row, whatever it holds and whatever q the server sent; others are sane, and their sum stays finite."""
    q = coordinates(family, scale=spread)
    offset = random_offset(q) if with_offset else None
    x, y, _ = rows()
    x = x.at[0].set(jnp.asarray(canary, float))
    y = y.at[0].set(target)
    for by_row in (False, True):
        present, absent = (
            np.asarray(compiled(model, by_row)(q, x, y, jnp.asarray(mask, float), jnp.float32(clip), offset), float)
            for mask in (np.arange(ROWS) < 1, np.zeros(ROWS))
        )
        assert np.linalg.norm(present - absent) <= clip * (1 + 1e-6)


@functools.cache
def compiled(model: str, by_row: bool) -> Any:
    method = functools.partial(Model.clipped_gradient, MODELS[model]) if by_row else MODELS[model].clipped_gradient
    summed = jax.jit(lambda q, x, y, mask, clip, offset: method(q, x, y, mask, jnp.zeros(0), clip, offset))
    return lambda *arguments: flat(summed(*arguments))


@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize(
    ("entry", "target", "noise_variance", "spread"),
    [(1.05e-19, 1.8e19, 1.0, 1.0), (1e-19, 1.0, 0.01, 5e37), (1e-10, 1e19, 1.0, 1e-20), (1e-25, 1e25, 1e-12, 1.0)],
)
def test_squares_that_vanish_hide_no_gradient(
    family: str, entry: float, target: float, noise_variance: float, spread: float
) -> None:
    """Tiny features and huge slopes: the squared norm underflows while the gradient is as large as one likes."""
    dim = 100
    kind: Any = Gaussian if family == "mean-field" else FullGaussian
    q = kind.from_moments(
        np.zeros(dim), spread * (np.ones(dim) if family == "mean-field" else np.eye(dim))
    ).coordinates()
    x, y = jnp.full((1, dim), entry), jnp.full(1, target)
    model = LinearRegression(noise_variance)
    alone = model.clipped_gradient(q, x, y, jnp.ones(1), jnp.zeros(0), jnp.float32(1.5))
    assert np.linalg.norm(flat(alone)) <= 1.5


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("count", [100, 10_000, 100_000])
def test_rounding_of_long_sums_stays_within_the_clip_norm(count: int, with_offset: bool) -> None:
    """Rows chosen so that single precision would round every addition, and all of them in one direction.

    The neighbour lacks the first row, so that every other row moves up by one place.
    """
    clip, dim = 1.0, 3
    y = np.resize(np.array([2.0] * 257 + [0.9 * 2**-16] * 255), count)
    y[0] = -2.0
    x = np.ones((count, dim))
    q = Gaussian.standard(dim).coordinates()
    offset = jax.tree.map(lambda leaf: jnp.full_like(leaf, 100.0), q) if with_offset else None

    def total(first: int) -> np.ndarray:
        rows = jnp.asarray(x[first:], float), jnp.asarray(y[first:], float), jnp.ones(count - first)
        summed = LinearRegression().clipped_gradient(q, *rows, jnp.zeros(0), jnp.float32(clip), offset)
        return flat(summed)

    everybody = total(0)
    assert np.linalg.norm(everybody - total(1)) <= clip


@pytest.mark.parametrize("at_once", [1, 5, 16, 1000])
def test_rows_summed_a_few_at_a_time_give_the_same_sum(at_once: int) -> None:
    q, (x, y, mask) = coordinates("mean-field"), rows()
    whole = LogisticRegression().clipped_gradient(q, x, y, mask, jnp.zeros(0), jnp.float32(1.0))
    order = np.random.default_rng(0).permutation(len(y)).astype(np.int32)  # rows of a batch lie anywhere in the buffer
    nothing, one = jnp.zeros(0), jnp.float32(1)
    batch = Batch(x, y, jnp.asarray(order), mask[order], one, one, nothing, nothing)
    with double_precision():
        parts = batch.sum_over_rows(
            lambda x, y, mask: LogisticRegression().clipped_gradient(q, x, y, mask, jnp.zeros(0), one, None, ROWS),
            at_once,
        )
    assert np.allclose(flat(whole), flat(parts), rtol=1e-9)


def test_an_overflowing_row_does_not_touch_the_others() -> None:
    """A Cholesky root so large that the row's variance overflows, in the precision of the sum itself."""
    with jax.enable_x64(True):
        q = FullGaussian.standard(2).coordinates()
        q = type(q)(q.mean, jnp.asarray([[700.0, 0.0], [0.0, 0.0]]))
        x, y = jnp.asarray([[0.0, 1.0], [1e9, 0.0]]), jnp.ones(2)
        sums = [
            LogisticRegression().clipped_gradient(q, x, y, jnp.asarray(mask), jnp.zeros(0), jnp.asarray(1.0))
            for mask in ([1.0, 0.0], [1.0, 1.0])
        ]
        for summed in sums:
            assert np.all(np.isfinite(flat(summed)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("family", SPREADS)
def test_a_bad_row_does_not_touch_the_others(family: str, bad: float) -> None:
    q, (x, y, mask) = coordinates(family), rows()
    clean = LogisticRegression().clipped_gradient(q, x, y, mask.at[0].set(0), jnp.zeros(0), jnp.float32(1.0))
    with_bad = LogisticRegression().clipped_gradient(q, x.at[0].set(bad), y, mask, jnp.zeros(0), jnp.float32(1.0))
    assert np.allclose(flat(clean), flat(with_bad), atol=1e-6)


@given(padding=st.sampled_from([1, 7, 20]), seed=st.integers(0, 100))
def test_padding_changes_nothing(padding: int, seed: int) -> None:
    q, (x, y, mask) = coordinates("mean-field"), rows(seed)
    clipped = compiled("logistic", False)
    plain = clipped(q, x, y, mask, jnp.float32(1.0), None)
    more = [jnp.concatenate([part, jnp.repeat(part[:1], padding, axis=0)]) for part in (x, y)]
    padded = clipped(q, *more, jnp.concatenate([mask, jnp.zeros(padding)]), jnp.float32(1.0), None)
    assert np.allclose(plain, padded, atol=2e-5)


def test_closed_form_never_makes_a_gradient_per_row() -> None:
    """No intermediate of the compiled sum is as large as rows x coordinates of full-covariance gradients."""
    dim, count = 30, 400
    q = FullGaussian.standard(dim).coordinates()
    step = jax.jit(
        lambda x: LogisticRegression().clipped_gradient(
            q, x, jnp.ones(count), jnp.ones(count), jnp.zeros(0), jnp.float32(1.0)
        )
    )
    used: Any = step.lower(jnp.ones((count, dim))).compile().memory_analysis()
    assert used.temp_size_in_bytes < count * dim * dim * 4 / 2


@pytest.mark.parametrize("nodes", [20, 32])
@pytest.mark.parametrize("spread", [1.0, 1e5, 1e8, 1e15])
def test_one_row_less_does_not_move_what_others_contribute(nodes: int, spread: float) -> None:
    """Rounding depends on how many rows are computed together; posteriors of a hostile server make the most of it."""
    model = LogisticRegression(GaussHermite(nodes))
    step = jax.jit(lambda q, x, y, mask: model.clipped_gradient(q, x, y, mask, jnp.zeros(0), jnp.float32(1.5)))
    rng = np.random.default_rng(0)
    for rows in (2, 8, 16, 24):
        for place in rng.uniform(-30, 0, 8):
            q = Gaussian.from_moments([spread * place], [spread**2]).coordinates()
            x = jnp.full((rows, 1), 0.1).at[-1].set(0.3)
            both = step(q, x, jnp.ones(rows), jnp.ones(rows)), step(q, x[:-1], jnp.ones(rows - 1), jnp.ones(rows - 1))
            moved = [
                np.asarray(a, float) - np.asarray(b, float) for a, b in zip(*map(jax.tree.leaves, both), strict=True)
            ]
            assert np.linalg.norm(moved) <= 1.5


@pytest.mark.parametrize(("feature", "log_variance"), [(1e-77, 299.0), (1e-79, 299.0), (1e-70, 250.0), (1e9, -360.0)])
def test_squares_that_vanish_before_their_product_hide_no_gradient(feature: float, log_variance: float) -> None:
    with jax.enable_x64(True):
        q = Gaussian.standard(1).coordinates()
        q = type(q)(jnp.zeros(1), jnp.full(1, log_variance))
        x, y = jnp.full((1, 1), feature), jnp.zeros(1)
        summed = LinearRegression(1e-300).clipped_gradient(q, x, y, jnp.ones(1), jnp.zeros(0), jnp.asarray(1e-30))
        assert np.linalg.norm(flat(summed)) <= 1e-30


@pytest.mark.parametrize("count", [0.0, 1.0])
def test_with_an_infinite_offset_no_row_counts(count: float) -> None:
    """Whether a batch has rows or not: the sum is zero in both cases."""
    q, (x, y, mask) = coordinates("mean-field"), rows()
    offset = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), q)
    summed = LogisticRegression().clipped_gradient(q, x, y, count * mask, jnp.zeros(0), jnp.float32(1.0), offset)
    assert not np.any(flat(summed))
