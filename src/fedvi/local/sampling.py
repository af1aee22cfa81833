"""Which rows each local step sees without privacy, drawn outside of the compiled update and handed to it.

These are mechanisms (`fedvi.privacy.mechanism`) that add no noise and promise nothing. Every mechanism gives batches of
one static shape: rows beyond a client's own batch are masked. Sums over a batch are scaled by the public `rows /
expected batch size`, never by what a batch happened to hold.

Randomness comes from a NumPy generator. A simulation makes it from a seed; any other source of bits that speaks
NumPy's protocol serves as well.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedvi.checks import in_range, whole
from fedvi.models import RowSums
from fedvi.privacy.events import NOT_PRIVATE
from fedvi.privacy.mechanism import Batch
from fedvi.privacy.sampling import AllRows, expected_batch, fixed_size
from fedvi.pytree import pytree, static

C = TypeVar("C")


class WithoutPrivacy(abc.ABC):
    """What mechanisms without privacy have in common: the plain gradient of the scaled sum over the batch."""

    caveat = ""

    @abc.abstractmethod
    def batch_size(self, rows: int) -> int:
        """Return the number of rows in a batch."""

    def capacity(self, rows: int) -> int:
        """Return the number of rows in a batch."""
        return self.batch_size(rows)

    def noise_size(self, coordinates: int) -> int:  # noqa: ARG002
        """None."""
        return 0

    def gradient(self, model: RowSums, q: Any, batch: Batch, prior_gradient: C) -> C:
        """Return the gradient of the negative ELBO."""
        likelihood = batch.sum_over_rows(
            lambda x, y, mask: model.gradient(q, x, y, batch.scale * mask, batch.model_noise),
            model.rows_at_once(q, batch.x),
        )
        return jax.tree.map(jnp.subtract, prior_gradient, likelihood)

    def noise_std(self, scale: Float[Array, ""]) -> Float[Array, ""]:
        """Return 0."""
        return jnp.zeros_like(scale)

    def event(self, rows: int, steps: int) -> Hashable:  # noqa: ARG002
        """Say that nothing is private."""
        return NOT_PRIVATE


@pytree
class Minibatch(WithoutPrivacy):
    """Fixed-size batches without replacement: `max(minimum, ceil(fraction * rows))` rows, or all if there are fewer."""

    minimum: int = static(default=100)
    fraction: float = static(default=0.0)

    def __post_init__(self) -> None:
        whole("minimum", self.minimum, 1)
        in_range("fraction", self.fraction, 0, 1)

    def batch_size(self, rows: int) -> int:
        """Return the number of rows in a batch."""
        return expected_batch(rows, self.minimum, self.fraction)

    def draw(self, rng: np.random.Generator, rows: int, steps: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch per step."""
        return fixed_size(rng, rows, self.batch_size(rows), steps, capacity)


@pytree
class FullBatch(AllRows, WithoutPrivacy):
    """All rows of the client in every step."""
