"""Mechanisms: how a step of the local optimiser gets to see the rows, and what that costs.

    sum_i clip(g_i, C) + C noise_multiplier N(0, I)        over a batch of rows drawn by the mechanism

One object binds sampling, clipping, noise and event, so that the code and its accounting cannot disagree: the noise is
scaled by the same C that the rows were clipped to, and the event names the same sampling that `draw` does.

Unit of privacy: one row of one client. Neighbouring data sets: one has one row more than the other, and for both the
same number of rows is declared. That number is public: it sets the sampling rate, and sums are scaled by it, never by
the true number or by what a batch happened to hold. An empty batch still gets noise. Sum and noise are whole numbers on
one public grid (`fedvi.privacy.lattice`). Everything after the sum is post-processing.

Nothing here is random: rows and whole-number noise are drawn before (`draw`) and handed in.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from jaxtyping import Float

from fedvi.checks import in_range, one_number, one_of
from fedvi.compiling import jax, jnp
from fedvi.models.base import RowSums
from fedvi.numerics import Array, Bounds, double_precision, widen
from fedvi.privacy.clipping import Batch, clipped_sums, in_units, usable_offset
from fedvi.privacy.events import MOST_NOISE, ROW, AnyEvent, Event, gaussian, noise_given, poisson_gaussian
from fedvi.privacy.lattice import Lattice, Words, with_its_noise
from fedvi.privacy.sampling import (
    AllRows,
    Source,
    all_rows,
    check_batch,
    expected_batch,
    most_rows,
    padded,
    poisson_capacity,
    poisson_sample,
)
from fedvi.pytree import pytree, static

C = TypeVar("C")

LEAST_CLIP = 1e-20
"""The grid of smaller clip norms would vanish in single precision."""


class Protection(Protocol):
    """What is protected, with how much noise, and what that costs."""

    @property
    def unit(self) -> str:
        """The unit of privacy: a row of the client, or all of the client."""

    @property
    def caveat(self) -> str:
        """What keeps the event from being a guarantee; empty if nothing does."""

    @property
    def noise_multiplier(self) -> Any:
        """Standard deviation of the noise in units of the sensitivity; None if it is still to be found."""

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same with this noise."""

    def sensitivity(self, scale: float) -> float:
        """Return how far one unit of privacy moves a sum, with a weight of rows `scale`."""

    def lattice(self, numbers: int, public_rows: int, scale: float) -> Lattice | None:
        """Return the lattice of the sums of so many numbers, with a weight of rows `scale`; None for no noise."""

    def event(self, public_rows: int, steps: int, numbers: int) -> AnyEvent:
        """Return what so many steps, each with so many numbers, do to a unit: an `Event`, or `NOT_PRIVATE`."""


class Mechanism(Protection, Protocol):
    """Draws the rows of each step and turns them into a gradient; a private one adds noise and says what it cost."""

    @property
    def private(self) -> bool:
        """Whether there is noise; rows are then put on their grid before anything looks at them."""

    def batch_size(self, public_rows: int) -> int:
        """Return the (expected) number of rows in a batch of a client that declares so many rows."""

    def capacity(self, public_rows: int) -> int:
        """Return the number of rows that a batch needs room for."""

    def draw(
        self, source: Source, rows: int, public_rows: int, steps: int, capacity: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return row numbers and mask, each of shape (batches, capacity).

        Step k uses batch `k % batches`, so that a batch that is the same in every step is stored once.
        """

    def gradient(self, model: RowSums, q: Any, batch: Batch, prior_gradient: C) -> tuple[C, Words]:
        """Return the gradient of the local negative ELBO in the coordinates q, and what an adversary sees at most.

        prior_gradient: that of its part without data; has the structure of the model's sums.
        The second is what has noise, before it is rounded: for audits, which tell whether all else follows from it.
        """

    def noise_std(self, scale: Float[Array, ""]) -> Float[Array, ""] | float:
        """Return the standard deviation of the noise in each entry of `gradient`, for a batch with this scale."""


class GaussianNoise(abc.ABC):
    """Clip norm and noise, and their checks."""

    noise_multiplier: float | Float[Array, ""] | None
    clip_norm: float | Float[Array, ""]
    caveat = ""

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            in_range("noise_multiplier", self.noise_multiplier, 0, MOST_NOISE, open_low=True)
        in_range("clip_norm", self.clip_norm, LEAST_CLIP)

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same with this noise."""
        settings: Any = self
        loud: Self = dataclasses.replace(settings, noise_multiplier=noise_multiplier)
        return loud


class GaussianMechanism(GaussianNoise):
    """What the Gaussian mechanisms have in common: clip every row's gradient, sum, add noise.

    clips `likelihood`: the gradient of a row's expected log-likelihood is clipped to `clip_norm`; the KL part of the
        objective has nothing to do with the rows, and enters exactly.
    clips `loss`: as in the paper, a row's share of the whole loss is clipped, scaled to all rows,
        `-(N/L) E_q[log p(y_i | x_i, w)] + (1/L) KL`, with L the batch size; clip_norm is about N/L times larger.
    """

    clips: str
    private, unit = True, ROW

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("clips", self.clips, ("likelihood", "loss"))

    @abc.abstractmethod
    def batch_size(self, public_rows: int) -> int:
        """Return the (expected) number of rows in a batch."""

    def sensitivity(self, scale: float) -> float:
        """Return how far one row moves a sum."""
        return float(self.clip_norm) / (1.0 if self.clips == "likelihood" else scale)

    def lattice(self, numbers: int, public_rows: int, scale: float) -> Lattice:
        """Return the lattice of the sums."""
        noise = float(noise_given(self.noise_multiplier))
        return Lattice.of(self.sensitivity(scale), noise, numbers, most_rows(public_rows))

    def noise_std(self, scale: Float[Array, ""]) -> Float[Array, ""] | float:
        """Return the standard deviation of the noise in each entry of `gradient`."""
        return noise_given(self.noise_multiplier) * self.clip_norm * (scale if self.clips == "likelihood" else 1.0)

    def gradient(self, model: RowSums, q: Any, batch: Batch, prior_gradient: C) -> tuple[C, Words]:
        """Return the private gradient of the negative ELBO, and the noisy sum in it."""
        one_number("clip_norm", self.clip_norm)
        one_number("noise_multiplier", self.noise_multiplier)
        if self.clips == "likelihood":
            noisy, seen = self.noisy_sum(model, q, batch, jnp.asarray(self.clip_norm, batch.scale.dtype), None)
            return jax.tree.map(lambda prior, sums: prior - batch.scale * sums, prior_gradient, noisy), seen
        # clip(scale (g - k), C) = scale clip(g - k, C / scale), with the share k = KL' / (L scale) of one row
        share = jax.tree.map(lambda leaf: leaf / batch.total, prior_gradient)
        noisy, seen = self.noisy_sum(model, q, batch, self.clip_norm / batch.scale, share)
        return jax.tree.map(lambda leaf: -batch.scale * leaf, noisy), seen

    def noisy_sum(
        self, model: RowSums, q: Any, batch: Batch, clip_norm: Float[Array, ""], offset: Any
    ) -> tuple[Any, Words]:
        """Return the sum of clipped vectors with its noise, rounded to the precision in use, and as it was before.

        One row more or less moves the sum by at most clip_norm. The noise was drawn for that, on the same grid.
        """
        at_once = model.rows_at_once(q, batch.x)
        with double_precision():
            bounds = Bounds(widen(clip_norm), widen(batch.feature_bound), batch.mask.size)
            shift = None if offset is None else usable_offset(widen(offset), bounds)

            vectors = model.row_vectors(q, batch.model_noise, batch.feature_bound)

            def clipped(rows: Array, mask: Array) -> Any:
                return clipped_sums(vectors(*batch.take(rows)), widen(mask), bounds, shift)

            sums = batch.sum_over_rows(clipped, at_once)
            anybody = vectors(*batch.take(jnp.zeros(at_once, int)))  # for the units, which are public
            return with_its_noise(in_units(sums, anybody, bounds, shift), batch.privacy_noise, batch.grid, q)


@pytree
class PoissonGaussian(GaussianMechanism):
    """Every row is in a batch independently with probability L/N, `L = max(minimum, ceil(fraction N))`.

    noise_multiplier: standard deviation of the noise in units of the clip norm; None for the least that lets each
        client's budget last for `max_updates` updates.
    clip_norm: longest gradient that a row may contribute.
    fraction, minimum: the expected batch size L, from the public number of rows N.
    clips: `likelihood`, or `loss` as in the paper.
    overflow: batches have room for so many rows that a larger one is drawn with at most this probability. Then a random
        subset is used; the event says so, and accountants charge for it.
    """

    noise_multiplier: float | Float[Array, ""] | None = 5.0
    clip_norm: float | Float[Array, ""] = 1.5
    fraction: float = static(default=0.02)
    minimum: int = static(default=20)
    clips: str = static(default="likelihood")
    overflow: float = static(default=1e-11)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_batch(self.minimum, self.fraction)
        in_range("overflow", self.overflow, 0, 1)

    def batch_size(self, public_rows: int) -> int:
        """Return the expected number of rows in a batch."""
        return expected_batch(public_rows, self.minimum, self.fraction)

    def sampling_rate(self, public_rows: int) -> float:
        """Return the probability with which each row is in a batch."""
        return self.batch_size(public_rows) / public_rows

    def capacity(self, public_rows: int) -> int:
        """Return the number of rows that a batch has room for."""
        return poisson_capacity(most_rows(public_rows), self.sampling_rate(public_rows), self.overflow)

    def draw(
        self, source: Source, rows: int, public_rows: int, steps: int, capacity: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch per step; of a batch beyond the client's own capacity, a random subset."""
        rate, room = self.sampling_rate(public_rows), self.capacity(public_rows)
        if rate == 1:
            return all_rows(rows, capacity)
        sizes, row = poisson_sample(source, rows, rate, steps)
        for long in np.flatnonzero(sizes > room):
            start = int(np.sum(sizes[:long]))
            surplus = start + source.permutation(int(sizes[long]))[room:]
            sizes[long], row = room, np.delete(row, surplus)
        return padded(sizes, row, capacity)

    def event(self, public_rows: int, steps: int, numbers: int) -> Event:
        """Return the event of `steps` batches out of at most so many rows as may be there."""
        rate, most, room = self.sampling_rate(public_rows), most_rows(public_rows), self.capacity(public_rows)
        return poisson_gaussian(self.noise_multiplier, rate, steps, numbers, most, room if room < most else 0)


@pytree
class FullBatchGaussian(AllRows, GaussianMechanism):
    """All rows in every step: the plain Gaussian mechanism, without sampling.

    Costs as much privacy as many sampled steps with less noise, and more computing; its accounting is exact.
    """

    noise_multiplier: float | Float[Array, ""] | None = 30.0
    clip_norm: float | Float[Array, ""] = 1.5
    clips: str = static(default="likelihood")

    def event(self, public_rows: int, steps: int, numbers: int) -> Event:  # the same for all
        """Return the event of `steps` sums over all rows."""
        return gaussian(self.noise_multiplier, steps, numbers)
