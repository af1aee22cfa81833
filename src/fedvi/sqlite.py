"""SQLite files: on disk before a commit returns, and errors in our words.

    Database   several processes use it at once: write-ahead log, one writer at a time, the others wait

The lock is the operating system's: a killed process leaves none behind. Files of ledgers are kinds of their own
(`fedvi.privacy.ledger.locked`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from fedvi.errors import FedviError, FileFailed, InputError
from fedvi.files import Closing, cannot_write, put_in_place, unfinished_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = tuple[Any, ...]
PART = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))
Record = TypeVar("Record", bound="DataclassInstance")


class Database(Closing):
    """An open file that others may have open too. Threads take turns.

    `with database.transaction():` is all or nothing, on disk when it ends.
    """

    pragmas: ClassVar[tuple[str, ...]] = ("journal_mode = WAL", "synchronous = FULL")
    patience: ClassVar[float] = 30.0  # seconds to wait for another writer
    begin: ClassVar[str] = "BEGIN IMMEDIATE"
    one_thread: ClassVar[bool] = False
    missing: ClassVar[type[FedviError]] = InputError
    damaged: ClassVar[type[FedviError]] = InputError
    in_use: ClassVar[type[FedviError]] = FileFailed
    failed: ClassVar[type[FedviError]] = FileFailed

    def __init__(self, path: Path):
        self.path, self._lock = path, threading.RLock()
        with self.explained(path):
            self._connection = self._connect(str(path), self.pragmas)

    @classmethod
    def _connect(cls, address: str, pragmas: Sequence[str] = ()) -> sqlite3.Connection:
        connection = sqlite3.connect(
            address,
            timeout=cls.patience,
            isolation_level=None,
            check_same_thread=cls.one_thread,
            uri=address.startswith("file:"),
        )
        try:
            for pragma in pragmas:
                found = connection.execute(f"PRAGMA {pragma}").fetchone()
                if pragma.startswith("journal_mode") and found != (pragma.rpartition(" ")[2].lower(),):
                    raise sqlite3.OperationalError(f"this file system allows no {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    @classmethod
    def create(cls, path: Path, schema: str, fill: Callable[[Self], None]) -> Self:
        """Make a new file with these tables and what `fill` writes; an existing one is refused.

        It is made beside its place and put there when it is whole: who is killed meanwhile leaves none behind.
        """
        exists = cls.missing(f"{path} exists already. Open it, or choose another name.")
        if os.path.lexists(path):
            raise exists
        for log in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")):
            if log.exists():  # SQLite would play it into the new file
                raise cls.missing(f"{log} is left over from a file that is gone. Restore that one, or take both away.")
        unfinished = unfinished_name(path)
        try:
            unfinished.unlink(missing_ok=True)  # of a process with the same number that was killed
            unfinished.touch(mode=0o600, exist_ok=False)
            with cls(unfinished) as database:
                with cls.explained(path):
                    database._connection.executescript(f"BEGIN EXCLUSIVE; {schema}; COMMIT;")
                with database.transaction():
                    fill(database)
            put_in_place(unfinished, path)
        except FileExistsError:
            raise exists from None
        except OSError as error:
            raise cls.missing(f"Cannot make {path}: {error.strerror}.") from error
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing file."""
        cls.require(path)
        return cls(path)

    @classmethod
    def require(cls, path: Path) -> None:
        """Raise unless there is a file that holds something."""
        if not path.is_file():
            raise cls.missing(f"Expected a file at {path}, got none.")
        if path.stat().st_size == 0:
            raise cls.damaged(f"{path} is damaged: it is empty. Restore the newest copy.")

    def of_format(self, what: str, *known: int, migrations: Mapping[int, str] | None = None) -> Self:
        """Return the file if its `user_version` is a known number; otherwise close it and raise.

        migrations: statements that lead from an older format to the next. A copy is kept beside the file.
        """
        try:
            (found,) = self.only("PRAGMA user_version")
            if migrations and found in migrations:
                found = self._migrated(migrations)
            if found not in known:
                raise self.missing(
                    f"Expected {self.path} to be {what} in format {known[-1]}, got format {found}: another kind of "
                    "file, or one of another version of fedvi. Use that version."
                )
        except BaseException:
            self.close()
            raise
        return self

    def _migrated(self, migrations: Mapping[int, str]) -> int:
        """Lead the file to the newest format in one transaction, unless another process has, and return the format."""
        with contextlib.ExitStack() as undo:
            with self.transaction():
                (found,) = self.only("PRAGMA user_version")
                if found in migrations:
                    undo.callback(self._kept(f"{self.path.name}.format-{found}").unlink)
                while found in migrations:
                    for statement in migrations[found].split(";"):
                        self.execute(statement)
                    found += 1
                    self.execute(f"PRAGMA user_version = {found}")
            undo.pop_all()
        return int(found)

    def _kept(self, name: str) -> Path:
        """Return a copy of the file as it was committed last. No other copy is replaced."""
        for number in itertools.count(1):
            kept = self.path.with_name(name if number == 1 else f"{name}-{number}")
            unfinished = unfinished_name(kept)
            try:
                with type(self)(self.path) as looking:  # what is in a transaction cannot copy
                    looking.copy(unfinished)
                put_in_place(unfinished, kept)
                break
            except FileExistsError:
                continue
            except OSError as error:
                raise cannot_write(kept, error) from error
            finally:
                unfinished.unlink(missing_ok=True)
        return kept

    @classmethod
    @contextlib.contextmanager
    def explained(cls, path: Path) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise cls.in_use(f"{path} is open in another process. Wait for it or stop it.") from error
            raise cls.failed(f"{path}: {error}. Nothing was released.") from error
        except sqlite3.ProgrammingError as error:
            raise cls.failed(f"{path}: {error} Use it in the thread that opened it, until it is closed.") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise cls.damaged(
                f"Expected a file of fedvi, such as a ledger, at {path}, got one that is none ({error}). "
                "If it is something else, such as a table, give the right path. If not, it is damaged: restore the "
                "newest copy."
            ) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write in one piece, alone; an exception undoes all of it. Within another transaction, it undoes this part."""
        with self._lock, self.explained(self.path):
            inner = self._connection.in_transaction
            begin, commit, undo = PART if inner else (self.begin, "COMMIT", ("ROLLBACK",))
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute(commit)
            except BaseException:
                if self._connection.in_transaction:  # on a full disk SQLite may have undone it by itself
                    with contextlib.suppress(sqlite3.OperationalError):
                        for statement in undo:
                            self._connection.execute(statement)
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read what belongs together, while others may write."""
        with self._lock, self.explained(self.path):
            inner = self._connection.in_transaction
            self._connection.execute("SAVEPOINT looked" if inner else "BEGIN")
            try:
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("RELEASE looked" if inner else "COMMIT")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows."""
        with self._lock, self.explained(self.path):
            return self._connection.execute(statement, values).fetchall()

    def only(self, statement: str, values: Sequence[Any] = ()) -> Row:
        """Return the row that there must be."""
        for row in self.execute(statement, values):
            return row
        raise self.damaged(f"{self.path} is damaged: it lacks a row. Restore its newest copy.")

    def records(self, kind: type[Record], table: str, rest: str = "", values: Sequence[Any] = ()) -> list[Record]:
        """Return rows of a table as dataclasses whose fields are its columns. rest: of the statement."""
        columns = ", ".join(field.name for field in dataclasses.fields(kind))
        return [kind(*row) for row in self.execute(f"SELECT {columns} FROM {table} {rest}", values)]

    def insert(self, table: str, values: Sequence[Any]) -> None:
        """Add a row to a table."""
        self.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def update(self, table: str, columns: Mapping[str, Any], rest: str = "", *values: Any) -> None:
        """Write these columns of a table."""
        changes = ", ".join(f"{name} = ?" for name in columns)
        self.execute(f"UPDATE {table} SET {changes} {rest}", (*columns.values(), *values))

    def copy(self, path: Path) -> None:
        """Write a copy as of now to a new file."""
        path.touch(mode=0o600)
        with self._lock, self.explained(self.path):
            self._connection.execute("VACUUM INTO ?", (str(path),))
        with open(path, "rb+") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


class OfDatabase(Closing):
    """What reads and writes one open file, and closes it."""

    def __init__(self, database: Database):
        self._database = database

    def copy(self, path: Path) -> None:
        """Write a copy as of now to a new file."""
        self._database.copy(path)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
