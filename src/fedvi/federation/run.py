"""A federation laid out for simulation: everything checked, all rows in one buffer, turns planned, randomness named."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedvi.checks import whole
from fedvi.data import Clients, Table, lay_out
from fedvi.errors import InputError
from fedvi.federation import randomness
from fedvi.federation.block import Carry, Turns, init_carry, run_block
from fedvi.federation.describe import describe, digest
from fedvi.federation.plan import PlannedTurn, plan
from fedvi.federation.schedule import Schedule
from fedvi.federation.server import Verdict, raise_unless_accepted
from fedvi.gaussian import Gaussian, GaussianFamily
from fedvi.local import Algorithm, Draws, Public, draw
from fedvi.models import Model

BLOCK_TURNS = 128
BLOCK_BYTES = 32_000_000
"""A block of turns has at most so many turns, and randomness of at most about so many bytes."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A simulation with everything checked and laid out. Immutable; the changing state is a `Carry`."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    budgets: tuple[float, ...]
    data: Clients
    public: Public
    model: Model
    algorithm: Algorithm
    schedule: Schedule
    seed: int

    @classmethod
    def prepare(
        cls,
        tables: Mapping[str, Table],
        model: Model,
        prior: GaussianFamily | None,
        algorithm: Algorithm,
        schedule: Schedule,
        max_updates: int | Sequence[int] | None,
        seed: int,
    ) -> Run:
        """Check everything and lay it out."""
        tables = algorithm.arrange(dict(tables))
        data = lay_out(tables, model)
        for name, (x, _) in tables.items():
            algorithm.solver.check(model, np.asarray(x), f"client {name!r}")
        dim = model.dim(data.x)
        prior = Gaussian.standard(dim) if prior is None else prior
        if prior.dim != dim:
            raise InputError(f"Expected a prior over {dim} parameters for these columns, got one over {prior.dim}.")
        sizes = tuple(data.size.tolist())
        return cls(
            names=tuple(tables),
            sizes=sizes,
            budgets=_budgets(max_updates, len(tables)),
            data=data,
            public=Public(prior, jnp.asarray(float(len(tables))), jnp.asarray(float(sum(sizes)))),
            model=model,
            algorithm=algorithm,
            schedule=schedule,
            seed=seed,
        )

    def settings(self) -> dict[str, Any]:
        """Return what a run must have in common with one that it resumes; names of clients do not matter."""
        return {
            "seed": self.seed,
            "model": describe(self.model),
            "algorithm": describe(self.algorithm),
            "schedule": describe(self.schedule),
            "prior": describe(self.public.prior),
            "rows": list(self.sizes),
            "max_updates": [None if math.isinf(most) else most for most in self.budgets],
            "data": digest(self.data.x, self.data.y),
            "dtype": str(self.data.x.dtype),
        }

    def init(self) -> Carry:
        """Return the state before the first turn."""
        return init_carry(self.algorithm, self.public.prior, len(self.names))

    def turns(self) -> Iterator[PlannedTurn]:
        """Return all turns of the run, from the first; the same every time."""
        rng = randomness.stream(self.seed, randomness.SCHEDULE)
        return plan(self.schedule.turns(self.sizes, self.budgets, rng), len(self.names))

    @property
    def block_turns(self) -> int:
        """Number of turns that are played in one compiled call."""
        bytes_per_turn = sum(leaf.nbytes for leaf in jax.tree.leaves(self._draw(0, 0)))
        return max(1, min(BLOCK_TURNS, BLOCK_BYTES // bytes_per_turn))

    def play(self, carry: Carry, block: Sequence[PlannedTurn], capacity: int) -> Carry:
        """Play at most `capacity` turns; raise if one of them is refused."""
        padded = [*block, *[block[-1]] * (capacity - len(block))]
        drawn = [self._draw(turn.client, turn.update) for turn in block]
        drawn += [drawn[-1]] * (capacity - len(block))
        draws = jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)
        turns = Turns(*jnp.asarray([(turn.client, turn.source, turn.save) for turn in padded], jnp.int32).T)
        count = np.int32(len(block))
        carry, verdicts = run_block(self.algorithm, self.model, self.public, self.data, carry, turns, draws, count)
        for turn, verdict in zip(block, verdicts.tolist(), strict=False):
            raise_unless_accepted(Verdict(verdict), self.names[turn.client], turn.update, turn.update - 1)
        return carry

    def _draw(self, client: int, update: int) -> Draws:
        rng = randomness.stream(self.seed, randomness.UPDATE, client, update)
        capacity = max(self.algorithm.solver.sampler.batch_size(rows) for rows in set(self.sizes))
        dim = self.public.prior.dim
        return draw(self.algorithm, self.model, dim, self.sizes[client], rng, capacity)


def _budgets(max_updates: int | Sequence[int] | None, clients: int) -> tuple[float, ...]:
    if max_updates is None:
        return (math.inf,) * clients
    budgets = list(max_updates) if isinstance(max_updates, Iterable) else [max_updates] * clients
    if len(budgets) != clients:
        raise InputError(f"Expected one number of max_updates or {clients}, one per client, got {len(budgets)}.")
    for most in budgets:
        whole("max_updates", most, 0)
    return tuple(budgets)
