"""The coordinator's file: every site's answers, the questions, what was read when, and what was refused.

    q = read(prior, questions, sum of all sites' answers)      `verify` reads all of it again

    federation   one row: the description, the questions and what the last reading says, when it began, stop
    sites        one row each: its answers, the number of the last one, what it says about itself
    applied      every answer, in the order in which they came; readings: of how many answers q was read, and when
    refusals     the newest

An answer that was taken never changes. So it is known of every reading which answers it has seen, whoever came late.
Several processes may have the file open: nothing that matters is kept in memory.
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
from fedvi.federation.description import Description
from fedvi.federation.names import base_name, check_name
from fedvi.federation.store.records import ABSENT, FORMAT, MIGRATIONS, SCHEMA, Applied, Reading, Refusal, SiteRecord
from fedvi.federation.store.turns import Turn
from fedvi.federation.wire import FINISHED, LEFT, Declared, pack, unpack
from fedvi.inference.asking import Asked
from fedvi.inference.server import ServerState
from fedvi.pytree import stack, tree_map
from fedvi.sqlite import Database, OfDatabase

FILE = "coordinator.db"
THERE = "withdrawn IS NULL"
"""Which sites take part."""


class CoordinatorFile(OfDatabase):
    """The file, open. Threads and processes may share it."""

    _known: tuple[int, Asked] | None = None

    @classmethod
    def create(cls, path: Path, description: Description) -> Self:
        """Make the file of a federation that nobody has joined yet: q is the prior."""
        spec = description.spec
        unit = pack(spec.algorithm.first_factor(spec.prior))
        first = pack(spec.algorithm.first_asked(spec.model, spec.prior))

        def fill(database: Database) -> None:
            noise = planned_noise(description)
            database.insert("federation", (description.to_text(), 0, first, 0, None, "", noise, 0, ""))
            for site in description.sites:
                _add_site(database, site, unit)

        return cls(Database.create(path, SCHEMA, fill))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing file. A model of one's own may be in its folder or in the current directory."""
        for folder in (path.parent, Path()):
            search(folder)
        file = cls(Database.open(path).of_format("the file of a coordinator", FORMAT, migrations=MIGRATIONS))
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
        number = "SELECT ifnull(max(number), 0) FROM readings"
        if self._known is None or self._known[0] != self._database.only(number)[0]:
            found, asked = self._database.only(f"SELECT ({number}), asked FROM federation")
            self._known = found, unpack(self.first, asked)
        return self._known[1]

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
            if (base := base_name(name)) != name and base not in self.names:
                raise InputError(
                    f"Expected {name!r} to be a table of a site that takes part, got none called {base!r}."
                )
            _add_site(self._database, name, pack(self._unit))
            self._database.execute("UPDATE federation SET stop = ''")  # what was over goes on from where it is

    def change_site(self, name: str, **columns: Any) -> None:
        """Write columns of a site: keys, invitations."""
        with self._database.transaction():
            self.site(name)
            self._database.update("sites", columns, "WHERE name = ?", name)

    def withdraw(self, names: Sequence[str], refresh: int, time_now: float) -> None:
        """Take the answers of sites out of q, from the next reading on, and let so many questions more be asked."""
        with self._database.transaction():
            (last,) = self._database.only("SELECT ifnull(max(number), 0) FROM readings")
            for name in names:
                if self.site(name).withdrawn is not None:
                    raise InputError(f"{name!r} was withdrawn already.")
                changes = {"withdrawn": time_now, "withdrawn_after": last, "invitation": None}
                self._database.update("sites", changes, "WHERE name = ?", name)
            if refresh:
                self._database.execute("UPDATE federation SET refresh = refresh + ?, stop = ''", (refresh,))

    @property
    def most_questions(self) -> int:
        """How many questions may be asked: those that are planned, but for what is left of the reserve."""
        (refresh,) = self._database.only("SELECT refresh FROM federation")
        return min(
            self.description.spec.updates - self.description.reserve + int(refresh), self.description.spec.updates
        )

    @property
    def problem(self) -> str:
        """Why the last answers could not be read; empty if they could."""
        return str(self._database.only("SELECT problem FROM federation")[0])

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

    def counted(self) -> Messages:
        """Return the answers of all sites, those of withdrawn ones replaced by none."""
        factors, withdrawn = self.factors(), self.withdrawn
        return first_of(factors, [0 if name in withdrawn else factors.rows.shape[1] for name in self.names])

    @property
    def withdrawn(self) -> tuple[str, ...]:
        """The sites that were withdrawn."""
        rows = self._database.execute("SELECT name FROM sites WHERE withdrawn IS NOT NULL ORDER BY rowid")
        return tuple(name for (name,) in rows)

    def at_once(self) -> AbstractContextManager[None]:
        """Return what makes all that is read within it belong together: sites may release while somebody reads."""
        return self._database.reading()

    def together(self) -> AbstractContextManager[None]:
        """Return what makes all that is written within it one transaction."""
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
        """Return where every site is that was not withdrawn."""
        rows = self._database.execute(f"SELECT name, state, sequence, last_seen FROM sites WHERE {THERE}")
        return [Turn(*row) for row in rows]

    def applied(self) -> list[Applied]:
        """Return the answers in the order in which they were taken."""
        return self._database.records(Applied, "applied", "ORDER BY version")

    def readings(self) -> list[Reading]:
        """Return all readings in their order."""
        return self._database.records(Reading, "readings", "ORDER BY number")

    def refusals(self, last: int = 50) -> list[Refusal]:
        """Return the newest refusals, the newest first."""
        return self._database.records(Refusal, "refusals", "ORDER BY number DESC LIMIT ?", (last,))

    def read(self, factors: Messages, asked: Asked, version: int, *, more: bool = True) -> Asked:
        """Return what is read out of stacked answers to the questions, with the next question if `more` are asked."""
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
        found: Asked = spec.algorithm.asked_next(spec.model, state, more=more)
        return found

    @cached_property
    def _unit(self) -> Messages:
        return self.description.spec.algorithm.first_factor(self.description.spec.prior)

    @cached_property
    def first(self) -> Asked:
        """The first question, before anybody has answered."""
        spec = self.description.spec
        first: Asked = spec.algorithm.first_asked(spec.model, spec.prior)
        return first

    def _factor(self, name: str) -> Messages:
        return unpack(self._unit, self._database.only("SELECT factor FROM sites WHERE name = ?", (name,))[0])


def planned_noise(description: Description) -> float:
    """Return the standard deviation of the noise in an answer of a site with the suggested budget and its share."""
    spec, share, budget = description.spec, *description.share
    noise = spec.algorithm.calibrated(spec.prior, budget, share, spec.updates).protection.noise_multiplier
    assert noise is not None
    return float(noise)


def _declared(stored: Any) -> Declared | None:
    return stored and msgspec.json.decode(stored, type=Declared)


def _add_site(database: Database, name: str, unit: bytes) -> None:
    database.insert("sites", (name, ABSENT, 0, unit, "", None, None, 0, 0, None, 0, None, 0.0, None, None))


def first_of(factors: Messages, counts: Sequence[int]) -> Messages:
    """Return so many first answers of every site, and nothing of the others."""
    kept = np.arange(factors.rows.shape[1]) < np.array(counts)[:, None]
    return Messages(factors.sums * kept[..., None], factors.noise * kept, factors.rows * kept)
