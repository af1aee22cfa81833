"""A witness of every ledger, kept apart from it: how far the ledger has come.

A file cannot tell that it was replaced by an older copy of itself; something outside of it must remember. After every
entry its number and chain are written to a small file in the user's state directory (`FEDVI_STATE_DIR`, else
`$XDG_STATE_HOME/fedvi`, else `~/.local/state/fedvi`). A ledger that lacks an entry which its witness saw was rolled
back. A second copy of a ledger cannot be open at the same time, because both have the same witness.

What a witness cannot notice: ledger and witness both being set back, such as by restoring a whole machine.

A witness also keeps a sketch of the ledger's rows (`fedvi.privacy.ledger.overlap`), to notice when another ledger is
made for the same people.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import os
import secrets
import sqlite3
from pathlib import Path

from fedvi.errors import LedgerError
from fedvi.privacy.ledger import storage
from fedvi.privacy.ledger.entries import Book, Entry
from fedvi.privacy.ledger.overlap import Overlap, Sketch

SCHEMA = """
CREATE TABLE ledger (path TEXT NOT NULL, salt TEXT NOT NULL);
CREATE TABLE data (fingerprint TEXT PRIMARY KEY);
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


def machine_key() -> bytes:
    """Return the random key of this machine, by which rows are hashed; it is made when it is first asked for."""
    path = state_directory() / "rows.key"
    _make_directory(path.parent)
    with storage.Lock(path.with_suffix(".lock"), str(path), wait=10.0):
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        return path.read_bytes()


class Witness(storage.Closing):
    """The witness of one ledger, locked while open."""

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: storage.Lock):
        self._connection, self.path, self._lock = connection, path, lock

    @classmethod
    def create(cls, identity: str, ledger: Path, salt: str) -> Witness:
        """Make the witness of a new ledger."""
        path = _path(identity)
        _make_directory(path.parent)
        lock = storage.Lock(path.with_suffix(".lock"), str(ledger))
        try:
            witness = cls(storage.create(path, SCHEMA + "INSERT INTO head VALUES (-1, '');"), path, lock)
            with storage.explained(path):
                witness._connection.execute("INSERT INTO ledger VALUES (?, ?)", (str(ledger), salt))
        except BaseException:
            lock.close()
            raise
        return witness

    @classmethod
    def open(cls, identity: str, ledger: Path, head: Entry) -> Witness | None:
        """Open the witness of a ledger, or return None if there is none here.

        head: of the ledger. If the witness expects just this, the ledger's maker was killed before the witness saw it.
        """
        path = _path(identity)
        if not _has_seen_anything(path) and not _expects(path, head):
            path.unlink(missing_ok=True)
            return None
        lock = storage.Lock(path.with_suffix(".lock"), str(ledger))
        try:
            return cls(storage.lock(path), path, lock)
        except BaseException:
            lock.close()
            raise

    def saw_more_than(self, book: Book) -> int | None:
        """Return the number of an entry that the witness saw and the book lacks, or None."""
        with storage.explained(self.path):
            return _missing(self._connection, book)

    def expect(self, entry: Entry) -> None:
        """Remember what a new ledger will begin with, before it is in its place."""
        with storage.explained(self.path):
            self._connection.execute("UPDATE head SET chain = ?", (entry.chain,))

    def see(self, entry: Entry) -> None:
        """Remember the newest entry."""
        with storage.explained(self.path):
            self._connection.execute("UPDATE head SET number = ?, chain = ?", (entry.number, entry.chain))

    def belongs_to(self, fingerprint: str) -> None:
        """Remember that the ledger belongs to this data, beside all that it ever belonged to."""
        with storage.explained(self.path):
            self._connection.execute("INSERT OR IGNORE INTO data VALUES (?)", (fingerprint,))

    def remember(self, sketch: Sketch) -> None:
        """Remember what the rows look like, beside all that they ever looked like."""
        with storage.explained(self.path):
            self._connection.execute("CREATE TABLE IF NOT EXISTS sketch (data BLOB UNIQUE NOT NULL)")
            self._connection.execute("INSERT OR IGNORE INTO sketch VALUES (?)", (sketch.to_bytes(),))

    def close(self) -> None:
        """Unlock."""
        self._connection.close()
        self._lock.close()

    def discard(self) -> None:
        """Forget a ledger that could not be made after all."""
        self.close()
        self.path.unlink(missing_ok=True)


def exists(book: Book) -> bool:
    """Tell whether the book's ledger has a witness here."""
    return _has_seen_anything(_path(book.entries[0].body["ledger"]))


def _has_seen_anything(path: Path) -> bool:
    """Tell whether there is a witness that has seen an entry; one that has not belongs to a ledger never finished."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    try:
        with contextlib.closing(storage.look(path)) as connection:
            return bool(connection.execute("SELECT number FROM head").fetchone()[0] >= 0)
    except (LedgerError, sqlite3.Error, TypeError):
        return True  # damaged: let it be opened, and complain


def _expects(path: Path, head: Entry) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with contextlib.closing(storage.look(path)) as connection:
        return bool(connection.execute("SELECT number, chain FROM head").fetchone() == (-1, head.chain))


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


def creating() -> storage.Lock:
    """Return a lock under which one ledger at a time is made here."""
    directory = _path("").parent
    _make_directory(directory)
    return storage.Lock(directory / "creating.lock", str(directory), wait=10.0)


@dataclasses.dataclass(frozen=True)
class Related:
    """A ledger that was made here for some of the same rows: where it was, its identity, what they have in common."""

    path: str
    ledger: str
    overlap: Overlap


def related(digest: str, sketch: Sketch, but: str = "") -> list[Related]:
    """Return the ledgers that were made here for some of the same rows.

    digest: of the rows, which finds the same rows where a sketch tells nothing. but: identity of a ledger to leave out.
    A witness that cannot be read might be that of such a ledger.
    """
    found = []
    for path in sorted(_path("").parent.glob("*.witness")):
        if not _has_seen_anything(path) or path.stem == but:
            continue
        try:
            with contextlib.closing(storage.look(path)) as connection:
                ledger, salt = connection.execute("SELECT path, salt FROM ledger").fetchone()
                prints = [row[0] for row in connection.execute("SELECT fingerprint FROM data")]
                there = connection.execute("SELECT name FROM sqlite_master WHERE name = 'sketch'").fetchone()
                kept = connection.execute("SELECT data FROM sketch").fetchall() if there else []
            overlaps = [sketch.overlap(Sketch.from_bytes(row[0])) for row in kept]
            overlaps = [overlap for overlap in overlaps if overlap.is_noticed]
            if any(hmac.compare_digest(fingerprint(salt, digest), known) for known in prints):
                overlaps = [Overlap(1.0, 0, 0)]
        except (LedgerError, sqlite3.Error, TypeError, ValueError):
            ledger, overlaps = f"maybe that of the damaged witness {path}", [Overlap(0.0, 0, 0)]
        if overlaps:
            found.append(Related(str(ledger), path.stem, max(overlaps, key=lambda overlap: overlap.share)))
    return found


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LedgerError(
            f"Cannot make {path} for the witnesses of ledgers: {error.strerror}. Set FEDVI_STATE_DIR."
        ) from error


def _path(identity: str) -> Path:
    return state_directory() / "ledgers" / f"{identity}.witness"
