"""A question of the server: what it asks all sites, and how many numbers they answer (`fedvi.inference.questions`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from fedvi.families.base import GaussianFamily
from fedvi.numerics import Array
from fedvi.pytree import pytree


@pytree
class Question:
    """What the server asks. All of it is public.

    centre, whitening: the map of rows, W a matrix, or the scales of a diagonal one.
    q: Gaussian over the weights of mapped rows; diagonal if whitening is.
    reach: longest row that counts in full. moments: 1 if the question is about moments, else 0.
    noise_variance: of a linear model, as it is believed to be.
    """

    centre: Float[Array, "*batch d"]
    whitening: Float[Array, "*batch ..."]
    q: GaussianFamily
    reach: Float[Array, "*batch"]
    slope_weight: Float[Array, "*batch"]
    curvature_weight: Float[Array, "*batch"]
    extra_weight: Float[Array, "*batch"]
    moments: Float[Array, "*batch"]
    noise_variance: Float[Array, "*batch"]

    @property
    def full(self) -> bool:
        """Whether answers have all of the curvature, or its diagonal only."""
        return self.whitening.ndim > self.centre.ndim

    def mapped(self, rows: Array) -> Array:
        """Return rows as the question sees them."""
        return mapped_by(self.whitening, rows - self.centre[None])

    def is_proper(self) -> Any:
        """Tell whether q is proper."""
        return self.q.is_proper()


def mapped_by(whitening: Array, rows: Array) -> Array:
    """Return rows times a matrix, or scales."""
    return rows @ whitening if whitening.ndim == 2 else rows * whitening[None]


def packed(matrix: Float[Array, "d d"]) -> Float[Array, " k"]:
    """Return the upper triangle row by row, off-diagonals times sqrt 2: as long as the matrix."""
    rows, columns = np.triu_indices(matrix.shape[0])
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2)).astype(matrix.dtype)


def numbers_of(columns: int, *, full: bool) -> int:
    """Return how many numbers an answer has: slope, curvature, and one more."""
    return columns + (columns * (columns + 1) // 2 if full else columns) + 1
