"""A site's file: its last release until it is acknowledged, and which entry of the ledger paid for each release.

One row; the process at work writes all of it but `wanted`, which people write by `fedvi site pause`, `resume` or
`leave` while it works.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fedvi.checks import one_of
from fedvi.errors import InputError, SiteRefused
from fedvi.federation.wire import LEFT, PAUSED, WORKING
from fedvi.privacy.ledger.entries import CHARGE, Book
from fedvi.sqlite import Database, OfDatabase

FORMAT = 4
SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE site (
    federation TEXT NOT NULL, ledger TEXT NOT NULL, wanted TEXT NOT NULL, said TEXT NOT NULL, releases INTEGER NOT NULL,
    state BLOB, before BLOB, pending BLOB, version INTEGER NOT NULL, heard REAL,
    stop TEXT NOT NULL, note TEXT NOT NULL, failed TEXT NOT NULL, news TEXT NOT NULL, latency REAL, remaining INTEGER
) STRICT;
CREATE TABLE paid (release INTEGER PRIMARY KEY, entry INTEGER NOT NULL) STRICT
"""

MOST_LOST = 5
"""Answers in a row that were paid for and never kept, after which a site stops: a service would pay for ever."""


@dataclasses.dataclass(frozen=True)
class SiteState:
    """Where a site is.

    federation, ledger: identities. wanted: what people want: working, paused or left. said: what the coordinator knows.
    releases: how many were made. state, before: the client's state, now and before the pending release, packed.
    pending: bytes that were not acknowledged yet.
    version, heard, stop: how many answers the coordinator had, time and reason to stop, of its last answer.
    note, failed: what is wrong now; why the site stopped. news: what the coordinator tells the people here.
    latency: seconds from sending to the answer. remaining: answers that the ledger admits; None before it was opened.
    """

    federation: str
    ledger: str
    wanted: str = WORKING
    said: str = ""
    releases: int = 0
    state: bytes | None = None
    before: bytes | None = None
    pending: bytes | None = None
    version: int = 0
    heard: float | None = None
    stop: str = ""
    note: str = ""
    failed: str = ""
    news: str = ""
    latency: float | None = None
    remaining: int | None = None


class SiteFile(OfDatabase):
    """The file, open. The process at work and the commands of people may have it open at once."""

    _known: tuple[int, SiteState] | None = None

    @classmethod
    def create(cls, path: Path, federation: str, ledger: str) -> SiteFile:
        """Make the file of a site that has released nothing yet."""
        values = dataclasses.astuple(SiteState(federation, ledger))
        return cls(Database.create(path, SCHEMA, lambda made: made.insert("site", values)))

    @classmethod
    def open(cls, path: Path) -> SiteFile:
        """Open an existing file."""
        return cls(Database.open(path).of_format("the file of a site", FORMAT))

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._database.path

    def load(self) -> SiteState:
        """Return where the site is."""
        (version,) = self._database.only("PRAGMA data_version")  # another one if others have written
        if self._known is None or self._known[0] != version:
            states = self._database.records(SiteState, "site")
            if not states:
                raise InputError(f"{self._database.path} holds no site. Restore its newest copy.")
            self._known = int(version), states[0]
        return self._known[1]

    def commit(self, state: SiteState, paid_by: int | None = None) -> None:
        """Write where the site is, but for what people want.

        paid_by: the ledger's entry for a new release, which is on disk when this returns. What else is written may get
        lost with the machine's power, and then only means that something is sent again.
        """
        own = {name: value for name, value in vars(state).items() if name != "wanted"}
        self._database.execute(f"PRAGMA synchronous = {'NORMAL' if paid_by is None else 'FULL'}")
        self._known = None
        with self._database.transaction():
            self._database.update("site", own)
            if paid_by is not None:
                self._database.execute("INSERT OR REPLACE INTO paid VALUES (?, ?)", (state.releases, paid_by))

    def want(self, wanted: str) -> None:
        """Write what people want: working, paused or left.

        A problem that stopped the site is forgotten, and so is the end: the coordinator may have gone on since.
        """
        one_of("wanted", wanted, (WORKING, PAUSED, LEFT))
        self._known = None
        with self._database.transaction():
            self._database.update("site", {"wanted": wanted, "failed": "", "stop": ""})

    def payments(self) -> dict[int, int]:
        """Return by the number of a release which entry of the ledger was to pay for it; 0: which was looked at."""
        return {int(release): int(entry) for release, entry in self._database.execute("SELECT * FROM paid")}

    def stop_if_lost(self, book: Book, purpose: str) -> None:
        """Raise if the last answers for this purpose were paid for and lost; who joins again may try as often again."""
        last = max(self.payments().values(), default=0)
        since = [entry.body for entry in book.entries[last + 1 :] if entry.kind == CHARGE]
        if sum(body.get("purpose") == purpose for body in since) < MOST_LOST:
            return
        with self._database.transaction():
            self._database.execute("INSERT OR REPLACE INTO paid VALUES (0, ?)", (book.head.number,))
        raise SiteRefused(
            f"The last {MOST_LOST} answers were paid for and lost before they were kept in {self.path}. Look at disk, "
            "memory and log, and join again when it is mended."
        )
