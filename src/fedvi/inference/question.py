"""A question of the server: what it asks all sites, and how many numbers they answer (`fedvi.inference.questions`)."""

from __future__ import annotations

from typing import Any

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

    def is_proper(self) -> Any:
        """Tell whether q is proper."""
        return self.q.is_proper()


def numbers_of(columns: int, *, full: bool) -> int:
    """Return how many numbers an answer has: slope, curvature, and one more."""
    return columns + (columns * (columns + 1) // 2 if full else columns) + 1
