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

from fedvi.checks import one_number
from fedvi.compiling import jnp
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.models.row_vectors import Part, ScaledRows, SquaredRows, VectorsOf
from fedvi.numerics import Array, row_bits, widen
from fedvi.pytree import pytree


@pytree
class Quadratic:
    """Sums over rows: of slopes, and of `weight` times squared features; or the `Part`s that they are made of."""

    slope: Any
    curvature: Any


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

    def row_vectors(self, q: Any, z: Array, feature_bound: Array) -> VectorsOf:
        """Return from rows to their slopes and weighted squares, which are clipped apart."""
        one_number("share", self.share)
        one_number("weight", self.weight)
        slopes = self.model.exact_slopes(q, z, feature_bound)
        share, weight, bound = widen((self.share, self.weight, feature_bound))

        def vectors(x: Array, y: Array, lengths: Array) -> Quadratic:
            _, by_mean, _ = slopes(x, y, lengths)
            rows, step = widen(x), bound**2 * 2.0 ** -row_bits(x.shape[1])
            squares = SquaredRows(weight, jnp.rint(rows * rows * (1 / step)), step)
            return Quadratic(Part(ScaledRows(by_mean, rows, widen(lengths)), 1 - share), Part(squares, share))

        return vectors
