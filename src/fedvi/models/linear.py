"""Linear regression with known noise: `p(y | x, w) = N(y; w'x, noise_variance)`.

The one model here that is conjugate: the likelihood of many rows is itself a Gaussian factor,

    natural_mean = X'y / noise_variance        precision = X'X / noise_variance

so that the posterior is known exactly. That makes it the oracle for everything else.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from fedvi.checks import positive
from fedvi.compiling import jnp
from fedvi.families.base import GaussianFamily
from fedvi.models.linear_predictor import LinearPredictorModel, Normals, PerRow, Response
from fedvi.models.outlook import Expected, Outlook
from fedvi.models.predictive import Normal
from fedvi.numerics import Array, special
from fedvi.pytree import pytree

LARGEST_RESIDUAL = 2.0
"""Residuals count up to this many standard deviations of the noise, as assumed."""

WINDOW = 1.5
"""Residuals count up to so many of their standard deviations, where slopes are bounded."""


@pytree
class LinearRegression(LinearPredictorModel):
    """Regression with Gaussian noise of known variance."""

    noise_variance: float | Float[Array, ""] = 1.0

    slope_rounding: ClassVar[float] = 0.0
    proven_finite: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("noise_variance", self.noise_variance)

    @property
    def curvature_bound(self) -> Any:
        """The precision of the noise, which is the curvature itself."""
        return 1 / self.noise_variance

    @property
    def steepest_variance_slope(self) -> Any:
        """Half of the precision of the noise, at any variance."""
        return 0.5 / self.noise_variance

    def value(self, mean: PerRow, variance: PerRow, y: PerRow, z: Normals) -> PerRow:
        """Return `E[log N(y; eta, noise_variance)]`."""
        squared_error = (y - mean) ** 2 + variance
        return -0.5 * (jnp.log(2 * math.pi * self.noise_variance) + squared_error / self.noise_variance)

    def slopes(self, mean: PerRow, variance: PerRow, y: PerRow, z: Normals) -> tuple[PerRow, PerRow]:
        """Return the derivatives of `value` by mean and by variance."""
        return (y - mean) / self.noise_variance, jnp.full_like(variance, -0.5) / self.noise_variance

    def response(self, mean: PerRow, variance: PerRow, y: PerRow, noise_variance: Any) -> Response:
        """Return residuals over the noise's standard deviation, within a window of WINDOW of their own.

        The window is symmetric, so that the slope is right on average. Rows beyond it have no curvature. The extra
        number is half of the size of a residual over its standard deviation, up to 1: it says how large the noise is.
        """
        spread = jnp.sqrt(1 + variance / noise_variance)
        residual = (y - mean) / jnp.sqrt(noise_variance)
        inside = jnp.full_like(mean, math.erf(WINDOW / math.sqrt(2)))
        slope = jnp.clip(residual, -WINDOW * spread, WINDOW * spread)
        return Response(slope, WINDOW * spread, inside, jnp.minimum(jnp.abs(residual) / (2 * spread), 1))

    def free_response(self, mean: PerRow, variance: PerRow, y: PerRow, noise_variance: Any) -> Response:
        """Return residuals over the noise's standard deviation; the extra number is their square."""
        residual = (y - mean) / jnp.sqrt(noise_variance)
        return Response(residual, jnp.abs(residual), jnp.ones_like(mean), residual**2)

    def outlook(self, mean: Any, variance: Any, noise_variance: Any) -> Outlook:
        """Return windows and curvatures in units of the noise's standard deviation, as `response` has them."""
        shape = np.shape(mean)
        variance, noise = np.broadcast_to(variance, shape), np.broadcast_to(noise_variance, shape)
        window = WINDOW * np.sqrt(1 + variance / noise)
        inside = np.full(shape, math.erf(WINDOW / math.sqrt(2)))
        return Outlook(mean, variance, mean, inside, window, 1 / noise, noise)

    def expected(self, asked: Outlook, now: Outlook) -> Expected:
        """Return moments of clipped normal residuals, in closed form."""
        ndtr, unit = special(now.mean).ndtr, np.sqrt(asked.noise_variance)
        centre, width = (now.mean - asked.mean) / unit, np.sqrt(now.noise_variance + now.variance) / unit
        cut = asked.largest
        low, high = (-cut - centre) / width, (cut - centre) / width
        inside = ndtr(high) - ndtr(low)
        slope = centre * inside - width * (_density(high) - _density(low)) + cut * (ndtr(-high) - ndtr(low))
        alone = np.sqrt(now.noise_variance) / unit
        edge = cut / alone
        spread = alone**2 * (1 - 2 * ndtr(-edge) - 2 * edge * _density(edge)) + 2 * cut**2 * ndtr(-edge)
        return Expected(slope, inside / unit, spread)

    def expected_extra(self, asked: Outlook, now: Outlook) -> tuple[Any, Any]:
        """Return mean and variance of the size of a residual, up to its limit."""
        unit = np.sqrt(asked.noise_variance)
        centre, width = (now.mean - asked.mean) / unit, np.sqrt(now.noise_variance + now.variance) / unit
        mean, square = _folded(centre, width, asked.largest * LARGEST_RESIDUAL / WINDOW)
        return mean, np.maximum(square - mean**2, 0)

    @property
    def assumed_noise_variance(self) -> float:
        """The model's own."""
        return float(self.noise_variance)

    def learned(self, noise_variance: float) -> LinearRegression:
        """Return the model with this noise."""
        return LinearRegression(noise_variance)

    def sufficient_statistics(
        self, x: Float[Array, "n d"], y: PerRow, weights: PerRow
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Return natural mean and precision matrix of the likelihood of the weighted rows."""
        weighted = x * (weights / self.noise_variance)[:, None]
        return weighted.T @ y, weighted.T @ x

    def predictive(self, q: GaussianFamily, x: Float[Array, "n d"]) -> Normal:
        """Return mean and variance of y for every row."""
        mean, variance = q.project(x)
        return Normal(mean, variance + self.noise_variance)


def _density(z: Any) -> Any:
    return np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def _folded(centre: Any, width: Any, most: Any) -> tuple[Any, Any]:
    """Return mean and mean square of `min(|X|, most) / most` for X ~ N(centre, width^2)."""
    ndtr = special(centre).ndtr
    middle, above, below = centre / width, (most - centre) / width, (most + centre) / width
    beyond = ndtr(-above) + ndtr(-below)
    right = centre * (ndtr(above) - ndtr(-middle)) + width * (_density(middle) - _density(above))
    left = -centre * (ndtr(below) - ndtr(middle)) + width * (_density(middle) - _density(below))
    within = (centre**2 + width**2) * (1 - beyond)
    within = within - width * (most - centre) * _density(above) - width * (most + centre) * _density(below)
    edges = 2 * width * centre * (_density(below) - _density(above))
    return (right + left) / most + beyond, (within + edges) / most**2 + beyond
