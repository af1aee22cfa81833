"""The audit rejects every wrong mechanism here, and no correct one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedvi import PVI, Budget, CustomModel, FullGaussian, Gaussian, LinearRegression, LogisticRegression, NoiseAwarePVI
from fedvi.audit import Finding, Subject, audit_parts, audit_sum, audit_update
from fedvi.audit import parts as parts_module
from fedvi.audit.draws import audit_noise, audit_sampling
from fedvi.audit.membership import RUNS, _mu, _upper_bound, draw_audit
from fedvi.audit.subject import noise_of
from fedvi.errors import InputError
from fedvi.inference import GlobalVI, GradientSteps, PrivateClient, Public
from fedvi.inference.questions import Answers, AnswerSums
from fedvi.inference.update import draw
from fedvi.models.base import Part, StoredVectors
from fedvi.numerics import double_precision, narrow, widen
from fedvi.privacy import ClientLevel, FullBatch, FullBatchGaussian, PoissonGaussian
from fedvi.privacy.events import noise_given, poisson_gaussian
from fedvi.privacy.lattice import Lattice, as_words, released
from fedvi.privacy.ledger.ledger import read
from fedvi.privacy.published import FixedSizeGaussian
from fedvi.privacy.sampling import UPDATE, Seeded, Source, System, padded, poisson_sample
from fedvi.privacy.sums import BoundedSum
from fedvi.pytree import pytree

STEPS, NOISE, CLIP = 3, 5.0, 1.5


def sources(seed: int = 0) -> Callable[[], Source]:
    count = itertools.count()
    return lambda: Seeded(seed, UPDATE, 0, next(count))


def audited(mechanism: Any, seed: int = 0, steps: int = STEPS, **settings: Any) -> Subject:
    return Subject(PVI(GradientSteps(steps, 0.5, mechanism)), sources(seed), **settings)


def noise_aware(solver: Any, seed: int = 0, covariance: str = "full", **settings: Any) -> Subject:
    algorithm = NoiseAwarePVI(solver, covariance=covariance, questions=14, moments=3)
    return Subject(algorithm, sources(seed), **settings)


def client_level(protection: ClientLevel, seed: int = 0, **settings: Any) -> Subject:
    algorithm = PVI(GradientSteps(5, 0.5, FullBatch()), damping=1.0, client_level=protection)
    return Subject(algorithm, sources(seed), **settings)


def names(findings: list[Finding]) -> list[str]:
    return [finding.name for finding in findings if not finding.passed]


# Correct mechanisms

CUSTOM = CustomModel(lambda w, x, y: -0.5 * (y - jnp.tanh(x @ w)) ** 2, samples=2)
DRAWS = dataclasses.replace(CUSTOM, draw=lambda w, x, key: jnp.tanh(x @ w) + jax.random.normal(key))
CORRECT: dict[str, Callable[[int], Subject]] = {
    "poisson": lambda seed: audited(PoissonGaussian(NOISE, CLIP, minimum=8), seed),
    "poisson, loss": lambda seed: audited(PoissonGaussian(NOISE, CLIP, minimum=8, clips="loss"), seed),
    "full batch": lambda seed: audited(FullBatchGaussian(NOISE, CLIP), seed),
    "full covariance": lambda seed: audited(
        FullBatchGaussian(NOISE, CLIP), seed, model=LinearRegression(), family=FullGaussian
    ),
    "own model": lambda seed: audited(FullBatchGaussian(NOISE, CLIP, clips="loss"), seed, model=CUSTOM),
    "own model, draws": lambda seed: audited(FullBatchGaussian(NOISE, CLIP), seed, model=DRAWS),
    "noise-aware": lambda seed: noise_aware(Answers(FullBatchGaussian(1.0, 1.0)), seed),
    "noise-aware, diagonal": lambda seed: noise_aware(Answers(FullBatchGaussian(NOISE, 1.0)), seed, "diagonal"),
    "noise-aware, linear": lambda seed: noise_aware(
        Answers(FullBatchGaussian(NOISE, 1.0)), seed, model=LinearRegression()
    ),
    "global VI": lambda seed: Subject(
        GlobalVI(GradientSteps(STEPS, 0.05, FullBatchGaussian(NOISE, CLIP))), sources(seed)
    ),
    "client level": lambda seed: client_level(ClientLevel(1.0, 0.5), seed),
    "client level, full": lambda seed: client_level(ClientLevel(1.0, 0.5), seed, family=FullGaussian),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_mechanisms_are_not_rejected(name: str) -> None:
    assert names(audit_parts(CORRECT[name](1), 1000)) == []


def test_the_generator_of_real_updates_is_the_systems() -> None:
    subject = dataclasses.replace(audited(FullBatchGaussian(NOISE, CLIP)), source=System)
    assert parts_module._source(subject.source()).found == "the operating system"
    noise = np.stack([noise_of(subject.draw()) for _ in range(300)])
    assert names(audit_noise(noise.reshape(300, -1), subject.lattice.size)) == []


@pytest.mark.parametrize("name", ["full batch", "poisson", "noise-aware", "client level"])
def test_an_adversary_does_not_contradict_correct_claims(name: str, tmp_path: Path) -> None:
    subject = CORRECT[name](2)
    if name == "full batch":
        subject = audited(FullBatchGaussian(NOISE, CLIP), 2, 25)
    verdict = audit_update(subject, runs=1000)
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


def test_the_default_number_of_runs_bounds_mu_above_nine_tenths() -> None:
    from scipy.stats import norm as normal

    rng, runs = np.random.default_rng(0), RUNS
    pairs = rng.binomial(runs, normal.sf(0.5), (2000, 2))
    bounds = [_mu(_upper_bound(int(a), runs), _upper_bound(int(b), runs)) for a, b in pairs]
    assert min(bounds) > 0.9


# Mutants of the noise: each does something else than its event says


def with_whole(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return the batch with whole-number noise changed by a function of doubles."""
    with double_precision():
        whole = widen(jax.lax.bitcast_convert_type(batch.privacy_noise, jnp.int64))
        changed = jnp.rint(change(whole)).astype(jnp.int64)
        return dataclasses.replace(batch, privacy_noise=jax.lax.bitcast_convert_type(changed, jnp.uint32))


class Mutant(FullBatchGaussian):
    """A full-batch mechanism in which something is wrong with the noise or the clip."""

    def lattice_here(self, batch: Any) -> Lattice:
        return self.lattice(len(batch.privacy_noise), 40, 1.0)


@pytree
class NoiseHalved(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        return super().noisy_sum(model, q, with_whole(batch, lambda noise: noise / 2), clip_norm, offset)


@pytree
class TwoPercentShort(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        return super().noisy_sum(model, q, with_whole(batch, lambda noise: 0.98 * noise), clip_norm, offset)


@pytree
class OneCoordinateWithoutNoise(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        partly = dataclasses.replace(batch, privacy_noise=batch.privacy_noise.at[-1].set(0))
        return super().noisy_sum(model, q, partly, clip_norm, offset)


@pytree
class SameNoiseForMeanAndVariance(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        half = batch.privacy_noise[: len(batch.privacy_noise) // 2]
        twice = dataclasses.replace(batch, privacy_noise=jnp.concatenate([half, half]))
        return super().noisy_sum(model, q, twice, clip_norm, offset)


@pytree
class CutAtFour(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        most = 4 * self.lattice_here(batch).size
        return super().noisy_sum(model, q, with_whole(batch, lambda n: jnp.clip(n, -most, most)), clip_norm, offset)


@pytree
class Uniform(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        size = self.lattice_here(batch).size

        def uniform(noise: Any) -> Any:
            return jnp.sqrt(12.0) * size * (jax.scipy.stats.norm.cdf(noise / size) - 0.5)

        return super().noisy_sum(model, q, with_whole(batch, uniform), clip_norm, offset)


def coarse(bits: int) -> type:
    @pytree
    class Coarse(Mutant):
        def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
            unit = 2.0 ** np.floor(np.log2(self.lattice_here(batch).size)) * 2.0**-bits
            return super().noisy_sum(
                model, q, with_whole(batch, lambda n: jnp.rint(n / unit) * unit), clip_norm, offset
            )

    return Coarse


@pytree
class WrapsAt32Bits(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        wrapped = with_whole(batch, lambda noise: (noise + 2.0**31) % 2.0**32 - 2.0**31)
        return super().noisy_sum(model, q, wrapped, clip_norm, offset)


@pytree
class NoNoiseForEmptyBatches(PoissonGaussian):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        some = (jnp.sum(batch.mask) > 1).astype(jnp.uint32)  # nor for those of one row, which become empty
        partly = dataclasses.replace(batch, privacy_noise=some * batch.privacy_noise)
        return super().noisy_sum(model, q, partly, clip_norm, offset)


@pytree
class QuietAboutOutliers(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        size = jnp.where(jnp.max(jnp.abs(batch.x[batch.rows])) > 50, 0.5, 1.0)
        return super().noisy_sum(model, q, with_whole(batch, lambda noise: widen(size) * noise), clip_norm, offset)


@pytree
class SwitchedOffByAValue(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        hit = jnp.any(jnp.all(batch.x[batch.rows] == -1.0, axis=1))
        partly = dataclasses.replace(batch, privacy_noise=jnp.where(hit, 0, batch.privacy_noise))
        return super().noisy_sum(model, q, partly, clip_norm, offset)


# Mutants of the way in which noise is added


class Different(Mutant):
    """A mechanism that has the sum in double precision, and adds noise in a way of its own."""

    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        quiet = dataclasses.replace(batch, grid=batch.grid * 2.0**-20)
        quiet = dataclasses.replace(quiet, privacy_noise=jnp.zeros_like(batch.privacy_noise))
        _, seen = FullBatchGaussian.noisy_sum(self, model, q, quiet, clip_norm, offset)
        _, unravel = ravel_pytree(q)
        with double_precision():
            total = jax.lax.bitcast_convert_type(seen, jnp.float64)
            whole = widen(jax.lax.bitcast_convert_type(batch.privacy_noise, jnp.int64))
            values = self.add(total, whole, widen(batch.grid), batch)
            return narrow(jax.tree.map(widen, unravel(values.astype(jnp.float32))), q), as_words(values)

    def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
        raise AssertionError


@pytree
class SumNotRounded(Different):
    def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
        return total + grid * whole


@pytree
class NormalsInSinglePrecision(Different):
    def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
        size = self.lattice_here(batch).size
        return total + size * grid * widen((whole / size).astype(jnp.float32))


@pytree
class NormalsInDoublePrecision(Different):
    def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
        size = self.lattice_here(batch).size
        return total + size * grid * (whole / size * (1 + 2.0**-40))


@pytree
class AddedAfterTheCast(Different):
    def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
        return widen(total.astype(jnp.float32) + (grid * whole).astype(jnp.float32))


@pytree
class GridFollowsTheSum(Different):
    def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
        own = grid * jnp.where(jnp.abs(total) > 1, 2.0, 0.5)
        return (jnp.rint(total / own) + whole * (grid / own)) * own


@pytree
class GridFollowsTheBatch(Different):
    def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
        own = grid * jnp.where(jnp.sum(batch.mask) % 2 == 0, 1.0, 0.5)
        return (jnp.rint(total / own) + whole * (grid / own)) * own


# Mutants of the clip


@pytree
class ClipDoubled(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        return super().noisy_sum(model, q, batch, 2 * clip_norm, offset)


@pytree
class NoClip(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        return super().noisy_sum(model, q, batch, 1e6 * clip_norm, offset)


@pytree
class LargerWhereQIsFarAway(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        factor = jnp.where(jnp.max(jnp.abs(q.mean)) > 100, 10.0, 1.0)
        return super().noisy_sum(model, q, batch, clip_norm * factor, offset)


@pytree
class ClipFollowsTheRows(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        size = jnp.max(jnp.where(batch.mask > 0, batch.lengths[batch.rows], 0))
        return super().noisy_sum(model, q, batch, clip_norm * jnp.minimum(1, 0.2 + size / 100), offset)


@pytree
class LimitFromTheTrueCount(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        return super().noisy_sum(model, q, batch, clip_norm / (1 + 1e-4 * jnp.sum(batch.mask)), offset)


@pytree
class EachCoordinateClipped(Mutant):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        def of_row(x: Any, y: Any) -> Any:
            return ravel_pytree(model.gradient(q, x[None], y[None], jnp.ones(1), batch.model_noise))[0]

        rows = jnp.nan_to_num(jax.vmap(of_row)(batch.x[batch.rows], batch.y[batch.rows]), posinf=0.0, neginf=0.0)
        _, unravel = ravel_pytree(q)
        summed = batch.mask @ jnp.clip(rows, -clip_norm, clip_norm)
        with double_precision():
            noisy = released(widen(summed), batch.privacy_noise, batch.grid)
            return narrow(unravel(noisy), q), as_words(noisy)


@pytree
class KlOutsideTheClip(Mutant):
    clips: str = dataclasses.field(default="loss", metadata={"static": True})

    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        clipped, seen = super().noisy_sum(model, q, batch, clip_norm, None)
        return jax.tree.map(lambda leaf, shift: leaf - 10 * jnp.sum(batch.mask) * shift, clipped, offset), seen


# Mutants of models that draw outcomes


@pytree
class DrawsByPlace(CustomModel):
    def drawn_outcomes(self, q: Any, x: Any, y: Any, z: Any) -> Any:
        return super().drawn_outcomes(q, x + jnp.arange(len(x), dtype=x.dtype)[:, None], y, z)


@pytree
class NormsBeforeCentring(StoredVectors):
    def squared_norms(self) -> Any:
        return self.longest


@pytree
class CentredAfterTheClip(CustomModel):
    def row_vectors(self, q: Any, z: Any, feature_bound: Any) -> Any:
        plain = CustomModel(self.log_likelihood, samples=self.samples).row_vectors(q, z, feature_bound)
        centred = super().row_vectors(q, z, feature_bound)

        def vectors(*rows: Any) -> Part:
            norms = plain(*rows).vectors.squared_norms()
            return Part(NormsBeforeCentring(centred(*rows).vectors.vectors, q, norms))

        return vectors


@pytest.mark.parametrize(("mutant", "found"), [(DrawsByPlace, "a row moves"), (CentredAfterTheClip, "sensitivity")])
def test_wrong_ways_of_drawing_outcomes_are_rejected(mutant: type, found: str) -> None:
    model = mutant(DRAWS.log_likelihood, samples=2, draw=DRAWS.draw)
    wrong = part(audited(FullBatchGaussian(NOISE, CLIP), model=model), SENSITIVITY)
    assert any(name.startswith(found) for name in wrong)


# Mutants of sampling and of what is claimed


@pytree
class DividedByTheRealisedBatch(PoissonGaussian):
    def gradient(self, model: Any, q: Any, batch: Any, prior_gradient: Any) -> Any:
        realised = batch.total / jnp.maximum(jnp.sum(batch.mask), 1)
        return super().gradient(model, q, dataclasses.replace(batch, scale=realised), prior_gradient)


@pytree
class ShuffledEpochs(PoissonGaussian):
    def draw(self, source: Any, rows: int, public_rows: int, steps: int, capacity: int) -> Any:
        size = self.batch_size(public_rows)
        index = np.zeros((steps, capacity), np.int32)
        order = np.concatenate([source.permutation(rows) for _ in range(steps)])
        index[:, :size] = order[: steps * size].reshape(steps, size)
        return index, np.broadcast_to(np.arange(capacity) < size, index.shape)


@pytree
class OneBatchInTwoSteps(PoissonGaussian):
    def draw(self, source: Any, rows: int, public_rows: int, steps: int, capacity: int) -> Any:
        sizes, row = poisson_sample(source, rows, self.sampling_rate(public_rows), (steps + 1) // 2)
        index, mask = padded(sizes, row, capacity)
        return np.repeat(index, 2, axis=0)[:steps], np.repeat(mask, 2, axis=0)[:steps]


@pytree
class RateFromTheTrueCount(PoissonGaussian):
    def draw(self, source: Any, rows: int, public_rows: int, steps: int, capacity: int) -> Any:
        return super().draw(source, rows, rows, steps, self.capacity(rows) + rows)


@pytree
class MaskIgnored(PoissonGaussian):
    def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
        everything = dataclasses.replace(batch, mask=jnp.ones_like(batch.mask))
        return super().noisy_sum(model, q, everything, clip_norm, offset)


@pytree
class ClaimsMoreNoise(Mutant):
    def event(self, public_rows: int, steps: int, numbers: int) -> Any:
        return FullBatchGaussian(2 * noise_given(self.noise_multiplier)).event(public_rows, steps, numbers)


@pytree
class ClaimsFewerSteps(Mutant):
    def event(self, public_rows: int, steps: int, numbers: int) -> Any:
        return super().event(public_rows, 1, numbers)


@pytree
class ClaimsFewerNumbers(Mutant):
    def event(self, public_rows: int, steps: int, numbers: int) -> Any:
        return super().event(public_rows, steps, numbers // 2)


@pytree
class ClaimsRarerSampling(PoissonGaussian):
    def event(self, public_rows: int, steps: int, numbers: int) -> Any:
        return poisson_gaussian(self.noise_multiplier, self.sampling_rate(public_rows) / 2, steps, numbers)


@pytree
class RootNotCounted(Mutant):
    def lattice(self, numbers: int, public_rows: int, scale: float) -> Lattice:
        honest = super().lattice(numbers, public_rows, scale)
        return dataclasses.replace(honest, size=float(self.noise_multiplier or 0) * float(self.clip_norm) / honest.grid)


COUPLING, LATTICE, SENSITIVITY, SAMPLING, PUBLIC, PADDING, NUMBERS = (
    "coupling",
    "lattice",
    "sensitivity",
    "sampling",
    "public",
    "padding",
    "claims",
)
MUTANTS: dict[str, tuple[Any, str]] = {
    "noise halved": (NoiseHalved(NOISE, CLIP), COUPLING),
    "noise 2 % short": (TwoPercentShort(NOISE, CLIP), COUPLING),
    "one coordinate without noise": (OneCoordinateWithoutNoise(NOISE, CLIP), COUPLING),
    "same noise for mean and variance": (SameNoiseForMeanAndVariance(NOISE, CLIP), COUPLING),
    "noise cut at four": (CutAtFour(NOISE, CLIP), COUPLING),
    "uniform noise": (Uniform(NOISE, CLIP), COUPLING),
    "noise coarser than the sum, 2^-10": (coarse(10)(NOISE, CLIP), COUPLING),
    "noise coarser than the sum, 2^-18": (coarse(18)(NOISE, CLIP), COUPLING),
    "noise wraps at 32 bits": (WrapsAt32Bits(500.0, CLIP), COUPLING),
    "no noise for empty batches": (NoNoiseForEmptyBatches(NOISE, CLIP, minimum=8), "empty"),
    "less noise for outliers": (QuietAboutOutliers(NOISE, CLIP), COUPLING),
    "a value switches noise off": (SwitchedOffByAValue(NOISE, CLIP), COUPLING),
    "sum not rounded": (SumNotRounded(NOISE, CLIP), LATTICE),
    "normals in single precision": (NormalsInSinglePrecision(NOISE, CLIP), LATTICE),
    "normals in double precision, on no grid": (NormalsInDoublePrecision(NOISE, CLIP), LATTICE),
    "noise added after the cast": (AddedAfterTheCast(NOISE, CLIP), LATTICE),
    "grid follows the sum": (GridFollowsTheSum(NOISE, CLIP), LATTICE),
    "grid follows the batch": (GridFollowsTheBatch(NOISE, CLIP), LATTICE),
    "root of coordinates not counted": (RootNotCounted(NOISE, CLIP), NUMBERS),
    "clip doubled": (ClipDoubled(NOISE, CLIP), SENSITIVITY),
    "no clip": (NoClip(NOISE, CLIP), SENSITIVITY),
    "larger clip where q is far away": (LargerWhereQIsFarAway(NOISE, CLIP), SENSITIVITY),
    "clip follows the rows": (ClipFollowsTheRows(NOISE, CLIP), SENSITIVITY),
    "limit from the true count": (LimitFromTheTrueCount(NOISE, CLIP), SENSITIVITY),
    "each coordinate clipped": (EachCoordinateClipped(NOISE, CLIP), SENSITIVITY),
    "KL outside the clip": (KlOutsideTheClip(NOISE, CLIP), COUPLING),
    "divided by the realised batch": (DividedByTheRealisedBatch(NOISE, CLIP, minimum=8), COUPLING),
    "mask ignored": (MaskIgnored(NOISE, CLIP, minimum=8), PADDING),
    "fixed size accounted as Poisson": (FixedSizeGaussian(NOISE, CLIP, minimum=8), SAMPLING),
    "shuffled epochs accounted as Poisson": (ShuffledEpochs(NOISE, CLIP, minimum=8), SAMPLING),
    "one batch in two steps": (OneBatchInTwoSteps(NOISE, CLIP, minimum=8), SAMPLING),
    "event claims rarer sampling": (ClaimsRarerSampling(NOISE, CLIP, minimum=8), SAMPLING),
    "rate from the true count": (RateFromTheTrueCount(NOISE, CLIP, minimum=8), PUBLIC),
    "event claims more noise": (ClaimsMoreNoise(NOISE, CLIP), NUMBERS),
    "event claims fewer numbers": (ClaimsFewerNumbers(NOISE, CLIP), NUMBERS),
}


def part(subject: Subject, name: str) -> list[str]:
    """Run one part of the audit, and return what it rejects: mutants are many, and the whole takes long."""
    match name:
        case "coupling" | "lattice":
            found = names(parts_module._coupling(subject))
            return [
                each for each in found if each.startswith(("lattice",) if name == LATTICE else ("coupling", "shift"))
            ]
        case "sensitivity":
            return names(parts_module._sensitivity(subject))
        case "empty":
            return names(parts_module._coupling(dataclasses.replace(subject, rows=1)))
        case "public":
            return names(parts_module._public(subject))
        case "claims":
            return names(parts_module._lattice(subject))
        case "padding":
            return names([parts_module._padding(subject, subject.draws(20))])
        case _:
            return names(audit_sampling(subject, subject.draws(2000)))


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_rejected(name: str) -> None:
    mechanism, reason = MUTANTS[name]
    assert part(audited(mechanism), reason)


def test_parts_that_mutants_rest_on_reject_no_correct_mechanism() -> None:
    poisson, full = audited(PoissonGaussian(NOISE, CLIP, minimum=8)), audited(FullBatchGaussian(NOISE, CLIP))
    for subject in (poisson, full):
        for name in (COUPLING, LATTICE, SENSITIVITY, PUBLIC, NUMBERS, PADDING):
            assert part(subject, name) == []
    assert part(poisson, SAMPLING) == []


def test_an_event_that_claims_fewer_steps_is_rejected() -> None:
    assert "private steps" in names(audit_parts(audited(ClaimsFewerSteps(NOISE, CLIP))))


@pytest.mark.parametrize("name", ["noise halved", "clip doubled", "no clip"])
def test_an_adversary_against_whole_updates_rejects_mutants(name: str) -> None:
    verdict = audit_update(audited(MUTANTS[name][0], steps=25), runs=1000)
    assert not verdict.passed
    assert verdict.mu_found > 1.5 * verdict.mu_claimed


@pytest.mark.parametrize("name", ["noise halved", "clip doubled", "no clip", "noise 2 % short"])
def test_mutants_of_noise_aware_updates_are_rejected(name: str) -> None:
    mechanism, reason = MUTANTS[name]
    assert part(noise_aware(Answers(dataclasses.replace(mechanism, clip_norm=1.0))), reason)


# Mutants of what stays and what leaves


@pytree
class LeaksThroughTheNoiseField(Answers):
    def solve(self, problem: Any, state: Any, model: Any, site: Any, draws: Any) -> Any:
        answers, kept, seen = super().solve(problem, state, model, site, draws)
        return dataclasses.replace(answers, noise=answers.noise * (1 + 1e-3 * jnp.sum(site.x[:, 0]))), kept, seen


@pytree
class NoNoiseFromTheSecondAnswerOn(Answers):
    def solve(self, problem: Any, state: Any, model: Any, site: Any, draws: Any) -> Any:
        quiet = dataclasses.replace(draws, privacy_noise=jnp.zeros_like(draws.privacy_noise))
        loud, silent = (super(type(self), self).solve(problem, state, model, site, each) for each in (draws, quiet))
        return jax.tree.map(lambda a, b: jnp.where(problem.base.answered > 0, b, a), loud, silent)


@pytree
class SaysHowManyRowsThereAre(Answers):
    def solve(self, problem: Any, state: Any, model: Any, site: Any, draws: Any) -> Any:
        answers, kept, seen = super().solve(problem, state, model, site, draws)
        return (
            dataclasses.replace(answers, rows=answers.rows + jnp.sum(draws.mask.astype(answers.rows.dtype))),
            kept,
            seen,
        )


@pytree
class OptimiserSeesRows(GradientSteps):
    def solve(self, problem: Any, state: Any, model: Any, site: Any, draws: Any) -> Any:
        target, new, seen = super().solve(problem, state, model, site, draws)
        return target, jax.tree.map(lambda leaf: leaf * (1 + 1e-6 * jnp.sum(site.x).astype(leaf.dtype)), new), seen


@pytest.mark.parametrize(
    "solver",
    [LeaksThroughTheNoiseField, NoNoiseFromTheSecondAnswerOn, SaysHowManyRowsThereAre],
    ids=lambda c: c.__name__,
)
def test_leaks_beside_the_noise_are_rejected(solver: Any) -> None:
    assert part(noise_aware(solver(FullBatchGaussian(NOISE, 1.0))), COUPLING)


def test_an_optimiser_that_keeps_something_of_the_rows_is_rejected() -> None:
    solver = OptimiserSeesRows(STEPS, 0.5, FullBatchGaussian(NOISE, CLIP))
    assert part(Subject(PVI(solver), sources()), COUPLING)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("weight", ["slope_weight", "curvature_weight", "extra_weight"])
def test_answers_with_a_part_that_is_not_in_the_norm_are_rejected(
    monkeypatch: pytest.MonkeyPatch, weight: str, covariance: str
) -> None:
    honest = AnswerSums.row_vectors

    def without(self: AnswerSums, *arguments: Any) -> Any:
        """Take the norms of vectors that lack one part."""
        nothing: dict[str, Any] = {weight: jnp.zeros(())}
        silent = dataclasses.replace(self, question=dataclasses.replace(self.question, **nothing))
        loud_vectors, silent_vectors = honest(self, *arguments), honest(silent, *arguments)

        def of_rows(*rows: Any) -> Any:
            loud, quiet = loud_vectors(*rows), silent_vectors(*rows)
            return dataclasses.replace(loud, vectors=dataclasses.replace(loud.vectors, squared=quiet.vectors.squared))

        return of_rows

    monkeypatch.setattr(AnswerSums, "row_vectors", without)
    model = LinearRegression()  # its answers have all three parts
    assert part(noise_aware(Answers(FullBatchGaussian(NOISE, 1.0)), covariance=covariance, model=model), SENSITIVITY)


def test_answers_that_look_at_neighbours_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = AnswerSums.row_vectors

    def centred(self: AnswerSums, *arguments: Any) -> Any:
        vectors = honest(self, *arguments)
        return lambda x, y, lengths: vectors(x - jnp.mean(x, axis=0, keepdims=True), y, lengths)

    monkeypatch.setattr(AnswerSums, "row_vectors", centred)
    assert part(noise_aware(Answers(FullBatchGaussian(NOISE, 1.0))), SENSITIVITY)


# Mutants of randomness


def test_a_key_used_for_two_updates_is_rejected() -> None:
    subject = dataclasses.replace(audited(FullBatchGaussian(NOISE, CLIP)), source=lambda: Seeded(0, UPDATE, 0, 0))
    noise = np.stack([noise_of(subject.draw()) for _ in range(100)])
    assert "draws of the noise" in names(audit_noise(noise.reshape(100, -1), subject.lattice.size))


def test_a_key_used_for_several_steps_is_rejected() -> None:
    subject = audited(FullBatchGaussian(NOISE, CLIP), steps=10)
    noise = np.stack([noise_of(subject.draw()) for _ in range(500)])
    for period in (1, 2, 5):
        repeated = noise[:, np.arange(10) % period]
        assert "noise of different numbers" in names(audit_noise(repeated.reshape(500, -1), subject.lattice.size))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda noise, _: (0.98 * noise).astype(np.int64), "std of the noise"),
        (lambda noise, size: np.clip(noise, -4 * size, 4 * size).astype(np.int64), "noise beyond 4 std"),
        (lambda noise, size: np.where(np.abs(noise) > 3 * size, 0, noise), "noise beyond 3 std"),
        (lambda noise, _: noise // 64 * 64, "low bits of the noise"),
        (lambda noise, _: (noise.astype(np.float32)).astype(np.int64), "low bits of the noise"),
        (lambda noise, _: np.abs(noise), "shape of the noise"),
    ],
    ids=["2 % short", "cut at four", "cut at three", "coarse", "single precision", "one sign"],
)
def test_wrong_draws_are_rejected(change: Callable[[np.ndarray, float], np.ndarray], reason: str) -> None:
    lattice = Lattice.of(CLIP, NOISE, 8, 44)
    noise = lattice.noise(Seeded(0, 0), 125_001, 8)
    assert names(audit_noise(noise, lattice.size)) == []
    assert reason in names(audit_noise(change(noise, lattice.size), lattice.size))


def test_a_generator_with_a_short_seed_is_rejected_by_its_name() -> None:
    class TwentyFourBits(Source):
        def __init__(self) -> None:
            self._bits = np.random.Philox(int.from_bytes(System().words(1).tobytes()[:3], "little"))

        def words(self, count: int) -> np.ndarray:
            return np.asarray(self._bits.random_raw(count))

        @property
        def generator(self) -> np.random.Generator:
            return np.random.Generator(self._bits)

    assert names([parts_module._source(TwentyFourBits())]) == ["source of randomness"]


def test_a_grid_or_scale_from_the_true_count_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in ("grid", "scale"):

        def by_count(algorithm: Any, model: Any, public: Any, rows: int, *others: Any, field: str = field) -> Any:
            drawn = draw(algorithm, model, public, rows, *others)
            return dataclasses.replace(drawn, **{field: getattr(drawn, field) * (1 + rows % 2)})

        monkeypatch.setattr("fedvi.audit.subject.draw", by_count)
        assert part(audited(FullBatchGaussian(NOISE, CLIP)), PUBLIC)


def test_a_grid_that_follows_q_is_rejected() -> None:
    @pytree
    class FollowsQ(Different):
        def noisy_sum(self, model: Any, q: Any, batch: Any, clip_norm: Any, offset: Any) -> Any:
            finer = jnp.where(jnp.max(jnp.abs(q.mean)) > 1, 1.0, 0.5).astype(batch.grid.dtype)
            return super().noisy_sum(model, q, dataclasses.replace(batch, grid=batch.grid * finer), clip_norm, offset)

        def add(self, total: Any, whole: Any, grid: Any, batch: Any) -> Any:
            return (jnp.rint(total / grid) + whole) * grid

    assert part(audited(FollowsQ(NOISE, CLIP)), LATTICE) or part(audited(FollowsQ(NOISE, CLIP)), COUPLING)


# Mutants of client-level privacy


@pytree
class QuieterRelease(ClientLevel):
    def protect(self, change: Any, noise: Any, grid: Any) -> Any:
        halved = with_whole(dataclasses.make_dataclass("Noise", ["privacy_noise"])(noise), lambda whole: whole / 2)
        return super().protect(change, halved.privacy_noise, grid)


@pytree
class LongerRelease(ClientLevel):
    def protect(self, change: Any, noise: Any, grid: Any) -> Any:
        longer = ClientLevel(noise_given(self.noise_multiplier) / 2, 2 * self.clip_norm)
        return longer.protect(change, noise, grid)


@pytest.mark.parametrize("mutant", [QuieterRelease(1.0, 0.5), LongerRelease(1.0, 0.5)], ids=["noise", "clip"])
def test_mutants_of_client_level_privacy_are_rejected(mutant: ClientLevel) -> None:
    assert part(client_level(mutant), COUPLING)
    assert not audit_update(client_level(mutant), runs=1000).passed


# Private sums

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 4)), np.sign(RNG.normal(size=40))


def vectors(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.column_stack([x, y])


def summed(part: BoundedSum, of_rows: Callable[..., np.ndarray] = vectors, average: bool = False) -> list[str]:
    return names(audit_sum(part, of_rows, X, Y, sources(), average=average))


def test_correct_sums_are_not_rejected() -> None:
    assert summed(BoundedSum(NOISE, 5)) == []
    assert summed(BoundedSum(NOISE), lambda _, y: (y > 0)[:, None].astype(float), average=True) == []


class NotClipped(BoundedSum):
    def total(self, vectors: np.ndarray, public_rows: int, *, average: bool) -> np.ndarray:
        return np.nan_to_num(vectors, posinf=0, neginf=0).sum(axis=0)


class ClippedByColumn(BoundedSum):
    def total(self, vectors: np.ndarray, public_rows: int, *, average: bool) -> np.ndarray:
        grid = self.lattice(public_rows).grid
        return np.trunc(np.clip(np.nan_to_num(vectors), -1, 1) / grid).sum(axis=0) * grid


class MeanOverTheTrueCount(BoundedSum):
    def total(self, vectors: np.ndarray, public_rows: int, *, average: bool) -> np.ndarray:
        return super().total(vectors, public_rows, average=average) * (2 * public_rows / len(vectors))


class QuieterSum(BoundedSum):
    def release(self, vectors: np.ndarray, public_rows: int, source: Any, *, average: bool = False) -> np.ndarray:
        lattice = self.lattice(public_rows)
        noise = lattice.noise(source, self.numbers) // 2
        return lattice.release(self.total(vectors, public_rows, average=average), noise)


class FloatingSum(BoundedSum):
    def release(self, vectors: np.ndarray, public_rows: int, source: Any, *, average: bool = False) -> np.ndarray:
        noise = self.noise_multiplier * source.generator.standard_normal(self.numbers)
        return np.asarray(self.total(vectors, public_rows, average=average) + noise)


@pytest.mark.parametrize("mutant", [NotClipped, ClippedByColumn, MeanOverTheTrueCount, QuieterSum, FloatingSum])
def test_mutants_of_sums_are_rejected(mutant: type[BoundedSum]) -> None:
    assert summed(mutant(NOISE, 5))


def test_vectors_that_depend_on_other_rows_are_rejected() -> None:
    def centred(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return vectors(x - x.mean(axis=0), y) / 100

    assert "sum, a row moves" in summed(BoundedSum(NOISE, 5), centred)


def test_two_sums_for_one_charge_are_found_in_the_ledger(tmp_path: Path) -> None:
    class Twice(PrivateClient):
        def release_sum(self, *arguments: Any, **options: Any) -> np.ndarray:
            first = super().release_sum(*arguments, **options)
            part, of_rows, _ = arguments
            return np.concatenate([first, part.release(of_rows(*self._rows.table), self.public_rows, System())])

    part, algorithm = BoundedSum(50.0, 4), PVI(GradientSteps(1, 0.5, FullBatchGaussian(60.0, CLIP)))
    public = Public(Gaussian.standard(4), jnp.asarray(1.0), jnp.asarray(40.0))
    budget = Budget(5.0, 1e-3)
    for kind, numbers in ((PrivateClient, 4), (Twice, 8)):
        path = tmp_path / kind.__name__
        accept = () if kind is PrivateClient else ("second ledger",)
        with kind.open(
            path, (X, Y), LogisticRegression(), algorithm, public, budget, sums=[part], accept=accept
        ) as client:
            found = client.release_sum(part, lambda x, _: x, "test")
        paid = sum(event.numbers * count for event, count in read(path).charged.items())
        assert len(found) == numbers
        assert (paid == len(found)) == (kind is PrivateClient)


# Requests


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(InputError, match="Expected a private mechanism to audit, got FullBatch"):
        audit_parts(audited(FullBatch()))
    with pytest.raises(InputError, match="Expected more updates or larger batches"):
        audit_sampling(subject := audited(PoissonGaussian(minimum=1)), subject.draws(20))
