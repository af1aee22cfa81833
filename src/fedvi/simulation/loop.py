"""The loop of `simulate`: turns are taken from the schedules and played in compiled blocks.

`play` is a generator. Whoever pulls from it gets a `Moment` after every block, and measures, shows progress or stops
between blocks. Several runs go through one loop. Each ends by itself, when its turns are used up or an update goes
wrong; the others go on.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple, TypeVar

import numpy as np

from fedvi.compiling import jax
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Draws, Public
from fedvi.inference.server import Verdict, raise_unless_accepted
from fedvi.inference.update import draw
from fedvi.models.base import Model
from fedvi.privacy.sampling import SCHEDULE, UPDATE, Seeded
from fedvi.pytree import take
from fedvi.simulation.budgets import ClientBudgets
from fedvi.simulation.clients import Clients
from fedvi.simulation.compiled import Block, Carry, Settings, Turns, init_carry, play_blocks
from fedvi.simulation.results import Record, Result, describe
from fedvi.simulation.schedules import PlannedTurn, Schedule, plan

T = TypeVar("T")

RESPONSE = 0.3
"""Seconds after which the progress bar moves and Ctrl-C is heard, unless a single update takes longer."""

BLOCK_TURNS = 128
BLOCK_BYTES = 32_000_000
"""A block has at most so many turns of every run, and randomness of at most about so many bytes."""

Outcome = Result | Exception


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run with everything checked (`fedvi.simulation.prepare`): its turns and its randomness are the same every time.

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
    def public(self) -> Public:
        """What everybody knows."""
        return self.settings.public

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
            "prior": describe(self.public.prior),
            "rows": list(self.clients.sizes),
            "public_rows": list(self.clients.public_rows),
            "privacy": describe(None if budgets is None else (budgets.budgets, budgets.limited)),
            "events": describe(None if budgets is None else sorted({repr(event) for event in budgets.events})),
            "max_updates": [None if math.isinf(most) else int(most) for most in self.most_updates],
            "data": self.clients.digest,
            "dtype": str(self.clients.rows.x.dtype),
        }

    @functools.cached_property
    def batch_capacity(self) -> int:
        """Rows that a batch has room for: enough for every client's."""
        needed = max(self.algorithm.solver.mechanism.capacity(rows) for rows in set(self.clients.public_rows))
        return max(64, 2 ** math.ceil(math.log2(needed)))  # room costs little, another compilation a second

    def init(self) -> Carry:
        """Return the state before the first turn."""
        return init_carry(self.algorithm, self.public.prior, len(self.clients.names))

    def turns(self) -> Iterator[PlannedTurn]:
        """Return all turns of the run, from the first."""
        rng = Seeded(self.seed, SCHEDULE).generator
        return plan(self.schedule.turns(self.clients.public_rows, self.most_updates, rng), self.most_updates)

    def draw(self, client: int, update: int) -> Draws:
        """Return all randomness of one update."""
        source = self._source.restart(self.seed, UPDATE, client, update)
        sizes = self.clients.sizes[client], self.clients.public_rows[client]
        return draw(self.own[client], self.model, self.public, *sizes, source, self.batch_capacity)

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

    def next_turns(self, count: int) -> list[PlannedTurn]:
        """Take turns from the schedule."""
        block = list(itertools.islice(self.turns, count))
        self.made += block
        return block


@dataclasses.dataclass(frozen=True)
class Moment:
    """Where runs are after a block.

    ended: by number, the runs that have ended: with an error, or with None after their last turn.
    """

    courses: Sequence[Course]
    places: Sequence[Place]
    ended: Mapping[int, Exception | None]


def play(courses: Sequence[Course], every: float) -> Iterator[Moment]:
    """Play all runs to their ends, those of one kind together; yield where they are: before, and after every block.

    every: turns after which there is something to do outside of compiled code. A run with an outcome is not played on.
    """
    kinds: dict[Hashable, list[Course]] = {}
    for course in courses:
        kinds.setdefault(course.run.kind, []).append(course)
    for alike in kinds.values():
        runs = [course.run for course in alike]
        first, settings = runs[0], stack([run.settings for run in runs])
        room = block_capacity(runs, every)
        places = [course.place for course in alike]
        carry = stack([take(place.carry, place.number) for place in places])
        yield Moment(alike, places, {})
        pace = 1.0  # turns per block, so that a block takes about RESPONSE seconds
        while running := [number for number, course in enumerate(alike) if course.outcome is None]:
            began, ended = perf_counter(), dict[int, Exception | None]()
            blocks: list[list[PlannedTurn]] = [[] for _ in alike]
            for number in running:
                try:
                    blocks[number] = alike[number].next_turns(
                        int(min(pace, room, every - places[number].communications % every))
                    )
                    if not blocks[number]:
                        ended[number] = None
                except Exception as error:  # of the schedule
                    ended[number] = error
            if any(blocks):
                count, before = np.int32(len(runs)), carry
                block = arrange(runs, blocks, room)
                carry, verdicts = play_blocks(first.model, first.clients.rows, settings, before, block, count)
                refused = _refused(runs, blocks, verdicts.tolist())
                if refused:  # those runs end before the update that was refused
                    ended |= {number: error for number, (_, error) in refused.items()}
                    blocks = [turns[: refused[k][0]] if k in refused else turns for k, turns in enumerate(blocks)]
                    again = arrange(runs, blocks, room)
                    carry, _ = play_blocks(first.model, first.clients.rows, settings, before, again, count)
                made = [place.communications + len(turns) for place, turns in zip(places, blocks, strict=True)]
                places = [Place(carry, number, communications) for number, communications in enumerate(made)]
                longest = max(1, *map(len, blocks))
                pace = max(1.0, min(4 * pace, longest * RESPONSE / (perf_counter() - began)))
            yield Moment(alike, places, ended)


def block_capacity(runs: Sequence[Run], longest: float) -> int:
    """Return the turns of each run that one compiled call has room for, at most `longest`."""
    bytes_per_turn = len(runs) * sum(leaf.nbytes for leaf in runs[0].draws_form[0])
    return max(1, int(min(BLOCK_TURNS, longest, BLOCK_BYTES // bytes_per_turn)))


def arrange(runs: Sequence[Run], blocks: Sequence[Sequence[PlannedTurn]], capacity: int) -> Block:
    """Return turns of each run with their randomness, which is drawn here, stacked over runs."""
    leaves, structure = runs[0].draws_form
    room = len(runs), capacity
    buffers = [np.empty((*room, *leaf.shape), leaf.dtype) for leaf in leaves]
    slots = np.zeros((3, *room), np.int32)
    for number, (run, block) in enumerate(zip(runs, blocks, strict=True)):
        for k, turn in enumerate(block):
            slots[:, number, k] = turn.client, turn.source, turn.save
            for buffer, leaf in zip(buffers, jax.tree.leaves(run.draw(turn.client, turn.update)), strict=True):
                buffer[number, k] = leaf
    counts = np.array([len(block) for block in blocks], np.int32)
    return Block(Turns(*slots), jax.tree.unflatten(structure, buffers), counts)  # type: ignore[arg-type]


def stack(trees: Sequence[T]) -> T:
    """Return pytrees of the same form as one, with a new first axis."""
    stacked: T = jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    return jax.device_put(stacked)  # nothing to compile


def _refused(
    runs: Sequence[Run], blocks: Sequence[Sequence[PlannedTurn]], verdicts: Sequence[Sequence[int]]
) -> dict[int, tuple[int, Exception]]:
    """Return by run the first update of its block that was not accepted, and the error that says so."""
    found: dict[int, tuple[int, Exception]] = {}
    for number, (run, block) in enumerate(zip(runs, blocks, strict=True)):
        for k, turn in enumerate(block):
            try:
                verdict = Verdict(verdicts[number][k])
                raise_unless_accepted(verdict, run.clients.names[turn.client], turn.update, turn.update - 1)
            except Exception as error:
                found[number] = k, error
                break
    return found
