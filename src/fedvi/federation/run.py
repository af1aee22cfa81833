"""A federation laid out for simulation: everything checked, all rows in one buffer, turns planned, randomness named."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedvi.checks import instance, not_a_class, registered, whole
from fedvi.data import Clients, Table, check_tables, lay_out
from fedvi.errors import InputError
from fedvi.federation import randomness
from fedvi.federation.block import Carry, Turns, init_carry, run_block
from fedvi.federation.describe import describe, digest
from fedvi.federation.plan import PlannedTurn, plan
from fedvi.federation.schedule import Schedule
from fedvi.federation.server import Verdict
from fedvi.federation.spending import Budgets, Spending, arrange_spending
from fedvi.gaussian import Gaussian, GaussianFamily, require_proper
from fedvi.local import Algorithm, Draws, Public, draw
from fedvi.models import Model
from fedvi.pytree import precision

BLOCK_TURNS = 128
BLOCK_BYTES = 32_000_000
"""A block of turns has at most so many turns, and randomness of at most about so many bytes."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A simulation with everything checked and laid out. Immutable; the changing state is a `Carry`.

    algorithm: as it was given. algorithms: every client's own, stacked; they differ where noise was left open.
    longest_block: turns after which there is something to do outside of compiled code.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    budgets: tuple[float, ...]
    spending: Spending | None
    data: Clients
    public: Public
    model: Model
    algorithm: Algorithm
    algorithms: Algorithm
    schedule: Schedule
    seed: int
    longest_block: float

    @classmethod
    def prepare(
        cls,
        clients: Mapping[str, Table] | Sequence[Table],
        model: Model,
        prior: GaussianFamily | None,
        algorithm: Algorithm,
        schedule: Schedule,
        max_updates: int | Sequence[int] | None,
        privacy: Budgets | None,
        seed: int,
        longest_block: float,
    ) -> Run:
        """Check everything and lay it out."""
        for name, value, kind in (("model", model, Model), ("algorithm", algorithm, Algorithm)):
            instance(name, value, kind)
            registered(name, value)
        not_a_class("schedule", schedule)
        if not callable(getattr(schedule, "turns", None)):
            raise InputError(f"Expected a schedule with a method turns(rows, max_updates, rng), got {schedule!r}.")

        tables = check_tables(clients, model)
        for name, (x, _) in tables.items():
            algorithm.solver.check(model, x, f"client {name!r}")
        tables = algorithm.arrange(tables)
        data = lay_out(tables)
        names, sizes = tuple(tables), tuple(data.size.tolist())
        wanted = _budgets(max_updates, algorithm.most_updates, len(names))
        algorithms, spending = arrange_spending(names, sizes, algorithm, wanted, privacy)
        private = [math.inf] * len(names) if spending is None else spending.most_updates()
        return cls(
            names=names,
            sizes=sizes,
            budgets=tuple(map(min, wanted, private)),
            spending=spending,
            data=data,
            public=Public(
                prior=_checked_prior(prior, model.dim(data.x)),
                clients=jnp.asarray(float(len(tables))),
                rows=jnp.asarray(float(sum(sizes))),
            ),
            model=model,
            algorithm=algorithm,
            algorithms=_stacked(algorithms),
            schedule=schedule,
            seed=seed,
            longest_block=longest_block,
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
            "rows": list(self.sizes),
            "privacy": describe(None if self.spending is None else (self.spending.budgets, self.spending.limited)),
            "events": describe(None if self.spending is None else sorted({repr(e) for e in self.spending.events})),
            "max_updates": [None if math.isinf(most) else int(most) for most in self.budgets],
            "data": digest(*(np.asarray(rows)[: sum(self.sizes)] for rows in (self.data.x, self.data.y))),
            "dtype": str(self.data.x.dtype),
        }

    @functools.cached_property
    def batch_capacity(self) -> int:
        """Rows that a batch has room for: enough for every client's."""
        needed = max(self.algorithm.solver.mechanism.capacity(rows) for rows in set(self.sizes))
        return max(64, 2 ** math.ceil(math.log2(needed)))  # room costs little, another compilation a second

    @functools.cached_property
    def block_capacity(self) -> int:
        """Turns that one compiled call has room for."""
        bytes_per_turn = sum(leaf.nbytes for leaf in jax.tree.leaves(self._draw(0, 0)))
        return max(1, int(min(BLOCK_TURNS, self.longest_block, BLOCK_BYTES // bytes_per_turn)))

    def init(self) -> Carry:
        """Return the state before the first turn."""
        return init_carry(self.algorithm, self.public.prior, len(self.names))

    def turns(self) -> Iterator[PlannedTurn]:
        """Return all turns of the run, from the first; the same every time."""
        rng = randomness.stream(self.seed, randomness.SCHEDULE)
        return plan(self.schedule.turns(self.sizes, self.budgets, rng), self.budgets)

    def play(self, carry: Carry, block: Sequence[PlannedTurn]) -> tuple[Carry, list[Verdict]]:
        """Play at most `block_capacity` turns; return the new state and what became of every update."""
        missing = self.block_capacity - len(block)
        drawn = [self._draw(turn.client, turn.update) for turn in block]
        draws = jax.tree.map(lambda *leaves: np.stack(leaves), *drawn, *[drawn[-1]] * missing)
        slots = [(turn.client, turn.source, turn.save) for turn in block] + [(0, 0, 0)] * missing
        turns = Turns(*np.array(slots, np.int32).T)
        count = np.int32(len(block))
        carry, verdicts = run_block(self.algorithms, self.model, self.public, self.data, carry, turns, draws, count)
        return carry, [Verdict(verdict) for verdict in verdicts.tolist()[: len(block)]]

    def _draw(self, client: int, update: int) -> Draws:
        randomness.restart(self._generator, self.seed, randomness.UPDATE, client, update)
        prior, rows = self.public.prior, self.sizes[client]
        return draw(self.algorithm, self.model, prior, rows, self._generator, self.batch_capacity)

    @functools.cached_property
    def _generator(self) -> np.random.Generator:
        return randomness.stream(self.seed, randomness.UPDATE)


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
