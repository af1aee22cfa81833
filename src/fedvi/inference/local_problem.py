"""The problem that a client is asked to solve, the randomness that it may use, and what a solver brings.

    minimise  KL(q' || anchor * likelihood^scale)       with anchor = start / removed, beginning at q' = start
    target factor = base * q' / start = (base / removed) * q' / anchor

Partitioned VI removes and rebuilds the client's own factor (`removed = base = t_m`); other algorithms differ only in
these three values, and in the scale (see `fedvi.inference.algorithms`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedvi.compiling import jnp
from fedvi.errors import InputError
from fedvi.families.base import Factor, GaussianFamily
from fedvi.inference.rows import Rows
from fedvi.models.base import Model
from fedvi.numerics import Array
from fedvi.privacy.clipping import Batch
from fedvi.privacy.mechanism import Mechanism
from fedvi.pytree import pytree, take


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


class Solver(Protocol):
    """Turns a local problem into a target factor; `state` is what it keeps between communications.

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

    def init(self, q: GaussianFamily) -> Any:
        """Return the state of a client that has not made an update; q is any member of the family."""

    def solve(self, problem: Problem, state: Any, model: Model, rows: Rows, draws: Draws) -> tuple[Any, Any, Any]:
        """Return the target factor, the new state, and all that mechanisms released, stacked over steps."""

    def check(self, x: np.ndarray, where: str) -> None:
        """Raise `InputError` if this solver cannot work with such features."""


MODELS_WITH = {
    "gradient": "a model with gradients",
    "closed form": "a conjugate model such as LinearRegression",
    "curvature": "a model in which y depends on w'x alone, with a curvature_bound, such as LogisticRegression",
}
"""Abilities of models, in words."""


def check_solver(solver: Solver, model: Model) -> None:
    """Raise `InputError` unless the model has the ability that the solver needs."""
    if solver.needs not in model.abilities:
        raise InputError(
            f"{type(solver).__name__}() needs {MODELS_WITH.get(solver.needs, solver.needs)}, got "
            f"{type(model).__name__}. Use GradientSteps(...)."
        )
