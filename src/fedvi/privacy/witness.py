"""A witness of every ledger, kept apart from it: how far the ledger has come.

A file cannot tell that it was replaced by an older copy of itself; something outside of it must remember. After every
entry its number and chain are written to a small file in the user's state directory (`FEDVI_STATE_DIR`, else
`$XDG_STATE_HOME/fedvi`, else `~/.local/state/fedvi`). A ledger that lacks an entry which its witness saw was rolled
back. A second copy of a ledger cannot be open at the same time, because both have the same witness.

What a witness cannot notice: ledger and witness both being set back, such as by restoring a whole machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import sqlite3
from pathlib import Path

from fedvi.errors import LedgerError
from fedvi.privacy import storage
from fedvi.privacy.book import Book, Entry

SCHEMA = """
CREATE TABLE ledger (path TEXT NOT NULL, salt TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE TABLE head (number INTEGER NOT NULL, chain TEXT NOT NULL);
"""


def state_directory() -> Path:
    """Return where witnesses live."""
    if given := os.environ.get("FEDVI_STATE_DIR"):
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "fedvi"


def fingerprint(salt: str, digest: str) -> str:
    """Return the fingerprint of data with this digest, keyed: nobody can test a guess of the data against it."""
    return hmac.new(bytes.fromhex(salt), digest.encode(), hashlib.sha256).hexdigest()


class Witness:
    """The witness of one ledger, locked while open."""

    def __init__(self, connection: sqlite3.Connection, path: Path):
        self._connection, self.path = connection, path

    @classmethod
    def create(cls, identity: str, ledger: Path, salt: str, fingerprint: str) -> Witness:
        """Make the witness of a new ledger."""
        path = _path(identity)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LedgerError(
                f"Cannot make {path.parent} for the ledger's witness: {error.strerror}. Set FEDVI_STATE_DIR."
            ) from error
        witness = cls(storage.create(path, SCHEMA), path)
        with storage.explained(path):
            witness._connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (str(ledger), salt, fingerprint))
            witness._connection.execute("INSERT INTO head VALUES (-1, '')")
        return witness

    @classmethod
    def open(cls, identity: str) -> Witness | None:
        """Open the witness of a ledger, or return None if there is none here."""
        path = _path(identity)
        return cls(storage.lock(path), path) if path.exists() else None

    def saw_more_than(self, book: Book) -> int | None:
        """Return the number of an entry that the witness saw and the book lacks, or None."""
        with storage.explained(self.path):
            return _missing(self._connection, book)

    def see(self, entry: Entry) -> None:
        """Remember the newest entry."""
        with storage.explained(self.path):
            self._connection.execute("UPDATE head SET number = ?, chain = ?", (entry.number, entry.chain))

    def belongs_to(self, fingerprint: str) -> None:
        """Remember the data that the ledger belongs to now."""
        with storage.explained(self.path):
            self._connection.execute("UPDATE ledger SET fingerprint = ?", (fingerprint,))

    def close(self) -> None:
        """Unlock."""
        self._connection.close()


def exists(book: Book) -> bool:
    """Tell whether the book's ledger has a witness here."""
    return _path(book.entries[0].body["ledger"]).exists()


def newest_missing(book: Book) -> int | None:
    """Return the number of an entry that the witness here saw and the book lacks, or None."""
    if not exists(book):
        return None
    path = _path(book.entries[0].body["ledger"])
    with contextlib.closing(storage.look(path)) as connection, storage.explained(path):
        return _missing(connection, book)


def _missing(connection: sqlite3.Connection, book: Book) -> int | None:
    number, chain = connection.execute("SELECT number, chain FROM head").fetchone()
    if number >= 0 and (number >= len(book.entries) or book.entries[number].chain != chain):
        return int(number)
    return None


def ledgers_of(digest: str) -> list[str]:
    """Return the paths of ledgers that were made here for data with this digest."""
    found = []
    for path in sorted(_path("").parent.glob("*.witness")):
        try:
            connection = storage.look(path)
            ledger, salt, known = connection.execute("SELECT path, salt, fingerprint FROM ledger").fetchone()
            connection.close()
        except (LedgerError, sqlite3.Error, TypeError):
            continue  # an unreadable witness speaks when its own ledger is opened
        if hmac.compare_digest(fingerprint(salt, digest), known):
            found.append(ledger)
    return found


def _path(identity: str) -> Path:
    return state_directory() / "ledgers" / f"{identity}.witness"
