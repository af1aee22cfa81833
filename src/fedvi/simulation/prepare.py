"""From settings to runs: everything is checked, budgets are turned into numbers of updates, saved runs go on."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import numpy as np

from fedvi.checks import in_range, instance, not_a_class, whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily, require_proper
from fedvi.families.mean_field import Gaussian
from fedvi.inference.algorithms import PVI, Algorithm
from fedvi.inference.local_problem import Public
from fedvi.models.base import Model
from fedvi.pytree import precision
from fedvi.simulation.budgets import Budgets, arrange_budgets
from fedvi.simulation.clients import Clients
from fedvi.simulation.compiled import Settings
from fedvi.simulation.loop import Course, Measured, Place, Run, stack
from fedvi.simulation.results import Checkpoint
from fedvi.simulation.schedules import Asynchronous, PlannedTurn, Schedule


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


def algorithms_of(runs: Sequence[RunSettings]) -> list[Algorithm]:
    """Return every run's algorithm: one object for all that leave it open."""
    default = functools.cache(PVI)
    return [default() if (given := own.get("algorithm")) is None else given for own in runs]


def prepare(clients: Clients, model: Model, algorithm: Algorithm, own: RunSettings) -> Course:
    """Check the settings of a run and return it before its first turn, or where it was left."""
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
    turns, made, carry, measured = run.turns(), list[PlannedTurn](), run.init(), Measured(run.public.prior)
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
    schedule = Asynchronous() if schedule is None else schedule
    not_a_class("schedule", schedule)
    if not callable(getattr(schedule, "turns", None)):
        raise InputError(f"Expected a schedule with a method turns(rows, max_updates, rng), got {schedule!r}.")
    names, rows = clients.names, clients.public_rows
    prior = _checked_prior(own.get("prior"), model.dim(clients.rows.x))
    wanted = _most_updates(own.get("max_updates"), algorithm.most_updates, len(names))
    algorithms, budgets = arrange_budgets(names, rows, algorithm, prior, wanted, own.get("privacy"))
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
    dtype = precision()

    def stack(*leaves: Any) -> jax.Array:
        stacked = np.stack([np.asarray(leaf) for leaf in leaves])
        return jnp.asarray(stacked.astype(dtype) if stacked.dtype.kind == "f" else stacked)

    return jax.tree.map(stack, *algorithms)


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
