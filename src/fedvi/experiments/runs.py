"""Runs of an experiment, from their specifications to plain values.

What comes out is all that tables, figures and pages are made of: how good the posterior was along the way, what every
client spent when, and what was promised. It can be written as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from fedvi import __version__
from fedvi.config import build, plain
from fedvi.datasets.adult import Dataset, Source
from fedvi.datasets.partitions import distribute
from fedvi.errors import FedviError, SimulationInterrupted, SimulationsFailed
from fedvi.experiments.config import RunSpec, Variant, data_of, prior_of
from fedvi.files import digest
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.rows import Table
from fedvi.models.base import Model
from fedvi.privacy import accounting
from fedvi.privacy.events import NOT_PRIVATE, to_json
from fedvi.privacy.ledger.statement import SIMULATION
from fedvi.simulation.results import Result
from fedvi.simulation.simulate import RunSettings, simulate_all

MOMENTS = 6
"""Moments of a run at which a client's epsilon is written down, closer together at first: accounting takes a while."""


@dataclasses.dataclass(frozen=True)
class Spending:
    """What a client with so many rows had spent after so many of its updates. communications: of the whole run."""

    client: str
    rows: int
    communications: int
    updates: int
    epsilon: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResult:
    """What results.json says of one run. acc: accuracy in percent, if the model has classes. ll: log-likelihood.

    By client: epsilon by the run's own rule, epsilon_pld by exact accounting, epsilon_proven for its sampling, and
    last_update, the communication at which it was made.
    """

    seed: int = 0
    communications: int = 0
    seconds: float = 0.0
    updates: dict[str, int] = dataclasses.field(default_factory=dict)
    epsilon: dict[str, float] = dataclasses.field(default_factory=dict)
    epsilon_pld: dict[str, float] = dataclasses.field(default_factory=dict)
    epsilon_proven: dict[str, float] = dataclasses.field(default_factory=dict)
    last_update: dict[str, int] = dataclasses.field(default_factory=dict)
    acc: float | None = None
    ll: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord(RunResult):
    """One finished run, or why it failed (`error`). settings: the digest of all that decides what comes out.

    records: what was measured on the way, accuracies in percent; the last one is final.
    """

    partition: str
    partition_settings: dict[str, Any]
    method: str
    base: str
    label: str
    swept: dict[str, Any]
    budget: float | None
    settings: str
    version: str
    error: str = ""
    records: list[dict[str, int | float]] = dataclasses.field(default_factory=list)
    spending: list[Spending] = dataclasses.field(default_factory=list)
    statement: str = ""

    def summary(self) -> str:
        """Return what became of the run, in a line."""
        accuracy = "" if self.acc is None else f"{self.acc:.2f} % "
        likelihood = "" if self.ll is None else f"{self.ll:.4f}"
        return f"{self.partition} {self.method} seed {self.seed}: {self.error or accuracy + likelihood}"


def make_runs(
    config: dict[str, Any],
    specs: Sequence[RunSpec],
    checkpoints: Sequence[Path],
    stop: Callable[[], bool] | None = None,
    rows: Dataset | None = None,
) -> list[RunRecord]:
    """Make runs that differ in their seeds alone, together; return fewer if Ctrl-C or `stop` ended them.

    checkpoints: a path for each; after an interruption it holds what was done, for the next call.
    rows: those of the experiment, for a machine that need not have them; None to load them.
    A run that goes wrong, because its steps diverge for example, comes back with an `error`.
    """
    method, began = specs[0].method, perf_counter()
    rows = load_rows(json.dumps(data_of(config, method))) if rows is None else rows
    clients = clients_of(rows, specs[0].partition)
    model: Model = build(config["model"], "model")
    parts = method.parts()
    if rows.layout is not None:
        parts["algorithm"] = cast("Algorithm", parts["algorithm"]).laid_out(rows.layout)
    parts["prior"] = prior_of(config, method).over(model.dim(rows.train[0]), rows.layout)
    own: list[RunSettings] = [
        {"seed": spec.seed, "resume": path if path.exists() else None}
        for spec, path in zip(specs, checkpoints, strict=True)
    ]
    outcomes: Sequence[Result | Exception]
    try:
        outcomes = simulate_all(
            clients, model, own, test=rows.test, progress=False, stop=stop, **parts, **method.limits()
        )
    except SimulationInterrupted as interrupted:
        for outcome, path in zip(interrupted.outcomes, checkpoints, strict=True):
            if isinstance(outcome, Result):
                outcome.checkpoint.save(path)
        return []
    except SimulationsFailed as failed:
        outcomes = failed.outcomes
    except FedviError as error:  # before anything was run
        if len(specs) > 1:  # one of them cannot even begin, because its checkpoint is damaged for example
            pairs = zip(specs, checkpoints, strict=True)
            alone = (make_runs(config, [spec], [path], stop, rows) for spec, path in pairs)
            return [run for runs in itertools.takewhile(len, alone) for run in runs]
        outcomes = [error]
    sizes = {name: len(y) for name, (_, y) in clients.items()}
    begun = [_begun(config, spec, (perf_counter() - began) / len(specs)) for spec in specs]
    algorithm = cast("Algorithm", parts["algorithm"])
    return [_ended(run, outcome, sizes, algorithm) for run, outcome in zip(begun, outcomes, strict=True)]


def _begun(config: dict[str, Any], spec: RunSpec, seconds: float) -> RunRecord:
    method, privacy = spec.method, spec.method.table.get("privacy")
    return RunRecord(
        partition=spec.partition.name,
        partition_settings={"name": spec.partition.base, **spec.partition.table},
        method=method.name,
        base=method.base,
        label=method.table.get("label", method.base),
        swept=method.swept,
        budget=float(privacy["epsilon"]) if isinstance(privacy, dict) else None,
        seed=spec.seed,
        settings=settings_digest(config, spec),
        version=__version__,
        seconds=seconds,
    )


def _ended(run: RunRecord, outcome: Result | Exception, sizes: dict[str, int], algorithm: Algorithm) -> RunRecord:
    """Return the run with what was measured, and with what every client spent when."""
    if isinstance(outcome, FedviError):
        return dataclasses.replace(run, error=str(outcome))
    if isinstance(outcome, Exception):
        raise outcome
    history, spending = outcome.history, outcome.history.budgets
    records = [{name: 100 * v if name == "accuracy" else v for name, v in record.items()} for record in history.records]
    turns = [turn.client for turn in history.turns]
    made = {name: np.flatnonzero(np.equal(turns, index)) + 1 for index, name in enumerate(outcome.clients)}
    run = dataclasses.replace(
        run,
        acc=records[-1].get("accuracy"),
        ll=records[-1].get("log_likelihood"),
        records=records,
        communications=outcome.checkpoint.communications,
        updates={name: int(state.sequence) for name, state in outcome.clients.items()},
        last_update={name: int(when[-1]) if len(when) else 0 for name, when in made.items()},
    )
    if spending is None or NOT_PRIVATE in spending.events:
        return run
    most, mechanism = spending.most_updates(), cast("Any", algorithm.solver.mechanism)
    for index, (name, when) in enumerate(made.items()):
        event, delta, count = spending.events[index], float(spending.budgets[index].delta), len(when)
        run.epsilon[name] = spending.epsilon(index, count)
        run.epsilon_pld[name] = accounting.epsilon({event: count}, delta) if count else 0.0
        run.epsilon_proven[name] = run.epsilon_pld[name]
        if hasattr(mechanism, "proven_epsilon"):  # it accounts for its sampling as if it were another
            used = dataclasses.replace(mechanism, noise_multiplier=to_json(event)["noise_multiplier"])
            run.epsilon_proven[name] = used.proven_epsilon(sizes[name], algorithm.solver.steps * count, delta)
        for updates in _moments(count, most[index]):
            at = int(when[updates - 1]) if updates else 0
            run.spending.append(Spending(name, sizes[name], at, updates, spending.epsilon(index, updates)))
    return dataclasses.replace(run, statement=_statement(outcome))


@functools.lru_cache(maxsize=2)
def load_rows(data: str) -> Dataset:
    """Return the rows of an experiment; its settings as JSON."""
    source: Source = build(json.loads(data), "data")
    return source.load()


def clients_of(rows: Dataset, partition: Variant) -> Mapping[str, Table]:
    """Return the rows of every client."""
    return distribute(build(partition.table, "partition"), *rows.train, columns=rows.columns)


def _moments(count: int, most: float) -> list[int]:
    """Return how many of its updates a client had made at a few moments, closer together at first.

    Shares of the most that it may make, so that clients of the same size, and other seeds, need the same accounting.
    """
    whole = most if most <= 4 * count else count
    shares = (whole * np.linspace(0, 1, MOMENTS + 1) ** 2).round().astype(int).tolist()
    return sorted({share for share in shares if share < count} | {count})


def _statement(result: Result) -> str:
    """Return the promises, once for clients to whom the same was promised."""
    same: dict[str, list[str]] = {}
    for name, spent in result.privacy.items():
        same.setdefault(spent.statement("{}"), []).append(name)
    return "\n".join([SIMULATION, *(text.replace("{}", ", ".join(names), 1) for text, names in same.items())])


def settings_digest(config: dict[str, Any], spec: RunSpec) -> str:
    """Return a digest of all that decides what a run gives, defaults included."""
    objects = {
        "data": build(data_of(config, spec.method), "data"),
        "model": build(config["model"], "model"),
        "prior": prior_of(config, spec.method),
        "partition": build(spec.partition.table, "partition"),
        **spec.method.parts(),
    }
    return digest(plain([objects, spec.method.limits(), spec.seed]), compact=False)[:8]  # a limit may be infinite
