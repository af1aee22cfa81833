"""`simulate`: a whole federation in one process; `simulate_all`: many of them, seeds and settings in one compiled loop.

    settings -> prepare -> for moment in play(courses): measure, show progress, stop

Clients, server, algorithm and schedule are the real ones. The loop (`fedvi.simulation.loop`) takes turns from the
schedule and plays them in compiled blocks. The functions here pull from it, and measure between blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Unpack

import numpy as np

from fedvi import console
from fedvi.checks import whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError, SimulationInterrupted, SimulationsFailed
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.rows import DEFAULT_FEATURE_BOUND, Table, check_table
from fedvi.models.base import Model
from fedvi.models.predictive import score
from fedvi.pytree import take
from fedvi.simulation.budgets import Budgets
from fedvi.simulation.clients import Clients, PublicRows, lay_out_clients
from fedvi.simulation.compiled import Carry, look
from fedvi.simulation.loop import Course, Measured, Moment, Outcome, play
from fedvi.simulation.prepare import RunSettings, algorithms_of, prepare
from fedvi.simulation.results import Checkpoint, History, Record, Result
from fedvi.simulation.schedules import Schedule

Measure = Callable[[Carry], Mapping[str, float]]
Score = Callable[[GaussianFamily], Mapping[str, float]]


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
    public_rows: PublicRows | None = None,
    feature_bound: float = DEFAULT_FEATURE_BOUND,
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
    public_rows: the numbers of rows that clients declare, by name or in order: rates, scales and default deltas follow
        from them. None for the true numbers.
    feature_bound: a power of two; where rows are protected, features beyond it are clipped to it.
    progress: show a progress bar; by default only on a terminal.
    stop: asked now and then whether to end early, as Ctrl-C does: for programs that handle signals themselves.

    Whatever ends a run early has a `result` with everything that was done until then: Ctrl-C raises
    `SimulationInterrupted`, an update that goes wrong `ReleaseRefused` or `ImproperError`.
    """
    own: RunSettings = {
        "seed": seed,
        "prior": prior,
        "algorithm": algorithm,
        "schedule": schedule,
        "communications": communications,
        "until": until,
        "max_updates": max_updates,
        "privacy": privacy,
        "resume": resume,
    }
    algorithms = algorithms_of([own])
    laid_out = lay_out_clients(clients, model, algorithms, public_rows, feature_bound)
    watched = _Watched.prepare(laid_out, model, algorithms, [own], test, evaluate_every, measure)
    with watched.kept(progress) as show:
        for moment in play(watched.courses, watched.every):
            watched.see(moment)
            show(watched.communications, stop)
    (outcome,) = watched.outcomes
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def simulate_all(
    clients: Mapping[str, Table] | Sequence[Table],
    model: Model,
    runs: Sequence[RunSettings],
    *,
    test: Table | None = None,
    evaluate_every: int | None = None,
    measure: Measure | None = None,
    public_rows: PublicRows | None = None,
    feature_bound: float = DEFAULT_FEATURE_BOUND,
    progress: bool | None = None,
    stop: Callable[[], bool] | None = None,
    **common: Unpack[RunSettings],
) -> list[Result]:
    """Run several federations of the same clients and return their results, each the same as from `simulate`.

    runs: for every run, the arguments of `simulate` that are its own, such as `{"seed": 3}`. common: those of all.
    The rows are laid out once, and runs whose settings differ in numbers only go through one compiled loop.

    A run that goes wrong does not stop the others: `SimulationsFailed` comes at the end, and has the `outcomes` of all.
    So have `SimulationInterrupted`, on Ctrl-C, and an error that concerns all runs.
    """
    settings: list[RunSettings] = [{**common, **own} for own in runs]
    algorithms = algorithms_of(settings)
    laid_out = lay_out_clients(clients, model, algorithms, public_rows, feature_bound)
    watched = _Watched.prepare(laid_out, model, algorithms, settings, test, evaluate_every, measure)
    with watched.kept(progress) as show:
        for moment in play(watched.courses, watched.every):
            watched.see(moment)
            show(watched.communications, stop)
    results = [outcome for outcome in watched.outcomes if isinstance(outcome, Result)]
    if len(results) < len(runs):
        raise SimulationsFailed(watched.outcomes)
    return results


@dataclasses.dataclass(frozen=True)
class _Watched:
    """Runs on their way, and what is measured of them every so many communications."""

    courses: list[Course]
    every: float
    score: Score | None
    measure: Measure | None

    @classmethod
    def prepare(
        cls,
        clients: Sequence[Clients],
        model: Model,
        algorithms: Sequence[Algorithm],
        runs: Sequence[RunSettings],
        test: Table | None,
        evaluate_every: int | None,
        measure: Measure | None,
    ) -> _Watched:
        """Check all settings."""
        if evaluate_every is not None:
            whole("evaluate_every", evaluate_every, 1)
        scored = _score(clients[0], model, test) if runs else None
        own = zip(clients, algorithms, runs, strict=True)
        courses = [prepare(each, model, algorithm, settings) for each, algorithm, settings in own]
        return cls(courses, math.inf if evaluate_every is None else evaluate_every, scored, measure)

    @property
    def communications(self) -> int:
        """Communications made so far, by all runs."""
        return sum(course.place.communications for course in self.courses)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all runs; of those that are not at their end, what was done until now."""
        return [course.outcome or _result(course) for course in self.courses]

    @contextlib.contextmanager
    def kept(self, progress: bool | None) -> Iterator[Callable[[int, Callable[[], bool] | None], None]]:
        """Give a function that shows progress and may stop. Whatever ends the runs early has what was done until then.

        progress: whether to show a bar; None for on a terminal only.
        """
        total = sum(course.total for course in self.courses)
        most = None if math.isinf(total) else int(total)
        with console.progress("federation", most, "communications", done=self.communications, wanted=progress) as show:

            def show_or_stop(done: int, stop: Callable[[], bool] | None) -> None:
                show(done, "")
                if stop is not None and stop():
                    raise KeyboardInterrupt

            try:
                yield show_or_stop
            except KeyboardInterrupt:
                raise SimulationInterrupted(self.outcomes) from None
            except Exception as error:  # of what all runs have in common, such as too little memory
                error.outcomes = self.outcomes  # type: ignore[attr-defined]
                error.result = getattr(error.outcomes[0], "result", error.outcomes[0])  # type: ignore[attr-defined]
                raise

    def see(self, moment: Moment) -> None:
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
    return Result(
        posterior=posterior,
        history=History(
            records=measured.records if records is None else records,
            turns=tuple(course.made[:communications]),
            budgets=run.budgets,
        ),
        clients={name: take(carry.clients, index) for index, name in enumerate(run.clients.names)},
        checkpoint=Checkpoint.of(communications, (carry, measured.posterior), measured.records, run.described),
    )


def _score(clients: Clients, model: Model, test: Table | None) -> Score | None:
    if test is None:
        return None
    x, y = check_table(test, model, "the test set")
    if x.shape[1:] != clients.rows.x.shape[1:] or y.shape[1:] != clients.rows.y.shape[1:]:
        expected, got = (clients.rows.x.shape[1:], clients.rows.y.shape[1:]), (x.shape[1:], y.shape[1:])
        raise InputError(f"Expected columns of x and y as in the clients {expected} in the test set, got {got}.")
    rows = jnp.asarray(x), jnp.asarray(y)
    return lambda q: score(model, q, *rows)
