"""Clipped sums: one row moves them by at most the clip norm, and by exactly its own numbers, in any order."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clipped import (
    ALL_MODELS,
    BOUND,
    DIM,
    MODELS,
    ROWS,
    SPREADS,
    both_sums,
    brute_force,
    by_mechanism,
    check_closed_form,
    check_long_sum,
    check_order,
    clipped_sum,
    coordinates,
    flat,
    on_grid,
    random_offset,
    rows,
)
from fedvi import CustomModel, FullGaussian, Gaussian, LinearRegression, LogisticRegression
from fedvi.models import GaussHermite, base
from fedvi.numerics import Bounds, double_precision, on_row_grid, row_lengths, widen
from fedvi.privacy import Batch, FullBatchGaussian
from fedvi.privacy.clipping import LONGEST_OFFSET, clipped_sums, usable_offset


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [1.0, 1e3])
def test_closed_form_is_the_definition(model: str, family: str, clip: float, with_offset: bool) -> None:
    check_closed_form(model, family, clip, with_offset)


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize("bound", [4.0, 64.0, 512.0])
def test_squares_are_rounded_by_no_more_than_the_public_bound_says(
    family: str, bound: float, with_offset: bool
) -> None:
    """Rows with more digits than squares have: what is off is a small part of what features at the bound would give."""
    q, z = coordinates(family), jnp.zeros(0)
    x = on_grid(np.random.default_rng(5).normal(size=(ROWS, DIM)), bound)[0]
    data = x, jnp.ones(ROWS), jnp.ones(ROWS)
    offset = random_offset(q) if with_offset else None
    truth = brute_force(LogisticRegression(), q, data, 1.0, offset, z)
    summed = clipped_sum(LogisticRegression(), q, data, 1.0, offset, bound=bound)
    assert np.abs(summed - truth).max() < ROWS * (1e-5 + 2 * bound**2 * 2.0**-22)


@pytest.mark.parametrize("with_offset", [False, True])
def test_custom_models_are_clipped_in_microbatches_of_any_size(
    monkeypatch: pytest.MonkeyPatch, with_offset: bool
) -> None:
    model = CustomModel(lambda w, x, y: -0.5 * (y - jnp.tanh(x @ w)) ** 2, samples=3)
    q, data = coordinates("mean-field"), rows()
    z = jnp.asarray(np.random.default_rng(0).normal(size=(3, DIM)), float)
    offset = random_offset(q) if with_offset else None
    truth = brute_force(model, q, data, 0.5, offset, z)
    for room, at_once in ((1, 1), (5 * 2 * DIM * 8, 5), (10**9, 32)):
        monkeypatch.setattr(base, "GRADIENT_BYTES", room)
        assert model.rows_at_once(q, data[0]) == at_once
        summed = by_mechanism(model, q, data, 0.5, offset, z)
        assert np.allclose(summed, truth, rtol=5e-5)


def test_memory_of_row_by_row_clipping_does_not_grow_with_rows() -> None:
    model = CustomModel(lambda w, x, y: -0.5 * (y - x @ w) ** 2, samples=2)
    q = Gaussian.standard(500).coordinates()

    def peak(count: int) -> int:
        nothing = jnp.zeros(count)
        batch = Batch(
            x=jnp.zeros((count, 500)),
            y=nothing,
            lengths=nothing,
            rows=jnp.arange(count, dtype=jnp.int32),
            mask=nothing,
            feature_bound=jnp.asarray(BOUND),
            scale=jnp.asarray(1.0),
            total=jnp.asarray(1.0),
            grid=jnp.asarray(2.0**-30),
            model_noise=jnp.zeros((2, 500)),
            privacy_noise=jnp.zeros((1000, 2), jnp.uint32),
        )
        step = jax.jit(lambda batch: FullBatchGaussian(1.0, 1.0).noisy_sum(model, q, batch, jnp.asarray(1.0), None)[1])
        used: Any = step.lower(batch).compile().memory_analysis()
        return int(used.temp_size_in_bytes)

    gradients = 40_000 * 1000 * 4
    assert peak(40_000) - peak(4_000) < gradients / 1.5


DRAWS = CustomModel(
    lambda w, x, y: -jnp.exp(jnp.clip(x @ w, -20.0, 20.0)) + y * (x @ w),
    samples=3,
    draw=lambda w, x, key: jax.random.poisson(key, jnp.exp(jnp.clip(x @ w, -20.0, 20.0))),
)
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
    bound=st.sampled_from([2.0**-20, 1.0, 64.0, 8192.0]),
)
def test_no_row_moves_the_sum_by_more_than_the_clip_norm(
    model: str,
    family: str,
    canary: list[float],
    target: float,
    clip: float,
    spread: float,
    with_offset: bool,
    bound: float,
) -> None:
    """Of any row, whatever it holds and whatever q the server sent. It moves the sum by exactly its own numbers."""
    q = coordinates(family, scale=spread)
    offset = random_offset(q) if with_offset else None
    x, y, _ = rows()
    raw = np.asarray(x).copy()
    raw[0] = canary
    x, lengths = on_grid(raw, bound)
    y = y.at[0].set(target)
    first = np.arange(ROWS) == 0
    for by_row in (False, True):
        (all_whole, everybody), (others_whole, others), (own_whole, _) = (
            compiled(model, by_row)(q, x, y, lengths, jnp.asarray(mask, float), jnp.float32(clip), offset, bound)
            for mask in (np.ones(ROWS), ~first, first)
        )
        assert np.all(np.isfinite(all_whole))
        assert np.array_equal(all_whole - others_whole, own_whole)
        assert np.linalg.norm(everybody - others) <= np.float32(clip)


@pytest.mark.parametrize("family", SPREADS)
@given(
    canary=st.lists(anything, min_size=DIM, max_size=DIM),
    target=anything,
    clip=st.floats(1e-3, 1e3),
    spread=st.sampled_from([1e-12, 1e-4, 1.0, 1e4, 1e12]),
    with_offset=st.booleans(),
)
def test_nor_does_a_row_whose_model_draws_outcomes(
    family: str, canary: list[float], target: float, clip: float, spread: float, with_offset: bool
) -> None:
    """Single precision: other rows have the same bits all the same."""
    q = coordinates(family, scale=spread)
    offset = random_offset(q) if with_offset else None
    x, y, _ = rows()
    x, lengths = on_grid(np.concatenate([[canary], np.asarray(x)[1:]]))
    y, first = y.at[0].set(target), np.arange(ROWS) == 0
    (all_whole, everybody), (others_whole, others), (own_whole, own) = (
        compiled("draws", False)(q, x, y, lengths, jnp.asarray(mask, float), jnp.float32(clip), offset, BOUND)
        for mask in (np.ones(ROWS), ~first, first)
    )
    assert np.all(np.isfinite(all_whole))
    assert np.array_equal(all_whole - others_whole, own_whole)
    assert max(np.linalg.norm(everybody - others), np.linalg.norm(own)) <= np.float32(clip)


@pytest.mark.parametrize(("family", "with_offset"), [("mean-field", False), ("full", True)])
def test_a_row_has_the_same_draws_at_any_place(family: str, with_offset: bool) -> None:
    check_order(DRAWS, family, with_offset)


@functools.cache
def compiled(model: str, by_row: bool) -> Any:
    chosen: Any = {**MODELS, "draws": DRAWS}[model]
    z = jnp.asarray(np.random.default_rng(0).normal(size=chosen.noise_shape(DIM)), float)

    def sums(q: Any, x: Any, y: Any, lengths: Any, mask: Any, clip: Any, offset: Any, bound: Any) -> Any:
        return both_sums(chosen, q, (x, y, mask), clip, offset, z, bound=bound, by_row=by_row, lengths=lengths)

    step = jax.jit(sums)

    def call(*arguments: Any) -> tuple[np.ndarray, ...]:
        with double_precision():
            return tuple(np.asarray(part, float) for part in step(*arguments))

    return call


@pytest.mark.parametrize(("family", "with_offset"), [("mean-field", False), ("full", True)])
@pytest.mark.parametrize("model", ALL_MODELS)
def test_sums_are_the_same_bits_in_any_order_and_any_block(model: str, family: str, with_offset: bool) -> None:
    check_order(ALL_MODELS[model], family, with_offset)


@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize("bound", [2.0**-20, 64.0, 8192.0])
@pytest.mark.parametrize("target", [1.8e19, 1e25, 3e38])
@pytest.mark.parametrize(("noise_variance", "spread"), [(1.0, 1.0), (0.01, 5e36), (1.0, 1e-20), (1e-12, 1.0)])
def test_squares_that_vanish_hide_no_gradient(
    family: str, bound: float, target: float, noise_variance: float, spread: float
) -> None:
    """The smallest features that there are, and huge slopes: the gradient is as large as one likes."""
    dim = 100
    kind: Any = Gaussian if family == "mean-field" else FullGaussian
    q = kind.from_moments(
        np.zeros(dim), spread * (np.ones(dim) if family == "mean-field" else np.eye(dim))
    ).coordinates()
    x, _ = on_grid(np.full((1, dim), bound * 2.0**-22), bound)
    assert np.all(np.asarray(x) > 0)
    data = x, jnp.full(1, target), jnp.ones(1)
    alone = clipped_sum(LinearRegression(noise_variance), q, data, jnp.float32(1.5), bound=bound)
    assert np.linalg.norm(alone) <= 1.5
    assert spread > 1 or np.linalg.norm(alone) > 1.49


@pytest.mark.parametrize(("count", "with_offset"), [(100, True), (100_000, False)])
def test_rounding_of_long_sums_stays_within_the_clip_norm(count: int, with_offset: bool) -> None:
    check_long_sum(count, with_offset)


@pytest.mark.parametrize("at_once", [1, 5, 16, 1000])
def test_rows_summed_a_few_at_a_time_give_the_same_bits(at_once: int) -> None:
    q, (x, y, mask) = coordinates("mean-field"), rows()
    whole, _ = both_sums(LogisticRegression(), q, (x, y, mask), 1.0)
    order = np.random.default_rng(0).permutation(len(y)).astype(np.int32)  # rows of a batch lie anywhere in the buffer
    nothing, one = jnp.zeros(0), jnp.float32(1)
    batch = Batch(
        x=x,
        y=y,
        lengths=jnp.asarray(row_lengths(np.asarray(x))),
        rows=jnp.asarray(order),
        mask=mask[order],
        feature_bound=jnp.asarray(BOUND),
        scale=one,
        total=one,
        grid=one,
        model_noise=nothing,
        privacy_noise=jnp.zeros((0, 2), jnp.uint32),
    )
    with double_precision():
        vectors = LogisticRegression().row_vectors(q, nothing, batch.feature_bound)
        bounds = Bounds(widen(one), widen(batch.feature_bound), ROWS)
        parts = batch.sum_over_rows(
            lambda some, mask: clipped_sums(vectors(*batch.take(some)), widen(mask), bounds), at_once
        )
    assert np.array_equal(np.asarray(whole), flat(parts))


def test_an_overflowing_row_does_not_touch_the_others() -> None:
    """A Cholesky root so large that the row's variance overflows, in the precision of the sum itself."""
    with jax.enable_x64(True):
        q = FullGaussian.standard(2).coordinates()
        q = type(q)(q.mean, jnp.asarray([[700.0, 0.0], [0.0, 0.0]]))
        x, _ = on_grid([[0.0, 1.0], [8192.0, 0.0]], 8192.0)
        first, both = (
            both_sums(LogisticRegression(), q, (x, jnp.ones(2), jnp.asarray(mask)), 1.0, bound=8192.0)
            for mask in ([1.0, 0.0], [1.0, 1.0])
        )
        assert np.all(np.isfinite(both[1]))
        assert np.linalg.norm(both[1] - first[1]) <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("family", SPREADS)
def test_a_bad_row_does_not_touch_the_others(family: str, with_offset: bool, bad: float) -> None:
    """A target that is no number counts as no row; so does a feature, where gradients are made row by row."""
    q, (x, y, mask) = coordinates(family), rows()
    offset = random_offset(q) if with_offset else None
    for by_row in (False, True):
        clean, _ = both_sums(LogisticRegression(), q, (x, y, mask.at[0].set(0)), 1.0, offset, by_row=by_row)
        with_bad, _ = both_sums(LogisticRegression(), q, (x, y.at[0].set(bad), mask), 1.0, offset, by_row=by_row)
        assert np.array_equal(clean, with_bad)
    clean, _ = both_sums(LogisticRegression(), q, (x, y, mask.at[0].set(0)), 1.0, offset, by_row=True)
    with_bad, _ = both_sums(LogisticRegression(), q, (x.at[0].set(bad), y, mask), 1.0, offset, by_row=True)
    assert np.array_equal(clean, with_bad)


@pytest.mark.parametrize(("bad", "counts_as"), [(np.nan, 0.0), (np.inf, 64.0), (-3e38, -64.0), (64.1, 64.0)])
def test_on_the_grid_every_feature_is_a_number_within_the_bound(bad: float, counts_as: float) -> None:
    x = np.random.default_rng(0).normal(size=(5, DIM)).astype(np.float32)
    clean, none = on_row_grid(x, BOUND)
    x[2, 1] = bad
    spoiled, clipped = on_row_grid(x, BOUND)
    assert (none, clipped) == (0, 1)
    assert spoiled[2, 1] == counts_as
    spoiled[2, 1] = clean[2, 1]
    assert np.array_equal(spoiled, clean)
    assert np.array_equal(clean * 2**16, np.rint(clean * 2**16))
    assert np.abs(clean - np.where(np.isfinite(x), x, clean))[:2].max() <= 2.0**-17
    assert np.all(row_lengths(clean) >= np.linalg.norm(clean.astype(float), axis=1))
    assert np.allclose(row_lengths(clean), np.linalg.norm(clean.astype(float), axis=1), rtol=1e-6)


@given(padding=st.sampled_from([1, 7, 20]), seed=st.integers(0, 100))
def test_padding_changes_no_bit(padding: int, seed: int) -> None:
    q, (x, y, mask) = coordinates("mean-field"), rows(seed)
    plain, _ = both_sums(LogisticRegression(), q, (x, y, mask), 1.0, most=ROWS + 20)
    more = [jnp.concatenate([part, jnp.repeat(part[:1], padding, axis=0)]) for part in (x, y)]
    padded = (*more, jnp.concatenate([mask, jnp.zeros(padding)]))
    assert np.array_equal(plain, both_sums(LogisticRegression(), q, padded, 1.0, most=ROWS + 20)[0])


def test_closed_form_never_makes_a_gradient_per_row() -> None:
    """No intermediate of the compiled sum is as large as rows x coordinates of full-covariance gradients."""
    dim, count = 30, 400
    q = FullGaussian.standard(dim).coordinates()
    ones = jnp.ones(count)

    @jax.jit
    def step(x: Any) -> Any:
        return both_sums(LogisticRegression(), q, (x, ones, ones), jnp.float32(1.0), lengths=ones)

    with double_precision():
        used: Any = step.lower(jnp.ones((count, dim), jnp.float32)).compile().memory_analysis()
    assert used.temp_size_in_bytes < count * dim * dim * 8 / 2


@pytest.mark.parametrize("nodes", [20, 32])
@pytest.mark.parametrize("spread", [1.0, 1e5, 1e8, 1e15])
def test_one_row_less_does_not_move_what_others_contribute(nodes: int, spread: float) -> None:
    """Rounding depends on how many rows are computed together; posteriors of a hostile server make the most of it.

    Blocks have one size, and in them a row has the same numbers at any place and beside any others.
    """
    model = LogisticRegression(GaussHermite(nodes))
    x, _ = on_grid(np.r_[np.full(24, 0.1), 0.3][:, None])

    @jax.jit
    def step(q: Any, order: Any, mask: Any) -> Any:
        data = x[order], jnp.ones(25), mask
        return both_sums(model, q, data, jnp.float32(1.5), lengths=jnp.abs(x[order, 0]) * jnp.float32(1 + 1e-7))

    rng = np.random.default_rng(0)
    for place in rng.uniform(-30, 0, 8):
        q = Gaussian.from_moments([spread * place], [spread**2]).coordinates()
        for count in (2, 8, 16, 24):
            first = np.arange(25) < count
            order = rng.permutation(25)
            with double_precision():
                with_last, without, alone = (
                    [np.asarray(part, float) for part in step(q, jnp.asarray(o), jnp.asarray(chosen[o], jnp.float32))]
                    for o, chosen in ((order, first | (np.arange(25) == 24)), (np.arange(25), first), (order, ~first))
                )
            own = with_last[0] - without[0]
            assert np.linalg.norm(with_last[1] - without[1]) <= 1.5
            if count == 24:
                assert np.array_equal(own, alone[0])


@pytest.mark.parametrize("bound", [2.0**-20, 64.0, 8192.0])
@pytest.mark.parametrize("log_variance", [299.0, 250.0, 80.0, -360.0])
@pytest.mark.parametrize("steps", [1, 2**22])
def test_squares_that_vanish_before_their_product_hide_no_gradient(
    bound: float, log_variance: float, steps: int
) -> None:
    with jax.enable_x64(True):
        q = Gaussian.standard(1).coordinates()
        q = type(q)(jnp.zeros(1), jnp.full(1, log_variance))
        x, _ = on_grid([[bound * 2.0**-22 * steps]], bound)
        for noise_variance, target in ((1e-300, 0.0), (1e-300, 1e-200), (1e-12, 1.0)):
            data = x, jnp.full(1, target), jnp.ones(1)
            summed = clipped_sum(LinearRegression(noise_variance), q, data, jnp.asarray(1e-20), bound=bound)
            assert np.linalg.norm(summed) <= 1e-20


@pytest.mark.parametrize("family", SPREADS)
def test_with_an_infinite_offset_no_row_counts(family: str) -> None:
    """Whether a batch has rows or not: the sum is the same in both cases."""
    q, (x, y, mask) = coordinates(family), rows()
    offset = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), q)
    (some, there), (none, empty) = (
        both_sums(LogisticRegression(), q, (x, y, count * mask), 1.0, offset) for count in (0.0, 1.0)
    )
    assert not np.any(some)
    assert not np.any(none)
    assert np.array_equal(there, empty, equal_nan=True)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e12, 1e30])
def test_a_long_offset_is_shortened_before_its_rounding_counts(size: float) -> None:
    q, data = coordinates("mean-field"), rows()
    offset = jax.tree.map(lambda leaf: size * leaf, random_offset(q))
    with double_precision():
        bounds = Bounds(jnp.asarray(1.0), jnp.asarray(BOUND), ROWS)
        used = flat(usable_offset(widen(offset), bounds))
    wanted = flat(offset)
    longest = min(2.0**28 / (ROWS * np.sqrt(2 * DIM)), LONGEST_OFFSET)
    assert np.linalg.norm(used) == pytest.approx(min(np.linalg.norm(wanted), longest), rel=1e-6)
    assert used @ wanted / np.linalg.norm(used) / np.linalg.norm(wanted) == pytest.approx(1, abs=1e-6)
    summed = clipped_sum(LogisticRegression(), q, data, 1.0, offset)
    assert np.linalg.norm(summed) <= 9
    if size < 1e5:
        assert np.allclose(summed, -9 * used / np.linalg.norm(used), atol=0.5)
