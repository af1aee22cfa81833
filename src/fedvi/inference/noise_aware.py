"""Noise-aware partitioned VI: private factors that say how noisy they are.

In every update a client releases, with noise, the slope of its rows' expected log-likelihood at q and their curvature
(`fedvi.models.quadratic`). What it has released so far it averages; everything averaged is linear in the noise, so that
noise averages out instead of turning into a random walk. In the client's k-th update, with slope g and curvature c as
released at a posterior with mean mu:

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
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float, Int

from fedvi.checks import in_range, not_a_class, positive, whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.families.noisy import NoisyGaussian
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Draws, Problem, Public, Solver
from fedvi.inference.rows import Rows
from fedvi.models.base import Model
from fedvi.models.quadratic import Quadratic, QuadraticPart
from fedvi.numerics import Array
from fedvi.privacy.mechanism import FullBatchGaussian, Mechanism
from fedvi.pytree import pytree, static


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
    ) -> tuple[Any, Averages, Any]:
        """Release once, average, and return the target factor, the averages and what was seen."""
        likelihood: Any = model  # with curvature: `check` has seen to it
        part = QuadraticPart(likelihood, self.share, self.weight)
        q, nothing = problem.start.coordinates(), jax.tree.map(jnp.zeros_like, state.quadratic)

        def step(total: Quadratic, k: Int[Array, ""]) -> tuple[Quadratic, Any]:
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

    solver: Solver = field(default_factory=AveragedQuadratics)
    damping: float | Float[Array, ""] = 0.1
    repair: bool = static(default=False)
    client_level: None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client_level is not None:
            raise InputError("Noise-aware factors know the noise of their mechanism only: leave out client_level.")

    def problem(self, public: Public, q: Any, factor: Any) -> Problem:  # noqa: ARG002
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
