"""Noise-aware partitioned VI: private factors that say how noisy they are.

In every update a client releases, with noise, the slope of its rows' expected log-likelihood at q and their curvature:

    slope of row i      a_i x_i        with a_i = d E_q[log p(y_i | eta_i)] / d m_i
    curvature of row i  x_i^2          per coordinate, to be multiplied by the model's `curvature_bound`

`curvature_bound x_i^2` is never less than the diagonal curvature of the row's log-likelihood, so that steps made with
it do not overshoot in any one coordinate; it depends on neither q nor y.

**Sensitivity.** The two are clipped apart: a row's slope to `clip_norm sqrt(1 - share)` and `weight` times its
curvature to `clip_norm sqrt(share)`. So one row more or less moves the pair by at most clip_norm in Euclidean norm, and
a row with a large feature does not lose its slope to its curvature.

What a client has released so far it averages; everything averaged is linear in the noise, so that noise averages out
instead of turning into a random walk. In the client's k-th update, with slope g and curvature c as released at a
posterior with mean mu:

    r = memory / (k + memory - 1)                                   1 at first; then later slopes, made at a better q,
    g_bar <- (1 - r) g_bar + r g      mu_bar <- (1 - r) mu_bar + r mu          count more
    V <- (1 - r)^2 V + r^2 Var(noise in g)
    c_bar <- c_bar + (c - c_bar) / k                                the curvature does not depend on q
    target = NoisyGaussian(g_bar + c_bar mu_bar, c_bar, V)

which is the quadratic through the averaged slope at the averaged mean. Only the natural mean is damped: Jacobi steps,
one coordinate by itself, overshoot where features are collinear. How much of a product of such factors is believed is
decided where q is read (`fedvi.families.noisy`). All of it after the noise is post-processing.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from jaxtyping import Float, Int

from fedvi.checks import in_range, not_a_class, one_number, positive, whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import Coordinates, GaussianFamily
from fedvi.families.noisy import NoisyGaussian
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Draws, Problem, Public, Seen, Solver
from fedvi.inference.rows import Rows
from fedvi.models.base import Model, Part, VectorsOf
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.numerics import Array, Bounds, cut, row_bits, row_sums, widen
from fedvi.privacy.lattice import Words
from fedvi.privacy.mechanism import FullBatchGaussian, Mechanism
from fedvi.pytree import pytree, static


@pytree
class ScaledRows:
    """A number times the row."""

    factors: Float[Array, " n"]
    rows: Float[Array, "n d"]
    lengths: Float[Array, " n"]
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the squared norms."""
        return (self.factors * self.lengths) ** 2

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Float[Array, " d"]:
        """Return the sum, by one product of a vector and a matrix."""
        row_step = bounds.row_step(self.rows.shape[1])
        factors = cut(jnp.where(weights > 0, weights * self.factors, 0), bounds.step / row_step)
        return (factors @ self.rows) * (1 / row_step)

    def units(self, bounds: Bounds) -> Float[Array, " d"]:
        """Return what one means in each entry."""
        return jnp.full_like(self.rows[0], bounds.step)


@pytree
class SquaredRows:
    """The squares of a row's entries, rounded to whole numbers, times one public number."""

    factor: Float[Array, ""]
    squares: Float[Array, "n d"]
    step: Float[Array, ""]
    rounding: float = static(default=0.0)

    def squared_norms(self) -> Float[Array, " n"]:
        """Return the squared norms."""
        return (self.factor * self.step * jnp.sqrt(row_sums(self.squares**2))) ** 2

    def whole_sum(self, weights: Float[Array, " n"], bounds: Bounds) -> Float[Array, " d"]:
        """Return the sum, by one product of a vector and a matrix."""
        return cut(jnp.where(weights > 0, weights, 0), self._weight_step(bounds)) @ self.squares

    def units(self, bounds: Bounds) -> Float[Array, " d"]:
        """Return what one means in each entry."""
        return jnp.full_like(self.squares[0], self.factor * self.step * self._weight_step(bounds))

    def _weight_step(self, bounds: Bounds) -> Float[Array, ""]:
        return bounds.scalar_step(jnp.ones_like(bounds.norm), self.squares.shape[1])


@pytree
class Quadratic:
    """Sums over rows: of slopes, and of `weight` times squared features; or the `Part`s that they are made of."""

    slope: Any
    curvature: Any


@pytree
class QuadraticPart:
    """The quadratic part of a model's likelihood, as sums over rows (`RowSums`).

    share: of the squared clip norm that goes to the curvature.
    weight: that the curvature is multiplied by before it is clipped.
    """

    model: LinearPredictorModel
    share: float | Float[Array, ""]
    weight: float | Float[Array, ""]

    def rows_at_once(self, q: Coordinates, x: Array) -> int:
        """Return how many rows are best worked on together."""
        return self.model.rows_at_once(q, x)

    def gradient(self, q: Coordinates, x: Array, y: Array, weights: Array, z: Array) -> Quadratic:
        """Return the weighted sums."""
        projection = q.projection(x)
        by_mean, _ = self.model.slopes(projection.mean, projection.variance, y, z)
        return Quadratic((weights * by_mean) @ x, self.weight * (weights @ (x * x)))

    def row_vectors(self, q: Coordinates, z: Array, feature_bound: Array) -> VectorsOf:
        """Return from rows to their slopes and weighted squares, which are clipped apart."""
        one_number("share", self.share)
        one_number("weight", self.weight)
        gradients = self.model.row_vectors(q, z, feature_bound)
        share, weight, bound = widen((self.share, self.weight, feature_bound))

        def vectors(x: Array, y: Array, lengths: Array) -> Quadratic:
            by_mean = gradients(x, y, lengths).vectors.by_mean
            rows, step = widen(x), bound**2 * 2.0 ** -row_bits(x.shape[1])
            squares = SquaredRows(weight, jnp.rint(rows * rows * (1 / step)), step)
            return Quadratic(Part(ScaledRows(by_mean, rows, widen(lengths)), 1 - share), Part(squares, share))

        return vectors


def full_batch() -> FullBatchGaussian:
    """Return all rows in every release, with the least noise that the budget allows."""
    return FullBatchGaussian(noise_multiplier=None, clip_norm=2.1)


@pytree
class Averages:
    """What a client has released so far, averaged: quadratic, mean of q, variance of the noise, number of updates."""

    quadratic: Quadratic
    mean: Float[Array, " d"]
    noise: Float[Array, ""]
    updates: Int[Array, ""]


@pytree
class AveragedQuadratics:
    """Private slopes and curvatures, averaged over a client's updates.

    steps: private sums per update, all at the same q: 1 unless batches are sampled.
    mechanism: `FullBatchGaussian` or `PoissonGaussian`.
    memory: how much more later updates count; 1 for a plain average.
    share: of the privacy that goes to the curvature.
    weight: of squared features beside slopes in what is clipped. Squares of Euclidean norm up to
        `clip_norm sqrt(share) / weight` stay whole; 3 with the defaults.
    """

    needs: ClassVar[str] = "curvature"
    steps: int = static(default=1)
    mechanism: Mechanism = field(default_factory=full_batch)
    memory: float | Float[Array, ""] = 2.0
    share: float | Float[Array, ""] = 0.1
    weight: float | Float[Array, ""] = 0.22

    def __post_init__(self) -> None:
        not_a_class("mechanism", self.mechanism)
        whole("steps", self.steps, 1)
        in_range("memory", self.memory, 1)
        in_range("share", self.share, 0, 0.5, open_low=True)
        positive("weight", self.weight)
        if getattr(self.mechanism, "clips", "likelihood") != "likelihood":
            raise InputError("Noise-aware factors need a mechanism with clips='likelihood', got clips='loss'.")

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same with this noise in the mechanism."""
        return replace(self, mechanism=self.mechanism.with_noise(noise_multiplier))

    def init(self, q: GaussianFamily) -> Averages:
        """Return the averages of nothing."""
        nothing = jnp.zeros_like(q.natural_mean)
        return Averages(Quadratic(nothing, nothing), nothing, jnp.zeros_like(nothing[0]), jnp.zeros((), jnp.int32))

    def solve(
        self, problem: Problem, state: Averages, model: Model, rows: Rows, draws: Draws
    ) -> tuple[NoisyGaussian, Averages, Seen]:
        """Release once, average, and return the target factor, the averages and what was seen."""
        likelihood = cast(LinearPredictorModel, model)  # `needs` has been checked
        part = QuadraticPart(likelihood, self.share, self.weight)
        q, nothing = problem.start.coordinates(), jax.tree.map(jnp.zeros_like, state.quadratic)

        def step(total: Quadratic, k: Int[Array, ""]) -> tuple[Quadratic, Words]:
            negative, seen = self.mechanism.gradient(part, q, draws.batch(rows, k), nothing)
            return jax.tree.map(lambda so_far, sums: so_far - sums / self.steps, total, negative), seen

        released, seen = jax.lax.scan(step, nothing, jnp.arange(self.steps))
        noise = jnp.asarray(self.mechanism.noise_std(draws.scale)) ** 2 / self.steps

        updates = state.updates + 1
        count = updates.astype(noise.dtype)
        latest = self.memory / (count - 1 + self.memory)
        averages = Averages(
            Quadratic(
                _mixed(state.quadratic.slope, released.slope, latest),
                _mixed(state.quadratic.curvature, released.curvature, 1 / count),
            ),
            _mixed(state.mean, q.mean, latest),
            (1 - latest) ** 2 * state.noise + latest**2 * noise,
            updates,
        )
        precision = averages.quadratic.curvature * (likelihood.curvature_bound / self.weight)
        natural_mean = averages.quadratic.slope + precision * averages.mean
        target = NoisyGaussian(natural_mean, precision, jnp.full_like(precision, averages.noise))
        return target, averages, seen

    def check(self, x: np.ndarray, where: str) -> None:
        """Any features will do."""


@pytree
class NoiseAwarePVI(Algorithm):
    """Partitioned VI whose factors carry the variance of their noise: the choice for small privacy budgets.

    Its private mechanism makes the noise fit the budget: `simulate(..., algorithm=NoiseAwarePVI(), max_updates=50,
    privacy=Budget(0.5))`. Of the way to the target `(1 - damping)^updates` is left at the end: with less damping than
    about `3 / max_updates` the run ends before it has arrived, which may pay where noise is strong.
    """

    solver: Solver[Any] = field(default_factory=AveragedQuadratics)
    damping: float | Float[Array, ""] = 0.1
    repair: bool = static(default=False)
    client_level: None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_level is not None:
            raise InputError("Noise-aware factors know the noise of their mechanism only: leave out client_level.")

    def problem(self, public: Public, q: GaussianFamily, factor: Any) -> Problem:
        """Look at the rows at q; nothing is tied to a cavity."""
        return Problem(start=q, removed=q.one(), base=factor)

    def first_factor(self, prior: GaussianFamily) -> NoisyGaussian:
        """Return the factor 1, without noise."""
        return NoisyGaussian.one_like(prior)

    def change(self, factor: Any, target: Any) -> Any:
        """Damp the natural mean; precision and noise are those of the target."""
        moved = target / factor
        return NoisyGaussian(moved.natural_mean * self.damping, moved.precision, moved.noise)


def _mixed(old: Array, new: Array, share: Array) -> Array:
    return (1 - share) * old + share * new
