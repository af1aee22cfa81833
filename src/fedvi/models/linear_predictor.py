"""Models in which y depends on w only through the linear predictor `eta = w'x`.

Under a Gaussian q, eta_i is N(m_i, v_i) with (m_i, v_i) of `q.projection(x)`, so that expectations are one-dimensional:

    E_q[log p(y_i | eta_i)] = value(m_i, v_i, y_i)         a_i = d value / d m_i         b_i = d value / d v_i

and the gradient in the coordinates of q is the pull-back of the pair (a, b) through the projection: two matrix-vector
products, for any family. A gradient per example never exists, not even where each is clipped: its squared norm is

    |g_i|^2 = a_i^2 |grad m_i|^2 + b_i^2 |grad v_i|^2

because m_i and v_i depend on different coordinates, and the two norms of the projection need row sums only.
"""

from __future__ import annotations

import abc
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedvi.errors import InputError
from fedvi.models.base import Model
from fedvi.models.clipping import clip_weights, double_precision, widen

C = TypeVar("C")

LARGEST = 1e9
"""Entries of x beyond this count as zero where gradients are clipped: their squares would overflow."""


WIDEST = 1e8
"""Variances of the predictor beyond this count as this much where gradients are clipped."""


class LinearPredictorModel(Model):
    """A model that knows the value and the slopes of its one-dimensional expectation."""

    @abc.abstractmethod
    def value(
        self,
        mean: Float[Array, " n"],
        variance: Float[Array, " n"],
        y: Float[Array, " n"],
        z: Float[Array, " s"],
    ) -> Float[Array, " n"]:
        """Return `E[log p(y_i | eta_i)]` for eta_i ~ N(mean_i, variance_i)."""

    @abc.abstractmethod
    def slopes(
        self,
        mean: Float[Array, " n"],
        variance: Float[Array, " n"],
        y: Float[Array, " n"],
        z: Float[Array, " s"],
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the derivatives of `value` by mean and by variance.

        Those of a row must depend on that row alone: clipping, and with it privacy, rests on it.
        """

    @property
    def curvature_bound(self) -> Any:
        """The most that `-d^2 log p(y | eta) / d eta^2` can be, at any eta and y; noise-aware factors need it."""
        raise InputError(
            f"{type(self).__name__} has no curvature_bound, which noise-aware factors need. Define the property: the "
            "largest value of -d^2 log p(y | eta) / d eta^2."
        )

    def check_rows(self, x: np.ndarray, y: np.ndarray, where: str) -> None:
        """Raise unless x is a matrix and y a vector."""
        if x.ndim != 2:
            raise InputError(f"Expected x of {where} to be a matrix, got shape {x.shape}.")
        if y.ndim != 1:
            raise InputError(f"Expected y of {where} to have one number per row, got shape {y.shape}. Use y.ravel().")

    def expected_log_likelihood(
        self, q: Any, x: Float[Array, "n d"], y: Float[Array, " n"], z: Float[Array, " s"]
    ) -> Float[Array, " n"]:
        """Return `E_q[log p(y_i | x_i, w)]` for every row."""
        projection = q.projection(x)
        return self.value(projection.mean, projection.variance, y, z)

    def gradient(
        self,
        q: C,
        x: Float[Array, "n d"],
        y: Float[Array, " n"],
        weights: Float[Array, " n"],
        z: Float[Array, " s"],
    ) -> C:
        """Return the gradient of the weighted sum, by pulling the slopes back through the projection."""
        coordinates: Any = q
        projection = coordinates.projection(x)
        by_mean, by_variance = self.slopes(projection.mean, projection.variance, y, z)
        gradient: C = projection.pull_back(weights * by_mean, weights * by_variance)
        return gradient

    def rows_at_once(self, q: Any, x: Float[Array, "n d"]) -> int:
        """Return how many rows are best projected together."""
        rows: int = q.rows_at_once(x.shape[1])
        return rows

    def clipped_gradient(
        self,
        q: C,
        x: Float[Array, "n d"],
        y: Float[Array, " n"],
        mask: Float[Array, " n"],
        z: Float[Array, " s"],
        clip_norm: Float[Array, ""],
        offset: C | None = None,
        rows: int | None = None,
    ) -> C:
        """Return the sum of clipped gradients, in closed form and double precision.

        With an offset k, `|g_i - k|^2 = |g_i|^2 + |k|^2 - 2 (a_i dm_i + b_i dv_i)`, where (dm, dv) is the derivative of
        the projection along k.
        """
        with double_precision():
            projection, by_mean, by_variance = self.wide_slopes(q, x, y, z)
            shift = widen(offset)
            mean_norms, variance_norms = projection.squared_norms()
            # products of norms, not of squares, of which one may vanish while the other explodes
            squared = sizes = (by_mean * jnp.sqrt(mean_norms)) ** 2 + (by_variance * jnp.sqrt(variance_norms)) ** 2
            if offset is not None:
                along_mean, along_variance = projection.push_forward(shift)
                sizes = squared + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(shift))
                squared = jnp.maximum(sizes - 2 * (by_mean * along_mean + by_variance * along_variance), 0)
            total_rows = mask.size if rows is None else rows
            weights = widen(mask) * clip_weights(squared, widen(clip_norm), sizes, total_rows)

            counted = weights > 0  # others' slopes may be infinite, and 0 * infinity would reach the sum
            slopes = (jnp.where(counted, weights * slope, 0) for slope in (by_mean, by_variance))
            summed: C = projection.pull_back(*slopes)
            if offset is None:
                return summed
            used = jnp.sum(weights)
            return jax.tree.map(lambda leaf, k: leaf - jnp.where(used > 0, used * k, 0), summed, shift)

    def wide_slopes(self, q: Any, x: Array, y: Array, z: Array) -> tuple[Any, Array, Array]:
        """Return the projection of the rows, without entries that would overflow, and slopes, all in double precision.

        A row's slopes are the same, to about 1e-15 of the largest term of `m'x`, whatever other rows it is computed
        with: rounding in single precision depends on how many there are, and a sum over many would move by more than
        one row may move it. Sites refuse a q whose means are so large that even this matters. Where the predictor's
        variance is beyond all sense, the slope by variance would be nothing but rounding: it is zero.
        Only within `double_precision`.
        """
        coordinates, features, targets, draws = widen((q, x, y, z))
        features = jnp.where(jnp.abs(features) <= LARGEST, features, 0)  # also for NaN
        projection = coordinates.projection(features)
        sensible = projection.variance <= WIDEST
        variance = jnp.where(sensible, projection.variance, WIDEST)
        by_mean, by_variance = self.slopes(projection.mean, variance, targets, draws)
        return projection, by_mean, jnp.where(sensible, by_variance, 0)
