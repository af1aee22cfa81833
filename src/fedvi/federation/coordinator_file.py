"""The coordinator's file: every site's factor, their product, and what was applied and refused when.

    q = prior * t_1 * ... * t_M        always, whatever was killed when: a release changes factor and product in one
                                       transaction, and `verify` adds the factors up again

    federation   one row: the description, the product of all factors and what its rounding lost, when it began, stop
    sites        one row each: factor, number of its last release, what it says about itself
    applied      every update; refusals: the newest

Several processes may have the file open, one per site's job: nothing that matters is kept in memory.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from fedvi.config import search
from fedvi.errors import InputError, UnknownClient
from fedvi.families.base import Factor, GaussianFamily
from fedvi.federation.description import Description, check_name
from fedvi.federation.wire import FINISHED, LEFT, Declared, pack, unpack
from fedvi.pytree import leaves, stack
from fedvi.sqlite import Database, OfDatabase

FILE = "coordinator.db"
ABSENT = "absent"
"""State of a site that was never heard of."""

FORMAT = 2
SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE federation (
    description TEXT NOT NULL, version INTEGER NOT NULL, product BLOB NOT NULL, lost BLOB NOT NULL,
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
    number INTEGER PRIMARY KEY, time REAL NOT NULL, site TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL
) STRICT
"""


@dataclasses.dataclass(frozen=True)
class SiteRecord:
    """What is known of a site.

    state: as it said last. calm: updates in a row that changed q little. sequence, digest: of its last release.
    width: the number of its final release; None before. staleness: updates of others that its last one had not seen.
    repeated, refused: how many messages. declared: None before the site was heard of.
    """

    name: str
    state: str = ABSENT
    calm: int = 0
    sequence: int = 0
    digest: str = ""
    width: float | None = None
    updates: int = 0
    staleness: int | None = None
    last_seen: float | None = None
    repeated: int = 0
    refused: int = 0
    declared: Declared | None = None


@dataclasses.dataclass(frozen=True)
class Applied:
    """An update that was applied. based_on: version of q that it was made from. change: KL(new q || old q), nats."""

    version: int
    site: str
    sequence: int
    based_on: int
    change: float
    time: float
    digest: str


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A message that was refused."""

    time: float
    site: str
    code: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Product:
    """The product of all factors, what its rounding lost, and how many updates it has seen."""

    product: Factor
    lost: Factor
    version: int
    stop: str


class CoordinatorFile(OfDatabase):
    """The file, open. Threads and processes may share it."""

    @classmethod
    def create(cls, path: Path, description: Description) -> Self:
        """Make the file of a federation that nobody has joined yet: q is the prior."""
        spec = description.spec
        unit = pack(spec.algorithm.first_factor(spec.prior))

        def fill(database: Database) -> None:
            database.insert("federation", (description.to_text(), 0, unit, unit, None, ""))
            for site in description.sites:
                _add_site(database, site, unit)

        return cls(Database.create(path, SCHEMA, fill))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing file. A model of one's own may be in its folder or in the current directory."""
        for folder in (path.parent, Path()):
            search(folder)
        file = cls(Database.open(path).of_format("the file of a coordinator", FORMAT))
        try:
            _ = file.description
        except (InputError, ValueError, KeyError, TypeError) as error:
            file.close()
            raise InputError(f"{path} is no file of a coordinator, or damaged: {error}. Restore its copy.") from None
        return file

    @cached_property
    def description(self) -> Description:
        """What the federation agreed on. Its list of sites is that of the day it began; `names` has all."""
        return Description.from_text(self._database.only("SELECT description FROM federation")[0])

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
        return str(self._database.only("SELECT stop FROM federation")[0])

    @property
    def started(self) -> float | None:
        """When the first release was applied, in seconds since the epoch; None before."""
        return self._database.only("SELECT started FROM federation")[0]

    @property
    def version(self) -> int:
        """How many releases q has seen."""
        return int(self._database.only("SELECT version FROM federation")[0])

    @property
    def posterior(self) -> GaussianFamily:
        """The current q."""
        return self._posterior(self._product())

    def add_site(self, name: str) -> None:
        """Let one more site take part."""
        check_name("a site's name", name)
        with self._database.transaction():
            if name in self.names:
                raise InputError(f"Expected a new site, got {name!r}, which takes part already.")
            _add_site(self._database, name, pack(self._unit))

    def end(self, reason: str) -> None:
        """End the federation: sites are told so, and make their final release."""
        self._database.execute("UPDATE federation SET stop = ? WHERE stop = ''", (reason,))

    def factors(self) -> Factor:
        """Return the factors of all sites, stacked in the order of `names`."""
        stored = self._database.execute("SELECT factor FROM sites ORDER BY rowid")
        stacked: Factor = stack([unpack(self._unit, factor) for (factor,) in stored])
        return stacked

    def at_once(self) -> AbstractContextManager[None]:
        """Return what makes all that is read within it belong together: sites may release while somebody reads."""
        return self._database.transaction()

    def sites(self) -> tuple[SiteRecord, ...]:
        """Return what is known of every site."""
        return self._sites("ORDER BY rowid")

    def site(self, name: str) -> SiteRecord:
        """Return what is known of one site, or raise `UnknownClient`."""
        for site in self._sites("WHERE name = ?", name):
            return site
        raise UnknownClient(f"Unknown site {name!r}; known are {', '.join(self.names)}.")

    def _sites(self, rest: str, *values: str) -> tuple[SiteRecord, ...]:
        found = self._database.records(SiteRecord, "sites", rest, values)
        return tuple(dataclasses.replace(each, declared=_declared(each.declared)) for each in found)

    def states(self) -> list[tuple[str, int]]:
        """Return of every site its state, and how many of its updates in a row changed q little."""
        return [(state, calm) for state, calm in self._database.execute("SELECT state, calm FROM sites")]

    def applied(self, most: int | None = None) -> list[Applied]:
        """Return the updates in their order; thinned to about so many, the last among them, if a number is given."""
        every = 1 if most is None else max(math.ceil(self.version / most), 1)
        thinned = "WHERE version % ? = (SELECT max(version) FROM applied) % ? ORDER BY version"
        return self._database.records(Applied, "applied", thinned, (every, every))

    def refusals(self, last: int = 50) -> list[Refusal]:
        """Return the newest refusals, the newest first."""
        return self._database.records(Refusal, "refusals", "ORDER BY number DESC LIMIT ?", (last,))

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
        parts = zip(*map(leaves, (factors, now.product, now.lost)), strict=True)
        return float(np.max([_difference(*(np.asarray(part, np.float64) for part in each)) for each in parts]))

    @cached_property
    def _unit(self) -> Factor:
        return self.description.spec.algorithm.first_factor(self.description.spec.prior)

    def _posterior(self, now: Product) -> GaussianFamily:
        q: GaussianFamily = (now.product * now.lost).posterior(self.description.spec.prior)
        return q

    def _product(self) -> Product:
        product, lost, version, stop = self._database.only("SELECT product, lost, version, stop FROM federation")
        return Product(unpack(self._unit, product), unpack(self._unit, lost), version, stop)

    def _factor(self, name: str) -> Factor:
        return unpack(self._unit, self._database.only("SELECT factor FROM sites WHERE name = ?", (name,))[0])


def _declared(stored: Any) -> Declared | None:
    return stored and msgspec.json.decode(stored, type=Declared)


def _add_site(database: Database, name: str, unit: bytes) -> None:
    database.insert("sites", (name, ABSENT, 0, 0, unit, "", None, 0, None, None, None, 0, 0))


def _difference(factors: np.ndarray, product: np.ndarray, lost: np.ndarray) -> float:
    """Return the largest relative difference of the factors' sum and what is stored as it."""
    return float(np.max(np.abs(factors.sum(axis=0) - (product + lost)) / (1 + np.abs(factors).sum(axis=0))))
