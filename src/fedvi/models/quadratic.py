"""What rows say about slope and curvature of the log-likelihood at q: what noise-aware factors are made of.

    slope of row i      a_i x_i        with a_i = d E_q[log p(y_i | eta_i)] / d m_i
    curvature of row i  x_i^2          per coordinate, to be multiplied by the model's `curvature_bound`

`curvature_bound x_i^2` is never less than the diagonal curvature of the row's log-likelihood, so that steps made with
it do not overshoot in any one coordinate; it depends on neither q nor y.

`QuadraticPart` gives sums of both over rows in the form in which mechanisms ask for gradients.

**Sensitivity.** The two are clipped apart: a row's slope to `clip_norm sqrt(1 - share)` and `weight` times its
curvature to `clip_norm sqrt(share)`. So one row more or less moves the pair by at most clip_norm in Euclidean norm, and
a row with a large feature does not lose its slope to its curvature.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedvi.checks import one_number
from fedvi.gaussian.factor import sum_of_squares
from fedvi.models.clipping import clip_weights, double_precision, widen
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.pytree import pytree


@pytree
class Quadratic:
    """Sums over rows: of slopes, and of `weight` times squared features."""

    slope: Float[Array, " d"]
    curvature: Float[Array, " d"]


@pytree
class QuadraticPart:
    """The quadratic part of a model's likelihood, as sums over rows (`RowSums`).

    share: of the squared clip norm that goes to the curvature.
    weight: that the curvature is multiplied by before it is clipped.
    """

    model: LinearPredictorModel
    share: Any
    weight: Any

    def rows_at_once(self, q: Any, x: Array) -> int:
        """Return how many rows are best worked on together."""
        return self.model.rows_at_once(q, x)

    def gradient(self, q: Any, x: Array, y: Array, weights: Array, z: Array) -> Quadratic:
        """Return the weighted sums."""
        projection = q.projection(x)
        by_mean, _ = self.model.slopes(projection.mean, projection.variance, y, z)
        return Quadratic((weights * by_mean) @ x, self.weight * (weights @ (x * x)))

    def clipped_gradient(
        self,
        q: Any,
        x: Array,
        y: Array,
        mask: Array,
        z: Array,
        clip_norm: Array,
        offset: None = None,
        rows: int | None = None,
    ) -> Quadratic:
        """Return the sums with every row clipped, in double precision."""
        assert offset is None, "slope and curvature are those of the likelihood alone"
        one_number("share", self.share)
        one_number("weight", self.weight)
        total_rows = mask.size if rows is None else rows

        with double_precision():
            projection, by_mean, _ = self.model.wide_slopes(q, x, y, z)
            share, weight, limit, counted = widen((self.share, self.weight, clip_norm, mask))
            share = jnp.clip(share, 0, 1)  # the two parts' squared limits add up to the squared clip norm
            mean_norms, _ = projection.squared_norms()
            squares = projection.rows * projection.rows
            slope = _clipped(projection.rows, by_mean, mean_norms, counted, limit * jnp.sqrt(1 - share), total_rows)
            weights, size = jnp.full_like(counted, weight), sum_of_squares(squares)
            curvature = _clipped(squares, weights, size, counted, limit * jnp.sqrt(share), total_rows)
            return Quadratic(slope, curvature)


def _clipped(
    vectors: Float[Array, "n d"],
    factors: Float[Array, " n"],
    squared_norms: Float[Array, " n"],
    mask: Float[Array, " n"],
    limit: Float[Array, ""],
    total_rows: int,
) -> Float[Array, " d"]:
    """Return `sum_i mask_i clip(factor_i vector_i, limit)`."""
    squared = (factors * jnp.sqrt(squared_norms)) ** 2
    weights = mask * clip_weights(squared, limit, squared, total_rows)
    return jnp.where(weights > 0, weights * factors, 0) @ vectors
