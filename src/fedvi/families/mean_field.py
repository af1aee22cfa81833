"""Mean-field Gaussians: `log q(w) = const + natural_mean'w - (1/2) sum_j precision_j w_j^2`.

    natural_mean = mean / variance        precision = 1 / variance

All operations are elementwise, so that a batch of Gaussians is the same class with more leading axes.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily, Projected, ProjectedVectors, ProjectRows
from fedvi.numerics import (
    Array,
    Bounds,
    cut,
    default_namespace,
    diagonal_matrix,
    namespace,
    power_above,
    row_bits,
    row_sums,
    snapped,
    weight_bits,
    whole_row_sums,
)
from fedvi.pytree import precision, pytree

HIGHEST_LOG_VARIANCE = 300.0
"""Beyond this, squares of variances would overflow in double precision; single precision ends at 88."""


@pytree
class MeanFieldProjection:
    """Mean and variance of `w'x_i` for every row, and the gradient in (mean, log variance).

    The derivative of the mean is x; that of the variance is x^2 times the variances of w.
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    rows: Float[Array, "n d"]
    squares: Float[Array, "n d"]
    weight_variance: Float[Array, " d"]

    def pull_back(self, by_mean: Float[Array, " n"], by_variance: Float[Array, " n"]) -> MeanFieldCoordinates:
        """Return the gradient of `sum_i by_mean_i mean_i + by_variance_i variance_i`."""
        return MeanFieldCoordinates(by_mean @ self.rows, (by_variance @ self.squares) * self.weight_variance)


@pytree
class MeanFieldVectors(ProjectedVectors):
    """Gradients in (mean, log variance). squares: those of the rows, rounded to whole numbers of `square_step`.

    The squares of a row stand for x^2 in its variance and in its gradient alike. The norm of the variance's derivative
    is computed from entries rounded to whole numbers, and made longer by what that can hide.
    """

    squares: Float[Array, "n d"]
    square_step: Float[Array, ""]
    weight_variance: Float[Array, " d"]
    feature_bound: Float[Array, ""]
    steepest: Any

    def push_forward(
        self, direction: MeanFieldCoordinates
    ) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, ""]]:
        """Return the derivatives of every row's mean and variance along a direction, and how far off the second is."""
        weights = self.weight_variance * direction.log_variance
        terms = self.squares * (self.square_step * weights)[None]
        along, error = whole_row_sums(terms, self.feature_bound**2 * jnp.max(jnp.abs(weights)))
        return self.rows @ direction.mean, along, error

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> MeanFieldCoordinates:
        """Return the sum in whole numbers of `units`: one number per row is cut, and multiplies the row.

        Where the largest slope by a variance is not known, or cutting has to be fine, every entry of the second part is
        cut instead.
        """
        by_mean, by_variance = (jnp.where(weights > 0, weights * each, 0) for each in (self.by_mean, self.by_variance))
        columns = self.rows.shape[1]
        row_step = bounds.row_step(columns)
        slopes = (cut(by_mean, bounds.step / row_step) @ self.rows) * (1 / row_step)
        if bounds.shifted or self.steepest is None:
            entries = by_variance[:, None] * (self.squares * (self.weight_variance * self.square_step)[None])
            return MeanFieldCoordinates(slopes, jnp.sum(cut(entries, bounds.step), axis=0))
        return MeanFieldCoordinates(slopes, cut(by_variance, bounds.scalar_step(self.steepest, columns)) @ self.squares)

    def units(self, bounds: Bounds) -> MeanFieldCoordinates:
        """Return the unit of each entry of the gradient."""
        same = jnp.full_like(self.weight_variance, bounds.step)
        if bounds.shifted or self.steepest is None:
            return MeanFieldCoordinates(same, same)
        step = bounds.scalar_step(self.steepest, self.rows.shape[1])
        return MeanFieldCoordinates(same, self.weight_variance * (self.square_step * step))


@pytree
class MeanFieldCoordinates:
    """(mean, log variance): the coordinates in which the paper optimises q."""

    mean: Float[Array, "*batch d"]
    log_variance: Float[Array, "*batch d"]

    def natural(self) -> Gaussian:
        """Return the same Gaussian in natural parameters."""
        precision = namespace(self.mean).exp(-self.log_variance)
        return Gaussian(self.mean * precision, precision)

    def rows_at_once(self, columns: int) -> int:
        """Return how many rows are best projected together: what is made of them should stay in a core's cache."""
        return max(4, min(8, 65_536 // columns))

    def projection(self, x: Float[Array, "n d"]) -> MeanFieldProjection:
        """Return the distribution of `w'x` for every row of x, with its derivatives."""
        xp = namespace(self.mean)
        squares, variance = x * x, xp.exp(xp.minimum(self.log_variance, HIGHEST_LOG_VARIANCE))
        return MeanFieldProjection(x @ self.mean, squares @ variance, x, squares, variance)

    def exact(self, feature_bound: Float[Array, ""], steepest: Any, rounding: float) -> ProjectRows:
        """Return the projection of rows on their grid."""
        columns = self.mean.shape[-1]
        variance = jnp.exp(jnp.minimum(self.log_variance, HIGHEST_LOG_VARIANCE))
        square_step = feature_bound**2 * 2.0 ** -row_bits(columns)
        norm_step = power_above(feature_bound**2 * jnp.max(variance)) * 2.0 ** -row_bits(columns)
        weights = snapped(self.mean, weight_bits(columns))
        spreads = snapped(variance, weight_bits(columns)) * square_step
        entries = variance * (square_step / norm_step)

        def project(x: Float[Array, "n d"], lengths: Float[Array, " n"]) -> Projected:
            squares = jnp.rint(x * x * (1 / square_step))
            of_variance = jnp.sqrt(row_sums(jnp.rint(squares * entries[None]) ** 2)) + 0.5 * math.sqrt(columns)
            vectors = functools.partial(
                MeanFieldVectors,
                norms=(lengths, of_variance * norm_step),
                rows=x,
                rounding=rounding,
                squares=squares,
                square_step=square_step,
                weight_variance=variance,
                feature_bound=feature_bound,
                steepest=steepest,
            )
            return x @ weights, squares @ spreads, vectors

        return project

    def transform(self, z: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Turn standard normal draws into draws from the Gaussian."""
        shape = (1,) * (z.ndim - self.mean.ndim) + self.mean.shape
        return self.mean.reshape(shape) + namespace(self.mean).exp(0.5 * self.log_variance).reshape(shape) * z

    def kl(self, other: MeanFieldCoordinates) -> Float[Array, "*batch"]:
        """Return KL(self || other).

        Written in differences, so that value and gradient are exactly zero at `self == other`. An adaptive optimiser
        scales any gradient up to its learning rate: rounding errors here would become steps.
        """
        xp = namespace(self.mean)
        growth = self.log_variance - other.log_variance
        shift = self.mean - other.mean
        return 0.5 * (xp.expm1(growth) - growth + shift**2 * xp.exp(-other.log_variance)).sum(axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """Return the differential entropy in nats."""
        return 0.5 * (self.log_variance + math.log(2 * math.pi * math.e)).sum(axis=-1)

    def expected_log(self, factor: Gaussian) -> Float[Array, "*batch"]:
        """Return E[natural_mean'w - precision w^2 / 2], linear in the (maybe improper) factor."""
        second_moment = self.mean**2 + namespace(self.mean).exp(self.log_variance)
        return (factor.natural_mean * self.mean - 0.5 * factor.precision * second_moment).sum(axis=-1)


@pytree
class Gaussian(GaussianFamily):
    """Mean-field Gaussian, or Gaussian factor, in natural parameters.

    >>> prior = Gaussian.standard(2)
    >>> evidence = Gaussian.from_moments([1.0, -1.0], [0.5, 0.25])
    >>> (prior * evidence).mean.tolist()
    [0.666..., -0.800...]
    >>> bool((prior / evidence).is_proper())
    False
    """

    natural_mean: Float[Array, "*batch d"]
    precision: Float[Array, "*batch d"]

    @classmethod
    def standard(cls, dim: int, variance: ArrayLike = 1.0) -> Self:
        """Return N(0, variance I); with one variance per coordinate, N(0, diag(variance))."""
        return cls.from_moments(np.zeros(dim), variance)

    @classmethod
    def from_moments(cls, mean: ArrayLike, spread: ArrayLike) -> Self:
        """Return the Gaussian with this mean and these marginal variances (`spread`; one number for all the same)."""
        xp = default_namespace()
        centre, variance = (xp.asarray(part, precision()) for part in (mean, spread))
        if variance.shape not in ((), centre.shape):
            raise InputError(f"Expected one variance, or one per mean {centre.shape}, got shape {variance.shape}.")
        variance = xp.broadcast_to(variance, centre.shape)
        return cls(centre / variance, 1 / variance)

    @property
    @np.errstate(divide="ignore", invalid="ignore")
    def mean(self) -> Float[Array, "*batch d"]:
        """Mean of the parameters."""
        return self.natural_mean / self.precision

    @property
    @np.errstate(divide="ignore")
    def variance(self) -> Float[Array, "*batch d"]:
        """Marginal variance of each parameter."""
        return 1 / self.precision

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        """Covariance matrix of the parameters, which is diagonal."""
        return diagonal_matrix(self.variance)

    def is_proper(self) -> Bool[Array, "*batch"]:
        """Tell whether all precisions are positive and everything is finite, mean and variance too."""
        xp = namespace(self.precision)
        finite = xp.isfinite(self.natural_mean) & xp.isfinite(self.mean) & xp.isfinite(self.variance)
        entries = (self.precision > 0) & xp.isfinite(self.precision) & finite
        return entries.all(axis=-1)

    def coordinates(self) -> MeanFieldCoordinates:
        """Return (mean, log variance)."""
        return MeanFieldCoordinates(self.mean, -namespace(self.precision).log(self.precision))

    def log_prob(self, w: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the normalised log density at w."""
        terms = namespace(self.precision).log(self.precision / (2 * math.pi)) - self.precision * (w - self.mean) ** 2
        return 0.5 * terms.sum(axis=-1)

    def repaired(self) -> tuple[Self, Int[Array, "*batch"]]:
        """Set entries with negative precision to the factor 1 (mean and precision zero), and count them."""
        xp = namespace(self.precision)
        negative = self.precision < 0
        keep = type(self)(xp.where(negative, 0, self.natural_mean), xp.where(negative, 0, self.precision))
        return keep, negative.sum(axis=-1, dtype=xp.int32)

    def best_factor(self, natural_mean: Float[Array, " d"], precision: Float[Array, "d d"]) -> Self:
        """Return the factor t for which `self * t` is the mean-field optimum.

        The exact product has precision matrix `P = diag(self.precision) + precision`. The mean-field Gaussian that
        minimises KL(q || product) has the product's mean and the precisions `diag(P)`.
        """
        product = jnp.diag(self.precision) + precision
        factored = jax.scipy.linalg.cho_factor(product, lower=True)
        mean = jax.scipy.linalg.cho_solve(factored, self.natural_mean + natural_mean)
        return type(self)(mean * jnp.diag(product) - self.natural_mean, jnp.diag(precision))
