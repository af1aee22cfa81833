"""Mechanisms: how a step of the local optimiser gets to see the rows, and what that costs.

    sum_i clip(g_i, C) + C noise_multiplier N(0, I)        over a batch of rows drawn by the mechanism

One object binds sampling, clipping, noise and event, so that the code and its accounting cannot disagree: the noise is
scaled by the same C that the rows were clipped to, and the event names the same sampling that `draw` does.

Unit of privacy: one row of one client. Neighbouring data sets: one has one row more than the other. The number of rows
is public: it sets the sampling rate, and sums are scaled by it, never by what a batch happened to hold. An empty batch
still gets noise. Everything after the sum is post-processing.

Nothing here is random: rows and standard normals are drawn before (`draw`) and handed in.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from fedvi.checks import in_range, one_number, one_of, whole
from fedvi.models import RowSums
from fedvi.models.clipping import double_precision, narrow, widen
from fedvi.privacy.events import MOST_NOISE, gaussian, noise_given, padded_poisson_gaussian, poisson_gaussian
from fedvi.privacy.sampling import AllRows, expected_batch, padded, poisson_capacity, poisson_sample
from fedvi.pytree import pytree, static

C = TypeVar("C")
S = TypeVar("S")

LEAST_CLIP = 1e-30
"""Squares of smaller clip norms would vanish."""


@pytree
class Batch:
    """What one step of one update gets: which rows, and what noise.

    x, y: a buffer of rows. rows: those of the batch, by number. mask: 1 for rows that count, 0 for padding.
    scale: weight of the likelihood of each row of a batch; public.
    total: `scale` times the expected number of rows in a batch; public.
    model_noise, privacy_noise: standard normals.
    """

    x: Float[Array, "buffer ..."]
    y: Float[Array, "buffer ..."]
    rows: Int[Array, " capacity"]
    mask: Float[Array, " capacity"]
    scale: Float[Array, ""]
    total: Float[Array, ""]
    model_noise: Float[Array, ...]
    privacy_noise: Float[Array, " n"]

    def sum_over_rows(self, part: Callable[[Array, Array, Array], S], at_once: int) -> S:
        """Return the sum of `part(x, y, mask)` over the batch, so many rows at once.

        Padding behind the last row that counts is never looked at: a batch costs what it holds, not its room.
        """
        at_once = min(at_once, self.mask.size)
        missing = (0, -self.mask.size % at_once)
        rows, mask = jnp.pad(self.rows, missing, mode="edge"), jnp.pad(self.mask, missing)  # no other client's rows

        def some(k: Any) -> S:
            number, counts = (jax.lax.dynamic_slice_in_dim(array, k * at_once, at_once) for array in (rows, mask))
            x, y = (array.at[number].get(mode="promise_in_bounds") for array in (self.x, self.y))
            return part(x, y, counts)

        def add(k: Array, total: S) -> S:
            return jax.tree.map(jnp.add, total, some(k))

        first = jnp.zeros((), rows.dtype)
        last = jnp.max(jnp.where(mask > 0, jnp.arange(1, mask.size + 1, dtype=rows.dtype), first))
        nothing: S = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(some, first))
        total: S = jax.lax.fori_loop(first, (last + (at_once - 1)) // at_once, add, nothing)
        return total


class Mechanism(Protocol):
    """Draws the rows of each step and turns them into a gradient; a private one adds noise and says what it cost."""

    def batch_size(self, rows: int) -> int:
        """Return the (expected) number of rows in a batch of a client with so many rows."""

    def capacity(self, rows: int) -> int:
        """Return the number of rows that a batch needs room for."""

    def draw(self, rng: np.random.Generator, rows: int, steps: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """Return row numbers and mask, each of shape (batches, capacity).

        Step k uses batch `k % batches`, so that a batch that is the same in every step is stored once.
        """

    def noise_size(self, coordinates: int) -> int:
        """Return how many standard normals a step needs in which q has so many coordinates."""

    def gradient(self, model: RowSums, q: Any, batch: Batch, prior_gradient: C) -> C:
        """Return the gradient of the local negative ELBO in the coordinates q.

        prior_gradient: that of its part without data; has the structure of the model's sums.
        """

    def noise_std(self, scale: Float[Array, ""]) -> Float[Array, ""]:
        """Return the standard deviation of the noise in each entry of `gradient`, for a batch with this scale."""

    def event(self, rows: int, steps: int) -> Hashable:
        """Return what so many steps did to so many rows: a dp-accounting event, or `NOT_PRIVATE`."""

    @property
    def caveat(self) -> str:
        """What keeps the event from being a guarantee; empty if nothing does."""


class GaussianMechanism(abc.ABC):
    """What the Gaussian mechanisms have in common: clip every row's gradient, sum, add noise.

    clips `likelihood`: the gradient of a row's expected log-likelihood is clipped to `clip_norm`; the KL part of the
        objective has nothing to do with the rows, and enters exactly.
    clips `loss`: as in the paper, a row's share of the whole loss is clipped, scaled to all rows,
        `-(N/L) E_q[log p(y_i | x_i, w)] + (1/L) KL`, with L the batch size; clip_norm is about N/L times larger.
    """

    noise_multiplier: float | Float[Array, ""] | None
    clip_norm: float | Float[Array, ""]
    clips: str
    caveat = ""

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            in_range("noise_multiplier", self.noise_multiplier, 0, MOST_NOISE, open_low=True)
        in_range("clip_norm", self.clip_norm, LEAST_CLIP)
        one_of("clips", self.clips, ("likelihood", "loss"))

    @abc.abstractmethod
    def batch_size(self, rows: int) -> int:
        """Return the (expected) number of rows in a batch."""

    def noise_size(self, coordinates: int) -> int:
        """One per coordinate of q."""
        return coordinates

    def noise_std(self, scale: Float[Array, ""]) -> Float[Array, ""]:
        """Return the standard deviation of the noise in each entry of `gradient`."""
        return noise_given(self.noise_multiplier) * self.clip_norm * (scale if self.clips == "likelihood" else 1.0)

    def gradient(self, model: RowSums, q: Any, batch: Batch, prior_gradient: C) -> C:
        """Return the private gradient of the negative ELBO."""
        if self.clips == "likelihood":
            noisy = self.noisy_sum(model, q, batch, jnp.asarray(self.clip_norm, batch.scale.dtype), None)
            return jax.tree.map(lambda prior, likelihood: prior - batch.scale * likelihood, prior_gradient, noisy)
        # clip(scale (g - k), C) = scale clip(g - k, C / scale), with the share k = KL' / (L scale) of one row
        share = jax.tree.map(lambda leaf: leaf / batch.total, prior_gradient)
        noisy = self.noisy_sum(model, q, batch, self.clip_norm / batch.scale, share)
        return jax.tree.map(lambda leaf: -batch.scale * leaf, noisy)

    def noisy_sum(self, model: RowSums, q: Any, batch: Batch, clip_norm: Float[Array, ""], offset: Any) -> Any:
        """Return the sum of clipped gradients with its noise: the only place where rows and noise meet.

        One row more or less moves the sum by at most clip_norm; the noise is `noise_multiplier` times that.
        """
        one_number("clip_norm", self.clip_norm)
        one_number("noise_multiplier", self.noise_multiplier)

        def clipped(x: Array, y: Array, mask: Array) -> Any:
            return model.clipped_gradient(q, x, y, mask, batch.model_noise, clip_norm, offset, batch.mask.size)

        with double_precision():
            flat, unravel = ravel_pytree(batch.sum_over_rows(clipped, model.rows_at_once(q, batch.x)))
            size, noise = widen((noise_given(self.noise_multiplier), batch.privacy_noise))
            return narrow(unravel(flat + size * widen(clip_norm) * noise), q)


@pytree
class PoissonGaussian(GaussianMechanism):
    """Every row is in a batch independently with probability L/N, `L = max(minimum, ceil(fraction N))`.

    noise_multiplier: standard deviation of the noise in units of the clip norm; None for the least that lets each
        client's budget last for `max_updates` updates (see `fedvi.local.calibration`).
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
        whole("minimum", self.minimum, 1)
        in_range("fraction", self.fraction, 0, 1)
        in_range("overflow", self.overflow, 0, 1)

    def batch_size(self, rows: int) -> int:
        """Return the expected number of rows in a batch."""
        return expected_batch(rows, self.minimum, self.fraction)

    def sampling_rate(self, rows: int) -> float:
        """Return the probability with which each row is in a batch."""
        return self.batch_size(rows) / rows

    def capacity(self, rows: int) -> int:
        """Return the number of rows that a batch has room for."""
        return poisson_capacity(rows, self.sampling_rate(rows), self.overflow)

    def draw(self, rng: np.random.Generator, rows: int, steps: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch per step; of a batch beyond the client's own capacity, a random subset."""
        sizes, row = poisson_sample(rng, rows, self.sampling_rate(rows), steps)
        room = self.capacity(rows)
        for long in np.flatnonzero(sizes > room):
            start = int(np.sum(sizes[:long]))
            surplus = rng.permutation(np.arange(start, start + sizes[long]))[room:]
            sizes[long], row = room, np.delete(row, surplus)
        return padded(sizes, row, capacity)

    def event(self, rows: int, steps: int) -> Hashable:
        """Return the event of `steps` batches; of two neighbouring data sets the larger may have one row more."""
        noise, rate, room = self.noise_multiplier, self.sampling_rate(rows), self.capacity(rows)
        if room >= rows:
            return poisson_gaussian(noise, rate, steps)
        return padded_poisson_gaussian(noise, rate, rows + 1, room, steps)


@pytree
class FullBatchGaussian(AllRows, GaussianMechanism):
    """All rows in every step: the plain Gaussian mechanism, without sampling.

    Costs as much privacy as many sampled steps with less noise, and more computing; its accounting is exact.
    """

    noise_multiplier: float | Float[Array, ""] | None = 30.0
    clip_norm: float | Float[Array, ""] = 1.5
    clips: str = static(default="likelihood")

    def event(self, rows: int, steps: int) -> Hashable:  # noqa: ARG002 - the same for any number of rows
        """Return the event of `steps` sums over all rows."""
        return gaussian(self.noise_multiplier, steps)
