"""What a likelihood is: everything that the rest of fedvi asks of a model.

A model speaks about one example at a time: `log p(y_i | x_i, w)`. Partitioned VI needs its expectation under a Gaussian
q over w, the gradient of that expectation in the coordinates of q, and the predictive distribution. A model gives the
first and the last; the gradient comes by differentiation, or faster from a closed form that gives the same numbers.

Where gradients are clipped and summed privately (`fedvi.privacy.clipping`), a model says what a row contributes
(`RowVectors`). It never enforces a limit and never sees noise. Each vector depends on its own row alone, to the last
bit, and sums are made of whole numbers (`fedvi.numerics`), so that they do not depend on order.

Randomness is an argument: a model that estimates its expectation by Monte Carlo says with `noise_shape` how many
standard normals it wants per step, and gets them as `z`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import Coordinates, GaussianFamily
from fedvi.models.predictive import Predictive
from fedvi.numerics import Array, Bounds, cut, row_sums, widen
from fedvi.pytree import pytree, static

RowArray = Float[Array, "n ..."]
"""Features or targets: one entry per row."""

GRADIENT_BYTES = 16_000_000
"""Memory for the gradients of rows that are worked on together."""


class RowVectors(Protocol):
    """n vectors, one per row, that need never be stored. All arrays are in double precision.

    Those from which an offset is subtracted before they are clipped have `least_dot` and `longest_cut` too.
    """

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


@pytree
class Part:
    """Vectors (`RowVectors`) that are clipped together, to `sqrt(share)` of the clip norm. Shares add up to 1."""

    vectors: Any
    share: Any = 1.0


VectorsOf = Callable[[Array, Array, Array], Any]
"""From x, y and lengths of rows on their grid to a `Part`, or to a pytree of parts that are clipped apart."""


class RowSums(Protocol):
    """Anything with a vector per row that can be summed plainly, or privately: for a model, gradients."""

    def rows_at_once(self, q: Coordinates, x: Any) -> int:
        """Return how many rows of a buffer x are best worked on together."""

    def gradient(self, q: Coordinates, x: Any, y: Any, weights: Any, z: Any) -> Any:
        """Return the weighted sum over rows."""

    def row_vectors(self, q: Coordinates, z: Any, feature_bound: Any) -> VectorsOf:
        """Return from rows to their vectors, in double precision."""


@dataclasses.dataclass(frozen=True)
class Defaults:
    """What settings of a fit follow from, beside the schema.

    prior_variance: of a weight, for features with scales near one; for numbers in units of their noise, unless a model
        says otherwise.
    """

    prior_variance: float = 10.0


class Model(abc.ABC):
    """A likelihood with per-example terms. Subclasses are pytrees: see `fedvi.models.custom` for a small one.

    effect: what exp(coefficient) is, such as an odds ratio; empty if it is nothing. wanted: its targets, for messages.
    A class that no row can make NaN says `proven_finite = True` for itself; others are looked at (`models.finite`).
    """

    effect: ClassVar[str] = ""
    wanted: ClassVar[str] = "targets that the model knows"
    defaults: ClassVar[Defaults] = Defaults()

    @property
    def all_outcomes(self) -> tuple[float, ...]:
        """All values that y can have, if they are few; else nothing."""
        return ()

    def drawn_outcomes(self, q: Coordinates, x: RowArray, y: RowArray, z: Any) -> list[RowArray]:  # most draw none
        """Return arrays like y, drawn from the model with q: each row by itself, without a look at y."""
        return []

    @property
    def looks_at_outcomes(self) -> bool:
        """Whether private steps clip a row by its own outcome: such steps are biased, and intervals too narrow."""
        return not self.all_outcomes

    @property
    def abilities(self) -> frozenset[str]:
        """What solvers may need: `gradient`; `closed form` (`Conjugate`); `curvature` for noise-aware factors."""
        return frozenset({"gradient"} | ({"closed form"} if isinstance(self, Conjugate) else set()))

    @abc.abstractmethod
    def expected_log_likelihood(
        self, q: Any, x: RowArray, y: RowArray, z: Float[Array, "*draws"]
    ) -> Float[Array, " n"]:
        """Return `E_q[log p(y_i | x_i, w)]` for every row; q is a Gaussian or its coordinates."""

    @abc.abstractmethod
    def predictive(self, q: GaussianFamily, x: RowArray) -> Predictive:
        """Return the distribution of y for every row, with w integrated out."""

    def gradient(
        self, q: Coordinates, x: RowArray, y: RowArray, weights: Float[Array, " n"], z: Float[Array, "*draws"]
    ) -> Coordinates:
        """Return the gradient of `sum_i weights_i E_q[log p(y_i | x_i, w)]` in the coordinates q."""
        return jax.grad(lambda coordinates: weights @ self.expected_log_likelihood(coordinates, x, y, z))(q)

    def row_vectors(self, q: Coordinates, z: Float[Array, "*draws"], feature_bound: Float[Array, ""]) -> VectorsOf:
        """Return from rows to the gradient of each `E_q[log p(y_i | x_i, w)]`, to be clipped.

        Here row by row, by differentiation in the precision in use; called within `double_precision`. A row whose model
        knows all outcomes is clipped by the longest gradient that any of them would have: right on average. So is a row
        whose model draws outcomes (`centred`).
        """
        dtype = jax.tree.leaves(q)[0].dtype

        def of_row(row: Array, target: Array) -> Array:
            return jax.flatten_util.ravel_pytree(self.gradient(q, row[None], target[None], jnp.ones(1, dtype), z))[0]

        def vectors(x: Array, y: Array, lengths: Array) -> Part:  # noqa: ARG001
            with jax.enable_x64(dtype == jnp.float64):  # the model's own work stays as it is
                known = () if self.looks_at_outcomes else self.all_outcomes
                drawn = self.drawn_outcomes(q, x, y, z)
                outcomes = [y, *(jnp.full_like(y, each) for each in known), *drawn]
                gradients = [jax.vmap(of_row)(x, each) for each in outcomes]
            found = widen(gradients)
            turns = centred(found, q) if drawn else found
            sizes = (row_sums(each**2) for each in (*found, *turns))
            longest = functools.reduce(jnp.maximum, sizes) if len(found) > 1 else None
            return Part(StoredVectors(turns[0], q, longest, float(jnp.finfo(dtype).eps)))

        return vectors

    def rows_at_once(self, q: Coordinates, x: RowArray) -> int:  # closed forms know better
        """Return how many rows of a buffer x are best worked on together: their gradients are in memory."""
        size = sum(leaf.size for leaf in jax.tree.leaves(q))
        return max(1, min(32, GRADIENT_BYTES // (8 * size)))

    def dim(self, x: RowArray | np.ndarray) -> int:
        """Return the number of parameters for data like x; one per column unless a model says otherwise."""
        return int(x.shape[-1])

    def noise_shape(self, dim: int) -> tuple[int, ...]:  # others need it
        """Return the shape of the standard normals `z` that one gradient needs; (0,) for none."""
        return (0,)

    def predictions(self, q: GaussianFamily, x: Any, level: float) -> dict[str, Array]:
        """Return columns for every row: mean, and low and high, the ends of a credible interval.

        Of the probability of the second of two classes, or of a number.
        """
        predictive: Any = self.predictive(q, x)
        return predictive.summary(level)

    def check(self, x: np.ndarray, y: np.ndarray, where: str) -> np.ndarray:
        """Return y as the model counts it, or raise `InputError`; `where` names the rows."""
        self.check_form(x, y, where)
        counted = self.targets(y)
        wrong = np.flatnonzero(~self.usable(counted))
        if wrong.size:
            raise InputError(f"Expected {self.wanted}, got {y[wrong[0]]:g} in {where}, row {wrong[0]}.")
        return counted

    def check_form(self, x: np.ndarray, y: np.ndarray, where: str) -> None:  # noqa: B027 - most are fine
        """Raise `InputError` if these cannot be rows for this model, whatever they hold; `where` names them."""

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Return the targets as the model counts them; each depends on itself alone."""
        return y

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Tell for every row whether its target means anything to this model."""
        return np.ones(len(y), bool)


@runtime_checkable
class Conjugate(Protocol):
    """A model whose likelihood is a Gaussian factor, so that the local optimum has a closed form."""

    def sufficient_statistics(
        self, x: Float[Array, "n d"], y: Float[Array, " n"], weights: Float[Array, " n"]
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Return natural mean and precision matrix of the likelihood of the weighted rows."""


def centred(gradients: list[Float[Array, "n k"]], q: Coordinates) -> list[Float[Array, "n k"]]:
    """Return the gradients of every row, each less the mean of the others: the first is its own, the others are drawn.

    Clip the first by the longest of all, here and as they were. At the true parameters each of them could as well be
    the row's own, and all have the same weight. So the clipped mean is zero, at any clip and with few draws.

    Only the part by q's mean is centred: the rest has another mean than zero, and says how wide q should be.
    """
    only_mean = dataclasses.replace(jax.tree.map(jnp.zeros_like, q), mean=jnp.ones_like(q.mean))
    share = widen(jax.flatten_util.ravel_pytree(only_mean)[0]) / (len(gradients) - 1)
    total = functools.reduce(jnp.add, gradients)
    return [each - share[None] * (total - each) for each in gradients]


@pytree
class StoredVectors:
    """Vectors that are there, for models without a closed form; every entry is cut.

    like: has the structure of one vector. longest: squared norms that vectors of other outcomes would have, by which
        rows are clipped then, at any outcome of their own; or None.
    """

    vectors: Float[Array, "n k"]
    like: Any
    longest: Any = None
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the squared norms, and what may have vanished in squaring; or the longest of all outcomes."""
        own = row_sums(self.vectors**2) + self.vectors.shape[1] * jnp.finfo(self.vectors.dtype).tiny
        return own if self.longest is None else jnp.maximum(own, self.longest)

    def least_dot(self, direction: Any) -> Float[Array, " n"]:
        """Return the inner product of every vector with a direction (`snapped`), never more than it is."""
        flat, _ = jax.flatten_util.ravel_pytree(direction)
        if self.longest is None:
            return self.vectors @ flat
        return -jnp.sqrt(self.squared_norms() * jnp.sum(flat**2)) * (1 + 1e-12)  # without a look at the outcome

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Any:
        """Return the sum."""
        counted = jnp.where(weights[:, None] > 0, weights[:, None] * self.vectors, 0)
        return self._tree(jnp.sum(cut(counted, bounds.step), axis=0))

    def units(self, bounds: Bounds) -> Any:
        """Return what one means in each entry."""
        return self._tree(jnp.full(self.vectors.shape[1], bounds.step))

    def longest_cut(self, bounds: Bounds) -> Float[Array, ""]:
        """Return the most by which cutting can shorten one vector: one unit of every entry."""
        return bounds.step * jnp.sqrt(float(self.vectors.shape[1]))

    def _tree(self, flat: Float[Array, " k"]) -> Any:
        _, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(lambda leaf: leaf.astype(flat.dtype), self.like))
        return unravel(flat)
