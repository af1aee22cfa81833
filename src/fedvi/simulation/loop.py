"""The loop of `simulate`: turns are taken from the schedules, played in compiled blocks, and measured between blocks.

`play` is a generator. Whoever pulls from it gets a `Moment` after every block; `Watched` measures, shows progress or
stops then. Several runs go through one loop. Each ends by itself, when its turns are used up or an update goes wrong;
the others go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import TypeVar

import numpy as np

from fedvi import console
from fedvi.compiling import jax
from fedvi.errors import SimulationInterrupted
from fedvi.families.base import GaussianFamily
from fedvi.inference.server import Verdict, raise_unless_accepted
from fedvi.pytree import put, take
from fedvi.simulation.results import Checkpoint, History, Record, Result
from fedvi.simulation.runs import Block, Carry, Course, Measured, Outcome, Place, Run, Turns, look, play_blocks
from fedvi.simulation.schedules import PlannedTurn

T = TypeVar("T")

Measure = Callable[[Carry], Mapping[str, float]]
Score = Callable[[GaussianFamily], Mapping[str, float]]

RESPONSE = 0.3
"""Seconds after which the progress bar moves and Ctrl-C is heard, unless a single update takes longer."""

BLOCK_TURNS = 128
BLOCK_BYTES = 32_000_000
"""A block has at most so many turns of every run, and randomness of at most about so many bytes."""


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
                most = int(min(pace, room, every - places[number].communications % every))
                try:
                    asked = _questions(carry, number)
                    blocks[number] = alike[number].next_turns(most, asked)
                    if not blocks[number] and asked is not None:  # a question is due, or this is the end
                        carry = _asked(alike[number].run, carry, number, more=alike[number].goes_on())
                        blocks[number] = alike[number].next_turns(most, _questions(carry, number))
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
            places = [place._replace(carry=carry) for place in places]
            yield Moment(alike, places, ended)


def _questions(carry: Carry, number: int) -> int | None:
    """Return how many questions were asked in a run; None if nobody asks."""
    asked = carry.server.asked
    return int(asked.count[number]) if asked else None


def _asked(run: Run, carry: Carry, number: int, *, more: bool) -> Carry:
    """Return the state with all answers of a run read, and its next question asked if there are more turns."""
    server = take(jax.tree.map(np.asarray, carry.server), number)
    read = run.algorithm.asked_next(run.model, server, more=more)
    asked = put(jax.tree.map(np.asarray, carry.server.asked), number, read)
    return dataclasses.replace(carry, server=dataclasses.replace(carry.server, asked=jax.device_put(asked)))


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


@dataclasses.dataclass(frozen=True)
class Watched:
    """Runs on their way, and what is measured of them every so many communications."""

    courses: list[Course]
    every: float
    score: Score | None
    measure: Measure | None

    @property
    def communications(self) -> int:
        """Communications made so far, by all runs."""
        return sum(course.place.communications for course in self.courses)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all runs; of those that are not at their end, what was done until now."""
        return [course.outcome or _result(course) for course in self.courses]

    @contextlib.contextmanager
    def kept(self, progress: bool | None, stop: Callable[[], bool] | None) -> Iterator[Callable[[Moment], None]]:
        """Give a function that sees to a moment: it measures, shows progress, and may stop.

        Whatever ends the runs early has what was done until then.
        progress: whether to show a bar; None for on a terminal only. stop: asked whether to stop.
        """
        total = sum(course.total for course in self.courses)
        most = None if math.isinf(total) else int(total)
        with console.progress("federation", most, "communications", done=self.communications, wanted=progress) as show:

            def see(moment: Moment) -> None:
                self._measure(moment)
                show(self.communications, "")
                if stop is not None and stop():
                    raise KeyboardInterrupt

            try:
                yield see
            except KeyboardInterrupt:
                raise SimulationInterrupted(self.outcomes) from None
            except Exception as error:  # of what all runs have in common, such as too little memory
                error.outcomes = self.outcomes  # type: ignore[attr-defined]
                error.result = getattr(error.outcomes[0], "result", error.outcomes[0])  # type: ignore[attr-defined]
                raise

    def _measure(self, moment: Moment) -> None:
        """Measure where it is due. An error ends its run, and has what the run did; the others go on."""
        for course, place in zip(moment.courses, moment.places, strict=True):
            course.place = place
        for number, course in enumerate(moment.courses):
            if course.outcome is not None:
                continue
            try:
                if (error := moment.ended.get(number)) is not None:
                    raise error
                if number in moment.ended:  # a run may go on from its end: this measurement is not in the checkpoint
                    course.outcome = _result(course, self._measured(course).records)
                elif course.place.communications % self.every == 0:
                    course.measured = self._measured(course)
            except Exception as error:
                error.result = _result(course)  # type: ignore[attr-defined]
                course.outcome = error

    def _measured(self, course: Course) -> Measured:
        """Return all measurements with one of now, unless that was just made."""
        (carry, number, communications), (before, records) = course.place, course.measured
        if records and records[-1]["communications"] == communications:
            return course.measured
        q, change, repairs = look(carry, np.int32(number), before)
        course.run.clients.check_model(course.run.model, q, f"under q after {communications} communications")
        record: Record = {
            "communications": communications,
            "time": course.time,
            "repairs": int(repairs),
            "change": float(change),
            **({} if self.score is None else self.score(q)),
        }
        if self.measure is not None:
            measured = self.measure(take(carry, number))
            record |= {name: float(value) for name, value in measured.items()}
        return Measured(q, (*records, record))


def _result(course: Course, records: tuple[Record, ...] | None = None) -> Result:
    """Return what a run has done; records: if they are not those of its checkpoint."""
    run, measured, (carry, number, communications) = course.run, course.measured, course.place
    posterior, _, _ = look(carry, np.int32(number), measured.posterior)
    carry = take(jax.tree.map(np.asarray, carry), number)
    leaves = tuple(map(np.asarray, jax.tree.leaves((carry, measured.posterior))))
    return Result(
        posterior=posterior,
        history=History(
            records=measured.records if records is None else records,
            turns=tuple(course.made[:communications]),
            budgets=run.budgets,
        ),
        clients={name: take(carry.clients, index) for index, name in enumerate(run.clients.names)},
        checkpoint=Checkpoint(communications, leaves, measured.records, run.described),
        asked=carry.server.asked,
        notes=run.notes,
        decrement=run.decrement(posterior),
    )
