"""SQLite files that are locked while open, and on disk before a commit returns.

One file, no side files while nothing is being written: rollback journal, `synchronous = EXTRA` (which is FULL and also
syncs the directory), and an exclusive lock from opening to closing. The lock is the operating system's: a killed
process leaves none behind.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fedvi.errors import LedgerDamaged, LedgerError, LedgerInUse


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise LedgerInUse(f"{path} is open in another process. Wait for it or stop it.") from error
        raise LedgerError(f"{path}: {error}. Nothing was released.") from error
    except sqlite3.DatabaseError as error:
        raise LedgerDamaged(f"{path} is damaged: {error}. Restore the newest copy.") from error


def create(path: Path, schema: str) -> sqlite3.Connection:
    """Make a new file and return it locked; an existing file is refused."""
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise LedgerError(f"{path} exists already. Open it, or choose another name.") from None
    except OSError as error:
        raise LedgerError(f"Cannot make {path}: {error.strerror}.") from error
    with explained(path):
        connection = _connect(path)
        connection.executescript(f"BEGIN EXCLUSIVE; {schema} COMMIT;")
        return connection


def lock(path: Path) -> sqlite3.Connection:
    """Open an existing file, and lock it until it is closed."""
    _require(path)
    with explained(path):
        connection = _connect(path)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
            _check(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def look(path: Path) -> sqlite3.Connection:
    """Open an existing file for reading, even while another process has it locked."""
    _require(path)
    address = path.resolve().as_uri()
    with explained(path):
        connection = sqlite3.connect(f"{address}?mode=rw", uri=True, timeout=0.1)
        try:
            _check(connection, path)
        except sqlite3.OperationalError:  # locked, or not ours to write: read past that, the chain tells if it is torn
            connection.close()
            connection = sqlite3.connect(f"{address}?immutable=1", uri=True)
            _check(connection, path)
        return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0.1, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def _require(path: Path) -> None:
    if not path.is_file():
        raise LedgerError(f"There is no file {path}.")
    if path.stat().st_size == 0:
        raise LedgerDamaged(f"{path} is empty: it was truncated. Restore the newest copy.")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    problems = [row[0] for row in connection.execute("PRAGMA quick_check")]
    if problems != ["ok"]:
        raise LedgerDamaged(f"{path} is damaged: {problems[0]}. Restore the newest copy.")
