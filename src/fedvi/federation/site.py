"""The durable site: what to send next, and what to do with the answer, through every crash.

    charge the ledger -> compute -> commit the bytes of the release -> send -> commit that it was acknowledged

A site numbers its releases. What was committed is sent until it is acknowledged, always the same bytes: no new noise,
no new spending. A site that is killed before the commit has paid for something that nobody will see.

The site alone decides what it spends, by its own ledger. The coordinator may say anything: a q that is none, another
history, the end. At worst the site stops.

    working   releases until its updates are spent or the federation ends
    spent     waits for the end; then releases one number for the posterior's width, and is
    finished
    paused    answers, and releases nothing; left: says so and goes. Both are wishes of people at the site
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.checks import one_of
from fedvi.compiling import jnp
from fedvi.errors import BudgetClosed, FedviError, ImproperError, InputError, MalformedRelease, NotReached, SiteRefused
from fedvi.federation.description import Description
from fedvi.federation.wire import (
    FACTOR,
    FINISHED,
    LARGEST_HEADER,
    LEFT,
    MOST_EVENTS,
    PAUSED,
    POLL,
    REFUSED,
    SPENT,
    WIDTH,
    WORKING,
    Answer,
    Arrays,
    Declared,
    Request,
    arrays_of,
    decode,
    encode,
    pack,
    size_of,
    tree_of,
    unpack,
)
from fedvi.files import Closing
from fedvi.inference import spec as recipes
from fedvi.inference.local_problem import Public
from fedvi.inference.private_client import PrivateClient, declared_rows
from fedvi.inference.rows import CheckedTable
from fedvi.inference.update import Release, init_client
from fedvi.models.width import rows_at
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import to_json
from fedvi.privacy.ledger.overlap import Sketch
from fedvi.privacy.sums import BoundedSum, part_of
from fedvi.sqlite import Database

SCHEMA = """
CREATE TABLE site (
    federation TEXT NOT NULL, ledger TEXT NOT NULL, wanted TEXT NOT NULL, said TEXT NOT NULL, releases INTEGER NOT NULL,
    state BLOB, before BLOB, pending BLOB, width INTEGER NOT NULL, version INTEGER NOT NULL, heard REAL,
    stop TEXT NOT NULL, note TEXT NOT NULL, failed TEXT NOT NULL, latency REAL
) STRICT;
CREATE TABLE paid (release INTEGER PRIMARY KEY, entry INTEGER NOT NULL) STRICT
"""

HARMLESS = ("NonFiniteRelease", "AbsurdRelease", "ImproperRelease")
"""Refusals of one release, after which another may be accepted."""

MOST_REFUSALS = 3
"""Releases refused in a row after which a site stops: each has cost privacy."""

DECLARED_EVERY = 1.0
"""Seconds between accounts of what was spent, which take some milliseconds each."""


class Site(Closing):
    """A site at work: its rows, ledger and file. `request` and `receive` in turns; see `fedvi.federation.work`."""

    def __init__(self, project: Description, database: Database, private: PrivateClient, width: BoundedSum):
        self._project, self._database, self._private, self._width = project, database, private, width
        self._refusals = 0
        self._q: Any = None
        self._saying = ""
        self._declared: tuple[float, Declared] | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        project: Description,
        table: CheckedTable,
        budget: Budget,
        ledger: Path,
        accept: tuple[str, ...] = (),
        public_rows: int | None = None,
        sketch: Callable[[bytes], Sketch] | None = None,
    ) -> Site:
        """Open the site's file and ledger, or make them.

        budget: of the site's rows, whatever it is spent on. accept: see `Ledger.open`. public_rows: that the site
        declares. sketch: see `PrivateClient.open`.
        """
        recipe = project.spec
        declared = declared_rows(ledger, len(table[0]), public_rows)
        budget = budget.fixed(declared)
        width = part_of(budget, recipes.WIDTH)
        if path.exists():
            _check_federation(path, project)
        private = PrivateClient.open(
            ledger,
            table,
            recipe.model,
            recipe.algorithm,
            Public(recipe.prior, jnp.asarray(float(len(project.sites))), jnp.asarray(float(project.rows))),
            budget,
            public_rows=declared,
            feature_bound=project.schema.feature_bound,
            updates=project.updates,
            sums=(width,),
            schema=project.schema.digest,
            purpose=_purpose(project),
            sketch=sketch,
            accept=accept,
        )
        with contextlib.ExitStack() as undo:  # from here on, nobody else works for this site: the ledger is locked
            undo.callback(private.close)
            identity = private.ledger.book.entries[0].body["ledger"]
            database = Database.open(path) if path.exists() else _make(path, project.digest, identity)
            undo.callback(database.close)
            saved = read_site(database)
            if saved["ledger"] != identity:
                raise InputError(f"{path} goes with another ledger than {ledger}. Give both, or neither, of one site.")
            if saved["state"] is not None:
                private.state = unpack(private.state, saved["state"])
            undo.pop_all()
        return cls(project, database, private, width)

    def request(self) -> bytes | None:
        """Return what to send next, made and paid for if need be; None when there is nothing more to say."""
        site = read_site(self._database)
        if site["failed"]:
            return None
        if site["pending"] is not None:
            self._saying = FINISHED if site["width"] else WORKING
            return bytes(site["pending"])
        if site["wanted"] == LEFT:
            return None if site["said"] == LEFT else self._poll(site, LEFT)
        if site["said"] == FINISHED:
            return None
        if self._q is None:
            return self._poll(site, PAUSED if site["wanted"] == PAUSED else WORKING)
        if site["wanted"] == PAUSED:
            return self._poll(site, PAUSED)
        if site["stop"]:
            return self._last(site)
        if self.remaining == 0:
            return self._poll(site, SPENT)
        return self._update(site)

    def receive(self, data: bytes, seconds: float = 0.0) -> None:
        """Take the answer to the last request, which came after so many seconds.

        Raises `NotReached` if it is none, and `SiteRefused` if the coordinator and this site do not agree.
        """
        try:
            answer = decode(data, Answer, size_of(self._prior) + LARGEST_HEADER)
        except MalformedRelease as error:
            raise NotReached(f"The answer cannot be read: {error}") from None
        site = read_site(self._database)
        if answer.federation != self._project.digest:
            raise SiteRefused("The coordinator answers for another federation. Use the kit that it gave you.")
        if answer.kind == REFUSED:
            self._refused(answer, site)
        elif answer.applied != site["releases"]:
            raise SiteRefused(
                f"The coordinator has applied {answer.applied} releases of this site, which made {site['releases']}: "
                "its file or this site's is an older copy. Restore the newest one; nothing more is released."
            )
        else:
            self._q = self._checked(answer.arrays)
            if site["pending"] is not None:
                self._refusals = 0
            self._set(
                pending=None,
                before=None,
                said=self._saying,
                version=answer.version,
                heard=time.time(),
                stop=answer.stop,
                note="",
                latency=_smoothed(site["latency"], seconds) if site["before"] is not None else site["latency"],
            )

    @property
    def noticed(self) -> tuple[str, ...]:
        """What the people here should know about their rows."""
        return self._private.noticed

    @property
    def remaining(self) -> int:
        """How many updates are left: of the project's, and of what the ledger admits."""
        made = int(self._private.state.sequence)
        return max(min(self._private.remaining, self._project.updates - made), 0)

    @property
    def waiting(self) -> bool:
        """Whether the next request would only ask again."""
        site = read_site(self._database)
        asks = site["wanted"] == PAUSED or (self.remaining == 0 and not site["stop"])
        return asks and site["pending"] is None and site["wanted"] != LEFT

    def fail(self, reason: str) -> None:
        """Stop for good, until people have looked and joined again."""
        self._set(failed=reason[:2000])

    def close(self) -> None:
        """Close file and ledger."""
        self._private.close()
        self._database.close()

    def _update(self, site: sqlite3.Row) -> bytes:
        """Pay for an update, make it and commit its bytes; or ask, if the ledger admits none."""
        before, number, entry = self._private.state, site["releases"] + 1, self._next_entry
        if int(before.sequence) + 1 != number:
            raise SiteRefused(
                f"Expected to make release {number}, got {int(before.sequence) + 1}: the site's file is damaged. "
                "Restore its newest copy."
            )
        try:
            release: Release = self._private.update(self._q)
        except BudgetClosed:
            return self._poll(site, SPENT)
        try:
            data = encode(self._message(FACTOR, number, site["version"], WORKING, arrays_of(release.factor)))
            state = pack(self._private.state)
            self._set(paid_by=entry, pending=data, before=pack(before), state=state, releases=number)
        except BaseException:  # paid for, and lost: such as on a full disk
            self._private.state = before
            raise
        self._saying = WORKING
        return data

    def _last(self, site: sqlite3.Row) -> bytes | None:
        """Release the number for the posterior's width, once; then there is nothing more to say."""
        numbers = rows_at(self._project.spec.model.width, np.asarray(self._q.mean))
        entry = self._next_entry
        try:
            total = self._private.release_sum(self._width, numbers, _purpose(self._project), average=True)
        except BudgetClosed:  # paid for before, and lost in a crash
            return self._poll(site, FINISHED)
        number = site["releases"] + 1
        arrays = {"0": np.asarray(total[0], np.float64)}
        data = encode(self._message(WIDTH, number, site["version"], FINISHED, arrays))
        self._set(paid_by=entry, pending=data, releases=number, width=1)
        self._saying = FINISHED
        return data

    def _poll(self, site: sqlite3.Row, state: str) -> bytes:
        self._saying = state
        return encode(self._message(POLL, site["releases"], site["version"], state, {}))

    def _message(self, kind: str, sequence: int, version: int, state: str, arrays: Arrays) -> Request:
        fresh = state != WORKING  # the last word is exact
        schema = self._project.schema.digest
        declared = self._spent(fresh)
        return Request(self._project.digest, schema, kind, sequence, version, state, declared, arrays)

    def _spent(self, fresh: bool) -> Declared:
        """Return what the ledger says was spent in this federation, as of at most a second ago.

        What the rows paid for elsewhere is nobody's business here; the number of rows is the declared one.
        """
        now = time.monotonic()
        if self._declared is None or fresh or now - self._declared[0] > DECLARED_EVERY:
            book = self._private.ledger.book
            own = book.by_purpose.get(_purpose(self._project), {})
            events = tuple({**to_json(event), "count": count} for event, count in list(own.items())[:MOST_EVENTS])
            epsilon = book.budget.spent(own) if own else 0.0
            rows = self._private.public_rows
            self._declared = now, Declared(rows, epsilon, book.budget.epsilon, float(book.budget.delta), events)
        return self._declared[1]

    def _refused(self, answer: Answer, site: sqlite3.Row) -> None:
        """Drop a release that was refused, or stop."""
        if answer.error in HARMLESS and site["before"] is not None and answer.applied == site["releases"] - 1:
            state = unpack(self._template, site["before"])
            self._set(
                pending=None, before=None, state=site["before"], releases=site["releases"] - 1, note=answer.reason
            )
            self._private.state, self._q = state, None
            self._refusals += 1
            if self._refusals < MOST_REFUSALS:
                return
        elif not answer.error or not _is_refusal(answer.error):
            raise NotReached(f"The coordinator cannot answer now: {answer.reason}")
        raise SiteRefused(f"The coordinator refuses: {answer.reason}")

    def _checked(self, arrays: Arrays) -> Any:
        try:
            q = tree_of(self._prior, arrays)
            self._private.check(q)
        except (MalformedRelease, ImproperError, InputError) as error:
            raise SiteRefused(f"The coordinator sent something that is no posterior to work with: {error}") from None
        return q

    @property
    def _next_entry(self) -> int:
        """Number of the ledger's next entry, which is to pay for the next release."""
        return self._private.ledger.book.head.number + 1

    def _set(self, paid_by: int | None = None, **values: Any) -> None:
        """Commit values; with a release, also which entry of the ledger was to pay for it."""
        columns = ", ".join(f"{column} = ?" for column in values)
        with self._database.transaction():
            self._database.execute(f"UPDATE site SET {columns}", tuple(values.values()))
            if paid_by is not None:
                self._database.execute("INSERT OR REPLACE INTO paid VALUES (?, ?)", (values["releases"], paid_by))

    @cached_property
    def _prior(self) -> Any:
        return self._project.spec.prior

    @cached_property
    def _template(self) -> Any:
        return init_client(self._project.spec.algorithm, self._prior)


def _purpose(project: Description) -> str:
    """Return what the ledger says that releases are for: which federation."""
    return f"federation {project.name} {project.digest[:16]}"


def read_site(database: Database) -> sqlite3.Row:
    """Return the one row of a site's file."""
    try:
        row = database.one("SELECT * FROM site")
    except sqlite3.DatabaseError as error:
        raise InputError(f"{database.path} is no file of a site, or damaged: {error}. Restore its copy.") from None
    if row is None:
        raise InputError(f"{database.path} holds no site. Restore its newest copy.")
    return row


def payments(database: Database) -> dict[int, int]:
    """Return by the number of a release which entry of the ledger was to pay for it."""
    return {row["release"]: row["entry"] for row in database.execute("SELECT * FROM paid")}


def want(path: Path, wanted: str) -> None:
    """Tell a site, at work or not, what its people want: working, paused or left."""
    one_of("wanted", wanted, (WORKING, PAUSED, LEFT))
    with Database.open(path) as database:
        read_site(database)
        with database.transaction():
            database.execute("UPDATE site SET wanted = ?, failed = ''", (wanted,))


def _check_federation(path: Path, project: Description) -> None:
    with Database.open(path) as database:
        if read_site(database)["federation"] != project.digest:
            raise InputError(f"{path} belongs to another federation. Give this one a file of its own.")


def _make(path: Path, federation: str, ledger: str) -> Database:
    values = (federation, ledger, WORKING, "", 0, None, None, None, 0, 0, None, "", "", "", None)

    def fill(database: Database) -> None:
        database.execute(f"INSERT INTO site VALUES ({', '.join('?' * len(values))})", values)

    return Database.create(path, SCHEMA, fill)


def _smoothed(before: float | None, seconds: float) -> float:
    """Return the mean over the last ten or so updates."""
    return seconds if before is None else 0.9 * before + 0.1 * seconds


def _is_refusal(name: str) -> bool:
    from fedvi import errors

    kind = getattr(errors, name, None)
    return isinstance(kind, type) and issubclass(kind, FedviError) and issubclass(kind, errors.ReleaseRefused)
