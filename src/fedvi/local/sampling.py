"""Which rows each local step sees, drawn outside of the compiled update and handed to it.

Every sampler gives batches of one static shape: rows beyond a client's own batch are masked. Sums over a batch are
scaled by the public `rows / expected batch size`, never by what a batch happened to hold.

Randomness comes from a NumPy generator. A simulation makes it from a seed; any other source of bits that speaks
NumPy's protocol serves as well.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from fedvi.checks import in_range, whole
from fedvi.pytree import pytree, static


class Sampler(Protocol):
    """Draws the rows of each step."""

    def batch_size(self, rows: int) -> int:
        """Return the (expected) number of rows in a batch of a client with so many rows."""

    def draw(self, rng: np.random.Generator, rows: int, steps: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """Return row numbers and mask, each of shape (batches, capacity).

        Step k uses batch `k % batches`, so that a batch that is the same in every step is stored once.
        """


@pytree
class Minibatch:
    """Fixed-size batches without replacement: `max(minimum, ceil(fraction * rows))` rows, or all if there are fewer."""

    minimum: int = static(default=100)
    fraction: float = static(default=0.0)

    def __post_init__(self) -> None:
        whole("minimum", self.minimum, 1)
        in_range("fraction", self.fraction, 0, 1)

    def batch_size(self, rows: int) -> int:
        """Return the number of rows in a batch."""
        return min(rows, max(self.minimum, math.ceil(self.fraction * rows)))

    def draw(self, rng: np.random.Generator, rows: int, steps: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch per step."""
        size = self.batch_size(rows)
        batches = np.empty((steps, capacity), np.int32)
        for batch in batches:
            batch[:size] = rng.choice(rows, size, replace=False, shuffle=False)
        batches[:, size:] = batches[:, :1]  # masked, and yet computed with: no row that was not drawn
        return batches, np.broadcast_to(np.arange(capacity) < size, batches.shape)


@pytree
class FullBatch:
    """All rows of the client in every step."""

    def batch_size(self, rows: int) -> int:
        """Return the number of rows."""
        return rows

    def draw(
        self,
        rng: np.random.Generator,  # noqa: ARG002 - nothing is random here
        rows: int,
        steps: int,  # noqa: ARG002
        capacity: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch for all steps."""
        index = np.arange(capacity, dtype=np.int32)[None]
        return np.where(index < rows, index, 0).astype(np.int32), index < rows
