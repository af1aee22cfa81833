"""The problem that a client is asked to solve, the randomness that it may use, and the solvers.

    minimise  KL(q' || anchor * likelihood^scale)       with anchor = start / removed, beginning at q' = start
    target factor = base * q' / start = (base / removed) * q' / anchor

Partitioned VI removes and rebuilds the client's own factor (`removed = base = t_m`); other algorithms differ only in
these three values, and in the scale (see `fedvi.inference.algorithms`). `GradientSteps` work for every model; `Exact`
is the closed form, for models in which the likelihood of many rows is a Gaussian factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedvi.checks import not_a_class, positive, whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import Coordinates, Factor, GaussianFamily
from fedvi.inference.rows import Rows
from fedvi.models.base import Conjugate, Model
from fedvi.numerics import Array
from fedvi.privacy.clipping import Batch
from fedvi.privacy.lattice import Words
from fedvi.privacy.mechanism import Mechanism
from fedvi.privacy.without_privacy import FullBatch, Minibatch
from fedvi.pytree import pytree, static, take

if TYPE_CHECKING:
    import optax

LARGEST_FEATURE = 1e4
"""Features beyond this are refused by gradient steps, which could not resolve weights that small."""

EXACT_AT_ONCE = 1024
"""Rows whose sufficient statistics are computed together."""


@pytree
class Public:
    """What everybody knows: the prior, the number of clients and the declared rows of all clients together."""

    prior: GaussianFamily
    clients: Float[Array, ""]
    rows: Float[Array, ""]


@pytree
class Problem:
    """One client's local problem."""

    start: GaussianFamily
    removed: GaussianFamily
    base: Factor

    @property
    def anchor(self) -> GaussianFamily:
        """The distribution that q' is tied to; in partitioned VI, the cavity."""
        return self.start / self.removed

    def is_proper(self) -> Bool[Array, ""]:
        """Tell whether the anchor is proper, up to rounding.

        Where a client holds nearly all that is known, the anchor is a small difference of large numbers, and rounding
        may leave it slightly negative. The problem is fine all the same: the likelihood outweighs the anchor there.
        """
        rounding = 16 * float(jnp.finfo(self.start.natural_mean.dtype).eps)
        return (self.anchor * self.start**rounding).is_proper()


@pytree
class Draws:
    """All randomness of one update, drawn before it: what is sampled, and what noise goes in.

    rows, mask: row numbers of the client, and which of them count; step k uses entry `k % batches`.
    scale: weight of the likelihood of each row of a batch. total: the same of all rows that the client declares.
    grid: of noise and what it is added to. These three are public numbers, from one place: `draw`.
    model_noise: standard normals for the model's expectation, one entry per step.
    privacy_noise: whole numbers for the mechanism, one entry per step; of size 0 where nothing is private.
    release_noise: whole numbers for the release; of size 0 unless all of the client is the unit of privacy.
        Both are pairs of words (`fedvi.privacy.lattice.as_pairs`).
    """

    rows: Int[Array, "batches capacity"]
    mask: Bool[Array, "batches capacity"]
    scale: Float[Array, ""]
    total: Float[Array, ""]
    grid: Float[Array, ""]
    model_noise: Float[Array, "steps ..."]
    privacy_noise: UInt32[Array, "steps n 2"]
    release_noise: UInt32[Array, "k 2"]

    def batch(self, rows: Rows, step: Int[Array, ""] | int) -> Batch:
        """Return what one step gets to see of a client's rows."""
        numbers, mask = take((self.rows, self.mask), step % self.rows.shape[0])
        return Batch(
            x=rows.x,
            y=rows.y,
            lengths=rows.lengths,
            rows=rows.offset + numbers,
            mask=mask.astype(self.scale.dtype),
            feature_bound=rows.feature_bound,
            scale=self.scale,
            total=self.total,
            grid=self.grid,
            model_noise=self.model_noise[step],
            privacy_noise=self.privacy_noise[step],
        )


State = TypeVar("State")
Seen = UInt32[Array, "steps n 2"]
"""All that mechanisms released, stacked over steps: for audits."""


class Solver(Protocol[State]):
    """Turns a local problem into a target factor; its state, a pytree, is what it keeps between communications.

    needs: an ability of the model (`Model.abilities`), checked once before anything runs.
    """

    needs: ClassVar[str]

    @property
    def mechanism(self) -> Mechanism:
        """How each step gets to see the rows."""

    @property
    def steps(self) -> int:
        """Number of steps per update."""

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same solver with this noise in its mechanism."""

    def init(self, q: GaussianFamily) -> State:
        """Return the state of a client that has not made an update; q is any member of the family."""

    def solve(
        self, problem: Problem, state: State, model: Model, rows: Rows, draws: Draws
    ) -> tuple[Factor, State, Seen]:
        """Return the target factor, the new state, and all that mechanisms released."""

    def check(self, x: np.ndarray, where: str) -> None:
        """Raise `InputError` if this solver cannot work with such features."""


MODELS_WITH = {
    "gradient": "a model with gradients",
    "closed form": "a conjugate model such as LinearRegression",
    "curvature": "a model in which y depends on w'x alone, with a curvature_bound, such as LogisticRegression",
}
"""Abilities of models, in words."""


def check_solver(solver: Solver[Any], model: Model) -> None:
    """Raise `InputError` unless the model has the ability that the solver needs."""
    if solver.needs not in model.abilities:
        raise InputError(
            f"{type(solver).__name__}() needs {MODELS_WITH.get(solver.needs, solver.needs)}, got "
            f"{type(model).__name__}. Use GradientSteps(...)."
        )


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

    def init(self, q: GaussianFamily) -> optax.OptState:
        """Return the optimiser's initial state."""
        return self.optimizer(self.learning_rate).init(q.coordinates())

    def solve(
        self, problem: Problem, state: optax.OptState, model: Model, rows: Rows, draws: Draws
    ) -> tuple[Factor, optax.OptState, Seen]:
        """Take the steps, and return the target factor, the optimiser's state and what was seen."""
        from optax import apply_updates

        start = problem.start.coordinates()
        optimizer = self.optimizer(self.learning_rate)

        def prior_part(q: Coordinates) -> Float[Array, ""]:
            return q.kl(start) + q.expected_log(problem.removed)

        def step(carry: tuple[Any, optax.OptState], k: Int[Array, ""]) -> tuple[tuple[Any, optax.OptState], Words]:
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


@pytree
class Exact:
    """The optimum of the local problem in closed form, for conjugate models such as `LinearRegression`."""

    needs: ClassVar[str] = "closed form"
    steps: ClassVar[int] = 1

    @property
    def mechanism(self) -> Mechanism:
        """All rows, and no privacy."""
        return FullBatch()

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same: nothing has noise."""
        return self

    def init(self, q: GaussianFamily) -> tuple[()]:
        """Nothing is kept between communications."""
        return ()

    def solve(
        self, problem: Problem, state: tuple[()], model: Model, rows: Rows, draws: Draws
    ) -> tuple[Factor, tuple[()], Seen]:
        """Return the exact target factor; nothing has noise."""
        batch, conjugate = draws.batch(rows, 0), cast(Conjugate, model)  # `needs` has been checked
        statistics = batch.sum_over_rows(
            lambda some, mask: conjugate.sufficient_statistics(*batch.take(some)[:2], batch.scale * mask),
            min(EXACT_AT_ONCE, batch.mask.size),
        )
        best = problem.anchor.best_factor(*statistics)
        return (problem.base / problem.removed) * best, state, draws.privacy_noise

    def check(self, x: np.ndarray, where: str) -> None:
        """Any features will do."""
