"""Logistic regression: `p(y | x, w) = sigmoid(y w'x)` with y in {-1, +1}.

With points z_k and weights u_k for a standard normal (quadrature or Monte Carlo) and `eta_k = m + sqrt(v) z_k`:

    value = sum_k u_k log sigmoid(y eta_k)
    a = d value / d m = y sum_k u_k sigmoid(-y eta_k)
    b = d value / d v = y sum_k u_k sigmoid(-y eta_k) z_k / (2 sqrt(v))

a and b are the exact derivatives of the value as it is computed, and cost one sigmoid per point.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from fedvi.checks import not_a_class, one_of
from fedvi.compiling import jax, jnp
from fedvi.families.base import GaussianFamily
from fedvi.families.noisy import NoisyGaussian
from fedvi.models.base import Defaults
from fedvi.models.expectations import GaussHermite, MonteCarlo, log_expected_sigmoid
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.models.predictive import Bernoulli, reach_of, sigmoid
from fedvi.models.width import Width
from fedvi.numerics import Array, namespace
from fedvi.pytree import pytree, static


@pytree
class LogisticRegression(LinearPredictorModel):
    """Binary classification with labels -1 and +1, or 0 and 1.

    expectation: how `E_q[log p]` is taken while learning: `GaussHermite(20)` or `MonteCarlo(50)`.
    predictive_link: `probit`, the approximation sigmoid(m / sqrt(1 + pi v / 8)) that the paper used, or `exact`.
    """

    expectation: GaussHermite | MonteCarlo = field(default_factory=GaussHermite)
    predictive_link: str = static(default="probit")

    slope_rounding: ClassVar[float] = 0.0
    effect: ClassVar[str] = "odds ratio"
    wanted: ClassVar[str] = "labels 0 and 1, or -1 and +1"
    defaults: ClassVar[Defaults] = Defaults(prior_variance=1.0, typical_slope=1.0)

    def __post_init__(self) -> None:
        not_a_class("expectation", self.expectation)
        one_of("predictive_link", self.predictive_link, ("probit", "exact"))

    @property
    def curvature_bound(self) -> float:
        """A quarter: the largest slope of the sigmoid."""
        return 0.25

    @property
    def steepest_variance_slope(self) -> float | None:
        """Twice half of the largest curvature, an eighth; averages over few draws may be far beyond that."""
        return 0.25 if isinstance(self.expectation, GaussHermite) else None

    def noise_shape(self, dim: int) -> tuple[int, ...]:  # noqa: ARG002
        """Return what the chosen expectation needs."""
        return self.expectation.noise_shape()

    def value(
        self,
        mean: Float[Array, " n"],
        variance: Float[Array, " n"],
        y: Float[Array, " n"],
        z: Float[Array, " s"],
    ) -> Float[Array, " n"]:
        """Return `E[log sigmoid(y eta)]`."""
        points, weights = self.expectation.points(z)
        eta = mean[:, None] + _root(variance)[:, None] * points[None]
        return jax.nn.log_sigmoid(y[:, None] * eta) @ weights

    def slopes(
        self,
        mean: Float[Array, " n"],
        variance: Float[Array, " n"],
        y: Float[Array, " n"],
        z: Float[Array, " s"],
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the derivatives of `value` by mean and by variance."""
        points, weights = self.expectation.points(z)
        root = _root(variance)
        margin = (y * mean)[None] + (y * root)[None] * points[:, None]
        wrong = 0.5 - 0.5 * jnp.tanh(0.5 * margin)  # sigmoid(-margin)
        by_mean, by_root = (_in_order(each[:, None] * wrong) for each in (weights, weights * points))
        return y * by_mean, y * by_root / (2 * root)

    def predictive(self, q: GaussianFamily, x: Float[Array, "n d"]) -> Bernoulli:
        """Return the probability of +1 for every row."""
        mean, variance = q.project(x)
        if self.predictive_link == "probit":
            return Bernoulli(mean / namespace(mean).sqrt(1 + math.pi * variance / 8))
        return Bernoulli(log_expected_sigmoid(mean, variance) - log_expected_sigmoid(-mean, variance))

    @property
    def width(self) -> Width:
        """The curvature of the rows, as a share of its bound."""
        return _Width(self)

    def predictions(self, q: GaussianFamily, x: Any, level: float) -> dict[str, Array]:
        """Return the probability of +1 and its credible interval."""
        mean, variance = q.project(x)
        xp, odds = namespace(mean), self.predictive(q, x).log_odds
        half = reach_of(level) * xp.sqrt(variance)
        low, high = xp.minimum(mean - half, odds), xp.maximum(mean + half, odds)  # extreme means may lie outside
        return {"mean": sigmoid(odds), "low": sigmoid(low), "high": sigmoid(high)}

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Return labels -1 and +1; 0 means -1."""
        return np.where(y == 0, np.asarray(-1, y.dtype), y)

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Tell which labels are -1 or +1."""
        return np.abs(y) == 1


def _in_order(terms: Float[Array, "k n"]) -> Float[Array, " n"]:
    """Add up along the first axis, the same way for every row: a matrix product adds some rows in another order."""
    return jnp.sum(terms, axis=0)


def _root(variance: Float[Array, " n"]) -> Float[Array, " n"]:
    # A row of zeros has variance 0, where the square root has no derivative.
    return jnp.sqrt(jnp.maximum(variance, 1e-12))


LEAST_CURVATURE = 0.02
"""Least ratio of a logistic model: as if nearly all rows were predicted with 99.5 % confidence."""


class _Width(Width):
    def numbers(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:  # noqa: ARG002
        from scipy.special import expit  # takes a while to import

        return 4 * expit(eta) * expit(-eta)

    def ratio(self, average: float, error: float) -> float:  # noqa: ARG002
        return min(max(average, LEAST_CURVATURE), 1.0)

    def corrected(self, factor: Any, ratio: float, mean: Any) -> Any:
        natural_mean = factor.natural_mean - (1 - ratio) * factor.precision * mean
        return NoisyGaussian(natural_mean, factor.precision * ratio, factor.noise * ratio)
