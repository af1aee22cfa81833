"""One run of a federation, ready for simulation: everything checked, turns planned, randomness named."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedvi.checks import instance, not_a_class, whole
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily, require_proper
from fedvi.families.mean_field import Gaussian
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Draws, Public
from fedvi.inference.update import draw
from fedvi.models.base import Model
from fedvi.privacy.randomness import SCHEDULE, UPDATE, Seeded
from fedvi.pytree import precision
from fedvi.simulation.budgets import Budgets, ClientBudgets, arrange_spending
from fedvi.simulation.clients import Sites
from fedvi.simulation.compiled import Carry, init_carry
from fedvi.simulation.describe import describe
from fedvi.simulation.plan import PlannedTurn, plan
from fedvi.simulation.schedules import Schedule


@dataclasses.dataclass(frozen=True)
class Run:
    """A run with everything checked. Immutable; the changing state is a `Carry`.

    algorithm: as it was given. own: every client's; they differ where noise was left open. algorithms: those, stacked.
    """

    sites: Sites
    budgets: tuple[float, ...]
    spending: ClientBudgets | None
    public: Public
    model: Model
    algorithm: Algorithm
    own: tuple[Algorithm, ...]
    algorithms: Algorithm
    schedule: Schedule
    seed: int

    @classmethod
    def prepare(
        cls,
        sites: Sites,
        model: Model,
        prior: GaussianFamily | None,
        algorithm: Algorithm,
        schedule: Schedule,
        max_updates: int | Sequence[int] | None,
        privacy: Budgets | None,
        seed: int,
    ) -> Run:
        """Check everything."""
        not_a_class("schedule", schedule)
        if not callable(getattr(schedule, "turns", None)):
            raise InputError(f"Expected a schedule with a method turns(rows, max_updates, rng), got {schedule!r}.")
        names, rows = sites.names, sites.public_rows
        prior = _checked_prior(prior, model.dim(sites.data.x))
        wanted = _budgets(max_updates, algorithm.most_updates, len(names))
        own, spending = arrange_spending(names, rows, algorithm, prior, wanted, privacy)
        private = [math.inf] * len(names) if spending is None else spending.most_updates()
        return cls(
            sites=sites,
            budgets=tuple(map(min, wanted, private)),
            spending=spending,
            public=Public(prior, clients=jnp.asarray(float(len(names))), rows=jnp.asarray(float(sum(rows)))),
            model=model,
            algorithm=algorithm,
            own=own,
            algorithms=_stacked(own),
            schedule=schedule,
            seed=seed,
        )

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What a run must have in common with one that it resumes; names of clients do not matter."""
        return {
            "seed": int(self.seed),
            "model": describe(self.model),
            "algorithm": describe(self.algorithm),
            "schedule": describe(self.schedule),
            "prior": describe(self.public.prior),
            "rows": list(self.sites.sizes),
            "public_rows": list(self.sites.public_rows),
            "privacy": describe(None if self.spending is None else (self.spending.budgets, self.spending.limited)),
            "events": describe(None if self.spending is None else sorted({repr(e) for e in self.spending.events})),
            "max_updates": [None if math.isinf(most) else int(most) for most in self.budgets],
            "data": self.sites.digest,
            "dtype": str(self.sites.data.x.dtype),
        }

    @functools.cached_property
    def batch_capacity(self) -> int:
        """Rows that a batch has room for: enough for every client's."""
        needed = max(self.algorithm.solver.mechanism.capacity(rows) for rows in set(self.sites.public_rows))
        return max(64, 2 ** math.ceil(math.log2(needed)))  # room costs little, another compilation a second

    def init(self) -> Carry:
        """Return the state before the first turn."""
        return init_carry(self.algorithm, self.public.prior, len(self.sites.names))

    def turns(self) -> Iterator[PlannedTurn]:
        """Return all turns of the run, from the first; the same every time."""
        rng = Seeded(self.seed, SCHEDULE).generator
        return plan(self.schedule.turns(self.sites.public_rows, self.budgets, rng), self.budgets)

    def draw(self, client: int, update: int) -> Draws:
        """Return all randomness of one update, the same every time."""
        source = self._source.restart(self.seed, UPDATE, client, update)
        sizes = self.sites.sizes[client], self.sites.public_rows[client]
        return draw(self.own[client], self.model, self.public, *sizes, source, self.batch_capacity)

    @functools.cached_property
    def _source(self) -> Seeded:
        return Seeded(self.seed, UPDATE)


def _stacked(algorithms: tuple[Algorithm, ...]) -> Any:
    """Return all clients' settings as one algorithm, whose numbers have one entry per client."""
    dtype = precision()

    def stack(*leaves: Any) -> jax.Array:
        stacked = np.stack([np.asarray(leaf) for leaf in leaves])
        return jnp.asarray(stacked.astype(dtype) if stacked.dtype.kind == "f" else stacked)

    return jax.tree.map(stack, *algorithms)


def _checked_prior(prior: GaussianFamily | None, dim: int) -> GaussianFamily:
    if prior is None:
        return Gaussian.standard(dim)
    instance("prior", prior, GaussianFamily)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), prior)
    if prior.dim != dim:
        raise InputError(f"Expected a prior over {dim} parameters for these columns, got one over {prior.dim}.")
    require_proper(prior, "prior")
    return prior


def _budgets(max_updates: int | Sequence[int] | None, most: float, clients: int) -> tuple[float, ...]:
    if max_updates is None:
        return (most,) * clients
    budgets = list(max_updates) if isinstance(max_updates, Iterable) else [max_updates] * clients
    if len(budgets) != clients:
        raise InputError(f"Expected one number of max_updates or {clients}, one per client, got {len(budgets)}.")
    for budget in budgets:
        whole("max_updates", budget, 0)
    return tuple(min(budget, most) for budget in budgets)
