"""A run: its turns, its randomness, its state; and many turns of several runs in one compiled loop.

`play_blocks` plays planned turns: the client's update, the server's step, the next turn. It is the only place where the
simulation calls the two. Everything about a turn is data (client number, slots, draws), so one compilation serves every
schedule and every client; numbers of turns and runs are data too.

Runs that share rows and model, and whose settings differ in numbers only (seeds, learning rates, noise, clips), are the
same program with other data. A run comes out the same, bit for bit, alone or in company.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from fedvi.compiling import jax, jnp
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.arrival import newton_decrement
from fedvi.inference.local_problem import Draws, Public
from fedvi.inference.rows import ClientRows
from fedvi.inference.server import ServerState, Verdict, init_server, server_step
from fedvi.inference.update import ClientState, draw, init_client, update
from fedvi.models.base import Model
from fedvi.numerics import Array
from fedvi.privacy.sampling import SCHEDULE, UPDATE, Seeded
from fedvi.pytree import choose, put, pytree, repeat, take
from fedvi.simulation.clients import ClientBudgets, Clients
from fedvi.simulation.results import Record, Result, describe
from fedvi.simulation.schedules import PlannedTurn, Schedule, plan

Outcome = Result | Exception

BIASED = (
    "Rows were clipped by a rule that sees their outcomes, as in the papers: means are biased, and intervals too "
    "narrow. Use NoiseAwarePVI, or tell the model its outcomes or how to draw them."
)


@pytree
class Carry:
    """The whole state of a simulated federation.

    clients: stacked client states.
    snapshots: the q's that clients have fetched, by slot (see `fedvi.simulation.schedules`); None if all are asked.
    """

    server: ServerState
    clients: ClientState
    snapshots: GaussianFamily | None

    def sent_to(self, state: ClientState, slot: Int[Array, ""]) -> Any:
        """Return what a client works on: its next question, or the q that it has fetched."""
        asked = self.server.asked
        return take(asked.questions, state.sequence) if asked else take(self.snapshots, slot)


@pytree
class Turns:
    """Planned turns as arrays."""

    client: Int[Array, " turns"]
    source: Int[Array, " turns"]
    save: Int[Array, " turns"]


@pytree
class Settings:
    """Settings of a run: its clients' algorithms, stacked, and what is public."""

    algorithms: Algorithm
    public: Public


@pytree
class Block:
    """Turns of a run, and their randomness, stacked over turns; there may be room for more than `count`."""

    turns: Turns
    draws: Draws
    count: Int[Array, ""]


@functools.partial(jax.jit, static_argnames="clients")
def init_carry(algorithm: Algorithm, prior: GaussianFamily, clients: int, asked: Any) -> Carry:
    """Return the state before the first turn. asked: the first question, if the algorithm is by questions."""
    return Carry(
        server=init_server(prior, algorithm.first_factor(prior), clients, asked),
        clients=repeat(init_client(algorithm, prior), clients),
        snapshots=repeat(prior, clients + 1) if asked is None else None,
    )


@jax.jit
def look(carry: Carry, run: Int[Array, ""], before: GaussianFamily) -> tuple[GaussianFamily, Array, Array]:
    """Return a run's q, how far it is from an earlier one in nats, and how many precisions were repaired so far."""
    carry = take(carry, run)
    q: GaussianFamily = carry.server.posterior
    return q, q.kl(before), jnp.sum(carry.clients.repairs)


@jax.jit
def play_blocks(
    model: Model, data: ClientRows, settings: Settings, carry: Carry, blocks: Block, runs: Int[Array, ""]
) -> tuple[Carry, Int[Array, "runs turns"]]:
    """Play a block of each of several runs; return the new state and the verdict on every update.

    settings, carry, blocks: stacked over runs. Model and rows are the same for all.
    runs: how many there are. As a number, so that XLA does not write the loop out, which takes long to compile.
    """

    def play_run(run: Int[Array, ""], so_far: tuple[Carry, Array]) -> tuple[Carry, Array]:
        own: Settings = take(settings, run)
        block: Block = take(blocks, run)

        def play_turn(k: Int[Array, ""], so_far: tuple[Carry, Array]) -> tuple[Carry, Array]:
            carry, verdicts = so_far
            turn: Turns = take(block.turns, k)
            algorithm: Algorithm = take(own.algorithms, turn.client)
            state: ClientState = take(carry.clients, turn.client)
            q = carry.sent_to(state, turn.source)
            rows = data.rows_of(turn.client)
            problem = algorithm.problem(own.public, q, state.factor)
            new, release, _ = update(algorithm, model, own.public, q, state, rows, take(block.draws, k))
            server, verdict = server_step(carry.server, turn.client, release)
            verdict = jnp.where(problem.is_proper(), verdict, jnp.int32(Verdict.IMPROPER_CAVITY))
            carry = Carry(
                server=server,
                clients=put(carry.clients, turn.client, choose(verdict == Verdict.ACCEPTED, new, state)),
                snapshots=carry.snapshots and put(carry.snapshots, turn.save, server.posterior),
            )
            return carry, verdicts.at[k].set(verdict)

        all_carries, all_verdicts = so_far
        start = take(all_carries, run), jnp.zeros_like(block.turns.client)
        carry, verdicts = jax.lax.fori_loop(0, block.count, play_turn, start)
        return put(all_carries, run, carry), all_verdicts.at[run].set(verdicts)

    start = carry, jnp.zeros_like(blocks.turns.client)
    played: tuple[Carry, Array] = jax.lax.fori_loop(0, runs, play_run, start)
    return played


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run with everything checked: its turns and its randomness are the same every time.

    most_updates: of every client. budgets: None if nothing is private and nothing was asked.
    algorithm: as it was given. own: every client's; they differ where noise was left open.
    settings: numbers of the same algorithms, stacked over clients, and what is public.
    """

    clients: Clients
    most_updates: tuple[float, ...]
    budgets: ClientBudgets | None
    model: Model
    algorithm: Algorithm
    own: tuple[Algorithm, ...]
    settings: Settings
    schedule: Schedule
    seed: int

    @property
    def kind(self) -> Hashable:
        """What runs must have in common to be played together."""
        leaves, structure = jax.tree.flatten(self.settings)
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        return id(self.clients), structure, shapes, self.batch_capacity

    @functools.cached_property
    def described(self) -> dict[str, object]:
        """What a run must have in common with one that it resumes; names of clients do not matter."""
        budgets = self.budgets
        return {
            "seed": int(self.seed),
            "model": describe(self.model),
            "algorithm": describe(self.algorithm),
            "schedule": describe(self.schedule),
            "prior": describe(self.settings.public.prior),
            "rows": list(self.clients.sizes),
            "public_rows": list(self.clients.public_rows),
            "privacy": describe(None if budgets is None else (budgets.budgets, budgets.limited)),
            "events": describe(None if budgets is None else sorted({repr(event) for event in budgets.events})),
            "max_updates": [None if math.isinf(most) else int(most) for most in self.most_updates],
            "data": self.clients.digest,
            "dtype": str(self.clients.rows.x.dtype),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the posterior has to know."""
        of_rows = self.algorithm.solver.mechanism.private
        return (BIASED,) if of_rows and not self.algorithm.asks and self.model.looks_at_outcomes else ()

    def decrement(self, q: GaussianFamily) -> Callable[[], float] | None:
        """Return a function that says how far q is from its optimum; None where answers say it, or with privacy."""
        if self.algorithm.asks or self.algorithm.client_level or self.algorithm.solver.mechanism.private:
            return None
        prior, rows, count = self.settings.public.prior, self.clients.rows, sum(self.clients.sizes)
        return functools.partial(newton_decrement, self.model, prior, q, rows, count)

    @functools.cached_property
    def batch_capacity(self) -> int:
        """Rows that a batch has room for: enough for every client's."""
        needed = max(self.algorithm.solver.mechanism.capacity(rows) for rows in set(self.clients.public_rows))
        return max(64, 2 ** math.ceil(math.log2(needed)))  # room costs little, another compilation a second

    def init(self) -> Carry:
        """Return the state before the first turn."""
        prior = self.settings.public.prior
        return init_carry(self.algorithm, prior, len(self.clients.names), self.algorithm.first_asked(self.model, prior))

    def turns(self) -> Iterator[PlannedTurn]:
        """Return all turns of the run, from the first."""
        rng = Seeded(self.seed, SCHEDULE).generator
        return plan(self.schedule.turns(self.clients.public_rows, self.most_updates, rng), self.most_updates)

    def draw(self, client: int, update: int) -> Draws:
        """Return all randomness of one update."""
        source = self._source.restart(self.seed, UPDATE, client, update)
        sizes = self.clients.sizes[client], self.clients.public_rows[client]
        return draw(self.own[client], self.model, self.settings.public, *sizes, source, self.batch_capacity)

    @functools.cached_property
    def draws_form(self) -> tuple[list[np.ndarray], jax.tree_util.PyTreeDef]:
        """Arrays like those of one update's randomness, and their structure."""
        leaves, structure = jax.tree.flatten(self.draw(0, 0))
        return leaves, structure

    @functools.cached_property
    def _source(self) -> Seeded:
        return Seeded(self.seed, UPDATE)


class Measured(NamedTuple):
    """What was measured of a run so far, and the posterior at the last record."""

    posterior: GaussianFamily
    records: tuple[Record, ...] = ()


class Place(NamedTuple):
    """The state of some runs, stacked; this run is number `number`, after so many communications."""

    carry: Carry
    number: int
    communications: int


@dataclasses.dataclass
class Course:
    """A run on its way.

    turns: to come. made: those that were taken from the schedule. total: how many there will be, or infinity.
    place: where it is, replaced as a whole: an interruption never sees half of it. outcome: how it ended.
    """

    run: Run
    turns: Iterator[PlannedTurn]
    made: list[PlannedTurn]
    total: float
    measured: Measured
    place: Place
    outcome: Outcome | None = None

    @property
    def time(self) -> float:
        """Of the last communication, by the schedule's clock."""
        return self.made[self.place.communications - 1].time if self.place.communications else 0.0

    def goes_on(self) -> bool:
        """Tell whether there is another turn."""
        coming = list(itertools.islice(self.turns, 1))
        self.turns = itertools.chain(coming, self.turns)
        return bool(coming)

    def next_turns(self, count: int, asked: int | None) -> list[PlannedTurn]:
        """Take turns from the schedule; asked: only those that need none but the first so many questions."""
        block = list(itertools.islice(self.turns, count))
        if asked is not None:
            early = next((k for k, turn in enumerate(block) if turn.update > asked), len(block))
            block, self.turns = block[:early], itertools.chain(block[early:], self.turns)
        self.made += block
        return block
