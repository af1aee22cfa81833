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
import hmac
import os
import secrets
from pathlib import Path

from fedvi.errors import LedgerError, LedgerInUse, LedgerRolledBack
from fedvi.files import Closing, Lock, fingerprint, write
from fedvi.privacy.ledger.entries import Book, Entry, read_book
from fedvi.privacy.ledger.locked import Locked
from fedvi.privacy.ledger.overlap import NO_SKETCH, Overlap, Sketch

SCHEMA = """
CREATE TABLE ledger (path TEXT NOT NULL, salt TEXT NOT NULL);
CREATE TABLE data (fingerprint TEXT PRIMARY KEY);
CREATE TABLE head (number INTEGER NOT NULL, chain TEXT NOT NULL);
"""


KEY_BYTES = 32  # of the machine's key


def state_directory() -> Path:
    """Return where witnesses live."""
    if given := os.environ.get("FEDVI_STATE_DIR"):
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "fedvi"


def machine_key() -> bytes:
    """Return the random key of this machine, by which rows are hashed; it is made when it is first asked for."""
    path = state_directory() / "rows.key"
    _make_directory(path.parent)
    with Lock(path.with_suffix(".lock"), str(path), wait=10.0):
        if not path.exists():
            write(path, secrets.token_bytes(KEY_BYTES), private=True)
        key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise LedgerError(
            f"{path} is damaged: expected {KEY_BYTES} bytes, got {len(key)}. Restore it. If it is lost, delete it: "
            "then a new key is made, and who makes a ledger will be asked about those that were made before."
        )
    return key


class Witness(Closing):
    """The witness of one ledger, open. lock: of the ledger (`claim`), which closes with it."""

    def __init__(self, database: Locked, lock: Lock):
        self._database, self._lock = database, lock

    @classmethod
    def create(cls, lock: Lock, identity: str, ledger: Path, key: str) -> Witness:
        """Make the witness of a new ledger. key: of the fingerprints of its data."""

        def fill(database: Locked) -> None:
            database.execute("INSERT INTO ledger VALUES (?, ?)", (str(ledger), key))
            database.execute("INSERT INTO head VALUES (-1, '')")

        return cls(Locked.create(_path(identity), SCHEMA, fill), lock)

    @classmethod
    def open(cls, lock: Lock, identity: str, head: Entry) -> Witness | None:
        """Open the witness of a ledger, or return None if there is none here.

        head: of the ledger. If the witness expects just this, the ledger's maker was killed before the witness saw it.
        """
        path = _path(identity)
        if not _has_seen_anything(path) and _seen(path) != (-1, head.chain):
            for left in (path, path.with_name(f"{path.name}-wal")):
                left.unlink(missing_ok=True)
            return None
        return cls(Locked.open(path), lock)

    def saw_more_than(self, book: Book) -> int | None:
        """Return the number of an entry that the witness saw and the book lacks, or None."""
        return _missing(_head(self._database), book)

    @property
    def saw_nothing(self) -> bool:
        """Whether the ledger's maker was killed before the witness saw an entry."""
        return _head(self._database)[0] < 0

    @property
    def first_sketch(self) -> Sketch | None:
        """What the rows of the ledger looked like when it was made."""
        return next(iter(_sketches(self._database)), None)

    def expect(self, entry: Entry) -> None:
        """Remember what a new ledger will begin with, before it is in its place."""
        self._database.execute("UPDATE head SET chain = ?", (entry.chain,))

    def see(self, entry: Entry) -> None:
        """Remember the newest entry. All but the first may get lost with the machine's power: the witness then lags."""
        self._database.execute("UPDATE head SET number = ?, chain = ?", (entry.number, entry.chain))
        self._database.execute("PRAGMA synchronous = NORMAL")

    def belongs_to(self, fingerprint: str) -> None:
        """Remember that the ledger belongs to this data, beside all that it ever belonged to."""
        self._database.execute("INSERT OR IGNORE INTO data VALUES (?)", (fingerprint,))

    def remember(self, sketch: Sketch) -> None:
        """Remember what the rows look like, beside all that they ever looked like."""
        self._database.execute("CREATE TABLE IF NOT EXISTS sketch (data BLOB UNIQUE NOT NULL)")
        self._database.execute("INSERT OR IGNORE INTO sketch VALUES (?)", (sketch.to_bytes(),))

    def close(self) -> None:
        """Unlock."""
        self._database.close()
        self._lock.close()

    def discard(self) -> None:
        """Forget a ledger that could not be made after all."""
        self.close()
        self._database.path.unlink(missing_ok=True)


def claim(identity: str, ledger: Path) -> Lock:
    """Return the lock of a ledger and of all its copies. Who has it may open the ledger and its witness."""
    path = _path(identity).with_suffix(".lock")
    _make_directory(path.parent)
    return Lock(path, str(ledger))


def claimed(path: Path, undo: contextlib.ExitStack) -> tuple[Lock, Locked, Book]:
    """Lock a ledger with all its copies, and only then open the file. undo: ends both."""
    with Locked.look(path) as database:
        identity = read_book(database).identity
    lock = undo.enter_context(claim(identity, path))
    database = undo.enter_context(Locked.open(path))
    book = read_book(database)
    if book.identity != identity:
        raise LedgerInUse(f"{path} was replaced just now. Try again.")
    return lock, database, book


def verify_witness(book: Book) -> str:
    """Say whether the witness on this machine has seen nothing newer than the book, or raise `LedgerRolledBack`."""
    path = _path(book.identity)
    if not _has_seen_anything(path):
        return "No witness on this machine: whether this is the newest copy cannot be told here."
    missing = _missing(_seen(path), book)
    if missing is not None:
        raise LedgerRolledBack(f"Ledger {book.where} lacks entry {missing}, which its witness saw: an older copy.")
    return "The witness on this machine has seen nothing newer."


def _has_seen_anything(path: Path) -> bool:
    """Tell whether there is a witness that has seen an entry; one that has not belongs to a ledger never finished."""
    try:
        return _seen(path)[0] >= 0
    except (LedgerError, IndexError, TypeError):
        return True  # damaged: let it be opened, and complain


def _seen(path: Path) -> tuple[int, str]:
    """Return number and chain of the newest entry that the witness in a file saw; -1 if none, or without a file."""
    if not path.exists() or path.stat().st_size == 0:
        return -1, ""
    with Locked.look(path) as database:
        return _head(database)


def _head(database: Locked) -> tuple[int, str]:
    """Return number and chain of the newest entry that a witness saw."""
    number, chain = database.execute("SELECT number, chain FROM head")[0]
    return int(number), str(chain)


def _missing(seen: tuple[int, str], book: Book) -> int | None:
    number, chain = seen
    there = number < 0 or (number < len(book.entries) and book.entries[number].chain == chain)
    return None if there else number


def creating() -> Lock:
    """Return a lock under which one ledger at a time is made here."""
    directory = _path("").parent
    _make_directory(directory)
    return Lock(directory / "creating.lock", str(directory), wait=10.0)


@dataclasses.dataclass(frozen=True)
class Related:
    """A ledger that was made here for some of the same rows: where it was, its identity, what they have in common."""

    path: str
    ledger: str
    overlap: Overlap


def related(digest: str, sketch: Sketch | None, but: str = "") -> list[Related]:
    """Return the ledgers that were made here for some of the same rows; a witness that cannot be read might be of one.

    digest: of the rows, which finds the same rows where a sketch tells nothing. but: identity of a ledger to leave out.
    """
    found = []
    for path in sorted(_path("").parent.glob("*.witness")):
        if path.stem == but or not (_has_seen_anything(path) or _is_of_a_ledger(path)):
            continue
        try:
            with Locked.look(path) as database:
                ledger, key = database.execute("SELECT path, salt FROM ledger")[0]
                prints = [row[0] for row in database.execute("SELECT fingerprint FROM data")]
                kept = _sketches(database)
            overlaps = [(sketch or NO_SKETCH).overlap(each) for each in kept]
            overlaps = [overlap for overlap in overlaps if overlap.is_noticed]
            if any(hmac.compare_digest(fingerprint(key, digest), known) for known in prints):
                overlaps = [Overlap(1.0, 0, 0)]
        except (LedgerError, IndexError, TypeError, ValueError):
            ledger, overlaps = f"maybe that of the damaged witness {path}", [Overlap(0.0, 0, 0)]
        if overlaps:
            found.append(Related(str(ledger), path.stem, max(overlaps, key=lambda overlap: overlap.share)))
    return found


def _is_of_a_ledger(path: Path) -> bool:
    """Tell whether a witness that saw nothing is of a ledger that is in its place: its maker was killed after that."""
    if not _seen(path)[1]:
        return False
    with Locked.look(path) as database:
        ledger = Path(database.only("SELECT path FROM ledger")[0])
    if not ledger.exists():
        return False
    try:
        with Locked.look(ledger) as database:
            return read_book(database).identity == path.stem
    except LedgerError:
        return True  # damaged, or of another version: it may be


def _sketches(database: Locked) -> list[Sketch]:
    """Return what the rows of a ledger ever looked like."""
    there = database.execute("SELECT name FROM sqlite_master WHERE name = 'sketch'")
    return [Sketch.from_bytes(data) for (data,) in database.execute("SELECT data FROM sketch")] if there else []


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LedgerError(
            f"Cannot make {path} for the witnesses of ledgers: {error.strerror}. Set FEDVI_STATE_DIR."
        ) from error


def _path(identity: str) -> Path:
    return state_directory() / "ledgers" / f"{identity}.witness"
