"""Vectors, one per row, that are clipped and summed privately: what a model gives, and `fedvi.privacy.clipping` uses.

A model says what a row contributes. It never enforces a limit and never sees noise. Each vector depends on its own row
alone, to the last bit, and sums are made of whole numbers (`fedvi.numerics`), so that they do not depend on order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jaxtyping import Float

from fedvi.compiling import jax, jnp
from fedvi.families.base import ExactProjection
from fedvi.numerics import Array, Bounds, cut, row_bits, row_sums
from fedvi.pytree import pytree, static


class RowVectors(Protocol):
    """n vectors, one per row, that need never be stored. All arrays are in double precision."""

    @property
    def rounding(self) -> float:
        """Relative error of a vector that may depend on other rows; 0 where it is proven that none does."""

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the squared norm of every vector, never less than it is."""

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Any:
        """Return the weighted sum in whole numbers; every weighted vector is cut towards zero.

        Rows with weight zero count nothing, whatever they hold.
        """

    def units(self, bounds: Bounds) -> Any:
        """Return what one means in each entry of `whole_sum`; rows have no influence on it."""


class ShiftedVectors(RowVectors, Protocol):
    """Vectors from which an offset can be subtracted before they are clipped."""

    def least_dot(self, direction: Any) -> Float[Array, " n"]:
        """Return the inner product of every vector with a direction (`snapped`), never more than it is."""

    def longest_cut(self, bounds: Bounds) -> Float[Array, ""]:
        """Return the most by which cutting can shorten one vector."""


VectorsOf = Callable[[Array, Array, Array], Any]
"""From x, y and lengths of rows on their grid to a `Part`, or to a pytree of parts that are clipped apart."""


@pytree
class Part:
    """Vectors (`RowVectors`) that are clipped together, to `sqrt(share)` of the clip norm. Shares add up to 1."""

    vectors: Any
    share: Any = 1.0


@pytree
class ProjectedVectors:
    """Gradients of functions of `w'x`: slopes pulled back through the projection. No gradient is ever stored."""

    projection: ExactProjection
    by_mean: Float[Array, " n"]
    by_variance: Float[Array, " n"]
    columns: int = static()
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return `a_i^2 |grad m_i|^2 + b_i^2 |grad v_i|^2`."""
        of_mean, of_variance = self.projection.norms
        return (self.by_mean * of_mean) ** 2 + (self.by_variance * of_variance) ** 2

    def least_dot(self, direction: Any) -> Float[Array, " n"]:
        """Return the inner products, less what rounding can hide."""
        of_mean, of_variance, error = self.projection.push_forward(direction)
        return self.by_mean * of_mean + self.by_variance * of_variance - jnp.abs(self.by_variance) * error

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Any:
        """Return the sum, by two products of a vector and a matrix."""
        by_mean, by_variance = (jnp.where(weights > 0, weights * each, 0) for each in (self.by_mean, self.by_variance))
        return self.projection.whole_pull_back(by_mean, by_variance, bounds)

    def units(self, bounds: Bounds) -> Any:
        """Return what one means in each entry."""
        return self.projection.units(bounds)

    def longest_cut(self, bounds: Bounds) -> Float[Array, ""]:
        """Return the most that one unit of every cut number amounts to."""
        units, _ = jax.flatten_util.ravel_pytree(self.units(bounds))
        return jnp.sqrt(jnp.sum(units**2)) * 2.0 ** (row_bits(self.columns) + 1)


@pytree
class ScaledRows:
    """A number times the row."""

    factors: Float[Array, " n"]
    rows: Float[Array, "n d"]
    lengths: Float[Array, " n"]
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the squared norms."""
        return (self.factors * self.lengths) ** 2

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Float[Array, " d"]:
        """Return the sum, by one product of a vector and a matrix."""
        row_step = bounds.row_step(self.rows.shape[1])
        factors = cut(jnp.where(weights > 0, weights * self.factors, 0), bounds.step / row_step)
        return (factors @ self.rows) * (1 / row_step)

    def units(self, bounds: Bounds) -> Float[Array, " d"]:
        """Return what one means in each entry."""
        return jnp.full_like(self.rows[0], bounds.step)


@pytree
class SquaredRows:
    """The squares of a row's entries, rounded to whole numbers, times one public number."""

    factor: Float[Array, ""]
    squares: Float[Array, "n d"]
    step: Float[Array, ""]
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the squared norms."""
        return (self.factor * self.step * jnp.sqrt(row_sums(self.squares**2))) ** 2

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Float[Array, " d"]:
        """Return the sum, by one product of a vector and a matrix."""
        return cut(jnp.where(weights > 0, weights, 0), self._scalar_step(bounds)) @ self.squares

    def units(self, bounds: Bounds) -> Float[Array, " d"]:
        """Return what one means in each entry."""
        return jnp.full_like(self.squares[0], self.factor * self.step * self._scalar_step(bounds))

    def _scalar_step(self, bounds: Bounds) -> Float[Array, ""]:
        return bounds.scalar_step(jnp.ones_like(bounds.norm), self.squares.shape[1])


@pytree
class StoredVectors:
    """Vectors that are there, for models without a closed form; every entry is cut.

    like: has the structure of one vector.
    """

    vectors: Float[Array, "n k"]
    like: Any
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the squared norms, and what may have vanished in squaring."""
        return row_sums(self.vectors**2) + self.vectors.shape[1] * jnp.finfo(self.vectors.dtype).tiny

    def least_dot(self, direction: Any) -> Float[Array, " n"]:
        """Return the inner products."""
        flat, _ = jax.flatten_util.ravel_pytree(direction)
        return self.vectors @ flat

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Any:
        """Return the sum."""
        counted = jnp.where(weights[:, None] > 0, weights[:, None] * self.vectors, 0)
        return self._tree(jnp.sum(cut(counted, bounds.step), axis=0))

    def units(self, bounds: Bounds) -> Any:
        """Return what one means in each entry."""
        return self._tree(jnp.full(self.vectors.shape[1], bounds.step))

    def longest_cut(self, bounds: Bounds) -> Float[Array, ""]:
        """Return the most that one unit of every entry amounts to."""
        return bounds.step * jnp.sqrt(float(self.vectors.shape[1]))

    def _tree(self, flat: Float[Array, " k"]) -> Any:
        _, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(lambda leaf: leaf.astype(flat.dtype), self.like))
        return unravel(flat)
