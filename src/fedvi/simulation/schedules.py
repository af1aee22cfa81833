"""Schedules: who communicates when, and which q each update starts from.

A schedule is an endless (or budget-bound) stream of turns. In a turn one client's update arrives at the server and is
applied. Before the turn, the clients in `reads` fetch the current q; a client's update starts from the q that it
fetched last. So staleness is just distance between reading and arriving:

    sequential    reads itself, then updates               -> always the newest q
    synchronous   all read, then all update                -> q of the start of the round
    event-driven  reads when it begins, arrives when done  -> q of the time at which it began

Schedules know sizes and most updates, never data or outputs, so a run's turns can be laid out before it. To write one,
yield turns: see `RoundRobin`.

`plan` gives turns their memory. A compiled run keeps every q that some client still works on in a numbered slot. Slots
are handed out as in register allocation: a q that several clients fetched takes one slot, and the slot is free again
when the last of them has updated. M slots are always enough for M clients; slot 0 is for what nobody will read.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fedvi.checks import in_range
from fedvi.errors import InputError
from fedvi.pytree import pytree, static


class Turn(NamedTuple):
    """One communication: `client`'s update arrives at `time`; just before, the clients in `reads` fetch q."""

    client: int
    time: float
    reads: tuple[int, ...]


class Schedule(Protocol):
    """An order of communications."""

    def turns(self, rows: Sequence[int], max_updates: Sequence[float], rng: np.random.Generator) -> Iterator[Turn]:
        """Yield turns for clients with so many rows, of which client m may make `max_updates[m]` (inf: no limit)."""


@pytree
class RoundRobin:
    """Clients take turns in order: sequential PVI. Time counts rounds."""

    def turns(self, rows: Sequence[int], max_updates: Sequence[float], rng: np.random.Generator) -> Iterator[Turn]:
        """Yield turns 0, 1, ..., M-1, 0, 1, ..., leaving out clients whose budget is spent."""
        clients = len(rows)
        for made in itertools.count():
            active = [m for m in range(clients) if made < max_updates[m]]
            if not active:
                return
            for m in active:
                yield Turn(m, made + (m + 1) / clients, (m,))


@pytree
class Synchronous:
    """Rounds in which all clients start from the same q and all updates are applied. Time counts rounds.

    Updates made side by side add up: use damping of about 1/M. (Only conjugate models with full covariance need none.)
    """

    def turns(self, rows: Sequence[int], max_updates: Sequence[float], rng: np.random.Generator) -> Iterator[Turn]:
        """Yield rounds, leaving out clients whose budget is spent."""
        for made in itertools.count():
            active = tuple(m for m in range(len(rows)) if made < max_updates[m])
            if not active:
                return
            for m in active:
                yield Turn(m, float(made + 1), active if m == active[0] else ())


@pytree
class Asynchronous:
    """The paper's schedule: an iteration is M picks with replacement, with probability proportional to 1 / rows.

    Small clients are quick and come often. A pick of a client whose budget is spent is wasted. Time counts iterations.
    """

    def turns(self, rows: Sequence[int], max_updates: Sequence[float], rng: np.random.Generator) -> Iterator[Turn]:
        """Yield the picks that are not wasted."""
        left = np.array(max_updates, float)
        speed = 1 / np.asarray(rows, float)
        picks = itertools.count(1)
        while np.any(left > 0):
            for m in rng.choice(len(rows), size=1024, p=speed / speed.sum()).tolist():
                pick = next(picks)
                if left[m] > 0:
                    left[m] -= 1
                    yield Turn(m, pick / len(rows), (m,))


@pytree
class Paced:
    """Clients use up their budgets at the same relative rate, so that none is left to update alone at the end.

    The next turn goes to the client that has used the smallest share of its budget (of its updates, if there are no
    budgets); ties are broken at random. Time counts turns per client.
    """

    def turns(self, rows: Sequence[int], max_updates: Sequence[float], rng: np.random.Generator) -> Iterator[Turn]:
        """Yield turns until all budgets are used up, all at about the same time."""
        unlimited = [math.isinf(most) for most in max_updates]
        if any(unlimited) and not all(unlimited):
            raise InputError("Paced() needs a budget for every client or for none; set max_updates for all.")
        pace = [1.0 if endless else most for endless, most in zip(unlimited, max_updates, strict=True)]
        queue = [(0.0, rng.random(), m, 0) for m in range(len(rows)) if max_updates[m] > 0]
        heapq.heapify(queue)
        for turn in itertools.count(1):
            if not queue:
                return
            _, _, m, made = heapq.heappop(queue)
            if made + 1 < max_updates[m]:
                heapq.heappush(queue, ((made + 1) / pace[m], rng.random(), m, made + 1))
            yield Turn(m, turn / len(rows), (m,))


@pytree
class EventDriven:
    """A virtual clock: an update takes `latency + seconds_per_row * rows` seconds and starts from an older q.

    Every client works without pause: it fetches q, computes, its update arrives, and it fetches q again.
    `jitter` is the standard deviation of the logarithm of each duration; 0 makes the clock deterministic.
    """

    seconds_per_row: float = static(default=1e-3)
    latency: float = static(default=0.1)
    jitter: float = static(default=0.0)

    def __post_init__(self) -> None:
        in_range("seconds_per_row", self.seconds_per_row, 0)
        in_range("latency", self.latency, 0)
        in_range("jitter", self.jitter, 0)
        if self.seconds_per_row == 0 and self.latency == 0:
            raise InputError("Expected latency or seconds_per_row above 0, got 0 for both: time would stand still.")

    def turns(self, rows: Sequence[int], max_updates: Sequence[float], rng: np.random.Generator) -> Iterator[Turn]:
        """Yield arrivals in the order of the clock."""

        def duration(m: int) -> float:
            return (self.latency + self.seconds_per_row * rows[m]) * math.exp(self.jitter * rng.standard_normal())

        readers = tuple(m for m in range(len(rows)) if max_updates[m] > 0)
        arrivals = [(duration(m), m, 1) for m in readers]
        heapq.heapify(arrivals)
        while arrivals:
            time, m, made = heapq.heappop(arrivals)
            yield Turn(m, time, readers)
            readers = ()
            if made < max_updates[m]:
                readers = (m,)
                heapq.heappush(arrivals, (time + duration(m), m, made + 1))


SCRATCH = 0
"""The slot that is written and never read."""


class PlannedTurn(NamedTuple):
    """A turn with its memory: the update starts from slot `source`; afterwards q goes into slot `save`.

    update: 1 for this client's first update, then 2, 3, ...
    staleness: how many updates were applied between this client's reading of q and its own update.
    """

    client: int
    time: float
    update: int
    staleness: int
    source: int
    save: int


def plan(turns: Iterator[Turn], most_updates: Sequence[float]) -> Iterator[PlannedTurn]:
    """Assign slots to the turns; before the first turn, every slot holds the prior.

    most_updates: of each client. A turn beyond them, or one that makes no sense, is an error of the schedule.
    """
    clients = range(len(most_updates))
    free = [m + 1 for m in reversed(clients)]
    holders = dict.fromkeys(free, 0)
    made = [0 for _ in clients]
    held: dict[int, tuple[int, int]] = {}  # client -> (slot, version) of the q it read and has not used

    def let_go(client: int) -> None:
        slot, _ = held.pop(client)
        holders[slot] -= 1
        if holders[slot] == 0:
            free.append(slot)

    waiting: PlannedTurn | None = None  # a turn is complete when the next one tells who reads the q after it
    for version, turn in enumerate(turns):
        for m in (turn.client, *turn.reads):
            if m not in clients:
                raise InputError(f"The schedule names client {m!r} in turn {version}; clients are 0 to {clients[-1]}.")
        save, readers = SCRATCH, set(turn.reads)
        if readers:
            for reader in readers & held.keys():
                let_go(reader)
            save = free.pop()
            holders[save] = len(readers)
            held.update(dict.fromkeys(readers, (save, version)))
        if waiting is not None:
            yield waiting._replace(save=save)
        if turn.client not in held:
            raise InputError(f"The schedule lets client {turn.client} update twice without reading q in between.")
        if made[turn.client] >= most_updates[turn.client]:
            raise InputError(f"The schedule lets client {turn.client} make more than {made[turn.client]} updates.")
        source, read = held[turn.client]
        let_go(turn.client)
        made[turn.client] += 1
        waiting = PlannedTurn(turn.client, turn.time, made[turn.client], version - read, source, SCRATCH)
    if waiting is not None:
        yield waiting
