"""A small federation for tests: sites with simulated rows, a description, a coordinator and durable sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.description import Description
from fedvi.federation.site import Site
from fedvi.federation.wire import Answer, Declared, Request
from fedvi.federation.worker import open_worker
from fedvi.inference.rows import CheckedTable
from fedvi.privacy import Budget
from fedvi.tables import BinaryTarget, Number, Schema

ROWS = 200
SCHEMA = Schema((Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1)), BinaryTarget("y", ("no", "yes")))


def description(sites: tuple[str, ...] = ("north", "south"), updates: int = 6, **settings: object) -> Description:
    values: dict[str, object] = {"rows": ROWS * len(sites), "identity": "test", **settings}
    return Description("trial", sites, SCHEMA, updates=updates, **values)  # type: ignore[arg-type]


def rows_of(number: int, rows: int = ROWS) -> CheckedTable:
    rng = np.random.default_rng(number)
    x = np.concatenate([np.ones((rows, 1)), np.clip(rng.normal(size=(rows, 2)), -4, 4)], axis=1)  # as SCHEMA encodes
    odds = x[:, 1] - x[:, 2]
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), 1, -1)
    return x.astype(np.float32), y.astype(np.float32)


def open_coordinator(folder: Path, chosen: Description) -> Coordinator:
    path = folder / "coordinator.db"
    return Coordinator.open(path) if path.exists() else Coordinator.create(path, chosen)


def site_of(
    path: Path, chosen: Description, rows: CheckedTable, budget: Budget, ledger: Path, *more: Any, now: bool = True
) -> Site:
    """Open a site with these rows. more: as `open_worker` takes it."""
    return Site.open(path, chosen, ledger, lambda: open_worker(chosen, rows, budget, ledger, *more), now)


def open_site(folder: Path, chosen: Description, number: int = 0, epsilon: float = 1.0, *, now: bool = True) -> Site:
    name = chosen.sites[number]
    place, ledger = folder / f"{name}.db", folder / f"{name}.ledger"
    return site_of(place, chosen, rows_of(number), Budget(epsilon), ledger, now=now)


def answers(chosen: Description, seed: int, count: int) -> dict[str, np.ndarray]:
    """Return the arrays of so many answers that an honest site might give: the first ones of those with this seed."""
    unit: Any = chosen.spec.algorithm.first_factor(chosen.spec.prior)
    sums, noise, rows = (np.zeros(part.shape, np.float32) for part in (unit.sums, unit.noise, unit.rows))
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        sums[number], noise[number], rows[number] = rng.normal(0, 20, sums.shape[1]), rng.uniform(50, 200), ROWS
    return {"0": sums, "1": noise, "2": rows}


def message(
    chosen: Description, sequence: int, arrays: dict[str, Any], kind: str = wire.FACTOR, **changes: Any
) -> bytes:
    """Return the bytes of a request; changes: of its fields."""
    declared = Declared(ROWS, 0.5, 1.0, 1e-3, ({"kind": "gaussian", "count": sequence},))
    request = Request(chosen.digest, chosen.schema.digest, kind, sequence, wire.WORKING, declared, arrays)
    return wire.encode(msgspec.structs.replace(request, **changes))


def release(chosen: Description, sequence: int, seed: int = 0) -> bytes:
    """Return an honest answer to question number `sequence`, with those before it."""
    return message(chosen, sequence, answers(chosen, seed, sequence))


def poll(chosen: Description, sequence: int, state: str = wire.WORKING) -> bytes:
    return message(chosen, sequence, {}, wire.POLL, state=state)


def answer(data: bytes) -> Answer:
    return wire.decode(data, Answer, 1 << 20)
