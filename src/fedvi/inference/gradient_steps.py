"""The local problem by stochastic gradient steps, which work for every model; and the optimisers that take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float, Int

from fedvi.checks import not_a_class, positive, whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.inference.local_problem import Draws, Problem
from fedvi.inference.rows import Rows
from fedvi.models.base import Model
from fedvi.numerics import Array
from fedvi.privacy.mechanism import Mechanism
from fedvi.privacy.without_privacy import Minibatch
from fedvi.pytree import pytree, static

if TYPE_CHECKING:
    import optax

LARGEST_FEATURE = 1e4
"""Features beyond this are refused by gradient steps, which could not resolve weights that small."""


def adagrad(learning_rate: Any) -> optax.GradientTransformation:
    """Return Adagrad as in the paper: accumulators start at zero, no smoothing to speak of."""
    import optax  # takes a while to import, and noise-aware fits need none

    return optax.adagrad(learning_rate, initial_accumulator_value=0.0, eps=1e-10)


def forgetful_adam(learning_rate: Any) -> optax.GradientTransformation:
    """Return Adam with a short memory: gradients shrink by orders of magnitude on the way from prior to posterior."""
    import optax

    return optax.adam(learning_rate, b2=0.95)


@pytree
class GradientSteps:
    """Stochastic gradient steps on the local negative ELBO, in the coordinates of q.

        negative_elbo(q') = KL(q' || start) + E_q'[log removed] - scale * sum_i E_q'[log p(y_i | x_i, w)]

    which is KL(q' || anchor * likelihood^scale) up to a constant, and has the exact gradient zero at the start where
    there is nothing to learn. The optimiser's state (Adagrad's accumulators) persists over a client's communications:
    without that, DP-PVI does not work.

    steps: gradient steps per communication.
    learning_rate: handed to `optimizer`.
    mechanism: how a step gets to see the rows: `Minibatch(...)` or `FullBatch()`, which are not private, or
        `PoissonGaussian(...)`, `FullBatchGaussian(...)`.
    optimizer: from a learning rate to an optax transformation: `adagrad`, or `optax.adam`, `optax.sgd`, ...
    """

    needs: ClassVar[str] = "gradient"
    steps: int = static(default=20)
    learning_rate: float | Float[Array, ""] = 2.0
    mechanism: Mechanism = field(default_factory=Minibatch)
    optimizer: Callable[[Any], optax.GradientTransformation] = static(default=adagrad)

    def __post_init__(self) -> None:
        not_a_class("mechanism", self.mechanism)
        whole("steps", self.steps, 1)
        positive("learning_rate", self.learning_rate)

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same with this noise in the mechanism."""
        return replace(self, mechanism=self.mechanism.with_noise(noise_multiplier))

    def init(self, q: GaussianFamily) -> Any:
        """Return the optimiser's initial state."""
        return self.optimizer(self.learning_rate).init(q.coordinates())

    def solve(self, problem: Problem, state: Any, model: Model, rows: Rows, draws: Draws) -> tuple[Any, Any, Any]:
        """Take the steps, and return the target factor, the optimiser's state and what was seen."""
        from optax import apply_updates

        start = problem.start.coordinates()
        optimizer = self.optimizer(self.learning_rate)

        def prior_part(q: Any) -> Any:
            return q.kl(start) + q.expected_log(problem.removed)

        def step(carry: tuple[Any, Any], k: Int[Array, ""]) -> tuple[tuple[Any, Any], Any]:
            q, optimizer_state = carry
            gradient, seen = self.mechanism.gradient(model, q, draws.batch(rows, k), jax.grad(prior_part)(q))
            updates, optimizer_state = optimizer.update(gradient, optimizer_state, q)
            return (apply_updates(q, updates), optimizer_state), seen

        (q, state), seen = jax.lax.scan(step, (start, state), jnp.arange(self.steps))
        return problem.base * (q.natural() / start.natural()), state, seen

    def check(self, x: np.ndarray, where: str) -> None:
        """Raise if a feature is too large for weights to be found by steps of the size of the learning rate."""
        if max(np.max(x, initial=0), -np.min(x, initial=0)) > LARGEST_FEATURE:
            row, *column = np.unravel_index(np.argmax(np.abs(x)), x.shape)
            raise InputError(
                f"Expected features up to {LARGEST_FEATURE:g} in size for gradient steps, got {x[row, *column]:g} in "
                f"{where}, row {row}, column {column[0]}. Standardise the columns with public constants."
            )
