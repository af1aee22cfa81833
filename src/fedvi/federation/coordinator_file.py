"""The coordinator's file: every site's answers, the questions, what was read when, and what was refused.

    q = read(prior, questions, sum of all sites' answers)      `verify` reads all of it again

    federation   one row: the description, the questions and what the last reading says, when it began, stop
    sites        one row each: its answers, the number of the last one, what it says about itself
    applied      every answer, in the order in which they came; readings: of how many answers q was read, and when
    refusals     the newest

An answer that was taken never changes. So it is known of every reading which answers it has seen, whoever came late.
Several processes may have the file open, one per site's job: nothing that matters is kept in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import msgspec
import numpy as np

from fedvi.config import search
from fedvi.errors import InputError, UnknownClient
from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.federation.description import Description, check_name
from fedvi.federation.records import ABSENT, Applied, Reading, Refusal, SiteRecord
from fedvi.federation.turns import Turn
from fedvi.federation.wire import FINISHED, LEFT, Declared, pack, unpack
from fedvi.inference.asking import Asked
from fedvi.inference.questions import Question
from fedvi.inference.server import ServerState
from fedvi.pytree import leaves, stack, take, tree_map
from fedvi.sqlite import Database, OfDatabase

FILE = "coordinator.db"
FORMAT = 3
SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE federation (
    description TEXT NOT NULL, version INTEGER NOT NULL, asked BLOB NOT NULL, begun INTEGER NOT NULL,
    started REAL, stop TEXT NOT NULL
) STRICT;
CREATE TABLE sites (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, sequence INTEGER NOT NULL, factor BLOB NOT NULL, digest TEXT NOT NULL,
    declared TEXT, last_seen REAL, repeated INTEGER NOT NULL, refused INTEGER NOT NULL
) STRICT;
CREATE TABLE applied (
    version INTEGER PRIMARY KEY, site TEXT NOT NULL, sequence INTEGER NOT NULL, time REAL NOT NULL,
    digest TEXT NOT NULL, UNIQUE (site, sequence)
) STRICT;
CREATE TABLE readings (
    number INTEGER PRIMARY KEY, version INTEGER NOT NULL, asked INTEGER NOT NULL, change REAL NOT NULL,
    arrived REAL NOT NULL, enough REAL NOT NULL, time REAL NOT NULL
) STRICT;
CREATE TABLE refusals (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, site TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL
) STRICT
"""


class CoordinatorFile(OfDatabase):
    """The file, open. Threads and processes may share it."""

    @classmethod
    def create(cls, path: Path, description: Description) -> Self:
        """Make the file of a federation that nobody has joined yet: q is the prior."""
        spec = description.spec
        unit = pack(spec.algorithm.first_factor(spec.prior))
        first = pack(spec.algorithm.first_asked(spec.model, spec.prior))

        def fill(database: Database) -> None:
            database.insert("federation", (description.to_text(), 0, first, 0, None, ""))
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
        """Whether the federation has ended, and every site that ever took part knows it."""
        return bool(self.stop) and {site.state for site in self.turns()} <= {FINISHED, LEFT, ABSENT}

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
        """How many answers were taken."""
        return int(self._database.only("SELECT version FROM federation")[0])

    @property
    def asked(self) -> Asked:
        """The questions, and what was read out of the answers last."""
        return unpack(self._first, self._database.only("SELECT asked FROM federation")[0])

    @property
    def posterior(self) -> GaussianFamily:
        """The q of the last reading."""
        return self.asked.posterior

    def add_site(self, name: str) -> None:
        """Let one more site take part."""
        check_name("a site's name", name)
        with self._database.transaction():
            if name in self.names:
                raise InputError(f"Expected a new site, got {name!r}, which takes part already.")
            _add_site(self._database, name, pack(self._unit))

    @property
    def begun(self) -> bool:
        """Whether the first question is given out to whoever asks."""
        return bool(self._database.only("SELECT begun OR version > 0 FROM federation")[0])

    def begin(self) -> None:
        """Give out the first question, whoever is missing."""
        self._database.execute("UPDATE federation SET begun = 1")

    def end(self, reason: str) -> None:
        """End the federation: sites are told so when they ask next, and answer nothing more."""
        self._database.execute("UPDATE federation SET stop = ? WHERE stop = ''", (reason,))

    def factors(self) -> Messages:
        """Return the answers of all sites, stacked in the order of `names`."""
        stored = self._database.execute("SELECT factor FROM sites ORDER BY rowid")
        stacked: Messages = stack([unpack(self._unit, factor) for (factor,) in stored])
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

    def turns(self) -> list[Turn]:
        """Return where every site is."""
        return [Turn(*row) for row in self._database.execute("SELECT name, state, sequence, last_seen FROM sites")]

    def applied(self) -> list[Applied]:
        """Return the answers in the order in which they were taken."""
        return self._database.records(Applied, "applied", "ORDER BY version")

    def readings(self) -> list[Reading]:
        """Return all readings in their order."""
        return self._database.records(Reading, "readings", "ORDER BY number")

    def refusals(self, last: int = 50) -> list[Refusal]:
        """Return the newest refusals, the newest first."""
        return self._database.records(Refusal, "refusals", "ORDER BY number DESC LIMIT ?", (last,))

    def verify(self) -> float:
        """Read all answers again, as often as they were read; return how far q is from that which is stored.

        That is KL(stored q || q read again), in nats. Raises `InputError` if a question is not the one that follows
        from the answers that were there when it was asked, or if answers are missing.
        """
        with self._database.transaction():
            applied, sites, factors, asked, readings = (
                self.applied(),
                self.sites(),
                self.factors(),
                self.asked,
                self.readings(),
            )
        damaged = f"{self._database.path} contradicts itself: {{}}. Restore a copy."
        numbers = {site.name: [each.sequence for each in applied if each.site == site.name] for site in sites}
        for place, site in enumerate(sites):
            answered = int(take(factors, place).answered)
            if numbers[site.name] != list(range(1, answered + 1)) or answered != site.sequence:
                raise InputError(damaged.format(f"updates of {site.name!r} are missing"))
        again, count = self._first, 1
        for reading in readings:
            seen = [sum(each.site == site.name for each in applied[: reading.version]) for site in sites]
            again = self.read(_first_of(factors, seen), asked, reading.version)
            if reading.asked > count:
                count, made = reading.asked, take(again.questions, reading.asked - 1)
                if not _alike(made, take(asked.questions, reading.asked - 1)):
                    raise InputError(damaged.format(f"question {count} is not that which follows from the answers"))
        if count != int(asked.count):
            raise InputError(damaged.format(f"{asked.count} questions are there, and {count} were asked"))
        return float(asked.posterior.kl(again.posterior))

    def read(self, factors: Messages, asked: Asked, version: int) -> Asked:
        """Return what is read out of stacked answers to the questions, with the next question if there is one."""
        spec, made = self.description.spec, cast(Any, ServerState)  # of NumPy's arrays
        total = tree_map(lambda leaf: np.sum(np.asarray(leaf, np.float64), axis=0), factors)
        state = made(
            prior=spec.prior,
            factors=factors,
            sequence=factors.answered,
            product=total,
            lost=total**0,
            version=version,
            asked=dataclasses.replace(asked, count=total.answered),
        )
        found: Asked = spec.algorithm.asked_next(spec.model, state)
        return found

    @cached_property
    def _unit(self) -> Messages:
        return self.description.spec.algorithm.first_factor(self.description.spec.prior)

    @cached_property
    def _first(self) -> Asked:
        spec = self.description.spec
        first: Asked = spec.algorithm.first_asked(spec.model, spec.prior)
        return first

    def _factor(self, name: str) -> Messages:
        return unpack(self._unit, self._database.only("SELECT factor FROM sites WHERE name = ?", (name,))[0])


def _declared(stored: Any) -> Declared | None:
    return stored and msgspec.json.decode(stored, type=Declared)


def _add_site(database: Database, name: str, unit: bytes) -> None:
    database.insert("sites", (name, ABSENT, 0, unit, "", None, None, 0, 0))


def _first_of(factors: Messages, counts: Sequence[int]) -> Messages:
    """Return so many first answers of every site, and nothing of the others."""
    kept = np.arange(factors.rows.shape[1]) < np.array(counts)[:, None]
    return Messages(factors.sums * kept[..., None], factors.noise * kept, factors.rows * kept)


def _alike(one: Question, other: Question) -> bool:
    """Tell whether questions are the same but for rounding, which may differ between machines."""
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-4 * (1e-30 + np.max(np.abs(b)))) for a, b in pairs)
