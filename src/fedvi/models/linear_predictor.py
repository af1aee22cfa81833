"""Models in which y depends on w only through the linear predictor `eta = w'x`.

Under a Gaussian q, eta_i is N(m_i, v_i) with (m_i, v_i) = q.project(x_i), so that every expectation is one-dimensional:

    E_q[log p(y_i | eta_i)] = value(m_i, v_i, y_i)         a_i = d value / d m_i         b_i = d value / d v_i

and the gradient in the coordinates of q is the pull-back of the pair (a, b) through `project`: two matrix-vector
products, for any family. A gradient per example never exists, not even where each is clipped: its squared norm is

    |g_i|^2 = a_i^2 |grad m_i|^2 + b_i^2 |grad v_i|^2

because m_i and v_i depend on different coordinates, and the two norms of `project` need row sums only.
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
from fedvi.models.clipping import clip_weights

C = TypeVar("C")

LARGEST = 1e9
"""Entries of x beyond this count as zero where gradients are clipped: their squares would overflow."""


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
        mean, variance = q.project(x)
        return self.value(mean, variance, y, z)

    def gradient(
        self,
        q: C,
        x: Float[Array, "n d"],
        y: Float[Array, " n"],
        weights: Float[Array, " n"],
        z: Float[Array, " s"],
    ) -> C:
        """Return the gradient of the weighted sum, by pulling the slopes back through `project`."""
        (mean, variance), pull_back = jax.vjp(lambda coordinates: coordinates.project(x), q)
        by_mean, by_variance = self.slopes(mean, variance, y, z)
        gradient: C
        (gradient,) = pull_back((weights * by_mean, weights * by_variance))
        return gradient

    def clipped_gradient(
        self,
        q: C,
        x: Float[Array, "n d"],
        y: Float[Array, " n"],
        mask: Float[Array, " n"],
        z: Float[Array, " s"],
        clip_norm: Float[Array, ""],
        offset: C | None = None,
    ) -> C:
        """Return the sum of clipped gradients, in closed form.

        With an offset k, `|g_i - k|^2 = |g_i|^2 + |k|^2 - 2 (a_i dm_i + b_i dv_i)`, where (dm, dv) is the derivative of
        `project` along k.
        """

        def project(coordinates: Any) -> Any:
            return coordinates.project(x)

        x = jnp.where(jnp.abs(x) <= LARGEST, x, 0)  # also for NaN: 0 * infinity would reach other rows' sums
        (mean, variance), pull_back = jax.vjp(project, q)
        by_mean, by_variance = self.slopes(mean, variance, y, z)
        mean_norms, variance_norms = q.squared_gradient_norms(x)  # type: ignore[attr-defined]
        # products of norms, not of squares, of which one may vanish while the other explodes
        squared = sizes = (by_mean * jnp.sqrt(mean_norms)) ** 2 + (by_variance * jnp.sqrt(variance_norms)) ** 2
        if offset is not None:
            _, (along_mean, along_variance) = jax.jvp(project, (q,), (offset,))
            sizes = squared + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(offset))
            squared = jnp.maximum(sizes - 2 * (by_mean * along_mean + by_variance * along_variance), 0)
        weights = mask * clip_weights(squared, clip_norm, sizes)
        slopes = (jnp.where(weights > 0, weights * slope, 0) for slope in (by_mean, by_variance))
        summed: C
        (summed,) = pull_back(tuple(slopes))
        if offset is None:
            return summed
        return jax.tree.map(lambda leaf, shift: leaf - jnp.sum(weights) * shift, summed, offset)
