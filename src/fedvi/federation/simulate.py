"""`simulate`: a whole federation in one process.

Clients, server, algorithm and schedule are the real ones. The loop here only takes turns from the schedule, plays them
in compiled blocks (`fedvi.federation.run`) and measures between blocks.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax.numpy as jnp

from fedvi.checks import in_range, whole
from fedvi.data import Table, check_table, named
from fedvi.errors import FedviError, InputError, SimulationInterrupted
from fedvi.federation.block import Carry
from fedvi.federation.plan import PlannedTurn
from fedvi.federation.progress import progress_bar
from fedvi.federation.result import Checkpoint, History, Record, Result
from fedvi.federation.run import Run
from fedvi.federation.schedule import Asynchronous, Schedule
from fedvi.gaussian import GaussianFamily
from fedvi.local import PVI, Algorithm
from fedvi.metrics import evaluate
from fedvi.models import Model
from fedvi.pytree import take

Measure = Callable[[Carry], Mapping[str, float]]


def simulate(
    clients: Mapping[str, Table] | Sequence[Table],
    model: Model,
    *,
    seed: int,
    prior: GaussianFamily | None = None,
    algorithm: Algorithm | None = None,
    schedule: Schedule | None = None,
    communications: int | None = None,
    until: float | None = None,
    max_updates: int | Sequence[int] | None = None,
    test: Table | None = None,
    evaluate_every: int | None = None,
    measure: Measure | None = None,
    resume: Checkpoint | str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Result:
    """Run a federation of `clients` and return its posterior.

    clients: (x, y) for every client, by name or in order.
    seed: of everything random in the simulation; the same seed gives the same bits.
    prior: decides the family of q too: `Gaussian` (mean-field) or `FullGaussian`. Default: standard normal, mean-field.
    algorithm: `PVI()`, `GlobalVI()`, `CentralisedVI()` or `Committee()`. Default: PVI with the paper's settings.
    schedule: who communicates when. Default: `Asynchronous()`, the paper's.
    communications, until, max_updates: when to stop: after so many updates in total; when the schedule's clock passes
        this time; when every client has made so many updates (one number, or one per client). Give at least one.
    test: (x, y) to measure predictions on.
    evaluate_every: communications between measurements; there is always one at the start and one at the end.
    measure: called at every measurement with the federation's state; what it returns goes into the record.
    resume: a checkpoint, or the path of one, of a run with the same settings.
    progress: show a progress bar; by default only on a terminal.

    Ctrl-C raises `SimulationInterrupted`; an update that goes wrong raises `ReleaseRefused` or `ImproperError`. The
    `result` of each of them holds everything until then.
    """
    if communications is None and until is None and max_updates is None:
        raise InputError("Expected communications, until or max_updates, got none: the run would never end.")
    whole("seed", seed, 0, 2**64 - 1)
    for name, count in (("communications", communications), ("evaluate_every", evaluate_every)):
        if count is not None:
            whole(name, count, 1)
    in_range("until", until, 0)

    algorithm = PVI() if algorithm is None else algorithm
    schedule = Asynchronous() if schedule is None else schedule
    run = Run.prepare(named(clients), model, prior, algorithm, schedule, max_updates, seed)
    scores = _scores(run, test, measure)
    turns, state = run.turns(), _State(run.init())
    if resume is None:
        state = state.with_record(scores)
    else:
        saved = resume if isinstance(resume, Checkpoint) else Checkpoint.load(resume)
        if communications is not None and communications < saved.communications:
            raise InputError(f"The saved run has {saved.communications} communications, more than {communications}.")
        *_, last = itertools.chain([None], itertools.islice(turns, saved.communications))
        time = 0.0 if last is None else last.time
        state = _State(saved.restore(run.init(), run.settings()), saved.communications, time, saved.records)

    if communications is not None:
        turns = itertools.islice(turns, communications - state.communications)
    if until is not None:
        turns = itertools.takewhile(lambda turn: turn.time <= until, turns)
    every = math.inf if evaluate_every is None else evaluate_every
    total = communications if communications is not None else sum(run.budgets)
    capacity = run.block_turns
    try:
        with progress_bar(progress, None if math.isinf(total) else total, state.communications) as show:
            while block := _next_block(turns, capacity, every - state.communications % every):
                state = state.after(block, run.play(state.carry, block, capacity))
                if state.communications % every == 0:
                    state = state.with_record(scores)
                show(state.communications)
        return _result(run, state, state.with_record(scores).records)
    except KeyboardInterrupt:
        raise SimulationInterrupted(_result(run, state, state.records)) from None
    except FedviError as error:
        error.result = _result(run, state, state.records)
        raise


@dataclasses.dataclass(frozen=True)
class _State:
    """Where a simulation is: replaced as a whole, so that an interruption never sees half of it."""

    carry: Carry
    communications: int = 0
    time: float = 0.0
    records: tuple[Record, ...] = ()

    def after(self, block: Sequence[PlannedTurn], carry: Carry) -> _State:
        """Return the state after a block of turns."""
        return _State(carry, self.communications + len(block), block[-1].time, self.records)

    def with_record(self, scores: Measure) -> _State:
        """Measure, unless that was just done."""
        if self.records and self.records[-1]["communications"] == self.communications:
            return self
        record: Record = {
            "communications": self.communications,
            "time": self.time,
            "repairs": int(jnp.sum(self.carry.clients.repairs)),
            **scores(self.carry),
        }
        return dataclasses.replace(self, records=(*self.records, record))


def _scores(run: Run, test: Table | None, measure: Measure | None) -> Measure:
    checked = None
    if test is not None:
        x, y = check_table(test, run.model, "the test set")
        if x.shape[1:] != run.data.x.shape[1:]:
            raise InputError(f"Expected {run.data.x.shape[1:]} columns in the test set, got {x.shape[1:]}.")
        checked = jnp.asarray(x), jnp.asarray(y)

    def scores(carry: Carry) -> dict[str, float]:
        predicted = {} if checked is None else evaluate(run.model, carry.server.posterior, *checked)
        return {**predicted, **({} if measure is None else measure(carry))}

    return scores


def _next_block(turns: Iterator[PlannedTurn], capacity: int, before_measuring: float) -> list[PlannedTurn]:
    return list(itertools.islice(turns, int(min(capacity, before_measuring))))


def _result(run: Run, state: _State, records: tuple[Record, ...]) -> Result:
    turns = itertools.islice(run.turns(), state.communications)
    return Result(
        posterior=state.carry.server.posterior,
        history=History(records, tuple(turns)),
        clients={name: take(state.carry.clients, index) for index, name in enumerate(run.names)},
        checkpoint=Checkpoint.of(state.communications, state.carry, state.records, run.settings()),
    )
