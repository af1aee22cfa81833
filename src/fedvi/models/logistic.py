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
from fedvi.models.base import Defaults
from fedvi.models.linear_predictor import GaussHermite, LinearPredictorModel, MonteCarlo, Normals, PerRow, Response
from fedvi.models.outlook import Expected, Outlook
from fedvi.models.predictive import Bernoulli, reach_of, sigmoid
from fedvi.numerics import Array, namespace, special
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
    proven_finite: ClassVar[bool] = True
    effect: ClassVar[str] = "odds ratio"
    wanted: ClassVar[str] = "labels 0 and 1, or -1 and +1"
    defaults: ClassVar[Defaults] = Defaults(prior_variance=1.0)

    def __post_init__(self) -> None:
        not_a_class("expectation", self.expectation)
        one_of("predictive_link", self.predictive_link, ("probit", "exact"))

    @property
    def all_outcomes(self) -> tuple[float, ...]:
        """Two."""
        return -1.0, 1.0

    @property
    def curvature_bound(self) -> float:
        """A quarter: the largest slope of the sigmoid."""
        return 0.25

    @property
    def steepest_variance_slope(self) -> float | None:
        """Twice half of the largest curvature, an eighth; averages over few draws may be far beyond that."""
        return 0.25 if isinstance(self.expectation, GaussHermite) else None

    def noise_shape(self, dim: int) -> tuple[int, ...]:
        """Return what the chosen expectation needs."""
        return self.expectation.noise_shape()

    def value(self, mean: PerRow, variance: PerRow, y: PerRow, z: Normals) -> PerRow:
        """Return `E[log sigmoid(y eta)]`."""
        points, weights = self.expectation.points(z)
        eta = mean[:, None] + _root(variance)[:, None] * points[None]
        return jax.nn.log_sigmoid(y[:, None] * eta) @ weights

    def slopes(self, mean: PerRow, variance: PerRow, y: PerRow, z: Normals) -> tuple[PerRow, PerRow]:
        """Return the derivatives of `value` by mean and by variance."""
        points, weights = self.expectation.points(z)
        root = _root(variance)
        margin = (y * mean)[None] + (y * root)[None] * points[:, None]
        wrong = 0.5 - 0.5 * jnp.tanh(0.5 * margin)  # sigmoid(-margin)
        by_mean, by_root = (_in_order(each[:, None] * wrong) for each in (weights, weights * points))
        return y * by_mean, y * by_root / (2 * root)

    def response(self, mean: PerRow, variance: PerRow, y: PerRow, noise_variance: Any) -> Response:
        """Return the slope `y01 - p`, at most max(p, 1 - p), and the expected curvature, by quadrature."""
        p, curvature = smoothed(mean, variance)
        return Response(jnp.where(y > 0, 1.0, 0.0) - p, jnp.maximum(p, 1 - p), curvature, jnp.zeros_like(p))

    def free_response(self, mean: PerRow, variance: PerRow, y: PerRow, noise_variance: Any) -> Response:
        """Return the same: the slope is bounded by itself."""
        return self.response(mean, variance, y, noise_variance)

    def outlook(self, mean: Any, variance: Any, noise_variance: Any) -> Outlook:
        """Return probabilities and curvatures as `response` has them; at a point if the variance is no array, but 0."""
        if np.ndim(variance):
            p, curvature = smoothed(mean, variance)
        else:
            p = 0.5 + 0.5 * np.tanh(0.5 * mean)
            curvature = p * (1 - p)
        shape = np.shape(p)
        variance, noise = np.broadcast_to(variance, shape), np.broadcast_to(noise_variance, shape)
        return Outlook(mean, variance, p, curvature, np.maximum(p, 1 - p), curvature, noise)

    def expected(self, asked: Outlook, now: Outlook) -> Expected:
        """Return the difference of probabilities, its slope, and the variance of a binary outcome."""
        return Expected(now.response - asked.response, now.curvature, now.curvature)

    @property
    def curved(self) -> bool:
        """The curvature falls with the size of the weights."""
        return True

    def predictive(self, q: GaussianFamily, x: Float[Array, "n d"]) -> Bernoulli:
        """Return the probability of +1 for every row."""
        mean, variance = q.project(x)
        if self.predictive_link == "probit":
            return Bernoulli(mean / namespace(mean).sqrt(1 + math.pi * variance / 8))
        return Bernoulli(log_expected_sigmoid(mean, variance) - log_expected_sigmoid(-mean, variance))

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


def smoothed(mean: PerRow, variance: PerRow) -> tuple[PerRow, PerRow]:
    """Return E[sigmoid(eta)] and E[sigmoid'(eta)] for eta ~ N(mean, variance), by quadrature with 20 nodes.

    What sites use and what the server expects of them are the same function, also where 20 nodes are not the integral.
    """
    xp = namespace(mean)
    points, weights = GaussHermite().points(mean)
    root = xp.sqrt(xp.maximum(variance, 1e-12))
    signed = xp.tanh(0.5 * (mean[None] + root[None] * points[:, None]))
    p = 0.5 + 0.5 * (weights[:, None] * signed).sum(axis=0)
    return p, 0.25 * (weights[:, None] * (1 - signed**2)).sum(axis=0)


def _in_order(terms: Float[Array, "k n"]) -> PerRow:
    """Add up along the first axis, the same way for every row: a matrix product adds some rows in another order."""
    return jnp.sum(terms, axis=0)


def _root(variance: PerRow) -> PerRow:
    # A row of zeros has variance 0, where the square root has no derivative.
    return jnp.sqrt(jnp.maximum(variance, 1e-12))


def log_expected_sigmoid(mean: PerRow, variance: PerRow) -> PerRow:
    """Return log E[sigmoid(eta)] for eta ~ N(mean, variance), at any mean and variance.

    Where the variance is below 1, Gauss-Hermite quadrature over eta converges fast. Where it is larger the sigmoid
    looks like a step to the Gaussian and quadrature stalls. But `sigmoid(eta) = P(T < eta)` for a standard logistic T,
    so the same number is `E_T[Phi((mean - T) / sqrt(variance))]`, in which the Gaussian is the smooth part: the
    trapezoidal rule over T converges exponentially.

    Far in the left tail the value is all about `exp(eta)`. There `sigmoid(eta) = exp(eta) sigmoid(-eta)`, completing
    the square, gives `exp(mean + variance / 2) E[sigmoid(eta')]` with eta' ~ N(-mean - variance, variance).
    """
    xp, functions = namespace(mean), special(mean)
    tail = mean + variance < 0
    centre = xp.where(tail, -mean - variance, mean)

    nodes, weights = GaussHermite(32).points(mean)
    eta = centre[:, None] + xp.sqrt(xp.minimum(variance, 1.0))[:, None] * nodes[None]
    narrow = functions.logsumexp(-xp.logaddexp(-eta, 0) + xp.log(weights)[None], axis=1)

    step = 0.75
    grid = np.arange(-36.0, 36.0 + step, step)
    log_density = xp.asarray(np.log(step / 4) - 2 * np.log(np.cosh(grid / 2)), mean.dtype)
    gaps = (centre[:, None] - xp.asarray(grid, mean.dtype)[None]) / xp.sqrt(xp.maximum(variance, 1.0))[:, None]
    wide = functions.logsumexp(functions.log_ndtr(gaps) + log_density[None], axis=1)

    value = xp.where(variance < 1.0, narrow, wide)
    return xp.where(tail, mean + variance / 2 + value, value)
