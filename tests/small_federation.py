"""A small federation for tests: two or more sites with simulated rows, a project, a coordinator and durable sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedvi.data import BinaryTarget, CheckedTable, Number, Schema
from fedvi.federation.client import Client
from fedvi.federation.project import Project
from fedvi.federation.server import Server
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
