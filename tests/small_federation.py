"""A small federation for tests: two or more sites with simulated rows, a project, a coordinator and durable sites."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.data import BinaryTarget, CheckedTable, Number, Schema
from fedvi.federation import wire
from fedvi.federation.client import Client
from fedvi.federation.project import Project
from fedvi.federation.server import Server
from fedvi.federation.wire import Answer, Declared, Request
from fedvi.privacy import Budget

SCHEMA = Schema((Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1)), BinaryTarget("y", ("no", "yes")))


def project(sites: tuple[str, ...] = ("north", "south"), updates: int = 6, **settings: object) -> Project:
    values: dict[str, object] = {"rows": 200 * len(sites), "identity": "test", **settings}
    return Project("trial", sites, SCHEMA, updates=updates, **values)  # type: ignore[arg-type]


def rows_of(number: int, rows: int = 200) -> CheckedTable:
    rng = np.random.default_rng(number)
    x = np.concatenate([np.ones((rows, 1)), np.clip(rng.normal(size=(rows, 2)), -4, 4)], axis=1)  # as SCHEMA encodes
    odds = x[:, 1] - x[:, 2]
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), 1, -1)
    return x.astype(np.float32), y.astype(np.float32)


def coordinator(folder: Path, chosen: Project) -> Server:
    path = folder / "coordinator.db"
    return Server.open(path) if path.exists() else Server.create(path, chosen)


def site(folder: Path, chosen: Project, number: int = 0, epsilon: float = 1.0) -> Client:
    name = chosen.sites[number]
    return Client.open(folder / f"{name}.db", chosen, rows_of(number), Budget(epsilon), folder / f"{name}.ledger")


def factor(seed: int) -> dict[str, np.ndarray]:
    """Return the arrays of a factor that an honest site might release."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(0, 20, 3), rng.uniform(-1, 50, 3), rng.uniform(0, 100, 3)
    return {str(number): part.astype(np.float32) for number, part in enumerate(parts)}


def message(chosen: Project, sequence: int, arrays: dict[str, Any], kind: str = wire.FACTOR, **changes: Any) -> bytes:
    """Return the bytes of a request; changes: of its fields."""
    declared = Declared(200, 0.5, 1.0, 1e-3, ({"kind": "gaussian", "count": sequence},))
    request = Request(chosen.digest, chosen.schema.digest, kind, sequence, 0, wire.WORKING, declared, arrays)
    return wire.encode(dataclasses.replace(request, **changes))


def poll(chosen: Project, sequence: int, state: str = wire.WORKING) -> bytes:
    return message(chosen, sequence, {}, wire.POLL, state=state)


def answer(data: bytes) -> Answer:
    return wire.decode(data, Answer, 1 << 20)
