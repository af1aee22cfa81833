"""Runs of an experiment, from their specifications to plain values.

What comes out is all that tables, figures and pages are made of: how good the posterior was along the way, what every
client spent when, and what was promised. It can be written as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fedvi import __version__
from fedvi.config import build, plain
from fedvi.datasets.partitions import distribute
from fedvi.datasets.sources import Dataset
from fedvi.errors import FedviError, SimulationInterrupted, SimulationsFailed
from fedvi.experiments.config import RunSpec, Variant, prior_of
from fedvi.files import digest
from fedvi.inference.rows import Table
from fedvi.privacy import accounting
from fedvi.privacy.events import NOT_PRIVATE, to_json
from fedvi.privacy.ledger.statement import SIMULATION
from fedvi.simulation.prepare import RunSettings
from fedvi.simulation.results import Result
from fedvi.simulation.simulate import simulate_all

MOMENTS = 6
"""Moments of a run at which a client's epsilon is written down, closer together at first: accounting takes a while."""

LIMITS = ("communications", "until", "max_updates", "evaluate_every")

RunRecord = dict[str, Any]


def make_runs(
    config: dict[str, Any],
    specs: Sequence[RunSpec],
    checkpoints: Sequence[Path],
    stop: Callable[[], bool] | None = None,
    rows: Dataset | None = None,
) -> list[RunRecord] | None:
    """Make runs that differ in their seeds alone, together, or return None if Ctrl-C or `stop` ended them.

    checkpoints: a path for each; after an interruption it holds what was done, for the next call.
    rows: those of the experiment, for a machine that need not have them; None to load them.
    A run that goes wrong, because its steps diverge for example, comes back with the key `error`.
    """
    method, partition, began = specs[0].method, specs[0].partition, perf_counter()
    if rows is None:
        rows, clients = load_clients(json.dumps(config["data"]), json.dumps(partition.table))
    else:
        clients = _distribute(rows, partition.table)
    model = build(config["model"], "model")
    dim = model.dim(rows.train[0])
    objects = method.parts()
    limits = {key: method.table[key] for key in LIMITS if key in method.table}
    own: list[RunSettings] = [
        {"seed": spec.seed, "resume": path if path.exists() else None}
        for spec, path in zip(specs, checkpoints, strict=True)
    ]
    outcomes: Sequence[Result | Exception]
    try:
        outcomes = simulate_all(
            clients,
            model,
            own,
            prior=prior_of(config).over(dim),
            test=rows.test,
            progress=False,
            stop=stop,
            **objects,
            **limits,
        )
    except SimulationInterrupted as interrupted:
        for outcome, path in zip(interrupted.outcomes, checkpoints, strict=True):
            if isinstance(outcome, Result):
                outcome.checkpoint.save(path)
        return None
    except SimulationsFailed as failed:
        outcomes = failed.outcomes
    except FedviError as error:  # before anything was run
        if len(specs) > 1:
            return _one_by_one(config, specs, checkpoints, stop, rows)
        outcomes = [error]
    sizes = {name: len(y) for name, (_, y) in clients.items()}
    seconds = (perf_counter() - began) / len(specs)
    return [
        {**_about(config, spec), **_plain(outcome, sizes, objects["algorithm"]), "seconds": seconds}
        for spec, outcome in zip(specs, outcomes, strict=True)
    ]


def _one_by_one(
    config: dict[str, Any],
    specs: Sequence[RunSpec],
    checkpoints: Sequence[Path],
    stop: Callable[[], bool] | None,
    rows: Dataset,
) -> list[RunRecord] | None:
    """Make runs of which one cannot even begin, because its checkpoint is damaged for example."""
    runs: list[RunRecord] = []
    for spec, path in zip(specs, checkpoints, strict=True):
        alone = make_runs(config, [spec], [path], stop, rows)
        if alone is None:
            return None
        runs += alone
    return runs


def _about(config: dict[str, Any], spec: RunSpec) -> RunRecord:
    table = spec.method.table
    return {
        "partition": spec.partition.name,
        "partition_settings": _settings(spec.partition),
        "method": spec.method.name,
        "base": spec.method.base,
        "label": table.get("label", spec.method.base),
        "swept": spec.method.swept,
        "budget": _budget(table),
        "seed": spec.seed,
        "settings": settings_digest(config, spec),
        "version": __version__,
    }


def _plain(outcome: Result | Exception, sizes: dict[str, int], algorithm: Any) -> RunRecord:
    """Return what became of a run as plain values."""
    if isinstance(outcome, FedviError):
        return {"error": str(outcome)}
    if isinstance(outcome, Exception):
        raise outcome
    records = [_percent(record) for record in outcome.history.records]
    return {
        "final": records[-1],
        "records": records,
        "communications": outcome.checkpoint.communications,
        "updates": {name: int(state.sequence) for name, state in outcome.clients.items()},
        **_privacy(outcome, sizes, algorithm),
    }


@functools.lru_cache(maxsize=4)
def load_clients(data: str, partition: str) -> tuple[Dataset, Mapping[str, Table]]:
    """Return the rows of an experiment and their distribution over clients; both settings as JSON."""
    rows: Dataset = load_rows(data)
    return rows, _distribute(rows, json.loads(partition))


@functools.lru_cache(maxsize=2)
def load_rows(data: str) -> Dataset:
    """Return the rows of an experiment."""
    rows: Dataset = build(json.loads(data), "data").load()
    return rows


def _distribute(rows: Dataset, partition: dict[str, Any]) -> Mapping[str, Table]:
    return distribute(build(partition, "partition"), *rows.train, columns=rows.columns)


def _settings(partition: Variant) -> dict[str, Any]:
    return {"name": partition.base, **partition.table}


def _budget(table: dict[str, Any]) -> float | None:
    privacy = table.get("privacy")
    return float(privacy["epsilon"]) if isinstance(privacy, dict) else None


def _percent(record: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * value if name == "accuracy" else value for name, value in record.items()}


def _privacy(result: Result, sizes: dict[str, int], algorithm: Any) -> dict[str, Any]:
    """Return what every client spent, by the run's own rule, by exact accounting, and as proven for its sampling."""
    spending, turns = result.history.budgets, [turn.client for turn in result.history.turns]
    made = {name: np.flatnonzero(np.equal(turns, index)) + 1 for index, name in enumerate(result.clients)}
    last = {name: int(when[-1]) if len(when) else 0 for name, when in made.items()}
    if spending is None or NOT_PRIVATE in spending.events:
        return {
            "epsilon": {},
            "epsilon_pld": {},
            "epsilon_proven": {},
            "last_update": last,
            "spending": [],
            "statement": "",
        }
    claimed, exact, proven, moments = {}, {}, {}, []
    most = spending.most_updates()
    for index, (name, when) in enumerate(made.items()):
        event, budget, count = spending.events[index], spending.budgets[index], len(when)
        claimed[name] = spending.epsilon(index, count)
        exact[name] = accounting.epsilon({event: count}, float(budget.delta)) if count else 0.0
        proven[name] = exact[name]
        mechanism = algorithm.solver.mechanism
        if hasattr(mechanism, "proven_epsilon"):  # it accounts for its sampling as if it were another
            used = dataclasses.replace(mechanism, noise_multiplier=to_json(event)["noise_multiplier"])
            proven[name] = used.proven_epsilon(sizes[name], algorithm.solver.steps * count, float(budget.delta))
        for updates in _moments(count, most[index]):
            at = int(when[updates - 1]) if updates else 0
            moments.append(
                {
                    "client": name,
                    "rows": sizes[name],
                    "communications": at,
                    "updates": updates,
                    "epsilon": spending.epsilon(index, updates),
                }
            )
    return {
        "epsilon": claimed,
        "epsilon_pld": exact,
        "epsilon_proven": proven,
        "last_update": last,
        "spending": moments,
        "statement": _statement(result),
    }


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


def file_name(spec: RunSpec) -> str:
    """Return the name of the file for a run, without its ending; different runs have different ones."""
    readable = "".join(letter if letter.isalnum() or letter in "@.-=" else "_" for letter in spec.name)
    return f"{readable[:100]}_{digest(spec.name)[:8]}"


def settings_digest(config: dict[str, Any], spec: RunSpec) -> str:
    """Return a digest of all that decides what a run gives, defaults included."""
    objects = {
        "data": build(config["data"], "data"),
        "model": build(config["model"], "model"),
        "prior": prior_of(config),
        "partition": build(spec.partition.table, "partition"),
        **spec.method.parts(),
    }
    limits = {key: spec.method.table[key] for key in LIMITS if key in spec.method.table}
    return digest(plain([objects, limits, spec.seed]), compact=False)[:8]  # a limit may be infinite
