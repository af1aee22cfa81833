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
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np

from fedvi.checks import in_range, whole
from fedvi.data import Table, check_table
from fedvi.errors import InputError, SimulationInterrupted
from fedvi.federation.block import Carry, look
from fedvi.federation.plan import PlannedTurn
from fedvi.federation.progress import progress_bar
from fedvi.federation.result import Checkpoint, History, Record, Result
from fedvi.federation.run import Run
from fedvi.federation.schedule import Asynchronous, Schedule
from fedvi.federation.server import Verdict, raise_unless_accepted
from fedvi.federation.spending import Budgets
from fedvi.gaussian import GaussianFamily
from fedvi.local import PVI, Algorithm
from fedvi.metrics import score
from fedvi.models import Model
from fedvi.pytree import take

RESPONSE = 0.3
"""Seconds after which the progress bar moves and Ctrl-C is heard, unless a single update takes longer."""

Measure = Callable[[Carry], Mapping[str, float]]
_Scores = Callable[[Carry, GaussianFamily], Mapping[str, float]]


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
    privacy: Budgets | None = None,
    test: Table | None = None,
    evaluate_every: int | None = None,
    measure: Measure | None = None,
    resume: Checkpoint | str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Run a federation of `clients` and return its posterior.

    clients: (x, y) for every client, by name or in order.
    seed: of everything random in the simulation; the same seed gives the same bits.
    prior: decides the family of q too: `Gaussian` (mean-field) or `FullGaussian`. Default: standard normal, mean-field.
    algorithm: `PVI()`, `GlobalVI()`, `CentralisedVI()` or `Committee()`. Default: PVI with the paper's settings.
    schedule: who communicates when. Default: `Asynchronous()`, the paper's.
    privacy: every client's budget, as one `Budget(epsilon)` or one per client (by name or in order). An update that
        would exceed it is never made; a client whose budget is spent stops. Needs a private algorithm, such as
        `PVI(GradientSteps(25, 0.5, PoissonGaussian()))`.
    communications, until, max_updates: when to stop: after so many updates in total; when the schedule's clock passes
        this time; when every client has made so many updates (one number, or one per client). Give at least one,
        unless a budget or the algorithm (`Committee`) ends the run.
    test: (x, y) to measure predictions on.
    evaluate_every: communications between measurements; there is always one at the start and one at the end.
    measure: called at every measurement with the federation's state; the numbers it returns go into the record.
    resume: a checkpoint, or the path of one, of a run with the same settings.
    progress: show a progress bar; by default only on a terminal.
    stop: asked now and then whether to end early, as Ctrl-C does: for programs that handle signals themselves.

    Whatever ends a run early has a `result` with everything that was done until then: Ctrl-C raises
    `SimulationInterrupted`, an update that goes wrong `ReleaseRefused` or `ImproperError`.
    """
    whole("seed", seed, 0, 2**64 - 1)
    for name, count in (("communications", communications), ("evaluate_every", evaluate_every)):
        if count is not None:
            whole(name, count, 1)
    in_range("until", until, 0)
    algorithm = PVI() if algorithm is None else algorithm
    schedule = Asynchronous() if schedule is None else schedule
    every = math.inf if evaluate_every is None else evaluate_every
    run = Run.prepare(clients, model, prior, algorithm, schedule, max_updates, privacy, seed, every)
    total = min(sum(run.budgets), math.inf if communications is None else communications)
    if math.isinf(total) and until is None:
        raise InputError("Expected communications, until, max_updates or privacy, got none: the run would never end.")
    scores = _scores(run, test, measure)

    turns, made, state = run.turns(), list[PlannedTurn](), _State.start(run)
    if resume is None:
        state = state.with_record(scores)
    else:
        state = _resumed(run, resume)
        if state.communications > total:
            raise InputError(f"The saved run has {state.communications} communications, more than {total:g}.")
        made += itertools.islice(turns, state.communications)
        state = dataclasses.replace(state, time=made[-1].time if made else 0.0)
    if communications is not None:
        turns = itertools.islice(turns, communications - state.communications)
    if until is not None:
        turns = itertools.takewhile(lambda turn: turn.time <= until, turns)

    pace = 1.0  # turns per block, so that a block takes about RESPONSE seconds
    try:
        with progress_bar(progress, None if math.isinf(total) else total, state.communications) as show:
            while block := _next(turns, min(pace, run.block_capacity, every - state.communications % every)):
                began = perf_counter()
                made += block
                state, refused = _advance(run, state, block)
                if refused is not None:
                    turn, verdict = refused
                    raise_unless_accepted(verdict, run.names[turn.client], turn.update, turn.update - 1)
                pace = max(1.0, min(4 * pace, len(block) * RESPONSE / (perf_counter() - began)))
                if state.communications % every == 0:
                    state = state.with_record(scores)
                show(state.communications)
                if stop is not None and stop():
                    raise KeyboardInterrupt
        return _result(run, state, made, state.with_record(scores).records)
    except KeyboardInterrupt:
        raise SimulationInterrupted(_result(run, state, made, state.records)) from None
    except Exception as error:
        error.result = _result(run, state, made, state.records)  # type: ignore[attr-defined]
        raise


@dataclasses.dataclass(frozen=True)
class _State:
    """Where a simulation is: replaced as a whole, so that an interruption never sees half of it.

    measured: the posterior at the last record.
    """

    carry: Carry
    measured: GaussianFamily
    communications: int = 0
    time: float = 0.0
    records: tuple[Record, ...] = ()

    @classmethod
    def start(cls, run: Run) -> _State:
        """Return the state before the first turn."""
        return cls(run.init(), run.public.prior)

    def after(self, block: Sequence[PlannedTurn], carry: Carry) -> _State:
        """Return the state after a block of turns."""
        communications = self.communications + len(block)
        return dataclasses.replace(self, carry=carry, communications=communications, time=block[-1].time)

    def with_record(self, scores: _Scores) -> _State:
        """Measure, unless that was just done."""
        if self.records and self.records[-1]["communications"] == self.communications:
            return self
        q, change, repairs = look(self.carry, self.measured)
        record: Record = {
            "communications": self.communications,
            "time": self.time,
            "repairs": int(repairs),
            "change": float(change),
            **scores(self.carry, q),
        }
        return dataclasses.replace(self, measured=q, records=(*self.records, record))


def _resumed(run: Run, resume: Checkpoint | str | os.PathLike[str]) -> _State:
    if not isinstance(resume, Checkpoint | str | os.PathLike):
        raise InputError(f"Expected resume to be a checkpoint or a path, got {type(resume).__name__}.")
    saved = resume if isinstance(resume, Checkpoint) else Checkpoint.load(resume)
    start = _State.start(run)
    carry, measured = saved.restore((start.carry, start.measured), run.settings)
    return _State(carry, measured, saved.communications, 0.0, saved.records)


def _scores(run: Run, test: Table | None, measure: Measure | None) -> _Scores:
    rows = None
    if test is not None:
        x, y = check_table(test, run.model, "the test set")
        if x.shape[1:] != run.data.x.shape[1:] or y.shape[1:] != run.data.y.shape[1:]:
            expected, got = (run.data.x.shape[1:], run.data.y.shape[1:]), (x.shape[1:], y.shape[1:])
            raise InputError(f"Expected columns of x and y as in the clients {expected} in the test set, got {got}.")
        rows = jnp.asarray(x), jnp.asarray(y)

    def scores(carry: Carry, q: GaussianFamily) -> dict[str, float]:
        predicted = {} if rows is None else score(run.model, q, *rows)
        return {**predicted, **({} if measure is None else {name: float(v) for name, v in measure(carry).items()})}

    return scores


def _advance(
    run: Run, state: _State, block: Sequence[PlannedTurn]
) -> tuple[_State, tuple[PlannedTurn, Verdict] | None]:
    """Play a block. If one of its updates is refused, return the state before that one, and what was wrong with it."""
    carry, verdicts = run.play(state.carry, block)
    wrong = [index for index, verdict in enumerate(verdicts) if verdict != Verdict.ACCEPTED]
    if not wrong:
        return state.after(block, carry), None
    first = wrong[0]
    if first > 0:
        state = state.after(block[:first], run.play(state.carry, block[:first])[0])
    return state, (block[first], verdicts[first])


def _next(turns: Iterator[PlannedTurn], count: float) -> list[PlannedTurn]:
    return list(itertools.islice(turns, int(count)))


def _result(run: Run, state: _State, turns: Sequence[PlannedTurn], records: tuple[Record, ...]) -> Result:
    clients = jax.tree.map(np.asarray, state.carry.clients)
    return Result(
        posterior=state.carry.server.posterior,
        history=History(records, tuple(turns[: state.communications]), run.spending),
        clients={name: take(clients, index) for index, name in enumerate(run.names)},
        checkpoint=Checkpoint.of(state.communications, (state.carry, state.measured), state.records, run.settings),
    )
