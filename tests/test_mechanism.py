"""Mechanisms: sampling, noise and scale are what the event says."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fedvi.models.clipping import ROUNDING
from jax.flatten_util import ravel_pytree
from scipy.stats import binom, chisquare, kstest

from federations import logistic_tables
from fedvi import (
    PVI,
    ClientLevel,
    Exact,
    FullBatch,
    FullBatchGaussian,
    FullGaussian,
    Gaussian,
    GlobalVI,
    GradientSteps,
    InputError,
    LinearRegression,
    LogisticRegression,
    Minibatch,
    PoissonGaussian,
)
from fedvi.data import Site
from fedvi.local import Public, draw, init_client, update
from fedvi.privacy import Batch
from fedvi.privacy.events import NOT_PRIVATE, gaussian
from fedvi.privacy.published import FixedSizeGaussian
from fedvi.privacy.randomness import secure_generator
from fedvi.privacy.sampling import poisson_sample

DIM = 3


def a_batch(count: int = 8, mask: Any = None, noise: Any = None, scale: float = 5.0, size: int = 2 * DIM) -> Batch:
    rng = np.random.default_rng(0)
    return Batch(
        x=jnp.asarray(rng.normal(size=(count, DIM)), float),
        y=jnp.asarray(np.sign(rng.normal(size=count)), float),
        rows=jnp.arange(count, dtype=jnp.int32),
        mask=jnp.ones(count) if mask is None else jnp.asarray(mask, float),
        scale=jnp.asarray(scale),
        total=jnp.asarray(scale * count),
        model_noise=jnp.zeros(0),
        privacy_noise=jnp.zeros(size) if noise is None else jnp.asarray(noise, float),
    )


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0], float)


# Sampling


def test_poisson_sample_draws_every_row_of_every_step_independently() -> None:
    rows, rate, steps = 7, 0.3, 3
    rng = np.random.default_rng(0)
    counts = np.zeros((steps, rows))
    pairs = np.zeros((steps * rows, steps * rows))
    trials = 20_000
    for _ in range(trials):
        hit = np.zeros((steps, rows))
        sizes, row = poisson_sample(rng, rows, rate, steps)
        np.add.at(hit, (np.repeat(np.arange(steps), sizes), row), 1)
        counts += hit
        pairs += np.outer(hit.ravel(), hit.ravel())
    assert chisquare(np.ravel(counts), np.full(counts.size, counts.mean())).pvalue > 1e-4
    assert binom.cdf(counts.sum(), trials * counts.size, rate) == pytest.approx(0.5, abs=0.4999)
    together = pairs[~np.eye(len(pairs), dtype=bool)] / trials
    assert np.abs(together - rate**2).max() < 5 * np.sqrt(rate**2 / trials)


def test_batch_sizes_are_binomial_and_padding_is_masked() -> None:
    mechanism, rows, steps = PoissonGaussian(fraction=0.1, minimum=1), 200, 4000
    index, mask = mechanism.draw(np.random.default_rng(1), rows, steps, 60)
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
    index, mask = mechanism.draw(np.random.default_rng(2), rows, 4000, 40)
    sizes = mask.sum(axis=1)
    assert sizes.max() == room
    counts = np.bincount(index[mask], minlength=rows)
    assert chisquare(counts).pvalue > 1e-4  # no row is favoured by its place


@pytest.mark.parametrize("overflow", [0.9999999, 1.0])
def test_a_batch_always_has_room_for_one_row(overflow: float) -> None:
    mechanism = PoissonGaussian(fraction=0.0, minimum=1, overflow=overflow)
    assert mechanism.capacity(10) == 1
    index, _ = mechanism.draw(np.random.default_rng(0), 10, 5, 1)
    assert index.shape == (5, 1)


def test_sampling_rate_and_scale_are_public() -> None:
    algorithm = PVI(GradientSteps(5, 0.5, PoissonGaussian()))
    drawn = [
        draw(algorithm, LogisticRegression(), Gaussian.standard(DIM), 3907, np.random.default_rng(seed))
        for seed in (0, 1)
    ]
    assert {float(one.scale) for one in drawn} == {np.float32(3907 / 79)}
    assert (np.asarray(drawn[0].mask).sum(1) != np.asarray(drawn[1].mask).sum(1)).any()


# Noise


@pytest.mark.parametrize("clips", ["likelihood", "loss"])
def test_noise_is_the_multiplier_times_the_clip_norm(clips: str) -> None:
    mechanism = FullBatchGaussian(noise_multiplier=3.0, clip_norm=2.0, clips=clips)
    q = Gaussian.standard(DIM).coordinates()
    zero = jax.tree.map(jnp.zeros_like, q)
    noise = np.random.default_rng(0).normal(size=2 * DIM)
    quiet = mechanism.gradient(LogisticRegression(), q, a_batch(), zero)
    noisy = mechanism.gradient(LogisticRegression(), q, a_batch(noise=noise), zero)
    scale = 5.0 if clips == "likelihood" else 1.0
    assert np.allclose(flat(quiet) - flat(noisy), 3.0 * 2.0 * scale * noise, rtol=1e-4)


def test_an_empty_batch_still_gets_noise() -> None:
    mechanism, q = PoissonGaussian(), Gaussian.standard(DIM).coordinates()
    noise = np.arange(1.0, 2 * DIM + 1)
    empty = a_batch(mask=np.zeros(8), noise=noise)
    gradient = mechanism.gradient(LogisticRegression(), q, empty, jax.tree.map(jnp.zeros_like, q))
    assert np.allclose(flat(gradient), -5.0 * 5.0 * 1.5 * noise)


def test_kl_part_is_exact_and_free_unless_the_whole_loss_is_clipped() -> None:
    q = Gaussian.standard(DIM).coordinates()
    prior = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e6), q)
    nothing = a_batch(mask=np.zeros(8))
    exact = FullBatchGaussian().gradient(LogisticRegression(), q, nothing, prior)
    assert np.allclose(flat(exact), 1e6)
    clipped = FullBatchGaussian(clips="loss", clip_norm=75.0).gradient(LogisticRegression(), q, a_batch(), prior)
    assert np.linalg.norm(flat(clipped)) <= 8 * 75 * (1 + 1e-5)


def test_clipping_the_loss_is_the_formula_of_the_paper() -> None:
    """Per example -(N/L) grad E_i + (1/L) grad KL, clipped to C and summed."""
    q = Gaussian.from_moments(np.ones(DIM), np.full(DIM, 0.5)).coordinates()
    rng = np.random.default_rng(3)
    prior = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 20, float), q)
    rows, scale, clip = a_batch(), 5.0, 4.0
    model = LogisticRegression()
    total: Any = np.zeros(2 * DIM)
    for i in range(8):
        own = flat(model.gradient(q, rows.x[i : i + 1], rows.y[i : i + 1], jnp.ones(1), jnp.zeros(0)))
        loss: Any = -scale * own + flat(prior) / 8
        total += loss * min(1, clip / np.linalg.norm(loss))
    found = FullBatchGaussian(clip_norm=clip, clips="loss").gradient(model, q, rows, prior)
    assert np.allclose(flat(found), total, rtol=1e-5)


def test_with_a_wide_clip_and_no_noise_the_private_update_is_the_plain_one() -> None:
    x, y = logistic_tables([50], DIM)["site 0"]
    site = Site(jnp.asarray(x, float), jnp.asarray(y, float), jnp.int32(0), jnp.int32(50))
    prior, model = Gaussian.standard(DIM), LogisticRegression()
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(50.0))
    factors = []
    for mechanism in (FullBatch(), FullBatchGaussian(1.0, 1e6), FullBatchGaussian(1.0, 1e6, clips="loss")):
        algorithm = PVI(GradientSteps(10, 0.1, mechanism))
        draws = draw(algorithm, model, prior, 50, np.random.default_rng(0))
        draws = dataclasses.replace(draws, privacy_noise=jnp.zeros_like(draws.privacy_noise))
        _, release = update(algorithm, model, public, prior, init_client(algorithm, prior), site, draws)
        factors.append(flat(release.factor))
    assert np.allclose(factors[0], factors[1], rtol=1e-4, atol=1e-4)
    assert np.allclose(factors[0], factors[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["plain", "compiled", "in a loop"])
def test_sums_are_double_in_compiled_code_too(way: str) -> None:
    """Ten thousand rows on which single precision goes wrong by a fifth of the clip norm and more."""
    count = 10_000
    y = np.resize(np.array([2.0] * 257 + [0.9 * 2**-16] * 255), count)
    q = Gaussian.standard(DIM).coordinates()
    zero, mechanism = jax.tree.map(jnp.zeros_like, q), FullBatchGaussian(1.0, 1.0)
    batch = dataclasses.replace(
        a_batch(count, scale=1.0), x=jnp.ones((count, DIM)), y=jnp.asarray(y, float), privacy_noise=jnp.zeros(2 * DIM)
    )

    def gradient(mask: Any) -> Any:
        rows = dataclasses.replace(batch, mask=mask)
        return ravel_pytree(mechanism.gradient(LinearRegression(), q, rows, zero))[0]

    def in_a_loop(mask: Any) -> Any:
        return jax.lax.scan(lambda total, _: (total, gradient(mask)), 0.0, jnp.arange(2))[1][1]

    function: Any = {"plain": gradient, "compiled": jax.jit(gradient), "in a loop": jax.jit(in_a_loop)}[way]
    limit = 1 / (1 + ROUNDING)
    weights = np.minimum(1, limit / np.sqrt(3 * y.astype(np.float32).astype(float) ** 2 + 3 * 0.25))
    truth = -np.sum(weights * y)
    assert float(function(jnp.ones(count))[0]) == pytest.approx(truth, rel=1e-7)


# Randomness


def test_secure_generator_is_chacha20_as_published() -> None:
    """The key stream for key 0 (RFC 8439, appendix A.1), and fresh keys for every generator."""
    from randomgen import ChaCha

    published = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a37"
    stream = ChaCha(key=0, counter=0, rounds=20).random_raw(6).astype("<u8").tobytes().hex()
    assert stream == published
    bits = secure_generator().bit_generator.state["state"]
    assert bits["rounds"] == 20
    keys = {tuple(secure_generator().bit_generator.state["state"]["keysetup"]) for _ in range(50)}
    assert len(keys) == 50


def test_secure_normals_are_normal() -> None:
    assert kstest(secure_generator().standard_normal(100_000), "norm").pvalue > 1e-5


# Client level


@pytest.mark.parametrize("family", [Gaussian, FullGaussian])
@pytest.mark.parametrize("size", [0.01, 1.0, 1e10, np.inf, np.nan])
def test_a_client_moves_its_release_by_at_most_the_clip_norm(family: Any, size: float) -> None:
    unit = family.standard(DIM)
    change = jax.tree.map(lambda leaf: size * jnp.ones_like(leaf), unit)
    protection = ClientLevel(noise_multiplier=2.0, clip_norm=0.5)
    silent = jnp.zeros(unit.size)
    moved = np.linalg.norm(flat(protection.protect(change, silent)))
    assert moved <= 0.5
    assert moved == pytest.approx(
        min(0.5, size * np.sqrt(unit.size)) if np.isfinite(size) and size < 1e9 else 0, abs=0.5
    )
    noise = np.random.default_rng(0).normal(size=unit.size)
    noisy = protection.protect(jax.tree.map(jnp.zeros_like, unit), jnp.asarray(noise, float))
    assert np.allclose(np.asarray(noisy.natural_mean), 1.0 * noise[:DIM], rtol=1e-5)
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
            FullBatchGaussian(**setting).gradient(LogisticRegression(), q, a_batch(6), zero)
        with pytest.raises(InputError, match="Expected one number"):
            ClientLevel(**setting).protect(Gaussian.standard(DIM), jnp.zeros(6))
    with pytest.raises(InputError, match="Expected one number"):
        FullBatchGaussian(noise_multiplier=jnp.ones(6)).event(10, 1)


def test_events_and_units_of_algorithms() -> None:
    example, client = PVI(GradientSteps(25, 0.5, PoissonGaussian())), PVI(client_level=ClientLevel(7.0))
    assert (example.unit, client.unit) == ("example", "client")
    assert client.event(100) == gaussian(7.0)
    assert PVI().event(100) == PVI(Exact()).event(100) == GlobalVI().event(100) == NOT_PRIVATE
    assert PVI(Exact(), client_level=ClientLevel(7.0)).event(100) == gaussian(7.0)
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
    draws = draw(algorithm, LinearRegression(), prior, rows, np.random.default_rng(0))
    assert draws.rows.shape == draws.mask.shape
    assert draws.rows.shape[1] == mechanism.capacity(rows) <= rows
    assert draws.privacy_noise.shape == (3, mechanism.noise_size(prior.size))
    assert mechanism.batch_size(rows) <= mechanism.capacity(rows)
    coordinates = sum(leaf.size for leaf in jax.tree.leaves(prior.coordinates()))
    assert coordinates == prior.size
