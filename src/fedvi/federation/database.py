"""SQLite files that several processes use at once: write-ahead log, synced at every commit, one writer at a time."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from fedvi.errors import InputError
from fedvi.privacy.storage import Closing

PATIENCE = 30.0
"""Seconds to wait for another writer."""


class Database(Closing):
    """An open file. Threads take turns; `with database.transaction():` is all or nothing, on disk when it ends."""

    def __init__(self, path: Path):
        self.path, self._lock = path, threading.RLock()
        self._connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    @classmethod
    def create(cls, path: Path, schema: str) -> Self:
        """Make a new file with these tables; an existing one is refused."""
        try:
            path.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            raise InputError(f"{path} exists already. Use it, or choose another place.") from None
        try:
            database = cls(path)
            with database.transaction():
                for statement in filter(str.strip, schema.split(";")):
                    database.execute(statement)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return database

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
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

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
