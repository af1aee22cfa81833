"""Which rows each local step sees without privacy, drawn outside of the compiled update and handed to it.

These are mechanisms (`fedvi.privacy.mechanism`) that add no noise and promise nothing. Every mechanism gives batches of
one static shape: rows beyond a client's own batch are masked. Sums over a batch are scaled by the public `rows /
expected batch size`, never by what a batch happened to hold.

Batches come from NumPy's generator of a source (`fedvi.privacy.sampling`).
"""

from __future__ import annotations

import math
from typing import Any, Self, TypeVar

from jaxtyping import Float

from fedvi.compiling import jax, jnp
from fedvi.models.base import RowSums
from fedvi.numerics import Array
from fedvi.privacy.clipping import Batch
from fedvi.privacy.events import NOT_PRIVATE, ROW, AnyEvent
from fedvi.privacy.lattice import Words
from fedvi.privacy.sampling import AllRows, FixedSize, check_batch
from fedvi.pytree import pytree, static

C = TypeVar("C")


class WithoutPrivacy:
    """What mechanisms without privacy have in common: the plain gradient of the scaled sum over the batch."""

    private, unit, caveat, noise_multiplier = False, ROW, "", 0.0

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same: there is no noise."""
        return self

    def sensitivity(self, scale: float) -> float:
        """Return infinity: nothing is clipped."""
        return math.inf

    def lattice(self, numbers: int, public_rows: int, scale: float) -> None:
        """Return None: there is no noise."""
        return

    def gradient(self, model: RowSums, q: Any, batch: Batch, prior_gradient: C) -> tuple[C, Words]:
        """Return the gradient of the negative ELBO; nothing has noise."""
        likelihood = batch.sum_over_rows(
            lambda some, mask: model.gradient(q, *batch.take(some)[:2], batch.scale * mask, batch.model_noise),
            min(model.rows_at_once(q, batch.x), batch.mask.size),
        )
        return jax.tree.map(jnp.subtract, prior_gradient, likelihood), batch.privacy_noise[:0]

    def noise_std(self, scale: Float[Array, ""]) -> Float[Array, ""]:
        """Return 0."""
        return jnp.zeros_like(scale)

    def event(self, public_rows: int, steps: int, numbers: int) -> AnyEvent:
        """Say that nothing is private."""
        return NOT_PRIVATE


@pytree
class Minibatch(FixedSize, WithoutPrivacy):
    """Fixed-size batches without replacement: `max(minimum, ceil(fraction * rows))` rows, or all if there are fewer."""

    minimum: int = static(default=100)
    fraction: float = static(default=0.0)

    def __post_init__(self) -> None:
        check_batch(self.minimum, self.fraction)


@pytree
class FullBatch(AllRows, WithoutPrivacy):
    """All rows of the client in every step."""
