"""Gaussians with full covariance: `log q(w) = const + natural_mean'w - w' precision w / 2`.

The same interface as the mean-field `Gaussian`; `precision` is a symmetric matrix. Costs O(d^3) where the mean-field
one costs O(d): meant for tens or hundreds of parameters.
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
    cholesky,
    cut,
    default_namespace,
    diagonal_matrix,
    inverse_lower,
    namespace,
    power_above,
    row_bits,
    row_sums,
    snapped,
    weight_bits,
    whole_row_sums,
)
from fedvi.pytree import precision, pytree, tree_map


@pytree
class CholeskyCoordinates:
    """Mean and `root`, from which the covariance's lower Cholesky factor L is made.

    Below the diagonal root is L, on the diagonal it is log L; above it is not used.
    """

    mean: Float[Array, "*batch d"]
    root: Float[Array, "*batch d d"]

    @property
    def log_scales(self) -> Float[Array, "*batch d"]:
        """Logarithm of the diagonal of L."""
        return self.root.diagonal(axis1=-2, axis2=-1)

    @property
    def cholesky(self) -> Float[Array, "*batch d d"]:
        """Lower Cholesky factor of the covariance."""
        xp = namespace(self.root)
        return xp.tril(self.root, -1) + diagonal_matrix(xp.exp(self.log_scales))

    def natural(self) -> FullGaussian:
        """Return the same Gaussian in natural parameters."""
        inverse = inverse_lower(self.cholesky)
        precision = inverse.mT @ inverse
        return FullGaussian(_times(precision, self.mean), precision)

    def rows_at_once(self, columns: int) -> int:
        """Return how many rows are projected together: in larger blocks, some places round differently."""
        return 8

    def projection(self, x: Float[Array, "n d"]) -> CholeskyProjection:
        """Return the distribution of `w'x` for every row of x, with its derivatives."""
        return CholeskyProjection(*self.moments(x), self, x)

    def exact(self, feature_bound: Float[Array, ""], steepest: Any, rounding: float) -> ProjectRows:
        """Return the projection of rows on their grid; L'x has entries with as many bits as x."""
        columns = self.mean.shape[-1]
        root, weights = (snapped(part, weight_bits(columns)) for part in (self.cholesky, self.mean))
        longest = power_above(feature_bound * jnp.max(jnp.sum(jnp.abs(root), axis=0)))
        scales, step = jnp.diagonal(root), longest * 2.0 ** -row_bits(columns)
        most = feature_bound**2 * (columns + jnp.max(scales) ** 2) * longest**2

        def project(x: Float[Array, "n d"], lengths: Float[Array, " n"]) -> Projected:
            forms = jnp.rint((x @ root) * (1 / step)) * step
            squares = x * x
            below = jnp.cumsum(squares[:, :0:-1], axis=1)[:, ::-1]  # sum over j > k, without subtracting
            factors = jnp.pad(below, ((0, 0), (0, 1))) + squares * (scales**2)[None]
            total, error = whole_row_sums(forms**2 * factors, most)
            vectors = functools.partial(
                CholeskyVectors,
                norms=(lengths, 2 * jnp.sqrt(total + error)),
                rows=x,
                rounding=rounding,
                forms=forms,
                longest_form=longest,
                scales=scales,
                feature_bound=feature_bound,
            )
            return x @ weights, row_sums(forms**2), vectors

        return project

    def moments(self, x: Float[Array, "n d"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return mean and variance of `w'x` for every row of x."""
        return x @ self.mean, ((x @ self.cholesky) ** 2).sum(axis=-1)

    def transform(self, z: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Turn standard normal draws into draws from the Gaussian."""
        return self.mean.reshape((1,) * (z.ndim - self.mean.ndim) + self.mean.shape) + _times(self.cholesky, z)

    def kl(self, other: CholeskyCoordinates) -> Float[Array, "*batch"]:
        """Return KL(self || other), written in differences like the mean-field one."""
        xp = namespace(self.root)
        inverse = inverse_lower(other.cholesky)
        growth = self.log_scales - other.log_scales
        stretch = xp.tril(inverse @ (self.cholesky - other.cholesky), -1)
        shift = _times(inverse, self.mean - other.mean)
        scales = xp.expm1(2 * growth) - 2 * growth
        return 0.5 * ((stretch**2).sum(axis=(-1, -2)) + (scales + shift**2).sum(axis=-1))

    def entropy(self) -> Float[Array, "*batch"]:
        """Return the differential entropy in nats."""
        return (self.log_scales + 0.5 * math.log(2 * math.pi * math.e)).sum(axis=-1)

    def expected_log(self, factor: FullGaussian) -> Float[Array, "*batch"]:
        """Return E[natural_mean'w - w'precision w / 2], linear in the (maybe improper) factor."""
        spread = ((factor.precision @ self.cholesky) * self.cholesky).sum(axis=(-1, -2))
        centre = factor.natural_mean - 0.5 * _times(factor.precision, self.mean)
        return (centre * self.mean).sum(axis=-1) - 0.5 * spread


@pytree
class CholeskyProjection:
    """Mean and variance of `w'x_i` for every row, and the gradient in the coordinates."""

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    coordinates: CholeskyCoordinates
    rows: Float[Array, "n d"]

    def pull_back(self, by_mean: Float[Array, " n"], by_variance: Float[Array, " n"]) -> CholeskyCoordinates:
        """Return the gradient of `sum_i by_mean_i mean_i + by_variance_i variance_i`."""
        _, pull = jax.vjp(lambda q: q.moments(self.rows), self.coordinates)
        gradient: CholeskyCoordinates = pull((by_mean, by_variance))[0]
        return gradient


@pytree
class CholeskyVectors(ProjectedVectors):
    """Gradients in the coordinates. forms: u = L'x, rounded; the variance is |u|^2. scales: the diagonal of L.

    The derivative of the variance is 2 x_j u_k below the diagonal of the root and 2 x_k u_k L_kk on it.
    """

    forms: Float[Array, "n d"]
    longest_form: Float[Array, ""]
    scales: Float[Array, " d"]
    feature_bound: Float[Array, ""]

    def push_forward(
        self, direction: CholeskyCoordinates
    ) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, ""]]:
        """Return the derivatives of every row's mean and variance along a direction, and how far off the second is."""
        below, diagonal = jnp.tril(direction.root, -1), self.scales * jnp.diagonal(direction.root)
        most = self.feature_bound * (jnp.max(jnp.sum(jnp.abs(below), axis=0)) + jnp.max(jnp.abs(diagonal)))
        moved = self.rows @ below + self.rows * diagonal[None]
        along, error = whole_row_sums(self.forms * moved, self.longest_form * most)
        return self.rows @ direction.mean, 2 * along, 2 * error

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> CholeskyCoordinates:
        """Return the sum in whole `units`: one number per entry of L'x is cut, and multiplies the row."""
        by_mean, by_variance = (jnp.where(weights > 0, weights * each, 0) for each in (self.by_mean, self.by_variance))
        row_step = bounds.row_step(self.rows.shape[1])
        forms = 2 * by_variance[:, None] * self.forms
        below = (self.rows.T @ cut(forms, bounds.step / row_step)) * (1 / row_step)
        diagonal = jnp.sum(cut(forms * self.rows * self.scales[None], bounds.step), axis=0)
        slopes = (cut(by_mean, bounds.step / row_step) @ self.rows) * (1 / row_step)
        return CholeskyCoordinates(slopes, jnp.tril(below, -1) + jnp.diag(diagonal))

    def units(self, bounds: Bounds) -> CholeskyCoordinates:
        """Return the unit of each entry of the gradient."""
        columns = self.rows.shape[1]
        return CholeskyCoordinates(jnp.full(columns, bounds.step), jnp.full((columns, columns), bounds.step))


@pytree
class FullGaussian(GaussianFamily):
    """Gaussian, or Gaussian factor, with a full precision matrix.

    >>> q = FullGaussian.from_moments([1.0, 2.0], [[2.0, 1.0], [1.0, 1.0]])
    >>> q.precision.round(3).tolist()
    [[1.0, -1.0], [-1.0, 2.0]]
    """

    natural_mean: Float[Array, "*batch d"]
    precision: Float[Array, "*batch d d"]

    @classmethod
    def standard(cls, dim: int, variance: ArrayLike = 1.0) -> Self:
        """Return N(0, variance I); with one variance per coordinate, N(0, diag(variance))."""
        xp, dtype = default_namespace(), precision()
        diagonal = xp.broadcast_to(1 / xp.asarray(variance, dtype), (dim,))
        return cls(xp.zeros(dim, dtype), xp.diag(diagonal))

    @classmethod
    def from_moments(cls, mean: ArrayLike, spread: ArrayLike) -> Self:
        """Return the Gaussian with this mean and this covariance matrix (`spread`)."""
        xp = default_namespace()
        centre, covariance = (xp.asarray(part, precision()) for part in (mean, spread))
        if covariance.shape != (*centre.shape, *centre.shape[-1:]):
            raise InputError(f"Expected a covariance matrix for mean {centre.shape}, got shape {covariance.shape}.")
        inverse = inverse_lower(cholesky(covariance))
        matrix = inverse.mT @ inverse
        return cls(_times(matrix, centre), matrix)

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        """Mean of the parameters."""
        return _times(self.covariance, self.natural_mean)

    @property
    def variance(self) -> Float[Array, "*batch d"]:
        """Marginal variance of each parameter."""
        return self.covariance.diagonal(axis1=-2, axis2=-1)

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        """Covariance matrix of the parameters."""
        inverse = inverse_lower(cholesky(self.precision))
        return inverse.mT @ inverse

    def is_proper(self) -> Bool[Array, "*batch"]:
        """Tell whether the precision is positive definite (to rounding) and everything is finite."""
        xp = namespace(self.precision)
        factored = xp.isfinite(cholesky(self.precision)).all(axis=(-1, -2))
        return factored & xp.isfinite(self.natural_mean).all(axis=-1)

    def coordinates(self) -> CholeskyCoordinates:
        """Return mean and Cholesky root of the covariance.

        Cholesky of the precision with rows and columns in reverse order gives `precision = U U'` with U upper
        triangular; then `covariance = L L'` with `L = inv(U)'` lower triangular, without inverting twice.
        """
        xp = namespace(self.precision)
        upper = xp.flip(cholesky(xp.flip(self.precision, (-1, -2))), (-1, -2))
        lower = inverse_lower(upper.mT)
        log_scales = xp.log(lower.diagonal(axis1=-2, axis2=-1))
        mean = _times(lower, _times(lower.mT, self.natural_mean))
        return CholeskyCoordinates(mean, xp.tril(lower, -1) + diagonal_matrix(log_scales))

    def log_prob(self, w: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the normalised log density at w."""
        xp = namespace(self.precision)
        lower = cholesky(self.precision)
        scaled = _times(lower.mT, w - self.mean)
        log_scales = xp.log(lower.diagonal(axis1=-2, axis2=-1))
        return (log_scales - 0.5 * scaled**2 - 0.5 * math.log(2 * math.pi)).sum(axis=-1)

    def repaired(self) -> tuple[Self, Int[Array, "*batch"]]:
        """Set directions (eigenvectors) with negative precision to the factor 1, and count them.

        A client with fewer rows than parameters has zero eigenvalues, which rounding makes a bit negative: they stay.
        """
        xp = namespace(self.precision)
        values, vectors = xp.linalg.eigh(self.precision)
        rounding = self.dim * float(np.finfo(values.dtype).eps) * abs(values).max(axis=-1, keepdims=True)
        negative = values < -rounding
        along = _times(vectors.mT, self.natural_mean)
        kept = (vectors * xp.where(negative, 0, values)[..., None, :]) @ vectors.mT
        fixed = type(self)(_times(vectors, xp.where(negative, 0, along)), kept)
        count = negative.sum(axis=-1, dtype=xp.int32)
        return tree_map(lambda a, b: _where_last(count > 0, a, b), fixed, self), count

    def best_factor(self, natural_mean: Float[Array, " d"], precision: Float[Array, "d d"]) -> Self:
        """Return the likelihood itself, which is a member of the family."""
        return type(self)(natural_mean, precision)


def _times(matrix: Float[Array, "*batch d d"], vector: Float[Array, "... d"]) -> Float[Array, "... d"]:
    matrix = matrix.reshape((1,) * (vector.ndim + 1 - matrix.ndim) + matrix.shape)
    return (matrix @ vector[..., None])[..., 0]


def _where_last(condition: Bool[Array, "*batch"], yes: Array, no: Array) -> Array:
    return namespace(yes).where(condition.reshape(condition.shape + (1,) * (yes.ndim - condition.ndim)), yes, no)
