"""Private sums beside training: statistics of a client's rows, each row a vector of length at most one.

    released = sum_i clip(v_i, 1) + noise_multiplier * noise            on a lattice (`fedvi.privacy.lattice`)

One row more or less moves the sum by at most one, so that the event is that of a plain Gaussian mechanism. That rests
on vectors of which each is computed from its own row alone. Every row is cut towards zero to the lattice before it is
added: sums are whole numbers, the same in any order. Means and variances for standardisation, and the width of
residuals, are such sums.

Averages. The true number of rows is not public, so that a sum over it is none of the above. `average` is for numbers
between 0 and 1: `public_rows sum_i v_i / max(rows, public_rows)` moves by at most one too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from fedvi.checks import in_range, whole
from fedvi.errors import InputError
from fedvi.privacy.budget import Budget, noise_for
from fedvi.privacy.events import LEAST_NOISE, MOST_NOISE, Event, gaussian
from fedvi.privacy.lattice import Lattice
from fedvi.privacy.sampling import Source, most_rows

SLACK = 1e-6
"""Rows are clipped to a little less than one, for rounding in their lengths."""


@dataclasses.dataclass(frozen=True)
class BoundedSum:
    """One release of a sum over all rows.

    noise_multiplier: standard deviation of the noise, in units of the longest vector that a row may have.
    numbers: entries of a vector.
    """

    noise_multiplier: float
    numbers: int = 1

    def __post_init__(self) -> None:
        in_range("noise_multiplier", self.noise_multiplier, LEAST_NOISE, MOST_NOISE)
        whole("numbers", self.numbers, 1)

    @property
    def event(self) -> Event:
        """What one release does to the rows."""
        return gaussian(self.noise_multiplier, 1, self.numbers)

    def release(
        self, vectors: np.ndarray, public_rows: int, source: Source, *, average: bool = False
    ) -> Float[np.ndarray, " k"]:
        """Return the sum of the clipped rows with its noise; rows with NaN count nothing.

        average: scale the sum to the public number of rows; only for one number between 0 and 1 per row.
        """
        lattice = self.lattice(public_rows)
        return lattice.release(self.total(vectors, public_rows, average=average), lattice.noise(source, self.numbers))

    def lattice(self, public_rows: int) -> Lattice:
        """Return the lattice of the sum."""
        return Lattice.of(1.0, self.noise_multiplier, self.numbers, most_rows(public_rows))

    def total(self, vectors: np.ndarray, public_rows: int, *, average: bool) -> Float[np.ndarray, " k"]:
        """Return the sum without noise, a whole number of steps of the lattice unless it is an average."""
        with np.errstate(over="ignore"):
            vectors = np.asarray(vectors, np.float64)
        if vectors.ndim != 2 or vectors.shape[1] != self.numbers:
            raise InputError(f"Expected vectors of {self.numbers} numbers, got shape {vectors.shape}.")
        if average and self.numbers != 1:
            raise InputError(f"Expected one number per row for an average, got {self.numbers}.")
        if len(vectors) > most_rows(public_rows):
            raise InputError(f"Expected at most {most_rows(public_rows)} rows, got more. Declare more rows.")
        rows = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
        longest = np.max(np.abs(rows), axis=1, keepdims=True)  # taken out first: squares may overflow
        unit = rows / np.maximum(longest, 1e-300)
        lengths = longest * np.sqrt(_row_sums(unit**2)[:, None])
        limit = 1 / (1 + SLACK)
        clipped = rows * (limit / np.maximum(lengths, limit))
        if average:
            clipped = np.maximum(clipped, 0)
        grid = self.lattice(public_rows).grid
        total = np.trunc(clipped / grid).sum(axis=0) * grid
        return total * (public_rows / max(len(rows), public_rows)) if average else total


def _row_sums(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Add up columns one after another: every row in the same way, whatever its neighbours are."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    return total


def part_of(budget: Budget, share: float, numbers: int = 1) -> BoundedSum:
    """Return the sum whose one release takes this share of a budget, counted in squared noise.

    Gaussian mechanisms with noise s_1, s_2, ... cost as much as one with `1 / s^2 = 1 / s_1^2 + 1 / s_2^2 + ...`.
    """
    in_range("share", share, 0, 1, open_low=True)
    noise = noise_for(lambda noise: gaussian(noise, 1, numbers), 1, budget)
    return BoundedSum(float(noise / share**0.5), numbers)
