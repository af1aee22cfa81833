"""SQLite files that are locked while open, and on disk before a commit returns.

Rollback journal (beside the file while it is open), `synchronous = EXTRA` (which is FULL and also syncs the directory),
and an exclusive lock from opening to closing. The lock is the operating system's: a killed process leaves none behind.

SQLite's own locks are of a kind that the system drops when the same process opens and closes the file once more, such
as for a backup. `Lock` is of the other kind, on a file of its own.
"""

from __future__ import annotations

import abc
import contextlib
import importlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedvi.errors import LedgerDamaged, LedgerError, LedgerInUse

fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # Windows
    fcntl = None


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise LedgerInUse(f"{path} is open in another process. Wait for it or stop it.") from error
        raise LedgerError(f"{path}: {error}. Nothing was released.") from error
    except sqlite3.ProgrammingError as error:
        raise LedgerError(f"{path}: {error} Use a ledger in the thread that opened it, until it is closed.") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise LedgerDamaged(f"{path} is damaged: {error}. Restore the newest copy.") from error


def create(path: Path, schema: str) -> sqlite3.Connection:
    """Make a new file and return it locked; an existing file is refused."""
    require_none(path)
    try:
        path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise LedgerError(f"Cannot make {path}: {error.strerror}.") from error
    try:
        with explained(path):
            connection = _connect(path)
            connection.executescript(f"BEGIN EXCLUSIVE; {schema} COMMIT;")
            return connection
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def require_none(path: Path) -> None:
    """Raise if there is something of this name."""
    if os.path.lexists(path):
        raise LedgerError(f"{path} exists already. Open it, or choose another name.")


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


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a finished file its name, durably, or raise `FileExistsError` if there is one of that name."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise FileExistsError(path) from None
        os.replace(unfinished, path)
    unfinished.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class Closing(abc.ABC):
    """Something to be used in a `with` statement, at whose end it is closed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Lock(Closing):
    """A lock on a file of its own, which is made if need be and never deleted."""

    def __init__(self, path: Path, what: str, wait: float = 0.0):
        self._file = open(path, "a")  # noqa: SIM115 - held until closed
        deadline = time.monotonic() + wait
        while not self._try():
            if time.monotonic() >= deadline:
                self._file.close()
                raise LedgerInUse(f"{what} is open in another process. Wait for it or stop it.")
            time.sleep(0.02)

    def _try(self) -> bool:
        if fcntl is None:  # on Windows SQLite's own locks do not have the fault that this one makes good
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Unlock."""
        self._file.close()


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
