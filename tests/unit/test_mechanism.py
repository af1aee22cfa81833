"""Mechanisms: sampling, noise and scale are what the event says."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.stats import binom, chisquare, norm

from federations import logistic_tables
from fedvi import PVI, FullGaussian, Gaussian, LinearRegression, LogisticRegression
from fedvi.errors import InputError
from fedvi.inference import Exact, GlobalVI, GradientSteps, Public
from fedvi.inference.rows import Rows
from fedvi.inference.update import checked_update, draw, init_client
from fedvi.numerics import on_row_grid, row_lengths
from fedvi.privacy import (
    Batch,
    ClientLevel,
    FullBatch,
    FullBatchGaussian,
    GaussianMechanism,
    Minibatch,
    PoissonGaussian,
)
from fedvi.privacy.clipping import ROUNDING
from fedvi.privacy.events import NOT_PRIVATE, gaussian
from fedvi.privacy.lattice import Lattice, as_pairs, from_words
from fedvi.privacy.published import FixedSizeGaussian
from fedvi.privacy.sampling import UPDATE, Seeded, System, most_rows, poisson_sample

DIM, BOUND = 3, 4.0


def seeded(seed: int) -> Seeded:
    return Seeded(seed, UPDATE)


def a_batch(
    mechanism: GaussianMechanism,
    count: int = 8,
    mask: Any = None,
    noise: Any = None,
    scale: float = 5.0,
    size: int = 2 * DIM,
    at: int = 0,
) -> Batch:
    """Rows from place `at` of a buffer on, on their grid; squares of their entries are exact too."""
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(count, DIM)) * 32) / 32
    return placed(x, np.sign(rng.normal(size=count)), mechanism.lattice(size, count, scale), mask, noise, scale, at)


def placed(
    x: np.ndarray,
    y: np.ndarray,
    lattice: Lattice,
    mask: Any = None,
    noise: Any = None,
    scale: float = 5.0,
    at: int = 0,
    bound: float = BOUND,
) -> Batch:
    count = len(y)
    on_grid = on_row_grid(x.astype(np.float32), bound)[0]
    whole = np.zeros(lattice.numbers, np.int64) if noise is None else noise
    return Batch(
        x=jnp.asarray(np.pad(on_grid, ((at, 0), (0, 0)))),
        y=jnp.asarray(np.pad(y, (at, 0)), float),
        lengths=jnp.asarray(np.pad(row_lengths(on_grid), (at, 0))),
        rows=jnp.arange(at, at + count, dtype=jnp.int32),
        mask=jnp.ones(count) if mask is None else jnp.asarray(mask, float),
        feature_bound=jnp.asarray(bound),
        scale=jnp.asarray(scale),
        total=jnp.asarray(scale * count),
        grid=jnp.asarray(lattice.grid),
        model_noise=jnp.zeros(0),
        privacy_noise=jnp.asarray(as_pairs(whole)),
    )


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0], float)


# Sampling


def test_poisson_sample_draws_every_row_of_every_step_independently() -> None:
    rows, rate, steps = 7, 0.3, 3
    source = seeded(0)
    counts = np.zeros((steps, rows))
    pairs = np.zeros((steps * rows, steps * rows))
    trials = 20_000
    for _ in range(trials):
        hit = np.zeros((steps, rows))
        sizes, row = poisson_sample(source, rows, rate, steps)
        np.add.at(hit, (np.repeat(np.arange(steps), sizes), row), 1)
        counts += hit
        pairs += np.outer(hit.ravel(), hit.ravel())
    assert chisquare(np.ravel(counts), np.full(counts.size, counts.mean())).pvalue > 1e-4
    assert binom.cdf(counts.sum(), trials * counts.size, rate) == pytest.approx(0.5, abs=0.4999)
    together = pairs[~np.eye(len(pairs), dtype=bool)] / trials
    assert np.abs(together - rate**2).max() < 5 * np.sqrt(rate**2 / trials)


def test_batch_sizes_are_binomial_and_padding_is_masked() -> None:
    mechanism, rows, steps = PoissonGaussian(fraction=0.1, minimum=1), 200, 4000
    index, mask = mechanism.draw(seeded(1), rows, rows, steps, 60)
    assert index.shape == mask.shape == (steps, 60)
    assert index.dtype == np.int32
    assert 0 <= index.min() <= index.max() < rows
    sizes = mask.sum(axis=1)
    assert np.mean(sizes) == pytest.approx(20, abs=5 * np.sqrt(18 / steps))
    assert np.var(sizes) == pytest.approx(18, rel=0.15)
    for step in range(100):
        drawn = index[step][mask[step]]
        assert len(set(drawn)) == len(drawn)
        assert set(index[step]) <= {*drawn, index[step, 0]}


def test_a_batch_beyond_its_room_is_cut_to_a_random_subset() -> None:
    mechanism, rows = PoissonGaussian(fraction=0.5, minimum=1, overflow=0.5), 40
    room = mechanism.capacity(rows)
    assert room < 25
    index, mask = mechanism.draw(seeded(2), rows, rows, 4000, 40)
    sizes = mask.sum(axis=1)
    assert sizes.max() == room
    counts = np.bincount(index[mask], minlength=rows)
    assert chisquare(counts).pvalue > 1e-4  # no row is favoured by its place


@pytest.mark.parametrize("overflow", [0.9999999, 1.0])
def test_a_batch_always_has_room_for_one_row(overflow: float) -> None:
    mechanism = PoissonGaussian(fraction=0.0, minimum=1, overflow=overflow)
    assert mechanism.capacity(10) == 1
    index, _ = mechanism.draw(seeded(0), 10, 10, 5, 1)
    assert index.shape == (5, 1)


@pytest.mark.parametrize("rows", [3550, 3907, 4297])
def test_sampling_rate_and_scale_follow_from_the_declared_rows_alone(rows: int) -> None:
    algorithm = PVI(GradientSteps(200, 0.5, PoissonGaussian()))
    public = Public(Gaussian.standard(DIM), jnp.asarray(1.0), jnp.asarray(3907.0))
    drawn = [draw(algorithm, LogisticRegression(), public, rows, 3907, seeded(seed)) for seed in (0, 1)]
    assert {float(one.scale) for one in drawn} == {np.float32(3907 / 79)}
    assert len({float(one.grid) for one in drawn}) == 1
    assert {one.rows.shape[1] for one in drawn} == {PoissonGaussian().capacity(3907)}
    sizes = [np.asarray(one.mask).sum(1) for one in drawn]
    assert (sizes[0] != sizes[1]).any()
    assert np.mean(sizes) == pytest.approx(rows * 79 / 3907, abs=5 * np.sqrt(79 / 400))


# Noise


@pytest.mark.parametrize("clips", ["likelihood", "loss"])
def test_noise_is_the_multiplier_times_the_clip_norm(clips: str) -> None:
    mechanism = FullBatchGaussian(noise_multiplier=3.0, clip_norm=2.0, clips=clips)
    q = Gaussian.standard(DIM).coordinates()
    zero = jax.tree.map(jnp.zeros_like, q)
    lattice = mechanism.lattice(2 * DIM, 8, 5.0)
    sizes = np.abs(lattice.noise(seeded(0), 100_000)) * lattice.grid
    scale = 5.0 if clips == "likelihood" else 1.0
    of_the_sum = 3.0 * 2.0 * scale / 5.0
    assert lattice.grid * lattice.size == pytest.approx(of_the_sum, rel=2e-6)
    assert lattice.grid * lattice.size >= of_the_sum
    assert np.sqrt(np.mean(sizes**2)) == pytest.approx(of_the_sum, rel=0.02)
    noise = lattice.noise(seeded(1), 2 * DIM)
    quiet, _ = mechanism.gradient(LogisticRegression(), q, a_batch(mechanism), zero)
    noisy, _ = mechanism.gradient(LogisticRegression(), q, a_batch(mechanism, noise=noise), zero)
    assert np.allclose(flat(quiet) - flat(noisy), 5.0 * lattice.grid * noise, rtol=1e-4)
    assert float(mechanism.noise_std(jnp.asarray(5.0))) == pytest.approx(3.0 * 2.0 * scale)


def test_sum_and_noise_are_whole_numbers_of_one_grid() -> None:
    """What has noise is the rounded sum plus the noise, exactly, and the gradient follows from it."""
    mechanism = FullBatchGaussian(noise_multiplier=3.0, clip_norm=2.0)
    q = Gaussian.standard(DIM).coordinates()
    zero = jax.tree.map(jnp.zeros_like, q)
    lattice = mechanism.lattice(2 * DIM, 8, 5.0)
    noise = lattice.noise(seeded(1), 2 * DIM)
    _, silent = mechanism.gradient(LogisticRegression(), q, a_batch(mechanism), zero)
    gradient, words = mechanism.gradient(LogisticRegression(), q, a_batch(mechanism, noise=noise), zero)
    quiet, noisy = from_words(silent), from_words(words)
    assert np.any(quiet)
    assert np.array_equal(quiet / lattice.grid, np.rint(quiet / lattice.grid))
    assert np.array_equal(noisy / lattice.grid - quiet / lattice.grid, noise)
    assert np.array_equal(flat(gradient), flat(0.0 - np.float32(5.0) * noisy.astype(np.float32)))


@pytest.mark.parametrize("clips", ["likelihood", "loss"])
@pytest.mark.parametrize("at", [0, 1, 5, 13])
def test_the_sum_has_the_same_bits_in_any_order_and_at_any_place(at: int, clips: str) -> None:
    mechanism = FullBatchGaussian(1.0, 0.7, clips=clips)
    q = Gaussian.from_moments(np.ones(DIM), np.full(DIM, 0.3)).coordinates()
    prior = jax.tree.map(lambda leaf: jnp.full_like(leaf, 3.0), q)
    first, moved = a_batch(mechanism, 40), a_batch(mechanism, 40, at=at)
    order = np.random.default_rng(at).permutation(40)
    moved = dataclasses.replace(moved, rows=moved.rows[order])
    _, here = mechanism.gradient(LogisticRegression(), q, first, prior)
    _, there = mechanism.gradient(LogisticRegression(), q, moved, prior)
    assert np.array_equal(here, there)


@pytest.mark.parametrize("clips", ["likelihood", "loss"])
def test_one_row_moves_the_sum_by_at_most_the_clip_norm(clips: str) -> None:
    """Up to the rounding of both sums to the grid, for which the noise is larger."""
    mechanism = FullBatchGaussian(1.0, 0.7, clips=clips)
    q = Gaussian.from_moments(np.ones(DIM), np.full(DIM, 0.3)).coordinates()
    prior = jax.tree.map(lambda leaf: jnp.full_like(leaf, 300.0), q)
    lattice, clip = mechanism.lattice(2 * DIM, 40, 5.0), 0.7 if clips == "likelihood" else 0.7 / 5
    step = jax.jit(lambda batch: mechanism.gradient(LogisticRegression(), q, batch, prior)[1])
    everybody = from_words(step(a_batch(mechanism, 40)))
    moved = [
        np.linalg.norm(from_words(step(a_batch(mechanism, 40, np.arange(40) != row))) - everybody) for row in range(40)
    ]
    assert 0.999 * clip < max(moved) <= clip + lattice.grid * np.sqrt(2 * DIM)


def test_an_empty_batch_still_gets_noise() -> None:
    mechanism, q = PoissonGaussian(), Gaussian.standard(DIM).coordinates()
    lattice = mechanism.lattice(2 * DIM, 8, 5.0)
    noise = np.rint(np.arange(1.0, 2 * DIM + 1) * lattice.size).astype(np.int64)
    empty = a_batch(mechanism, mask=np.zeros(8), noise=noise)
    gradient, seen = mechanism.gradient(LogisticRegression(), q, empty, jax.tree.map(jnp.zeros_like, q))
    assert np.array_equal(from_words(seen), noise * lattice.grid)
    assert np.allclose(flat(gradient), -5.0 * 5.0 * 1.5 * np.arange(1.0, 2 * DIM + 1))


def test_kl_part_is_exact_and_free_unless_the_whole_loss_is_clipped() -> None:
    q = Gaussian.standard(DIM).coordinates()
    prior = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e6), q)
    apart, whole = FullBatchGaussian(), FullBatchGaussian(clips="loss", clip_norm=75.0)
    exact, _ = apart.gradient(LogisticRegression(), q, a_batch(apart, mask=np.zeros(8)), prior)
    assert np.allclose(flat(exact), 1e6)
    clipped, _ = whole.gradient(LogisticRegression(), q, a_batch(whole), prior)
    assert np.linalg.norm(flat(clipped)) <= 8 * 75 * (1 + 1e-5)


def test_clipping_the_loss_is_the_formula_of_the_paper() -> None:
    """Per example -(N/L) grad E_i + (1/L) grad KL, clipped to C and summed."""
    q = Gaussian.from_moments(np.ones(DIM), np.full(DIM, 0.5)).coordinates()
    rng = np.random.default_rng(3)
    prior = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 20, float), q)
    scale, clip = 5.0, 4.0
    model, mechanism = LogisticRegression(), FullBatchGaussian(clip_norm=clip, clips="loss")
    rows = a_batch(mechanism)
    total: Any = np.zeros(2 * DIM)
    for i in range(8):
        own = flat(model.gradient(q, rows.x[i : i + 1], rows.y[i : i + 1], jnp.ones(1), jnp.zeros(0)))
        loss: Any = -scale * own + flat(prior) / 8
        total += loss * min(1, clip / np.linalg.norm(loss))
    found, _ = mechanism.gradient(model, q, rows, prior)
    assert np.allclose(flat(found), total, rtol=1e-5, atol=1e-5 * clip)


def test_with_a_wide_clip_and_no_noise_the_private_update_is_the_plain_one() -> None:
    x, y = logistic_tables([50], DIM)["site 0"]
    x = on_row_grid((np.round(x * 32) / 32).astype(np.float32), BOUND)[0]
    site = Rows(
        x=jnp.asarray(x),
        y=jnp.asarray(y, float),
        lengths=jnp.asarray(row_lengths(x)),
        offset=jnp.int32(0),
        feature_bound=jnp.asarray(BOUND),
    )
    prior, model = Gaussian.standard(DIM), LogisticRegression()
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(50.0))
    factors = []
    for mechanism in (FullBatch(), FullBatchGaussian(1.0, 30.0), FullBatchGaussian(1.0, 30.0, clips="loss")):
        algorithm = PVI(GradientSteps(10, 0.1, mechanism))
        draws = draw(algorithm, model, public, 50, 50, seeded(0))
        draws = dataclasses.replace(draws, privacy_noise=jnp.zeros_like(draws.privacy_noise))
        _, release = checked_update(algorithm, model, public, prior, init_client(algorithm, prior), site, draws)
        factors.append(flat(release.factor))
    assert np.allclose(factors[0], factors[1], rtol=1e-4, atol=1e-4)
    assert np.allclose(factors[0], factors[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["plain", "compiled", "in a loop"])
def test_sums_are_double_in_compiled_code_too(way: str) -> None:
    """Ten thousand rows on which single precision goes wrong by a fifth of the clip norm and more."""
    count = 10_000
    y = np.resize(np.array([2.0] * 257 + [0.9 * 2**-16] * 255), count).astype(np.float32)
    q = Gaussian.standard(DIM).coordinates()
    zero, mechanism = jax.tree.map(jnp.zeros_like, q), FullBatchGaussian(1.0, 1.0)
    lattice = mechanism.lattice(2 * DIM, count, 1.0)
    batch = placed(np.ones((count, DIM)), y, lattice, scale=1.0)

    def seen(mask: Any) -> Any:
        return mechanism.gradient(LinearRegression(), q, dataclasses.replace(batch, mask=mask), zero)[1]

    def in_a_loop(mask: Any) -> Any:
        return jax.lax.scan(lambda total, _: (total, seen(mask)), 0.0, jnp.arange(2))[1][1]

    function: Any = {"plain": seen, "compiled": jax.jit(seen), "in a loop": jax.jit(in_a_loop)}[way]
    found = from_words(function(jnp.ones(count)))
    large, small = (from_words(function(jnp.asarray(np.arange(count) == row, float))) for row in (0, 300))
    assert y[0] == 2.0 > y[300] > 0
    many = np.sum(y == 2.0)
    assert np.all(np.abs(found - many * large - (count - many) * small) <= count * lattice.grid)
    weights = np.minimum(1, 1 / ((1 + ROUNDING) * np.sqrt(3 * y.astype(float) ** 2 + 3 * 0.25)))
    assert found[0] == pytest.approx(np.sum(weights * y), rel=2e-5)
    assert count * lattice.grid < 1e-3


# Randomness


def test_the_systems_words_are_fresh_and_uniform() -> None:
    words = np.concatenate([System().words(3000) for _ in range(50)])
    assert words.dtype == np.uint64
    assert len(np.unique(words)) == len(words)
    for shift in range(0, 64, 8):
        counts = np.bincount((words >> np.uint64(shift)).astype(np.uint8), minlength=256)
        assert chisquare(counts).pvalue > 1e-6
    assert len(System().words((1 << 20) + 3)) == (1 << 20) + 3
    assert len({int(System().generator.integers(2**63)) for _ in range(50)}) == 50


def test_seeded_words_follow_from_their_names() -> None:
    names = [(0, UPDATE, 0, 0), (1, UPDATE, 0, 0), (0, 2, 0, 0), (0, UPDATE, 1, 0), (0, UPDATE, 0, 1)]
    first, again = ([Seeded(*name).words(100).tolist() for name in names] for _ in range(2))
    assert first == again
    assert len({word for words in first for word in words}) == 500
    assert Seeded(*names[0]).restart(*names[3]).words(100).tolist() == first[3]


@pytest.mark.parametrize("source", [System(), seeded(5)], ids=["system", "seeded"])
@pytest.mark.parametrize("noise_multiplier", [0.01, 5.0, 1e4])
def test_noise_on_the_lattice_is_normal(source: Any, noise_multiplier: float) -> None:
    """Binned finely, in the middle and in the tails, and each sign as often as the other."""
    lattice = Lattice.of(1.5, noise_multiplier, 10, 100)
    drawn = (lattice.noise(source, 200, 1000).ravel() + 0.5) / lattice.size
    edges = np.concatenate([[-np.inf], np.linspace(-3.5, 3.5, 200), [np.inf]])
    counts, _ = np.histogram(drawn, edges)
    assert chisquare(counts, len(drawn) * np.diff(norm.cdf(edges))).pvalue > 1e-5
    assert binom.cdf(np.sum(drawn < 0), len(drawn), 0.5) == pytest.approx(0.5, abs=0.49999)


# Client level


@pytest.mark.parametrize("family", [Gaussian, FullGaussian])
@pytest.mark.parametrize("size", [0.01, 1.0, 1e10, np.inf, np.nan])
def test_a_client_moves_its_release_by_at_most_the_clip_norm(family: Any, size: float) -> None:
    unit = family.standard(DIM)
    change = jax.tree.map(lambda leaf: size * jnp.ones_like(leaf), unit)
    protection = ClientLevel(noise_multiplier=2.0, clip_norm=0.5)
    lattice = protection.lattice(unit.size)
    grid, silent = jnp.asarray(lattice.grid), jnp.asarray(as_pairs(np.zeros(unit.size, np.int64)))
    sent, seen = protection.protect(change, silent, grid)
    rounding = lattice.grid * np.sqrt(unit.size)
    for moved in (np.linalg.norm(flat(sent)), np.linalg.norm(from_words(seen))):
        assert moved <= 0.5 + rounding
        expected = min(0.5, size * np.linalg.norm(flat(jax.tree.map(jnp.ones_like, unit))))
        assert moved == pytest.approx(expected if np.isfinite(size) else 0, rel=1e-5)
    noise = lattice.noise(seeded(0), unit.size)
    assert lattice.grid * lattice.size == pytest.approx(2.0 * 0.5, rel=1e-5)
    noisy, words = protection.protect(jax.tree.map(jnp.zeros_like, unit), jnp.asarray(as_pairs(noise)), grid)
    assert np.array_equal(from_words(words), lattice.grid * noise)
    assert np.allclose(np.asarray(noisy.natural_mean), lattice.grid * noise[:DIM], rtol=1e-5)
    assert np.allclose(
        noisy.precision, np.swapaxes(noisy.precision, -1, -2) if noisy.precision.ndim == 2 else noisy.precision
    )


def test_a_vector_of_clip_norms_is_refused() -> None:
    """It would be taken per row in one place and per coordinate in another."""
    q = Gaussian.standard(DIM).coordinates()
    zero = jax.tree.map(jnp.zeros_like, q)
    settings: list[dict[str, Any]] = [{"clip_norm": jnp.ones(6)}, {"noise_multiplier": jnp.ones(6)}]
    for setting in settings:
        with pytest.raises(InputError, match=r"Expected one number for .*, got shape \(6,\)"):
            FullBatchGaussian(**setting).gradient(LogisticRegression(), q, a_batch(FullBatchGaussian(), 6), zero)
        with pytest.raises(InputError, match="Expected one number"):
            ClientLevel(**setting).protect(Gaussian.standard(DIM), jnp.zeros((6, 2), jnp.uint32), jnp.asarray(2.0**-20))
    with pytest.raises(InputError, match="Expected one number"):
        FullBatchGaussian(noise_multiplier=jnp.ones(6)).event(10, 1, 6)


def test_events_and_units_of_algorithms() -> None:
    example, client = PVI(GradientSteps(25, 0.5, PoissonGaussian())), PVI(client_level=ClientLevel(7.0))
    assert (example.protection.unit, client.protection.unit) == ("row", "client")
    prior, full = Gaussian.standard(DIM), FullGaussian.standard(DIM)
    assert client.event(prior, 100) == gaussian(7.0, numbers=2 * DIM)
    assert client.event(full, 100) == gaussian(7.0, numbers=DIM + DIM**2)
    assert PVI().event(prior, 100) == PVI(Exact()).event(prior, 100) == GlobalVI().event(prior, 100) == NOT_PRIVATE
    assert PVI(Exact(), client_level=ClientLevel(7.0)).event(prior, 100) == gaussian(7.0, numbers=2 * DIM)
    all_rows = PVI(GradientSteps(25, 0.5, FullBatchGaussian(7.0)))
    assert all_rows.event(prior, 100) == gaussian(7.0, 25, 2 * DIM)
    assert all_rows.event(full, 100) == gaussian(7.0, 25, DIM + DIM**2)
    with pytest.raises(InputError, match="Expected one unit of privacy, got two"):
        PVI(GradientSteps(25, 0.5, PoissonGaussian()), client_level=ClientLevel())
    with pytest.raises(InputError, match=r"write ClientLevel\(...\)"):
        PVI(client_level=ClientLevel)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "mechanism", [PoissonGaussian(), FullBatchGaussian(), FixedSizeGaussian(), Minibatch(), FullBatch()]
)
@pytest.mark.parametrize("rows", [1, 5, 20, 391])
@pytest.mark.parametrize("family", [Gaussian, FullGaussian])
def test_every_mechanism_draws_what_it_needs(mechanism: Any, rows: int, family: Any) -> None:
    algorithm, prior = PVI(GradientSteps(3, 0.5, mechanism)), family.standard(DIM)
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(float(rows)))
    draws = draw(algorithm, LinearRegression(), public, rows, rows, seeded(0))
    assert draws.rows.shape == draws.mask.shape
    assert draws.rows.shape[1] == mechanism.capacity(rows) <= most_rows(rows)
    assert draws.privacy_noise.shape == (3, prior.size if mechanism.private else 0, 2)
    assert draws.privacy_noise.dtype == draws.release_noise.dtype == np.uint32
    assert draws.release_noise.size == 0
    assert (float(draws.grid) > 0) == mechanism.private
    assert mechanism.batch_size(rows) <= mechanism.capacity(rows)
    coordinates = sum(leaf.size for leaf in jax.tree.leaves(prior.coordinates()))
    assert coordinates == prior.size
