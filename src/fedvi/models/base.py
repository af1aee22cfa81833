"""What a likelihood is: everything that the rest of fedvi asks of a model.

A model speaks about one example at a time: `log p(y_i | x_i, w)`. Partitioned VI needs its expectation under a Gaussian
q over w, the gradient of that expectation in the coordinates of q, and the predictive distribution. A model gives the
first and the last; the gradient comes by differentiation, or faster from a closed form that gives the same numbers.

Randomness is an argument: a model that estimates its expectation by Monte Carlo says with `noise_shape` how many
standard normals it wants per step, and gets them as `z`.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.models.predictive import Predictive
from fedvi.models.row_vectors import Part, StoredVectors, VectorsOf
from fedvi.models.width import Width
from fedvi.numerics import Array, widen

C = TypeVar("C")

GRADIENT_BYTES = 16_000_000
"""Memory for the gradients of rows that are worked on together."""


@dataclasses.dataclass(frozen=True)
class Defaults:
    """What settings of a fit follow from, beside the schema.

    prior_variance: of a weight, for features with scales near one. typical_slope: of the log-likelihood of one row by
    its linear predictor. Those of numbers in units of their noise, unless a model says otherwise.
    """

    prior_variance: float = 10.0
    typical_slope: float = 2.0


class RowSums(Protocol):
    """Anything with a vector per row that can be summed plainly, or privately: for a model, gradients.

    See `Model.gradient` and `Model.row_vectors`.
    """

    def rows_at_once(self, q: Any, x: Any) -> int:
        """Return how many rows of a buffer x are best worked on together."""

    def gradient(self, q: Any, x: Any, y: Any, weights: Any, z: Any) -> Any:
        """Return the weighted sum over rows."""

    def row_vectors(self, q: Any, z: Any, feature_bound: Any) -> VectorsOf:
        """Return a function of rows (x, y, lengths of x) that gives their vectors, in double precision.

        As a `Part`, or as a pytree of parts that are clipped apart.
        """


class Model(abc.ABC):
    """A likelihood with per-example terms. Subclasses are pytrees: see `fedvi.models.custom` for a small one.

    effect: what exp(coefficient) is, such as an odds ratio; empty if it is nothing. wanted: its targets, for messages.
    """

    effect: ClassVar[str] = ""
    wanted: ClassVar[str] = "targets that the model knows"
    defaults: ClassVar[Defaults] = Defaults()

    @property
    def abilities(self) -> frozenset[str]:
        """What solvers may need: `gradient`; `closed form` (`Conjugate`); `curvature` for noise-aware factors."""
        return frozenset({"gradient"} | ({"closed form"} if isinstance(self, Conjugate) else set()))

    @abc.abstractmethod
    def expected_log_likelihood(
        self, q: Any, x: Float[Array, "n ..."], y: Float[Array, "n ..."], z: Float[Array, ...]
    ) -> Float[Array, " n"]:
        """Return `E_q[log p(y_i | x_i, w)]` for every row; q is a Gaussian or its coordinates."""

    @abc.abstractmethod
    def predictive(self, q: GaussianFamily, x: Float[Array, "n ..."]) -> Predictive:
        """Return the distribution of y for every row, with w integrated out."""

    def gradient(
        self,
        q: C,
        x: Float[Array, "n ..."],
        y: Float[Array, "n ..."],
        weights: Float[Array, " n"],
        z: Float[Array, ...],
    ) -> C:
        """Return the gradient of `sum_i weights_i E_q[log p(y_i | x_i, w)]` in the coordinates q."""

        def total(coordinates: C) -> Float[Array, ""]:
            return weights @ self.expected_log_likelihood(coordinates, x, y, z)

        return jax.grad(total)(q)

    def row_vectors(
        self,
        q: Any,
        z: Float[Array, ...],
        feature_bound: Float[Array, ""],  # noqa: ARG002 - closed forms need it
    ) -> VectorsOf:
        """Return from rows to the gradient of each `E_q[log p(y_i | x_i, w)]`, to be clipped.

        Here row by row, by differentiation in the precision in use; called within `double_precision`.
        """
        dtype = jax.tree.leaves(q)[0].dtype

        def of_row(row: Array, target: Array) -> Array:
            return jax.flatten_util.ravel_pytree(self.gradient(q, row[None], target[None], jnp.ones(1, dtype), z))[0]

        def vectors(x: Array, y: Array, lengths: Array) -> Part:  # noqa: ARG001
            with jax.enable_x64(dtype == jnp.float64):  # the model's own work stays as it is
                gradients = jax.vmap(of_row)(x, y)
            return Part(StoredVectors(widen(gradients), q, float(jnp.finfo(dtype).eps)))

        return vectors

    def rows_at_once(self, q: Any, x: Float[Array, "n ..."]) -> int:  # noqa: ARG002 - closed forms know better
        """Return how many rows of a buffer x are best worked on together: their gradients are in memory."""
        size = sum(leaf.size for leaf in jax.tree.leaves(q))
        return max(1, min(32, GRADIENT_BYTES // (8 * size)))

    def dim(self, x: Float[Array, "n ..."] | np.ndarray) -> int:
        """Return the number of parameters for data like x; one per column unless a model says otherwise."""
        return int(x.shape[-1])

    def noise_shape(self, dim: int) -> tuple[int, ...]:  # noqa: ARG002 - others need it
        """Return the shape of the standard normals `z` that one gradient needs; (0,) for none."""
        return (0,)

    def predictions(self, q: GaussianFamily, x: Any, level: float) -> dict[str, Array]:
        """Return columns for every row: mean, and low and high, the ends of a credible interval.

        Of the probability of the second of two classes, or of a number.
        """
        predictive: Any = self.predictive(q, x)
        return predictive.summary(level)

    @property
    def width(self) -> Width:
        """What one more private number per site says about the width of the posterior."""
        return Width(self)

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
