"""Logistic regression: `p(y | x, w) = sigmoid(y w'x)` with y in {-1, +1}.

With points z_k and weights u_k for a standard normal (quadrature or Monte Carlo) and `eta_k = m + sqrt(v) z_k`:

    value = sum_k u_k log sigmoid(y eta_k)
    a = d value / d m = y sum_k u_k sigmoid(-y eta_k)
    b = d value / d v = y sum_k u_k sigmoid(-y eta_k) z_k / (2 sqrt(v))

a and b are the exact derivatives of the value as it is computed, and cost one sigmoid per point.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from jaxtyping import Float

from fedvi.arrays import Array
from fedvi.checks import not_a_class, one_of
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.models.expectations import GaussHermite, MonteCarlo, log_expected_sigmoid
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.models.predictive import Bernoulli
from fedvi.pytree import pytree, static


@pytree
class LogisticRegression(LinearPredictorModel):
    """Binary classification with labels -1 and +1.

    expectation: how `E_q[log p]` is taken while learning: `GaussHermite(20)` or `MonteCarlo(50)`.
    predictive_link: `probit`, the approximation sigmoid(m / sqrt(1 + pi v / 8)) that the paper used, or `exact`.
    """

    expectation: GaussHermite | MonteCarlo = field(default_factory=GaussHermite)
    predictive_link: str = static(default="probit")

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
            return Bernoulli(mean / jnp.sqrt(1 + jnp.pi * variance / 8))
        return Bernoulli(log_expected_sigmoid(mean, variance) - log_expected_sigmoid(-mean, variance))

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Tell which labels are -1 or +1."""
        return np.abs(y) == 1

    def check_targets(self, y: np.ndarray, where: str) -> None:
        """Raise unless all labels are -1 or +1."""
        wrong = np.flatnonzero(~self.usable(y))
        if wrong.size == 0:
            return
        remedy = "Use 2 * y - 1." if np.all((y == 0) | (y == 1)) else "This model has two classes."
        raise InputError(f"Expected labels -1 and +1, got {y[wrong[0]]:g} in {where}, row {wrong[0]}. {remedy}")


def _in_order(terms: Float[Array, "k n"]) -> Float[Array, " n"]:
    """Add up along the first axis, the same way for every row: a matrix product adds some rows in another order."""
    return jnp.sum(terms, axis=0)


def _root(variance: Float[Array, " n"]) -> Float[Array, " n"]:
    # A row of zeros has variance 0, where the square root has no derivative.
    return jnp.sqrt(jnp.maximum(variance, 1e-12))
