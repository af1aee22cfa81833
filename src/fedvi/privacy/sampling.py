"""Drawing rows: which rows are in the batch of each step, as row numbers and mask of one static shape.

Padding repeats a row that was drawn, and is masked.
"""

from __future__ import annotations

import functools
import math

import numpy as np


def expected_batch(rows: int, minimum: int, fraction: float) -> int:
    """Return the batch size `max(minimum, ceil(fraction rows))`, or all rows if there are fewer."""
    return min(rows, max(minimum, math.ceil(fraction * rows)))


class AllRows:
    """Sampling that takes every row in every step."""

    def batch_size(self, rows: int) -> int:
        """Return the number of rows."""
        return rows

    def capacity(self, rows: int) -> int:
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
        return all_rows(rows, capacity)


def all_rows(rows: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers and mask of one batch of all rows."""
    index = np.arange(capacity, dtype=np.int32)[None]
    return np.where(index < rows, index, 0).astype(np.int32), index < rows


def poisson_sample(rng: np.random.Generator, rows: int, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw each row in each step independently with probability `rate`.

    Returns how many rows each step drew, and their numbers, step by step. All steps together are one long series of
    coin flips; the gaps between heads are geometric, and only those are drawn.
    """
    flips = rows * steps
    heads, last = [np.zeros(0, np.int64)], -1
    while last < flips:
        expected = (flips - last) * rate
        heads.append(last + np.cumsum(rng.geometric(rate, int(expected + 4 * math.sqrt(expected) + 16))))
        last = int(heads[-1][-1])
    drawn = np.concatenate(heads)
    starts = np.arange(steps + 1) * rows
    ends = np.searchsorted(drawn, starts)
    sizes = np.diff(ends)
    return sizes, drawn[: ends[-1]] - np.repeat(starts[:-1], sizes)


def padded(sizes: np.ndarray, row: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, so many for each step, as row numbers and mask of shape (steps, capacity)."""
    mask = np.arange(capacity)[None] < sizes[:, None]
    index = np.zeros(mask.shape, np.int32)
    index[mask] = row
    return np.where(mask, index, index[:, :1]), mask


def fixed_size(
    rng: np.random.Generator, rows: int, size: int, steps: int, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return one batch per step of `size` rows without replacement."""
    batches = np.empty((steps, capacity), np.int32)
    for batch in batches:
        batch[:size] = rng.choice(rows, size, replace=False, shuffle=False)
    batches[:, size:] = batches[:, :1]
    mask = np.zeros(batches.shape, bool)
    mask[:, :size] = True
    return batches, mask


@functools.lru_cache(maxsize=4096)
def poisson_capacity(rows: int, rate: float, overflow: float) -> int:
    """Return the least size that a batch of rows + 1 rows exceeds with at most probability `overflow`, or all rows."""
    from scipy.stats import binom  # takes longer to import than all of fedvi

    if rate == 1 or overflow == 0:
        return rows
    return max(1, min(rows, int(binom.isf(overflow, rows + 1, rate))))
