"""One run of an experiment, from its specification to plain values.

What comes out is all that tables, figures and pages are made of: how good the posterior was along the way, what every
client spent when, and what was promised. It can be written as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fedvi import __version__
from fedvi.data import Table, distribute
from fedvi.errors import FedviError, SimulationInterrupted
from fedvi.experiments.config import RunSpec, Variant
from fedvi.experiments.kinds import build
from fedvi.experiments.sources import Rows
from fedvi.federation import Result, simulate
from fedvi.privacy import accounting
from fedvi.privacy.events import NOT_PRIVATE, to_json
from fedvi.privacy.published import FixedSizeGaussian
from fedvi.privacy.statement import SIMULATION

MOMENTS = 6
"""Moments of a run at which a client's epsilon is written down, closer together at first: accounting takes a while."""

Outcome = dict[str, Any]


def make_run(
    config: dict[str, Any],
    spec: RunSpec,
    checkpoint: Path,
    stop: Callable[[], bool] | None = None,
    rows: Rows | None = None,
) -> Outcome | None:
    """Make one run, or None if Ctrl-C or `stop` ended it; then `checkpoint` holds what was done, for the next call.

    rows: those of the experiment, for a machine that need not have them; None to load them.
    A run that goes wrong, because its steps diverge for example, comes back with the key `error`.
    """
    table, began = spec.method.table, perf_counter()
    if rows is None:
        rows, clients = load_clients(json.dumps(config["data"]), json.dumps(spec.partition.table))
    else:
        clients = _distribute(rows, spec.partition.table)
    model = build("model", config["model"], "model")
    dim = model.dim(rows.train[0])
    objects = {
        role: build(role, table[role], f"method.{spec.method.base}.{role}")
        for role in ("algorithm", "schedule", "privacy")
        if role in table
    }
    limits = {key: table[key] for key in ("communications", "until", "max_updates", "evaluate_every") if key in table}
    about = {
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
    try:
        result = simulate(
            clients,
            model,
            seed=spec.seed,
            prior=build("prior", config.get("prior", "Gaussian"), "prior").over(dim),
            test=rows.test,
            resume=checkpoint if checkpoint.exists() else None,
            progress=False,
            stop=stop,
            **objects,
            **limits,
        )
    except SimulationInterrupted as interrupted:
        interrupted.result.checkpoint.save(checkpoint)
        return None
    except FedviError as error:
        return {**about, "error": str(error), "seconds": perf_counter() - began}
    records = [_percent(record) for record in result.history.records]
    sizes = {name: len(y) for name, (_, y) in clients.items()}
    return {
        **about,
        "final": records[-1],
        "records": records,
        "communications": result.checkpoint.communications,
        "updates": {name: int(state.sequence) for name, state in result.clients.items()},
        **_privacy(result, sizes, objects["algorithm"]),
        "seconds": perf_counter() - began,
    }


@functools.lru_cache(maxsize=4)
def load_clients(data: str, partition: str) -> tuple[Rows, Mapping[str, Table]]:
    """Return the rows of an experiment and their distribution over clients; both settings as JSON."""
    rows: Rows = load_rows(data)
    return rows, _distribute(rows, json.loads(partition))


@functools.lru_cache(maxsize=2)
def load_rows(data: str) -> Rows:
    """Return the rows of an experiment."""
    rows: Rows = build("data", json.loads(data), "data").load()
    return rows


def _distribute(rows: Rows, partition: dict[str, Any]) -> Mapping[str, Table]:
    return distribute(build("partition", partition, "partition"), *rows.train, columns=rows.columns)


def _settings(partition: Variant) -> dict[str, Any]:
    return {"name": partition.base, **partition.table}


def _budget(table: dict[str, Any]) -> float | None:
    privacy = table.get("privacy")
    return float(privacy["epsilon"]) if isinstance(privacy, dict) else None


def _percent(record: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * value if name == "accuracy" else value for name, value in record.items()}


def _privacy(result: Result, sizes: dict[str, int], algorithm: Any) -> dict[str, Any]:
    """Return what every client spent, by the run's own rule, by exact accounting, and as proven for its sampling."""
    spending, turns = result.history.spending, [turn.client for turn in result.history.turns]
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
        if isinstance(mechanism, FixedSizeGaussian):
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
    plain = "".join(letter if letter.isalnum() or letter in "@.-=" else "_" for letter in spec.name)
    return f"{plain[:100]}_{_digest(spec.name)}"


def settings_digest(config: dict[str, Any], spec: RunSpec) -> str:
    """Return a digest of all that decides what a run gives."""
    common = {key: config.get(key) for key in ("data", "model", "prior")}
    return _digest(json.dumps([common, spec.partition.table, spec.method.table, spec.seed], sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
