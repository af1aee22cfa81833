"""The coordinator's file: every site's factor, their product, and what was applied and refused when.

    q = prior * t_1 * ... * t_M        always, whatever was killed when: a release changes factor and product in one
                                       transaction, and `verify` adds the factors up again

Several processes may have the file open, one per site's job: nothing that matters is kept in memory.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from fedvi.compiling import jax, jnp
from fedvi.config import search
from fedvi.errors import InputError, UnknownClient
from fedvi.federation.description import Description, check_name
from fedvi.federation.records import (
    APPLIED,
    FORMAT,
    SCHEMA,
    STORED,
    Applied,
    Product,
    Refusal,
    SiteRecord,
    Snapshot,
    site_record,
)
from fedvi.federation.wire import FINISHED, LEFT, Declared, pack, unpack
from fedvi.files import Closing
from fedvi.inference.spec import Spec
from fedvi.sqlite import Database, Row

FILE = "coordinator.db"
ABSENT = "absent"
"""State of a site that was never heard of."""


class CoordinatorFile(Closing):
    """The file, open. Threads and processes may share it."""

    def __init__(self, database: Database):
        self._database = database

    @classmethod
    def create(cls, path: Path, description: Description) -> Self:
        """Make the file of a federation that nobody has joined yet: q is the prior."""
        spec = description.spec
        unit = pack(spec.algorithm.first_factor(spec.prior))

        def fill(database: Database) -> None:
            values = (description.to_text(), 0, unit, unit, None, "")
            database.execute("INSERT INTO federation VALUES (?, ?, ?, ?, ?, ?)", values)
            for site in description.sites:
                _insert_site(database, site, unit)

        return cls(Database.create(path, SCHEMA, fill))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing file. A model of one's own may be in its folder or in the current directory."""
        for folder in (path.parent, Path()):
            search(folder)
        file = cls(Database.open_format(path, FORMAT, "a coordinator"))
        try:
            _ = file.description
        except (InputError, ValueError, KeyError, TypeError) as error:
            file.close()
            raise InputError(f"{path} is no file of a coordinator, or damaged: {error}. Restore its copy.") from None
        return file

    @cached_property
    def description(self) -> Description:
        """What the federation agreed on. Its list of sites is that of the day it began; `names` has all."""
        return Description.from_text(self._only("SELECT description FROM federation")[0])

    @property
    def names(self) -> tuple[str, ...]:
        """The sites, in the order in which they were added."""
        return tuple(name for (name,) in self._database.execute("SELECT name FROM sites ORDER BY rowid"))

    @property
    def over(self) -> bool:
        """Whether the federation has ended, and every site that ever took part has made its final release."""
        return bool(self.stop) and {state for state, _ in self.states()} <= {FINISHED, LEFT, ABSENT}

    @property
    def stop(self) -> str:
        """Why the federation has ended; empty while it goes on."""
        return str(self._only("SELECT stop FROM federation")[0])

    @property
    def started(self) -> float | None:
        """When the first release was applied, in seconds since the epoch; None before."""
        return self._only("SELECT started FROM federation")[0]

    @property
    def version(self) -> int:
        """How many releases q has seen."""
        return int(self._only("SELECT version FROM federation")[0])

    @property
    def posterior(self) -> Any:
        """The current q."""
        return self._posterior(self._product())

    def add_site(self, name: str) -> None:
        """Let one more site take part."""
        check_name("a site's name", name)
        with self._database.transaction():
            if name in self.names:
                raise InputError(f"Expected a new site, got {name!r}, which takes part already.")
            _insert_site(self._database, name, pack(self._unit))

    def end(self, reason: str) -> None:
        """End the federation: sites are told so, and make their final release."""
        self._database.execute("UPDATE federation SET stop = ? WHERE stop = ''", (reason,))

    def factors(self) -> Any:
        """Return the factors of all sites, stacked in the order of `names`."""
        stored = self._database.execute("SELECT factor FROM sites ORDER BY rowid")
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(unpack(self._unit, row[0]) for row in stored))

    def snapshot(self) -> Snapshot:
        """Return all that belongs together, read in one transaction: sites may release while somebody reads."""
        with self._database.transaction():
            sites, factors, now = self.sites(), self.factors(), self._product()
        return Snapshot(sites, factors, self._posterior(now), now.version, now.stop)

    def sites(self) -> tuple[SiteRecord, ...]:
        """Return what is known of every site."""
        rows = self._database.execute(f"SELECT {', '.join(STORED)}, declared FROM sites ORDER BY rowid")
        return tuple(map(site_record, rows))

    def site(self, name: str) -> SiteRecord:
        """Return what is known of one site, or raise `UnknownClient`."""
        row = self._database.one(f"SELECT {', '.join(STORED)}, declared FROM sites WHERE name = ?", (name,))
        if row is None:
            raise UnknownClient(f"Unknown site {name!r}; known are {', '.join(self.names)}.")
        return site_record(row)

    def states(self) -> list[tuple[str, int]]:
        """Return of every site its state, and how many of its updates in a row changed q little."""
        return [(state, calm) for state, calm in self._database.execute("SELECT state, calm FROM sites")]

    def applied(self) -> list[Applied]:
        """Return all updates in their order."""
        rows = self._database.execute(f"SELECT {', '.join(APPLIED)} FROM applied ORDER BY version")
        return [Applied(*row) for row in rows]

    def updates(self, most: int = 2000) -> list[Applied]:
        """Return the updates applied, thinned to about so many; the last is there."""
        every = max(math.ceil(self.version / most), 1)
        rows = self._database.execute(
            f"SELECT {', '.join(APPLIED)} FROM applied "
            "WHERE version % ? = (SELECT max(version) FROM applied) % ? ORDER BY version",
            (every, every),
        )
        return [Applied(*row) for row in rows]

    def refusals(self, last: int = 50) -> list[Refusal]:
        """Return the newest refusals, the newest first."""
        rows = self._database.execute(
            "SELECT time, site, code, reason FROM refusals ORDER BY number DESC LIMIT ?", (last,)
        )
        return [Refusal(*row) for row in rows]

    def apply(self, update: Applied, factor: Any, product: Any, lost: Any, *, calm: bool) -> None:
        """Store an update with all that it changes. Within a transaction. calm: whether it changed q little."""
        if not calm:
            self._database.execute("UPDATE sites SET calm = 0 WHERE calm > 0")
        self._database.execute(
            "UPDATE federation SET version = ?, product = ?, lost = ?, started = ifnull(started, ?)",
            (update.version, pack(product), pack(lost), update.time),
        )
        values = dataclasses.astuple(update)
        self._database.execute(f"INSERT INTO applied VALUES ({', '.join('?' * len(values))})", values)
        self._database.execute(
            "UPDATE sites SET factor = ?, sequence = ?, digest = ?, updates = updates + 1, calm = calm + ?, "
            "staleness = ? WHERE name = ?",
            (pack(factor), update.sequence, update.digest, calm, update.version - 1 - update.based_on, update.site),
        )

    def finish(self, name: str, sequence: int, digest: str, width: float) -> None:
        """Store a site's final release. Within a transaction."""
        values = (sequence, digest, width, name)
        self._database.execute("UPDATE sites SET sequence = ?, digest = ?, width = ? WHERE name = ?", values)

    def repeat(self, name: str) -> None:
        """Count a release that came again. Within a transaction."""
        self._database.execute("UPDATE sites SET repeated = repeated + 1 WHERE name = ?", (name,))

    def hear(self, name: str, state: str, declared: Declared, now: float) -> None:
        """Store what a site says about itself. Within a transaction."""
        values = (state, msgspec.json.encode(declared).decode(), now, name)
        self._database.execute("UPDATE sites SET state = ?, declared = ?, last_seen = ? WHERE name = ?", values)

    def refuse(self, refusal: Refusal, kept: int) -> None:
        """Store a refusal, maybe of a site that nobody knows; only the last `kept` stay. Within a transaction."""
        values = dataclasses.astuple(refusal)
        self._database.execute("INSERT INTO refusals (time, site, code, reason) VALUES (?, ?, ?, ?)", values)
        self._database.execute("DELETE FROM refusals WHERE number <= (SELECT max(number) FROM refusals) - ?", (kept,))
        self._database.execute("UPDATE sites SET refused = refused + 1 WHERE name = ?", (refusal.site,))

    def verify(self) -> float:
        """Return how far the stored product is from that of the stored factors: the largest relative difference.

        Raises `InputError` if the updates that were applied and those that the sites' rows count are not the same.
        """
        with self._database.transaction():
            applied = self.applied()
            for site in self.sites():
                counted = sorted(update.sequence for update in applied if update.site == site.name)
                if counted != list(range(1, site.updates + 1)):
                    raise InputError(f"{self._database.path}: updates of {site.name!r} are missing. Restore a copy.")
            now, factors = self._product(), self.factors()
            stored = [now.product, now.lost]
        total, scale = (jax.tree.map(lambda leaf, f=f: f(np.asarray(leaf, np.float64)), factors) for f in (_sum, _size))
        product = jax.tree.map(lambda *parts: sum(np.asarray(part, np.float64) for part in parts), *stored)
        leaves = zip(*map(jax.tree.leaves, (total, product, scale)), strict=True)
        return float(np.max([np.max(np.abs(one - other) / size) for one, other, size in leaves]))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @cached_property
    def _spec(self) -> Spec:
        return self.description.spec

    @cached_property
    def _unit(self) -> Any:
        return self._spec.algorithm.first_factor(self._spec.prior)

    def _posterior(self, now: Product) -> Any:
        return _posterior(self._spec.prior, now.product, now.lost)

    def _product(self) -> Product:
        product, lost, *rest = self._only("SELECT product, lost, version, started, stop FROM federation")
        return Product(unpack(self._unit, product), unpack(self._unit, lost), *rest)

    def _factor(self, name: str) -> Any:
        """Return a site's factor."""
        return unpack(self._unit, self._only("SELECT factor FROM sites WHERE name = ?", (name,))[0])

    def _only(self, statement: str, values: tuple[str, ...] = ()) -> Row:
        """Return the row that there must be."""
        row = self._database.one(statement, values)
        if row is None:
            raise InputError(f"{self._database.path} is damaged: it lacks a row. Restore its newest copy.")
        return row


def _insert_site(database: Database, name: str, unit: bytes) -> None:
    values = (name, ABSENT, 0, 0, unit, "", None, 0, None, None, None, 0, 0)
    database.execute(f"INSERT INTO sites VALUES ({', '.join('?' * len(values))})", values)


@jax.jit
def _posterior(prior: Any, product: Any, lost: Any) -> Any:
    return (product * lost).posterior(prior)


def _sum(leaf: np.ndarray) -> np.ndarray:
    return leaf.sum(axis=0)


def _size(leaf: np.ndarray) -> np.ndarray:
    return 1 + np.abs(leaf).sum(axis=0)
