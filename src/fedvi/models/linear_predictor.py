"""Models in which y depends on w only through the linear predictor `eta = w'x`.

Under a Gaussian q, eta_i is N(m_i, v_i) with (m_i, v_i) of `q.projection(x)`, so that expectations are one-dimensional:

    E_q[log p(y_i | eta_i)] = value(m_i, v_i, y_i)         a_i = d value / d m_i         b_i = d value / d v_i

and the gradient in the coordinates of q is the pull-back of the pair (a, b) through the projection: two matrix-vector
products, for any family. A gradient per example never exists, not even where each is clipped (`ProjectedVectors`): its
squared norm is

    |g_i|^2 = a_i^2 |grad m_i|^2 + b_i^2 |grad v_i|^2

because m_i and v_i depend on different coordinates, and the two norms of the projection need row sums only.

Where there is no closed form, expectations are taken at points with weights for z ~ N(0, 1): `GaussHermite` is
deterministic and the default, `MonteCarlo` averages over draws that all rows of a batch share, as the paper did.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from fedvi.checks import whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import Coordinates
from fedvi.models.base import Model, Part
from fedvi.models.outlook import Expected, Outlook
from fedvi.numerics import Array, namespace, widen
from fedvi.pytree import pytree, static

PerRow = Float[Array, " n"]
Normals = Float[Array, " s"]
"""Standard normals for the model's expectation; of size 0 if it needs none."""

WIDEST = 1e4
"""Variances of the predictor beyond this count as this much where gradients are clipped."""


@pytree
class GaussHermite:
    """Quadrature that is exact for polynomials of degree below `2 * nodes`."""

    nodes: int = static(default=20)

    def __post_init__(self) -> None:
        whole("nodes", self.nodes, 1)

    def noise_shape(self) -> tuple[int]:
        """Quadrature needs no draws."""
        return (0,)

    def points(self, z: Float[Array, " s"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Return nodes and weights, as arrays like z."""
        (nodes, weights), xp = _nodes(self.nodes), namespace(z)
        return xp.asarray(nodes, z.dtype), xp.asarray(weights, z.dtype)


@functools.cache
def _nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes, and weights that add up to 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


@pytree
class MonteCarlo:
    """Average over `samples` draws, shared by all rows."""

    samples: int = static(default=50)

    def __post_init__(self) -> None:
        whole("samples", self.samples, 1)

    def noise_shape(self) -> tuple[int]:
        """One standard normal per sample."""
        return (self.samples,)

    def points(self, z: Float[Array, " s"]) -> tuple[Float[Array, " s"], Float[Array, " s"]]:
        """Return the draws and equal weights."""
        return z, namespace(z).full_like(z, 1 / self.samples)


@pytree
class Response:
    """What rows say about their predictor, for answers to questions (`fedvi.inference.questions`).

    slope: bounded, and right on average at the true predictor. largest: size of the slope, over all outcomes.
    curvature: expected, of the bounded slope. extra: a number within 0 and 1 about what else the model has to learn.
    """

    slope: PerRow
    largest: PerRow
    curvature: PerRow
    extra: PerRow


class LinearPredictorModel(Model):
    """A model that knows `log p(y | eta)`, or the value and the slopes of its expectation.

    A new likelihood brings `log_prob` and `predictive`, and `curvature_bound` for noise-aware factors. Expectations are
    then taken by quadrature and differentiated. A closed form is faster: define `value` and `slopes` instead.

    With `all_outcomes` no weight of a row in an answer depends on its y. Otherwise slopes are clipped as they are:
    biased, unless y is symmetric around the predictor.

    slope_rounding: relative error of a row's slopes that may depend on other rows; 0 where it is proven that none does.
    """

    slope_rounding: ClassVar[float] = float(np.finfo(np.float64).eps)

    def log_prob(self, eta: Float[Array, "k n"], y: Float[Array, "1 n"]) -> Float[Array, "k n"]:
        """Return `log p(y | eta)`, element by element, in JAX."""
        raise InputError(f"{type(self).__name__} has no log_prob(eta, y). Define it, or define value and slopes.")

    def value(self, mean: PerRow, variance: PerRow, y: PerRow, z: Normals) -> PerRow:
        """Return `E[log p(y_i | eta_i)]` for eta_i ~ N(mean_i, variance_i)."""
        points, weights = GaussHermite().points(z)
        eta = mean[None] + jnp.sqrt(jnp.maximum(variance, 1e-12))[None] * points[:, None]
        return jnp.sum(weights[:, None] * self.log_prob(eta, y[None]), axis=0)

    def slopes(self, mean: PerRow, variance: PerRow, y: PerRow, z: Normals) -> tuple[PerRow, PerRow]:
        """Return the derivatives of `value` by mean and by variance: of the value as it is computed.

        Those of a row must depend on that row alone: clipping, and with it privacy, rests on it.
        """
        return jax.grad(lambda m, v: jnp.sum(self.value(m, v, y, z)), (0, 1))(mean, variance)

    def response(self, mean: PerRow, variance: PerRow, y: PerRow, noise_variance: Any) -> Response:
        """Return what rows say whose predictors are N(mean_i, variance_i), bounded.

        noise_variance: for models that learn it.
        """
        nothing = jnp.zeros((0,), mean.dtype)
        slope = self.slopes(mean, variance, y, nothing)[0]
        sizes = [
            jnp.abs(self.slopes(mean, variance, jnp.full_like(mean, each), nothing)[0]) for each in self.all_outcomes
        ]
        largest = functools.reduce(jnp.maximum, sizes) if sizes else jnp.abs(slope)
        return Response(slope, largest, jnp.full_like(mean, self.curvature_bound), jnp.zeros_like(mean))

    def free_response(self, mean: PerRow, variance: PerRow, y: PerRow, noise_variance: Any) -> Response:
        """Return what rows say without privacy: nothing is bounded, and the curvature is that of each row."""
        nothing = jnp.zeros((0,), mean.dtype)

        def slope(centre: PerRow) -> PerRow:
            return self.slopes(centre, variance, y, nothing)[0]

        found, moved = jax.jvp(slope, (mean,), (jnp.ones_like(mean),))
        return Response(found, jnp.abs(found), -moved, jnp.zeros_like(mean))

    def outlook(self, mean: Any, variance: Any, noise_variance: Any) -> Outlook:
        """Return what a Gaussian predictor says about rows, in NumPy; here with the curvature at its bound."""
        shape = np.shape(mean)
        bound = np.full(shape, float(self.curvature_bound))
        noise = np.broadcast_to(noise_variance, shape)
        return Outlook(mean, np.broadcast_to(variance, shape), mean, bound, np.ones(shape), bound, noise)

    def expected(self, asked: Outlook, now: Outlook) -> Expected:
        """Return what to expect of answers to a question (`asked`) by what is believed `now`.

        Here the slope is linear in the predictor: a guess for models that do not say more (`linearised`).
        """
        return Expected(asked.curvature * (now.mean - asked.mean), asked.curvature, asked.curvature)

    def expected_extra(self, asked: Outlook, now: Outlook) -> tuple[Any, Any]:
        """Return mean and variance of the extra number; models without one have none."""
        zero = np.zeros(np.shape(asked.mean))
        return zero, zero

    @property
    def linearised(self) -> bool:
        """Whether expected answers are a guess by a constant curvature, so that intervals are not to be trusted."""
        return type(self).expected is LinearPredictorModel.expected

    @property
    def assumed_noise_variance(self) -> float | None:
        """Variance of normal noise in y as it is assumed, which is then learned; None for models without such noise."""
        return None

    def learned(self, noise_variance: float) -> LinearPredictorModel:
        """Return the model with what was learned beside the weights."""
        return self

    @property
    def curved(self) -> bool:
        """Whether expected slopes bend, so that a reading has to average them over the posterior."""
        return False

    @property
    def abilities(self) -> frozenset[str]:
        """With a `curvature_bound`, noise-aware factors too."""
        bounded = type(self).curvature_bound is not LinearPredictorModel.curvature_bound
        return super().abilities | ({"curvature"} if bounded else set())

    @property
    def looks_at_outcomes(self) -> bool:
        """Always in steps, as in the papers; never in answers to questions, if outcomes are known or symmetric."""
        return True

    @property
    def curvature_bound(self) -> Any:
        """The most that `-d^2 log p(y | eta) / d eta^2` can be, at any eta and y; noise-aware factors need it."""
        raise InputError(
            f"{type(self).__name__} has no curvature_bound, which noise-aware factors need. Define the property: the "
            "largest value of -d^2 log p(y | eta) / d eta^2."
        )

    @property
    def steepest_variance_slope(self) -> Any:
        """The largest derivative of `value` by the variance: private steps are faster if it is known. Else None.

        Where gradients are clipped, a larger one counts as this.
        """
        return None

    def check_form(self, x: np.ndarray, y: np.ndarray, where: str) -> None:
        """Raise unless x is a matrix and y a vector."""
        if x.ndim != 2:
            raise InputError(f"Expected x of {where} to be a matrix, got shape {x.shape}.")
        if y.ndim != 1:
            raise InputError(f"Expected y of {where} to have one number per row, got shape {y.shape}. Use y.ravel().")

    def expected_log_likelihood(self, q: Any, x: Float[Array, "n d"], y: PerRow, z: Normals) -> PerRow:
        """Return `E_q[log p(y_i | x_i, w)]` for every row."""
        projection = q.projection(x)
        return self.value(projection.mean, projection.variance, y, z)

    def gradient(self, q: Coordinates, x: Float[Array, "n d"], y: PerRow, weights: PerRow, z: Normals) -> Coordinates:
        """Return the gradient of the weighted sum, by pulling the slopes back through the projection."""
        projection = q.projection(x)
        by_mean, by_variance = self.slopes(projection.mean, projection.variance, y, z)
        return projection.pull_back(weights * by_mean, weights * by_variance)

    def rows_at_once(self, q: Coordinates, x: Float[Array, "n d"]) -> int:
        """Return how many rows are best projected together."""
        return q.rows_at_once(x.shape[1])

    def row_vectors(self, q: Coordinates, z: Normals, feature_bound: Float[Array, ""]) -> Callable[..., Part]:
        """Return from rows on their grid to their gradients (`ProjectedVectors`); within `double_precision`.

        Where the predictor's variance is beyond all sense, the slope by variance would be nothing but rounding: it is
        zero.
        """
        coordinates, draws, bound = widen((q, z, feature_bound))
        known = self.steepest_variance_slope
        steepest = None if known is None else jnp.asarray(known, jnp.float64)
        project = coordinates.exact(bound, steepest, self.slope_rounding)

        def vectors(x: Array, y: Array, lengths: Array) -> Part:
            mean, variance, gradients = project(widen(x), widen(lengths))
            sensible = variance <= WIDEST
            by_mean, by_variance = self.slopes(mean, jnp.where(sensible, variance, WIDEST), widen(y), draws)
            if steepest is not None:
                by_variance = jnp.clip(by_variance, -steepest, steepest)
            return Part(gradients(by_mean, jnp.where(sensible, by_variance, 0)))

        return vectors
