"""The loop of `simulate`: turns are taken from the schedules and played in blocks; between blocks it measures.

Several runs go through one loop. Each ends by itself, when its turns are used up or an update goes wrong; the others
go on. The state is replaced as a whole, so that an interruption never sees half of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter

import jax
import numpy as np

from fedvi.families.base import GaussianFamily
from fedvi.inference.server import Verdict, raise_unless_accepted
from fedvi.pytree import take
from fedvi.simulation.compiled import Carry, look
from fedvi.simulation.plan import PlannedTurn
from fedvi.simulation.prepare import Run
from fedvi.simulation.results import Checkpoint, History, Record, Result
from fedvi.simulation.together import Together, stack

RESPONSE = 0.3
"""Seconds after which the progress bar moves and Ctrl-C is heard, unless a single update takes longer."""

Outcome = Result | Exception
Measure = Callable[[Carry], Mapping[str, float]]
Score = Callable[[GaussianFamily], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is. measured: the posterior at the last record."""

    measured: GaussianFamily
    communications: int = 0
    time: float = 0.0
    records: tuple[Record, ...] = ()

    def after(self, block: Sequence[PlannedTurn]) -> Progress:
        """Return the progress after a block of turns."""
        if not block:
            return self
        return dataclasses.replace(self, communications=self.communications + len(block), time=block[-1].time)


@dataclasses.dataclass
class Simulation:
    """A run on its way: where it starts, the turns to come, and those that were taken.

    total: communications after which it ends, or infinity.
    score, measure: what is measured, of q and of the federation's whole state.
    """

    run: Run
    carry: Carry
    progress: Progress
    turns: Iterator[PlannedTurn]
    made: list[PlannedTurn]
    total: float
    score: Score | None
    measure: Measure | None


@dataclasses.dataclass(frozen=True)
class _State:
    """Where all runs are; the carry is stacked over runs."""

    carry: Carry
    progress: tuple[Progress, ...]


class Loop:
    """Simulations of one kind, played together.

    outcomes: by number, those that have ended.
    """

    def __init__(self, simulations: Sequence[Simulation], every: float):
        self._simulations, self._every = simulations, every
        self._together = Together(tuple(simulation.run for simulation in simulations), every)
        self._state = _State(stack([each.carry for each in simulations]), tuple(each.progress for each in simulations))
        self.outcomes: dict[int, Outcome] = {}

    @property
    def communications(self) -> int:
        """Communications made so far, by all runs."""
        return sum(progress.communications for progress in self._state.progress)

    def go(self, between: Callable[[], None]) -> None:
        """Play all runs to their ends; `between` is called after every block."""
        for number in self._running():
            with self._ends_by_errors(number):
                self._measure_if_due(number)
        pace = 1.0  # turns per block, so that a block takes about RESPONSE seconds
        while running := self._running():
            blocks: list[list[PlannedTurn]] = [[] for _ in self._simulations]
            for number in running:
                with self._ends_by_errors(number):
                    blocks[number] = self._next(number, pace)
                    if not blocks[number]:
                        self._end(number)
            if longest := max(map(len, blocks)):
                began = perf_counter()
                self._play(blocks)
                pace = max(1.0, min(4 * pace, longest * RESPONSE / (perf_counter() - began)))
                between()

    def results(self) -> list[Outcome]:
        """Return the outcomes of all runs; of those that are not at their end, what was done until now."""
        return [self.outcomes.get(number) or self._result(number) for number in range(len(self._simulations))]

    def _running(self) -> list[int]:
        return [number for number in range(len(self._simulations)) if number not in self.outcomes]

    @contextlib.contextmanager
    def _ends_by_errors(self, number: int) -> Iterator[None]:
        """An error ends this run, and tells what it had done; the others go on."""
        try:
            yield
        except Exception as error:
            error.result = self._result(number)  # type: ignore[attr-defined]
            self.outcomes[number] = error

    def _next(self, number: int, pace: float) -> list[PlannedTurn]:
        simulation, done = self._simulations[number], self._state.progress[number].communications
        until_measured = self._every - done % self._every
        count = int(min(pace, self._together.block_capacity, until_measured))
        block = list(itertools.islice(simulation.turns, count))
        simulation.made += block
        return block

    def _play(self, blocks: list[list[PlannedTurn]]) -> None:
        """Play blocks. A run with an update that is refused ends before it."""
        carry, verdicts = self._together.play(self._state.carry, blocks)
        good = [_until_refused(block, verdict) for block, verdict in zip(blocks, verdicts, strict=True)]
        if good != blocks:
            carry, _ = self._together.play(self._state.carry, good)
        progress = zip(self._state.progress, good, strict=True)
        self._state = _State(carry, tuple(each.after(block) for each, block in progress))
        for number, block in enumerate(blocks):
            if block:
                with self._ends_by_errors(number):
                    self._raise_unless_accepted(number, block, verdicts[number])
                    self._measure_if_due(number)

    def _raise_unless_accepted(self, number: int, block: list[PlannedTurn], verdicts: list[Verdict]) -> None:
        names = self._simulations[number].run.sites.names
        for turn, verdict in zip(block, verdicts, strict=True):
            raise_unless_accepted(verdict, names[turn.client], turn.update, turn.update - 1)

    def _measure_if_due(self, number: int) -> None:
        if self._state.progress[number].communications % self._every == 0:
            self._measure(number)

    def _measure(self, number: int) -> None:
        progress = list(self._state.progress)
        progress[number] = self._measured(number)
        self._state = dataclasses.replace(self._state, progress=tuple(progress))

    def _measured(self, number: int) -> Progress:
        """Return a run's progress with a measurement, unless that was just made."""
        simulation, progress = self._simulations[number], self._state.progress[number]
        if progress.records and progress.records[-1]["communications"] == progress.communications:
            return progress
        q, change, repairs = look(self._state.carry, np.int32(number), progress.measured)
        record: Record = {
            "communications": progress.communications,
            "time": progress.time,
            "repairs": int(repairs),
            "change": float(change),
            **({} if simulation.score is None else simulation.score(q)),
        }
        if simulation.measure is not None:
            measured = simulation.measure(take(self._state.carry, number))
            record |= {name: float(value) for name, value in measured.items()}
        return dataclasses.replace(progress, measured=q, records=(*progress.records, record))

    def _end(self, number: int) -> None:
        self.outcomes[number] = self._result(number, self._measured(number).records)

    def _result(self, number: int, records: tuple[Record, ...] | None = None) -> Result:
        """Return what a run has done; the last measurement is no part of the checkpoint, from which a run may go on."""
        simulation, progress = self._simulations[number], self._state.progress[number]
        carry, run = take(jax.tree.map(np.asarray, self._state.carry), number), simulation.run
        posterior, _, _ = look(self._state.carry, np.int32(number), progress.measured)
        return Result(
            posterior=posterior,
            history=History(
                records=progress.records if records is None else records,
                turns=tuple(simulation.made[: progress.communications]),
                spending=run.spending,
            ),
            clients={name: take(carry.clients, index) for index, name in enumerate(run.sites.names)},
            checkpoint=Checkpoint.of(
                progress.communications, (carry, progress.measured), progress.records, run.settings
            ),
        )


def _until_refused(block: list[PlannedTurn], verdicts: list[Verdict]) -> list[PlannedTurn]:
    played = zip(block, verdicts, strict=True)
    return [turn for turn, _ in itertools.takewhile(lambda each: each[1] == Verdict.ACCEPTED, played)]
