"""Private sums beside training: statistics of a client's rows, each row a vector of length at most one.

    released = sum_i clip(v_i, 1) + noise_multiplier * noise

One row more or less moves the sum by at most one, so that the event is that of a plain Gaussian mechanism. That rests
on vectors of which each is computed from its own row alone. Means and variances for standardisation, and the width of
residuals, are such sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import numpy as np
from jaxtyping import Float

from fedvi.checks import in_range
from fedvi.errors import InputError
from fedvi.privacy.budget import Budget, noise_for
from fedvi.privacy.events import LEAST_NOISE, MOST_NOISE, gaussian

SLACK = 1e-6
"""Rows are clipped to a little less than one, for rounding in their lengths; that in their sum comes on top."""


@dataclasses.dataclass(frozen=True)
class BoundedSum:
    """One release of a sum over all rows.

    noise_multiplier: standard deviation of the noise, in units of the longest vector that a row may have.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        in_range("noise_multiplier", self.noise_multiplier, LEAST_NOISE, MOST_NOISE)

    @property
    def event(self) -> Hashable:
        """What one release does to the rows."""
        return gaussian(self.noise_multiplier)

    def release(self, vectors: Float[np.ndarray, "n k"], noise: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Return the sum of the clipped rows with its noise, which is standard normal; rows with NaN count nothing.

        A sum of n numbers up to 1, one after another, is off by at most n^2 2^-53: rows are clipped to as much less.
        """
        with np.errstate(over="ignore"):
            vectors = np.asarray(vectors, np.float64)
        if vectors.ndim != 2 or noise.shape != vectors.shape[1:]:
            raise InputError(f"Expected one noise per column of {vectors.shape}, got {noise.shape}.")
        rows = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
        longest = np.max(np.abs(rows), axis=1, keepdims=True)  # taken out first: squares may overflow
        unit = rows / np.maximum(longest, 1e-300)
        lengths = longest * np.sqrt(np.sum(unit**2, axis=1, keepdims=True))
        limit = 1 / (1 + SLACK + (len(rows) + 1.0) ** 2 * 2.0**-52)
        clipped = rows * (limit / np.maximum(lengths, limit))
        return clipped.sum(axis=0) + self.noise_multiplier * noise


def part_of(budget: Budget, share: float) -> BoundedSum:
    """Return the sum whose one release takes this share of a budget, counted in squared noise.

    Gaussian mechanisms with noise s_1, s_2, ... cost as much as one with `1 / s^2 = 1 / s_1^2 + 1 / s_2^2 + ...`.
    """
    in_range("share", share, 0, 1, open_low=True)
    return BoundedSum(float(noise_for(gaussian, 1, budget) / share**0.5))
