"""The coordinator's file: every site's factor, their product, and what was applied and refused when.

    q = prior * t_1 * ... * t_M        always, whatever was killed when: a release changes factor and product in one
                                       transaction, and `verify` adds the factors up again

Several processes may have the file open, one per site's job: nothing that matters is kept in memory.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedvi.compiling import jax, jnp
from fedvi.config import search
from fedvi.errors import InputError, UnknownClient
from fedvi.federation.description import Description, check_name
from fedvi.federation.wire import FINISHED, LEFT, pack, unpack
from fedvi.files import Closing
from fedvi.inference.spec import Spec
from fedvi.sqlite import Database

FILE = "coordinator.db"
ABSENT = "absent"
"""State of a site that was never heard of."""

SCHEMA = """
CREATE TABLE federation (
    project TEXT NOT NULL, version INTEGER NOT NULL, product BLOB NOT NULL, lost BLOB NOT NULL,
    started REAL, stop TEXT NOT NULL
) STRICT;
CREATE TABLE sites (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, calm INTEGER NOT NULL, sequence INTEGER NOT NULL, factor BLOB NOT NULL,
    digest TEXT NOT NULL, width REAL, updates INTEGER NOT NULL, staleness INTEGER, declared TEXT, last_seen REAL,
    repeated INTEGER NOT NULL, refused INTEGER NOT NULL
) STRICT;
CREATE TABLE applied (
    version INTEGER PRIMARY KEY, site TEXT NOT NULL, sequence INTEGER NOT NULL, based_on INTEGER NOT NULL,
    change REAL NOT NULL, time REAL NOT NULL, digest TEXT NOT NULL, UNIQUE (site, sequence)
) STRICT;
CREATE TABLE refusals (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, site TEXT NOT NULL, error TEXT NOT NULL, reason TEXT NOT NULL
) STRICT
"""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A federation at one instant.

    sites: as `CoordinatorFile.sites` returns them. factors: theirs, stacked in the same order.
    posterior, version, stop: q, how many releases it has seen, and why the federation has ended.
    """

    sites: list[dict[str, Any]]
    factors: Any
    posterior: Any
    version: int
    stop: str


class CoordinatorFile(Closing):
    """The file, open. Threads and processes may share it."""

    def __init__(self, database: Database):
        self._database = database

    @classmethod
    def create(cls, path: Path, project: Description) -> Self:
        """Make the file of a federation that nobody has joined yet: q is the prior."""
        recipe = project.spec
        unit = pack(recipe.algorithm.first_factor(recipe.prior))

        def fill(database: Database) -> None:
            values = (project.to_text(), 0, unit, unit, None, "")
            database.execute("INSERT INTO federation VALUES (?, ?, ?, ?, ?, ?)", values)
            for site in project.sites:
                _insert_site(database, site, unit)

        return cls(Database.create(path, SCHEMA, fill))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing file. A model of one's own may be in its folder or in the current directory."""
        for folder in (path.parent, Path()):
            search(folder)
        store = cls(Database.open(path))
        try:
            _ = store.project
        except (sqlite3.DatabaseError, InputError, ValueError, KeyError, TypeError) as error:
            store.close()
            raise InputError(f"{path} is no file of a coordinator, or damaged: {error}. Restore its copy.") from None
        return store

    @cached_property
    def project(self) -> Description:
        """What the federation agreed on. Its list of sites is that of the day it began; `names` has all."""
        return Description.from_text(self._federation()["project"])

    @property
    def names(self) -> tuple[str, ...]:
        """The sites, in the order in which they were added."""
        return tuple(row["name"] for row in self._database.execute("SELECT name FROM sites ORDER BY rowid"))

    @property
    def over(self) -> bool:
        """Whether the federation has ended, and every site that ever took part has said its last."""
        states = {row["state"] for row in self._sites()}
        return bool(self.stop) and states <= {FINISHED, LEFT, ABSENT}

    @property
    def stop(self) -> str:
        """Why the federation has ended; empty while it goes on."""
        return str(self._federation()["stop"])

    @property
    def started(self) -> float | None:
        """When the first release was applied, in seconds since the epoch; None before."""
        return self._federation()["started"]

    def finished(self, name: str) -> bool:
        """Tell whether a site has nothing more to do."""
        return self._site(name)["state"] in (FINISHED, LEFT)

    def may_work(self, name: str) -> bool:
        """Tell whether a site may have something to do: one that has left may come back."""
        return self._site(name)["state"] != FINISHED

    def add_site(self, name: str) -> None:
        """Let one more site take part."""
        check_name("a site's name", name)
        with self._database.transaction():
            if name in self.names:
                raise InputError(f"Expected a new site, got {name!r}, which takes part already.")
            _insert_site(self._database, name, pack(self._unit))

    def end(self, reason: str) -> None:
        """End the federation: sites are told so, and say their last."""
        with self._database.transaction():
            self._database.execute("UPDATE federation SET stop = ? WHERE stop = ''", (reason,))

    @property
    def posterior(self) -> Any:
        """The current q."""
        return self._posterior(self._federation())

    @property
    def version(self) -> int:
        """How many releases q has seen."""
        return int(self._federation()["version"])

    def factors(self) -> Any:
        """Return the factors of all sites, stacked in the order of `names`."""
        stored = [unpack(self._unit, row["factor"]) for row in self._sites()]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *stored)

    def snapshot(self) -> Snapshot:
        """Return all that belongs together, read in one transaction: sites may release while somebody reads."""
        with self._database.transaction():
            sites, factors, federation = self.sites(), self.factors(), self._federation()
        return Snapshot(sites, factors, self._posterior(federation), federation["version"], federation["stop"])

    def sites(self) -> list[dict[str, Any]]:
        """Return what is known of every site, as plain values."""
        found = []
        for row in self._sites():
            declared = json.loads(row["declared"]) if row["declared"] else {}
            kept = {key: row[key] for key in row.keys() if key not in ("factor", "digest", "declared")}  # noqa: SIM118
            said = {key: declared.get(key) for key in ("rows", "epsilon", "epsilon_max", "delta", "events")}
            found.append({**kept, **said})
        return found

    def sequence(self, name: str) -> int:
        """Return the number of a site's last release that was applied."""
        return int(self._site(name)["sequence"])

    def applied(self) -> list[tuple[str, int, str, int]]:
        """Return site, number, digest, and version of q that it was made from, of all updates in their order."""
        rows = self._database.execute("SELECT site, sequence, digest, based_on FROM applied ORDER BY version")
        return [tuple(row) for row in rows]

    def updates(self, most: int = 2000) -> list[tuple[int, float, str, float]]:
        """Return version, time, site and change of the updates applied, thinned to about so many; the last is there."""
        every = max(math.ceil(self.version / most), 1)
        rows = self._database.execute(
            "SELECT version, time, site, change FROM applied "
            "WHERE version % ? = (SELECT max(version) FROM applied) % ? ORDER BY version",
            (every, every),
        )
        return [tuple(row) for row in rows]

    def refusals(self, last: int = 50) -> list[dict[str, Any]]:
        """Return the newest refusals, the newest first."""
        rows = self._database.execute(
            "SELECT time, site, error, reason FROM refusals ORDER BY number DESC LIMIT ?", (last,)
        )
        return [dict(row) for row in rows]

    def verify(self) -> float:
        """Return how far the stored product is from that of the stored factors: the largest relative difference.

        Raises `InputError` if the updates that were applied and those that the sites' rows count are not the same.
        """
        with self._database.transaction():
            for row in self._sites():
                counted = self._database.execute("SELECT sequence FROM applied WHERE site = ?", (row["name"],))
                if sorted(each["sequence"] for each in counted) != list(range(1, row["updates"] + 1)):
                    raise InputError(f"{self._database.path}: updates of {row['name']!r} are missing. Restore a copy.")
            federation, factors = self._federation(), self.factors()
            stored = [unpack(self._unit, federation[part]) for part in ("product", "lost")]
        total, scale = (jax.tree.map(lambda leaf, f=f: f(np.asarray(leaf, np.float64)), factors) for f in (_sum, _size))
        product = jax.tree.map(lambda *parts: sum(np.asarray(part, np.float64) for part in parts), *stored)
        leaves = zip(*map(jax.tree.leaves, (total, product, scale)), strict=True)
        return float(np.max([np.max(np.abs(one - other) / size) for one, other, size in leaves]))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @cached_property
    def _spec(self) -> Spec:
        return self.project.spec

    @cached_property
    def _unit(self) -> Any:
        return self._spec.algorithm.first_factor(self._spec.prior)

    def _posterior(self, federation: Any) -> Any:
        product, lost = (unpack(self._unit, federation[part]) for part in ("product", "lost"))
        return _posterior(self._spec.prior, product, lost)

    def _federation(self) -> sqlite3.Row:
        row = self._database.one("SELECT * FROM federation")
        if row is None:
            raise InputError(f"{self._database.path} holds no federation. Restore its newest copy.")
        return row

    def _sites(self) -> list[sqlite3.Row]:
        return self._database.execute("SELECT * FROM sites ORDER BY rowid")

    def _site(self, name: str) -> sqlite3.Row:
        row = self._database.one("SELECT * FROM sites WHERE name = ?", (name,))
        if row is None:
            raise UnknownClient(f"Unknown site {name!r}; known are {', '.join(self.names)}.")
        return row

    def _set(self, name: str, **values: Any) -> None:
        columns = ", ".join(f"{column} = ?" for column in values)
        self._database.execute(f"UPDATE sites SET {columns} WHERE name = ?", (*values.values(), name))


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
