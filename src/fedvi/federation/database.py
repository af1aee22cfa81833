"""SQLite files that several processes use at once: write-ahead log, synced at every commit, one writer at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from fedvi.errors import InputError
from fedvi.privacy.ledger.storage import Closing, put_in_place

PATIENCE = 30.0
"""Seconds to wait for another writer."""


class Database(Closing):
    """An open file. Threads take turns; `with database.transaction():` is all or nothing, on disk when it ends."""

    def __init__(self, path: Path):
        self.path, self._lock = path, threading.RLock()
        self._connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def create(cls, path: Path, schema: str, fill: Callable[[Self], None]) -> Self:
        """Make a new file with these tables and what `fill` writes; an existing one is refused.

        It is made beside its place and put there when it is whole: who is killed meanwhile leaves none behind.
        """
        exists = InputError(f"{path} exists already. Use it, or choose another place.")
        if path.exists():
            raise exists
        if (log := path.with_name(f"{path.name}-wal")).exists():  # SQLite would play it into the new file
            raise InputError(f"{log} is left over from a file that is gone. Restore that one, or take both away.")
        unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.unfinished")
        try:
            unfinished.unlink(missing_ok=True)  # of a process with the same number that was killed
            unfinished.touch(mode=0o600, exist_ok=False)
            with cls(unfinished) as database, database.transaction():
                for statement in filter(str.strip, schema.split(";")):
                    database.execute(statement)
                fill(database)
            put_in_place(unfinished, path)
        except FileExistsError:
            raise exists from None
        finally:
            unfinished.unlink(missing_ok=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing file."""
        if not path.is_file():
            raise InputError(f"Expected a database at {path}, got none.")
        try:
            return cls(path)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path} is damaged: {error}. Restore the newest copy.") from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write in one piece, alone; an exception undoes all of it."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> None:
        """Undo what was begun. On a full disk SQLite may have done so by itself, and then refuses to do it again."""
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.OperationalError):
                self._connection.execute("ROLLBACK")

    def execute(self, statement: str, values: Any = ()) -> list[sqlite3.Row]:
        """Run one statement and return its rows."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def one(self, statement: str, values: Any = ()) -> sqlite3.Row | None:
        """Return the first row of a statement, or None."""
        rows = self.execute(statement, values)
        return rows[0] if rows else None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
