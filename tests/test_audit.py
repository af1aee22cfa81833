"""The audit rejects every wrong mechanism here, and no correct one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fedvi.federation.randomness import UPDATE, stream
from fedvi.models.clipping import double_precision, widen
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm

from fedvi import (
    PVI,
    AveragedQuadratics,
    ClientLevel,
    CustomModel,
    FullBatch,
    FullBatchGaussian,
    FullGaussian,
    Gaussian,
    GlobalVI,
    GradientSteps,
    InputError,
    LinearRegression,
    LogisticRegression,
    NoiseAwarePVI,
    PoissonGaussian,
)
from fedvi.audit import Subject, audit_parts, audit_update
from fedvi.audit import subject as subject_module
from fedvi.audit.parts import _noise
from fedvi.audit.picture import draw_audit
from fedvi.audit.whole import _mu, _upper_bound
from fedvi.local import draw
from fedvi.models import Quadratic, QuadraticPart
from fedvi.privacy.events import noise_given, poisson_gaussian
from fedvi.privacy.published import FixedSizeGaussian
from fedvi.pytree import pytree

STEPS, NOISE, CLIP = 25, 5.0, 1.5


def generators(seed: int = 0) -> Callable[[], np.random.Generator]:
    count = iter(range(10**9))
    return lambda: stream(seed, UPDATE, 0, next(count))


def audited(mechanism: Any, seed: int = 0, **settings: Any) -> Subject:
    return Subject(PVI(GradientSteps(STEPS, 0.5, mechanism)), generators(seed), **settings)


def noise_aware(mechanism: Any, seed: int = 0, **settings: Any) -> Subject:
    return Subject(NoiseAwarePVI(AveragedQuadratics(mechanism=mechanism)), generators(seed), **settings)


def client_level(protection: ClientLevel, seed: int = 0, **settings: Any) -> Subject:
    algorithm = PVI(GradientSteps(5, 0.5, FullBatch()), damping=1.0, client_level=protection)
    return Subject(algorithm, generators(seed), **settings)


def rejections(subject: Subject) -> list[str]:
    return [finding.name for finding in audit_parts(subject, 200) if not finding.passed]


# Correct mechanisms

CUSTOM = CustomModel(lambda w, x, y: -0.5 * (y - jnp.tanh(x @ w)) ** 2, samples=2)
CORRECT: dict[str, Callable[[int], Subject]] = {
    "poisson": lambda seed: audited(PoissonGaussian(NOISE, CLIP, minimum=8), seed),
    "poisson, loss": lambda seed: audited(PoissonGaussian(NOISE, CLIP, minimum=8, clips="loss"), seed),
    "full batch": lambda seed: audited(FullBatchGaussian(NOISE, CLIP), seed),
    "full covariance": lambda seed: audited(
        FullBatchGaussian(NOISE, CLIP), seed, model=LinearRegression(), family=FullGaussian
    ),
    "own model": lambda seed: audited(FullBatchGaussian(NOISE, CLIP, clips="loss"), seed, model=CUSTOM),
    "noise-aware": lambda seed: noise_aware(FullBatchGaussian(1.0, CLIP), seed),
    "noise-aware, linear": lambda seed: noise_aware(FullBatchGaussian(NOISE, CLIP), seed, model=LinearRegression()),
    "client level": lambda seed: client_level(ClientLevel(1.0, 0.5), seed),
    "client level, full": lambda seed: client_level(ClientLevel(1.0, 0.5), seed, family=FullGaussian),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_mechanisms_are_not_rejected(name: str) -> None:
    assert rejections(CORRECT[name](1)) == []


@pytest.mark.parametrize("name", ["full batch", "poisson", "noise-aware", "client level"])
def test_an_adversary_does_not_contradict_correct_claims(name: str, tmp_path: Path) -> None:
    verdict = audit_update(CORRECT[name](2), runs=1000)
    assert verdict.passed
    assert verdict.epsilon_found < verdict.epsilon_claimed
    if name != "poisson":
        assert 0.5 < verdict.mu_found <= verdict.mu_claimed == 1.0  # the bound is not empty either
    draw_audit(verdict, tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 20_000


def test_the_adversary_is_wrong_about_a_correct_claim_as_rarely_as_it_says() -> None:
    """The bound on mu, on data that are exactly Gaussian with mu = 1, over a thousand audits."""
    from scipy.stats import norm as normal

    rng, runs, wrong = np.random.default_rng(0), 1000, 0
    for _ in range(1000):
        alarms, misses = rng.binomial(runs, normal.sf(0.5), 2)
        wrong += _mu(_upper_bound(int(alarms), runs), _upper_bound(int(misses), runs)) > 1
    assert wrong <= 6  # at most one expected


# Mutants: each does something else than its event says


class Mutant(FullBatchGaussian):
    """A full-batch mechanism in which something is wrong with the noise or the clip."""


@pytree
class NoiseHalved(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        quieter = dataclasses.replace(batch, privacy_noise=batch.privacy_noise / 2)
        return super().noisy_sum(model, q, quieter, clip_norm, offset)


@pytree
class ClipDoubled(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        same_noise = dataclasses.replace(batch, privacy_noise=batch.privacy_noise / 2)
        return super().noisy_sum(model, q, same_noise, 2 * clip_norm, offset)


@pytree
class NoClip(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        same_noise = dataclasses.replace(batch, privacy_noise=batch.privacy_noise / 1e12)
        return super().noisy_sum(model, q, same_noise, 1e12 * clip_norm, offset)


@pytree
class EachCoordinateClipped(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:  # noqa: ARG002
        def of_row(x: Any, y: Any) -> Any:
            return ravel_pytree(model.gradient(q, x[None], y[None], jnp.ones(1), batch.model_noise))[0]

        rows = jnp.nan_to_num(jax.vmap(of_row)(batch.x[batch.rows], batch.y[batch.rows]), posinf=0.0, neginf=0.0)
        _, unravel = ravel_pytree(q)
        noise = self.noise_multiplier * clip_norm * batch.privacy_noise
        return unravel(batch.mask @ jnp.clip(rows, -clip_norm, clip_norm) + noise)


@pytree
class KlOutsideTheClip(Mutant):
    clips: str = dataclasses.field(default="loss", metadata={"static": True})

    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        clipped = super().noisy_sum(model, q, batch, clip_norm, None)
        return jax.tree.map(lambda leaf, shift: leaf - 10 * jnp.sum(batch.mask) * shift, clipped, offset)


@pytree
class OneCoordinateWithoutNoise(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        partly = dataclasses.replace(batch, privacy_noise=batch.privacy_noise.at[-1].set(0))
        return super().noisy_sum(model, q, partly, clip_norm, offset)


@pytree
class SameNoiseForMeanAndVariance(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        half = batch.privacy_noise[: batch.privacy_noise.size // 2]
        twice = dataclasses.replace(batch, privacy_noise=jnp.concatenate([half, half]))
        return super().noisy_sum(model, q, twice, clip_norm, offset)


@pytree
class UniformNoise(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        uniform = jnp.sqrt(12.0) * (norm.cdf(batch.privacy_noise) - 0.5)
        return super().noisy_sum(model, q, dataclasses.replace(batch, privacy_noise=uniform), clip_norm, offset)


@pytree
class DividedByTheRealisedBatch(PoissonGaussian):
    def gradient(self, model: Any, q: Any, batch: Any, prior_gradient: Any) -> Any:
        realised = batch.total / jnp.maximum(jnp.sum(batch.mask), 1)
        return super().gradient(model, q, dataclasses.replace(batch, scale=realised), prior_gradient)


@pytree
class ShuffledEpochs(PoissonGaussian):
    def draw(self, rng: np.random.Generator, rows: int, steps: int, capacity: int) -> Any:
        size = self.batch_size(rows)
        index = np.zeros((steps, capacity), np.int32)
        order = np.concatenate([rng.permutation(rows) for _ in range(steps)])
        index[:, :size] = order[: steps * size].reshape(steps, size)
        return index, np.broadcast_to(np.arange(capacity) < size, index.shape)


@pytree
class MaskIgnored(PoissonGaussian):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        everything = dataclasses.replace(batch, mask=jnp.ones_like(batch.mask))
        return super().noisy_sum(model, q, everything, clip_norm, offset)


@pytree
class QuietAboutOutliers(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        size = jnp.where(jnp.max(jnp.abs(jnp.nan_to_num(batch.x[batch.rows]))) > 50, 0.5, 1.0)
        quieter = dataclasses.replace(batch, privacy_noise=size * batch.privacy_noise)
        return super().noisy_sum(model, q, quieter, clip_norm, offset)


@pytree
class NoNoiseForEmptyBatches(PoissonGaussian):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        some = (jnp.sum(batch.mask) > 0).astype(batch.mask.dtype)
        partly = dataclasses.replace(batch, privacy_noise=some * batch.privacy_noise)
        return super().noisy_sum(model, q, partly, clip_norm, offset)


@pytree
class NoiseCutAtThree(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        cut = dataclasses.replace(batch, privacy_noise=jnp.clip(batch.privacy_noise, -3, 3))
        return super().noisy_sum(model, q, cut, clip_norm, offset)


@pytree
class NoiseOnAGrid(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        coarse = dataclasses.replace(batch, privacy_noise=jnp.round(batch.privacy_noise * 64) / 64)
        return super().noisy_sum(model, q, coarse, clip_norm, offset)


@pytree
class ClaimsMoreNoise(Mutant):
    def event(self, rows: int, steps: int) -> Any:
        return FullBatchGaussian(2 * noise_given(self.noise_multiplier)).event(rows, steps)


@pytree
class ClaimsFewerSteps(Mutant):
    def event(self, rows: int, steps: int) -> Any:  # noqa: ARG002
        return super().event(rows, 1)


@pytree
class ClaimsRarerSampling(PoissonGaussian):
    def event(self, rows: int, steps: int) -> Any:
        return poisson_gaussian(self.noise_multiplier, self.sampling_rate(rows) / 2, steps)


@pytree
class LessNoiseInGlobalVI(Mutant):
    def gradient(self, model: Any, q: Any, batch: Any, prior_gradient: Any) -> Any:
        larger = batch.total / batch.mask.size  # how often this client's rows stand for others'
        quieter = dataclasses.replace(batch, privacy_noise=batch.privacy_noise / larger)
        return super().gradient(model, q, quieter, prior_gradient)


MUTANTS: dict[str, tuple[Any, str]] = {
    "mask ignored": (MaskIgnored(NOISE, CLIP, minimum=8), "padding"),
    "less noise for outliers": (QuietAboutOutliers(NOISE, CLIP), "noise, huge rows"),
    "no noise for empty batches": (NoNoiseForEmptyBatches(NOISE, CLIP, minimum=8), "noise, empty batches"),
    "noise cut at three": (NoiseCutAtThree(NOISE, CLIP), "tails of the noise"),
    "noise on a grid": (NoiseOnAGrid(NOISE, CLIP), "values of the noise"),
    "event claims more noise": (ClaimsMoreNoise(NOISE, CLIP), "noise, ordinary"),
    "event claims fewer steps": (ClaimsFewerSteps(NOISE, CLIP), "private steps"),
    "event claims rarer sampling": (ClaimsRarerSampling(NOISE, CLIP, minimum=8), "canary in a batch"),
    "noise halved": (NoiseHalved(NOISE, CLIP), "noise, "),
    "clip doubled": (ClipDoubled(NOISE, CLIP), "sensitivity"),
    "no clip": (NoClip(NOISE, CLIP), "sensitivity"),
    "each coordinate clipped": (EachCoordinateClipped(NOISE, CLIP), "sensitivity"),
    "KL outside the clip": (KlOutsideTheClip(NOISE, CLIP), "sensitivity"),
    "one coordinate without noise": (OneCoordinateWithoutNoise(NOISE, CLIP), "noise, "),
    "same noise for mean and variance": (SameNoiseForMeanAndVariance(NOISE, CLIP), "noise of different steps"),
    "uniform noise": (UniformNoise(NOISE, CLIP), "shape of the noise"),
    "divided by the realised batch": (DividedByTheRealisedBatch(NOISE, CLIP, minimum=8), "sensitivity"),
    "fixed size accounted as Poisson": (FixedSizeGaussian(NOISE, CLIP, minimum=8), "size of a batch"),
    "shuffled epochs accounted as Poisson": (ShuffledEpochs(NOISE, CLIP, minimum=8), "counts of all rows"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_rejected(name: str) -> None:
    mechanism, reason = MUTANTS[name]
    found = rejections(audited(mechanism))
    assert any(finding.startswith(reason) for finding in found), found


@pytest.mark.parametrize("name", ["noise halved", "clip doubled", "no clip"])
def test_an_adversary_against_whole_updates_rejects_mutants(name: str) -> None:
    verdict = audit_update(audited(MUTANTS[name][0]), runs=1000)
    assert not verdict.passed
    assert verdict.mu_found > 1.5 * verdict.mu_claimed


@pytest.mark.parametrize("name", ["noise halved", "clip doubled", "no clip"])
def test_mutants_of_noise_aware_updates_are_rejected(name: str) -> None:
    mechanism, reason = MUTANTS[name]
    found = rejections(noise_aware(mechanism))
    assert any(finding.startswith(reason) for finding in found), found


def test_a_curvature_that_is_not_clipped_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(self: QuadraticPart, q: Any, x: Any, y: Any, mask: Any, *others: Any) -> Quadratic:
        clipped = honest(self, q, x, y, mask, *others)
        with double_precision():
            return dataclasses.replace(clipped, curvature=clipped.curvature + widen(mask) @ widen(x * x))

    honest = QuadraticPart.clipped_gradient
    monkeypatch.setattr(QuadraticPart, "clipped_gradient", unclipped)
    assert any(finding.startswith("sensitivity") for finding in rejections(noise_aware(FullBatchGaussian(NOISE, CLIP))))


def test_noise_divided_by_the_scale_of_global_vi_is_rejected() -> None:
    for mechanism, wrong in ((FullBatchGaussian(NOISE, CLIP), False), (LessNoiseInGlobalVI(NOISE, CLIP), True)):
        subject = Subject(GlobalVI(GradientSteps(STEPS, 0.05, mechanism)), generators())
        assert bool(rejections(subject)) == wrong


def test_a_key_used_for_two_updates_is_rejected() -> None:
    subject = dataclasses.replace(audited(FullBatchGaussian(NOISE, CLIP)), generator=lambda: stream(0, UPDATE, 0, 0))
    found = rejections(subject)
    assert "draws of the noise" in found
    assert "noise of different updates" in found


@pytest.mark.parametrize("period", [1, 2, 5])
def test_a_key_used_for_several_steps_is_rejected(period: int, monkeypatch: pytest.MonkeyPatch) -> None:

    def repeating(*arguments: Any) -> Any:
        draws: Any = draw(*arguments)
        return dataclasses.replace(draws, privacy_noise=draws.privacy_noise[np.arange(STEPS) % period])

    monkeypatch.setattr(subject_module, "draw", repeating)
    subject = audited(FullBatchGaussian(NOISE, CLIP))
    found = [finding.name for finding in _noise(subject, subject.draws(200)) if not finding.passed]
    assert {"draws of the noise", "noise of different steps and coordinates"} <= set(found)


@pytree
class QuieterRelease(ClientLevel):
    def protect(self, change: Any, noise: Any) -> Any:
        return super().protect(change, noise / 2)


@pytree
class LongerRelease(ClientLevel):
    def protect(self, change: Any, noise: Any) -> Any:
        longer = ClientLevel(noise_given(self.noise_multiplier) / 2, 2 * self.clip_norm)
        return longer.protect(change, noise)


@pytest.mark.parametrize("mutant", [QuieterRelease(1.0, 0.5), LongerRelease(1.0, 0.5)], ids=["noise", "clip"])
def test_mutants_of_client_level_privacy_are_rejected(mutant: ClientLevel) -> None:
    assert rejections(client_level(mutant))
    assert not audit_update(client_level(mutant), runs=1000).passed


# Requests


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(InputError, match="Expected a Gaussian mechanism to audit, got FullBatch"):
        audit_parts(audited(FullBatch()))
    with pytest.raises(InputError, match="Expected more updates or larger batches"):
        audit_parts(audited(PoissonGaussian(minimum=1)), 20)
    assert isinstance(audited(FullBatchGaussian()).q, Gaussian)
    assert isinstance(audited(FullBatchGaussian()).model, LogisticRegression)
