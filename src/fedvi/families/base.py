"""The algebra of factors: multiply = add, divide = subtract, power = scale, on natural parameters.

A posterior is `q = prior * t_1 * ... * t_M`. In an exponential family each `t_m` is a vector of natural parameters
and a product of factors is a sum of vectors. `Factor` says just that, for any number of fields: a family may carry
more than natural parameters (say, the variance of the noise in them) as long as its fields add under multiplication.
How a product of factors turns into a posterior is the family's own business: `Factor.posterior`.

Improper factors (negative precisions) are legal values here. What must be proper is the q that is read out and the
cavity that an update starts from; `require_proper` guards those.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable
from typing import Any, Protocol, Self

from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from fedvi.compiling import jax, jnp
from fedvi.errors import ImproperError
from fedvi.numerics import Array, Bounds, namespace, row_bits
from fedvi.pytree import leaves, pytree, static, tree_map


class Factor(abc.ABC):
    """A pytree whose fields add when factors multiply."""

    natural_mean: Float[Array, "*batch d"]

    @property
    def dim(self) -> int:
        """Number of parameters that the factor speaks about."""
        return int(self.natural_mean.shape[-1])

    @property
    def size(self) -> int:
        """Number of numbers that the factor is made of; a Gaussian's coordinates are as many."""
        return sum(leaf.size for leaf in leaves(self))

    def __mul__(self, other: Self) -> Self:
        self._check_same_family(other, "multiply")
        return tree_map(operator.add, self, other)

    def __truediv__(self, other: Self) -> Self:
        self._check_same_family(other, "divide")
        return tree_map(operator.sub, self, other)

    def __pow__(self, power: Float[Array, ""] | float) -> Self:
        return tree_map(lambda leaf: leaf * power, self)

    def one(self) -> Self:
        """Return the factor 1 of the same family and shape."""
        return tree_map(lambda leaf: namespace(leaf).zeros_like(leaf), self)

    @abc.abstractmethod
    def posterior(self, prior: Any) -> GaussianFamily:
        """Read the posterior out of a product of factors (`self`) and a prior."""

    def is_proper_with(self, prior: Any) -> Bool[Array, ""]:
        """Tell whether this product of factors and the prior make a proper posterior."""
        return self.posterior(prior).is_proper()

    def is_legal(self) -> Bool[Array, "*batch"]:
        """Tell whether the factor is one that a client may release; any finite one, unless a family says otherwise."""
        return namespace(self.natural_mean).ones(self.natural_mean.shape[:-1], bool)

    @abc.abstractmethod
    def repaired(self) -> tuple[Self, Int[Array, "*batch"]]:
        """Return the factor without its negative precisions, and how many directions were repaired."""

    def _check_same_family(self, other: Factor, verb: str) -> None:
        if type(self) is not type(other):
            raise TypeError(f"Cannot {verb} {type(self).__name__} and {type(other).__name__}.")
        if self.dim != other.dim:
            raise ValueError(f"Cannot {verb} factors over {self.dim} and {other.dim} parameters.")


class Projection(Protocol):
    """Mean and variance of `w'x_i` for every row, and the gradient of functions of them."""

    @property
    def mean(self) -> Float[Array, " n"]:
        """Means."""

    @property
    def variance(self) -> Float[Array, " n"]:
        """Variances."""

    def pull_back(self, by_mean: Float[Array, " n"], by_variance: Float[Array, " n"]) -> Coordinates:
        """Return the gradient of `sum_i by_mean_i mean_i + by_variance_i variance_i`."""


@pytree
class ProjectedVectors(abc.ABC):
    """Gradients of functions of `w'x`, one per row on its grid: what private sums are made of. None is ever stored.

    All is in double precision and whole numbers (`fedvi.numerics`). A row's mean and variance have the same bits with
    whatever other rows they are computed. The gradient is that of the variance as it is computed, which is rounded.

    by_mean, by_variance: slopes a_i and b_i of the functions by mean and variance.
    norms: of the derivatives of each row's mean, and of each row's variance, which live on different coordinates.
        Privacy rests on these numbers: they are never smaller than the truth by more than rounding.
    rounding: relative error of slopes that may depend on other rows.
    """

    by_mean: Float[Array, " n"]
    by_variance: Float[Array, " n"]
    norms: tuple[Float[Array, " n"], Float[Array, " n"]]
    rows: Float[Array, "n d"]
    rounding: float = static()

    def squared_norms(self) -> Float[Array, " n"]:
        """Return `a_i^2 |grad m_i|^2 + b_i^2 |grad v_i|^2`."""
        of_mean, of_variance = self.norms
        return (self.by_mean * of_mean) ** 2 + (self.by_variance * of_variance) ** 2

    def least_dot(self, direction: Any) -> Float[Array, " n"]:
        """Return the inner products with a direction (`snapped`), less what rounding can hide: never more."""
        of_mean, of_variance, error = self.push_forward(direction)
        return self.by_mean * of_mean + self.by_variance * of_variance - jnp.abs(self.by_variance) * error

    def longest_cut(self, bounds: Bounds) -> Float[Array, ""]:
        """Return the most by which cutting can shorten one vector: one unit of every cut number."""
        units, _ = jax.flatten_util.ravel_pytree(self.units(bounds))
        return jnp.sqrt(jnp.sum(units**2)) * 2.0 ** (row_bits(self.rows.shape[1]) + 1)

    @abc.abstractmethod
    def push_forward(self, direction: Any) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, ""]]:
        """Return the derivatives of each row's mean and variance along a direction, and how far off the second is."""

    @abc.abstractmethod
    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Coordinates:
        """Return the weighted sum in whole `units`; every row's part is cut towards zero."""

    @abc.abstractmethod
    def units(self, bounds: Bounds) -> Coordinates:
        """Return the unit of each entry of `whole_sum`; rows have no influence on it."""


Projected = tuple[Float[Array, " n"], Float[Array, " n"], Callable[..., ProjectedVectors]]
ProjectRows = Callable[[Float[Array, "n d"], Float[Array, " n"]], Projected]
"""From rows on their grid and their lengths to mean and variance of `w'x_i`, and from slopes to `ProjectedVectors`."""


class Coordinates(Protocol):
    """Unconstrained coordinates of a proper Gaussian: what optimisers move. Gradients flow through every method."""

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        """Mean of the parameters."""

    def natural(self) -> GaussianFamily:
        """Return the same Gaussian in natural parameters."""

    def projection(self, x: Float[Array, "n d"]) -> Projection:
        """Return the distribution of `w'x` for every row of x, with its derivatives in these coordinates."""

    def exact(self, feature_bound: Float[Array, ""], steepest: Any, rounding: float) -> ProjectRows:
        """Return the projection of rows on their grid; what does not depend on rows is computed here, once.

        steepest: the largest slope by a variance, or None. rounding: of slopes (`ProjectedVectors`).
        """

    def rows_at_once(self, columns: int) -> int:
        """Return how many rows with so many columns are best projected together."""

    def transform(self, z: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Turn standard normal draws into draws from the Gaussian (reparameterisation)."""

    def kl(self, other: Any) -> Float[Array, "*batch"]:
        """Return KL(self || other), for two Gaussians in the same coordinates."""

    def entropy(self) -> Float[Array, "*batch"]:
        """Return the differential entropy in nats."""

    def expected_log(self, factor: Any) -> Float[Array, "*batch"]:
        """Return E[log factor] up to the factor's normaliser; linear in the factor, which may be improper."""


class GaussianFamily(Factor):
    """What mean-field and full-covariance Gaussians have in common; both are natural parameters.

    Moments, KL, entropy and draws need a proper Gaussian and give NaN for an improper one: they run inside compiled
    code, which cannot raise. `require_proper` raises where a person is there to read it.
    """

    precision: Float[Array, "*batch ..."]

    @classmethod
    @abc.abstractmethod
    def standard(cls, dim: int, variance: ArrayLike = 1.0) -> Self:
        """Return N(0, variance I); with one variance per coordinate, N(0, diag(variance))."""

    @classmethod
    @abc.abstractmethod
    def from_moments(cls, mean: ArrayLike, spread: ArrayLike) -> Self:
        """Return the Gaussian with this mean and these variances, or this covariance matrix."""

    @abc.abstractmethod
    def log_prob(self, w: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the normalised log density at w."""

    @abc.abstractmethod
    def coordinates(self) -> Coordinates:
        """Return the unconstrained coordinates of this (proper) Gaussian."""

    @abc.abstractmethod
    def is_proper(self) -> Bool[Array, "*batch"]:
        """Tell whether the Gaussian can be normalised."""

    @abc.abstractmethod
    def best_factor(self, natural_mean: Float[Array, " d"], precision: Float[Array, "d d"]) -> Self:
        """Return the factor t for which `self * t` is closest in KL(. || product) to `self` times a likelihood.

        The likelihood is exp(natural_mean'w - w'precision w / 2), with a full precision matrix.
        """

    @property
    @abc.abstractmethod
    def mean(self) -> Float[Array, "*batch d"]:
        """Mean of the parameters."""

    @property
    @abc.abstractmethod
    def variance(self) -> Float[Array, "*batch d"]:
        """Marginal variance of each parameter."""

    @property
    def std(self) -> Float[Array, "*batch d"]:
        """Marginal standard deviation of each parameter."""
        return namespace(self.natural_mean).sqrt(self.variance)

    @property
    @abc.abstractmethod
    def covariance(self) -> Float[Array, "*batch d d"]:
        """Covariance matrix of the parameters."""

    def posterior(self, prior: Self) -> Self:
        """Return `prior * self`."""
        return prior * self

    def project(self, x: Float[Array, "n d"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return mean and variance of `w'x` for every row of x."""
        projection = self.projection(x)
        return projection.mean, projection.variance

    def projection(self, x: Float[Array, "n d"]) -> Projection:
        """Return the distribution of `w'x` for every row of x, with its derivatives in the coordinates."""
        return self.coordinates().projection(x)

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Float[Array, "... d"]:
        """Draw from the Gaussian; `shape` comes before the batch and parameter axes."""
        z = jax.random.normal(key, shape + self.natural_mean.shape, self.natural_mean.dtype)
        return self.coordinates().transform(z)

    def kl(self, other: Self) -> Float[Array, "*batch"]:
        """Return KL(self || other) in nats."""
        self._check_same_family(other, "compare")
        return self.coordinates().kl(other.coordinates())

    def entropy(self) -> Float[Array, "*batch"]:
        """Return the differential entropy in nats."""
        return self.coordinates().entropy()


def require_proper(q: GaussianFamily, what: str) -> None:
    """Raise `ImproperError` unless `q` is proper; `what` names it in the message. Not for compiled code."""
    if not bool(q.is_proper().all()):
        raise ImproperError(f"The {what} is improper: {q!r}.")


def extent(q: GaussianFamily) -> Float[Array, ""]:
    """Return the largest mean, whatever its sign, or standard deviation of a proper Gaussian."""
    return namespace(q.natural_mean).maximum(abs(q.mean).max(), q.std.max())
