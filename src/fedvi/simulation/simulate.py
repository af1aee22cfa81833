"""`simulate`: a whole federation in one process; `simulate_all`: many of them, seeds and settings in one compiled loop.

Clients, server, algorithm and schedule are the real ones. The loop (`fedvi.simulation.loop`) only takes turns from the
schedule, plays them in compiled blocks and measures between blocks.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import jax.numpy as jnp

from fedvi.checks import in_range, whole
from fedvi.errors import InputError, SimulationInterrupted, SimulationsFailed
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import PVI, Algorithm
from fedvi.inference.metrics import score
from fedvi.inference.rows import DEFAULT_FEATURE_BOUND, Table, check_table
from fedvi.models.base import Model
from fedvi.simulation.budgets import Budgets
from fedvi.simulation.clients import PublicRows, Sites, lay_out_sites
from fedvi.simulation.loop import Loop, Measure, Outcome, Progress, Score, Simulation
from fedvi.simulation.plan import PlannedTurn
from fedvi.simulation.prepare import Run
from fedvi.simulation.progress import progress_bar
from fedvi.simulation.results import Checkpoint, Result
from fedvi.simulation.schedules import Asynchronous, Schedule
from fedvi.simulation.together import kind_of


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
    own: Settings = {
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
    laid_out = lay_out_sites(clients, model, _algorithms([own]), public_rows, feature_bound)
    (outcome,) = _outcomes(laid_out, model, [own], test, evaluate_every, measure, progress, stop)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class Settings(TypedDict, total=False):
    """What runs that are made together may differ in; see `simulate`."""

    seed: int
    prior: GaussianFamily | None
    algorithm: Algorithm | None
    schedule: Schedule | None
    communications: int | None
    until: float | None
    max_updates: int | Sequence[int] | None
    privacy: Budgets | None
    resume: Checkpoint | str | os.PathLike[str] | None


def simulate_all(
    clients: Mapping[str, Table] | Sequence[Table],
    model: Model,
    runs: Sequence[Settings],
    *,
    test: Table | None = None,
    evaluate_every: int | None = None,
    measure: Measure | None = None,
    public_rows: PublicRows | None = None,
    feature_bound: float = DEFAULT_FEATURE_BOUND,
    progress: bool | None = None,
    stop: Callable[[], bool] | None = None,
    **common: Unpack[Settings],
) -> list[Result]:
    """Run several federations of the same clients and return their results, each the same as from `simulate`.

    runs: for every run, the arguments of `simulate` that are its own, such as `{"seed": 3}`. common: those of all.
    The rows are laid out once, and runs whose settings differ in numbers only go through one compiled loop.

    A run that goes wrong does not stop the others: `SimulationsFailed` comes at the end, and has the `outcomes` of all.
    So have `SimulationInterrupted`, on Ctrl-C, and an error that concerns all runs.
    """
    settings: list[Settings] = [{**common, **own} for own in runs]
    laid_out = lay_out_sites(clients, model, _algorithms(settings), public_rows, feature_bound)
    outcomes = _outcomes(laid_out, model, settings, test, evaluate_every, measure, progress, stop)
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    if len(results) < len(outcomes):
        raise SimulationsFailed(outcomes)
    return results


def _algorithms(runs: Sequence[Settings]) -> list[Algorithm]:
    """Return every run's algorithm: one object for all that leave it open."""
    default = PVI()
    return [default if (given := own.get("algorithm")) is None else given for own in runs]


def _outcomes(
    sites: Sequence[Sites],
    model: Model,
    runs: Sequence[Settings],
    test: Table | None,
    evaluate_every: int | None,
    measure: Measure | None,
    progress: bool | None,
    stop: Callable[[], bool] | None,
) -> list[Outcome]:
    if evaluate_every is not None:
        whole("evaluate_every", evaluate_every, 1)
    every = math.inf if evaluate_every is None else evaluate_every
    algorithms = _algorithms(runs)
    scored = _score(sites[0], model, test) if runs else None
    simulations = [
        _begin(own, algorithm, each, model, scored, measure)
        for own, algorithm, each in zip(runs, algorithms, sites, strict=True)
    ]
    numbers: dict[Any, list[int]] = {}
    for number, simulation in enumerate(simulations):
        numbers.setdefault(kind_of(simulation.run), []).append(number)
    loops = [Loop([simulations[number] for number in same], every) for same in numbers.values()]
    order = [number for same in numbers.values() for number in same]

    def outcomes() -> list[Outcome]:
        by_number = dict(zip(order, (outcome for loop in loops for outcome in loop.results()), strict=True))
        return [by_number[number] for number in range(len(runs))]

    def done() -> int:
        return sum(loop.communications for loop in loops)

    total = sum(simulation.total for simulation in simulations)
    try:
        with progress_bar(progress, None if math.isinf(total) else total, done()) as show:

            def between() -> None:
                show(done())
                if stop is not None and stop():
                    raise KeyboardInterrupt

            for loop in loops:
                loop.go(between)
        return outcomes()
    except KeyboardInterrupt:
        raise SimulationInterrupted(outcomes()) from None
    except Exception as error:  # of what all runs have in common, such as too little memory
        error.outcomes = outcomes()  # type: ignore[attr-defined]
        error.result = getattr(error.outcomes[0], "result", error.outcomes[0])  # type: ignore[attr-defined]
        raise


def _begin(
    own: Settings, algorithm: Algorithm, sites: Sites, model: Model, scored: Score | None, measure: Measure | None
) -> Simulation:
    """Check the settings of a run and return it before its first turn, or where it was left."""
    unknown = set(own) - set(Settings.__annotations__)
    if unknown or "seed" not in own:
        known = ", ".join(Settings.__annotations__)
        raise InputError(f"Expected a seed for every run, and of its own at most {known}; got {', '.join(own)}.")
    seed, communications, until, resume = own["seed"], own.get("communications"), own.get("until"), own.get("resume")
    whole("seed", seed, 0, 2**64 - 1)
    if communications is not None:
        whole("communications", communications, 1)
    in_range("until", until, 0)
    schedule, prior, privacy = own.get("schedule"), own.get("prior"), own.get("privacy")
    schedule = Asynchronous() if schedule is None else schedule
    run = Run.prepare(sites, model, prior, algorithm, schedule, own.get("max_updates"), privacy, seed)
    total = min(sum(run.budgets), math.inf if communications is None else communications)
    if math.isinf(total) and until is None:
        raise InputError("Expected communications, until, max_updates or privacy, got none: the run would never end.")
    turns, made, carry = run.turns(), list[PlannedTurn](), run.init()
    progress = Progress(run.public.prior)
    if resume is not None:
        if not isinstance(resume, Checkpoint | str | os.PathLike):
            raise InputError(f"Expected resume to be a checkpoint or a path, got {type(resume).__name__}.")
        saved = resume if isinstance(resume, Checkpoint) else Checkpoint.load(resume)
        carry, measured = saved.restore((carry, progress.measured), run.settings)
        if saved.communications > total:
            raise InputError(f"The saved run has {saved.communications} communications, more than {total:g}.")
        made = list(itertools.islice(turns, saved.communications))
        progress = Progress(measured, records=saved.records).after(made)
    if communications is not None:
        turns = itertools.islice(turns, communications - progress.communications)
    if until is not None:
        turns = itertools.takewhile(lambda turn: turn.time <= until, turns)
    return Simulation(run, carry, progress, turns, made, total, scored, measure)


def _score(sites: Sites, model: Model, test: Table | None) -> Score | None:
    if test is None:
        return None
    x, y = check_table(test, model, "the test set")
    if x.shape[1:] != sites.data.x.shape[1:] or y.shape[1:] != sites.data.y.shape[1:]:
        expected, got = (sites.data.x.shape[1:], sites.data.y.shape[1:]), (x.shape[1:], y.shape[1:])
        raise InputError(f"Expected columns of x and y as in the clients {expected} in the test set, got {got}.")
    rows = jnp.asarray(x), jnp.asarray(y)
    return lambda q: score(model, q, *rows)
