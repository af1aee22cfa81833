"""`simulate`: a whole federation in one process; `simulate_all`: many of them, seeds and settings in one compiled loop.

    settings -> prepare -> for moment in play(courses): measure, show progress, stop

Clients, server, algorithm and schedule are the real ones. Here everything is checked, budgets are turned into numbers
of updates, saved runs go on. The loop (`fedvi.simulation.loop`) plays what comes out.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from fedvi.checks import in_range, instance, not_a_class, whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError, SimulationsFailed
from fedvi.families.base import GaussianFamily, require_proper
from fedvi.families.mean_field import Gaussian
from fedvi.inference.algorithms import PVI, Algorithm
from fedvi.inference.local_problem import Public
from fedvi.inference.rows import DEFAULT_FEATURE_BOUND, Table, check_table
from fedvi.models.base import Model
from fedvi.models.predictive import score
from fedvi.pytree import precision
from fedvi.simulation.clients import Budgets, Clients, PublicRows, arrange_budgets, fixed_budgets, lay_out_clients
from fedvi.simulation.loop import Measure, Score, Watched, play, stack
from fedvi.simulation.results import Checkpoint, Result
from fedvi.simulation.runs import Course, Measured, Place, Run, Settings
from fedvi.simulation.schedules import Asynchronous, PlannedTurn, Schedule, Synchronous


class RunSettings(TypedDict, total=False):
    """What runs that are made together may differ in; see `fedvi.simulation.simulate`."""

    seed: int
    prior: GaussianFamily | None
    algorithm: Algorithm | None
    schedule: Schedule | None
    communications: int | None
    until: float | None
    max_updates: int | Sequence[int] | None
    privacy: Budgets | None
    resume: Checkpoint | str | os.PathLike[str] | None


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
    watched = _prepare(clients, model, [own], public_rows, feature_bound, test, evaluate_every, measure)
    with watched.kept(progress, stop) as see:
        for moment in play(watched.courses, watched.every):
            see(moment)
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
    watched = _prepare(clients, model, settings, public_rows, feature_bound, test, evaluate_every, measure)
    with watched.kept(progress, stop) as see:
        for moment in play(watched.courses, watched.every):
            see(moment)
    results = [outcome for outcome in watched.outcomes if isinstance(outcome, Result)]
    if len(results) < len(runs):
        raise SimulationsFailed(watched.outcomes)
    return results


def _prepare(
    clients: Mapping[str, Table] | Sequence[Table],
    model: Model,
    runs: Sequence[RunSettings],
    public_rows: PublicRows | None,
    feature_bound: float,
    test: Table | None,
    evaluate_every: int | None,
    measure: Measure | None,
) -> Watched:
    """Check all settings, and return the runs before their first turn, or where they were left."""
    default = functools.cache(PVI)  # one object for all runs that leave the algorithm open
    algorithms = [default() if (given := own.get("algorithm")) is None else given for own in runs]
    laid_out = lay_out_clients(clients, model, algorithms, public_rows, feature_bound)
    if evaluate_every is not None:
        whole("evaluate_every", evaluate_every, 1)
    scored = _score(laid_out[0], model, test) if runs else None
    courses = list(map(_course, laid_out, itertools.repeat(model), algorithms, runs))
    return Watched(courses, math.inf if evaluate_every is None else evaluate_every, scored, measure)


def _score(clients: Clients, model: Model, test: Table | None) -> Score | None:
    if test is None:
        return None
    x, y = check_table(test, model, "the test set")
    if x.shape[1:] != clients.rows.x.shape[1:] or y.shape[1:] != clients.rows.y.shape[1:]:
        expected, got = (clients.rows.x.shape[1:], clients.rows.y.shape[1:]), (x.shape[1:], y.shape[1:])
        raise InputError(f"Expected columns of x and y as in the clients {expected} in the test set, got {got}.")
    rows = jnp.asarray(x), jnp.asarray(y)
    return lambda q: score(model, q, *rows)


def _course(clients: Clients, model: Model, algorithm: Algorithm, own: RunSettings) -> Course:
    unknown = set(own) - set(RunSettings.__annotations__)
    if unknown or "seed" not in own:
        known = ", ".join(RunSettings.__annotations__)
        raise InputError(f"Expected a seed for every run, and of its own at most {known}; got {', '.join(own)}.")
    communications, until, resume = own.get("communications"), own.get("until"), own.get("resume")
    whole("seed", own["seed"], 0, 2**64 - 1)
    if communications is not None:
        whole("communications", communications, 1)
    in_range("until", until, 0)
    run = prepare_run(clients, model, algorithm, own)
    total = min(sum(run.most_updates), math.inf if communications is None else communications)
    if math.isinf(total) and until is None:
        raise InputError("Expected communications, until, max_updates or privacy, got none: the run would never end.")
    turns, made, carry = run.turns(), list[PlannedTurn](), run.init()
    measured = Measured(carry.server.posterior)
    if resume is not None:
        if not isinstance(resume, Checkpoint | str | os.PathLike):
            raise InputError(f"Expected resume to be a checkpoint or a path, got {type(resume).__name__}.")
        saved = resume if isinstance(resume, Checkpoint) else Checkpoint.load(resume)
        carry, posterior = saved.restore((carry, measured.posterior), run.described)
        if saved.communications > total:
            raise InputError(f"The saved run has {saved.communications} communications, more than {total:g}.")
        made = list(itertools.islice(turns, saved.communications))
        measured = Measured(posterior, saved.records)
    if communications is not None:
        turns = itertools.islice(turns, communications - len(made))
    if until is not None:
        turns = itertools.takewhile(lambda turn: turn.time <= until, turns)
    return Course(run, turns, made, total, measured, Place(stack([carry]), 0, len(made)))


def prepare_run(clients: Clients, model: Model, algorithm: Algorithm, own: RunSettings) -> Run:
    """Return a run with everything checked but when it ends."""
    schedule = own.get("schedule")
    schedule = (Synchronous() if algorithm.asks else Asynchronous()) if schedule is None else schedule
    not_a_class("schedule", schedule)
    if not callable(getattr(schedule, "turns", None)):
        raise InputError(f"Expected a schedule with a method turns(rows, max_updates, rng), got {schedule!r}.")
    names, rows = clients.names, clients.public_rows
    prior = _checked_prior(own.get("prior"), model.dim(clients.rows.x))
    clients.check_model(model, prior, "under the prior")
    limits = fixed_budgets(names, rows, algorithm, own.get("privacy"))
    wanted = _most_updates(own.get("max_updates"), algorithm.most_updates, len(names))
    algorithm = algorithm.planned(prior.dim, rows, limits, max(wanted))
    wanted = tuple(min(each, algorithm.most_updates) for each in wanted)
    algorithms, budgets = arrange_budgets(names, rows, algorithm, prior, wanted, limits)
    affordable = [math.inf] * len(names) if budgets is None else budgets.most_updates()
    public = Public(prior, clients=jnp.asarray(float(len(names))), rows=jnp.asarray(float(sum(rows))))
    return Run(
        clients=clients,
        most_updates=tuple(map(min, wanted, affordable)),
        budgets=budgets,
        model=model,
        algorithm=algorithm,
        own=algorithms,
        settings=Settings(_stacked(algorithms), public),
        schedule=schedule,
        seed=own["seed"],
    )


def _stacked(algorithms: tuple[Algorithm, ...]) -> Algorithm:
    """Return all clients' settings as one algorithm, whose numbers have one entry per client."""

    def number(leaf: Any) -> np.ndarray:
        value = np.asarray(leaf)
        return value.astype(precision()) if value.dtype.kind == "f" else value

    return stack([jax.tree.map(number, each) for each in algorithms])


def _checked_prior(prior: GaussianFamily | None, dim: int) -> GaussianFamily:
    if prior is None:
        return Gaussian.standard(dim)
    instance("prior", prior, GaussianFamily)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), prior)
    if prior.dim != dim:
        raise InputError(f"Expected a prior over {dim} parameters for these columns, got one over {prior.dim}.")
    require_proper(prior, "prior")
    return prior


def _most_updates(max_updates: int | Sequence[int] | None, most: float, clients: int) -> tuple[float, ...]:
    if max_updates is None:
        return (most,) * clients
    wanted = list(max_updates) if isinstance(max_updates, Iterable) else [max_updates] * clients
    if len(wanted) != clients:
        raise InputError(f"Expected one number of max_updates or {clients}, one per client, got {len(wanted)}.")
    for each in wanted:
        whole("max_updates", each, 0)
    return tuple(min(each, most) for each in wanted)
