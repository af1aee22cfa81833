"""Files of ledgers and witnesses: one process has such a file, from opening to closing, and everybody may look at it.

Entries go into a log beside the file (SQLite's write-ahead log), which takes one sync of the disk where a rollback
journal takes four. When the file is closed, all of the log is put into it, and the log is gone: a copy of a closed file
is complete. After `kill -9` or a power cut the log is there, and whoever opens the file next puts it in. While the file
is open, that is done after every hundred pages or so.

Who looks takes no lock and changes nothing: file and log are copied, and read as SQLite reads them after a crash.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

from fedvi.errors import LedgerDamaged, LedgerError, LedgerInUse
from fedvi.sqlite import Database

TRIES, PAUSE = 50, 0.01
"""How often and after how many seconds a file is looked at again that was written meanwhile."""


class Locked(Database):
    """An open file that nobody else has open; for one thread.

    The lock is of a kind that the system drops when the same process opens and closes the file once more, such as for
    a backup: take a `fedvi.files.Lock` before. Another process could put the log into the file and take it away.
    """

    pragmas = (
        "locking_mode = EXCLUSIVE",  # first: then the log needs no memory that processes share
        "journal_mode = WAL",
        "synchronous = EXTRA",
        "wal_autocheckpoint = 100",
    )
    patience, begin, one_thread = 0.1, "BEGIN EXCLUSIVE", True
    missing, damaged, in_use, failed = LedgerError, LedgerDamaged, LedgerInUse, LedgerError

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing file, and lock it until it is closed."""
        database = super().open(path)
        try:
            with database.transaction():
                pass  # takes the lock
            database.check()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def look(cls, path: Path) -> Self:
        """Return what is in an existing file, even while another process has it locked."""
        cls.require(path)
        looking = cls.__new__(cls)
        looking.path, looking._lock = path, threading.RLock()
        with cls.explained(path):
            looking._connection = cls._connect(":memory:")
        try:
            with cls.explained(path), tempfile.TemporaryDirectory(prefix="fedvi-") as folder:
                copy = Path(folder) / "copy"
                for ending, content in cls._snapshot(path).items():
                    copy.with_name(copy.name + ending).write_bytes(content)
                with contextlib.closing(cls._connect(str(copy), ("synchronous = OFF",))) as source:
                    source.backup(looking._connection)
            looking.check()
        except OSError as error:
            looking.close()
            raise cls.failed(f"Cannot look at {path}: {error}.") from error
        except BaseException:
            looking.close()
            raise
        return looking

    @classmethod
    def _snapshot(cls, path: Path) -> dict[str, bytes]:
        """Return file and logs, by the endings of their names, as they were at one time.

        Only what is in the log is ever written into the file. So the file, torn or not, and a log that has only grown
        meanwhile belong together; without a log, a file that was the same twice. Former versions had a journal instead.
        """
        for tries in reversed(range(TRIES)):
            try:
                before, content = _log(path), cls._image(path)
                log, journal = _log(path), _log(path, "-journal")
                if log.startswith(before) if before else not log and content == cls._image(path):
                    return {"": content, "-wal": log, "-journal": journal}
            except sqlite3.DatabaseError:  # torn where it says how long it is; or damaged
                if not (tries and _log(path)):
                    raise
            time.sleep(PAUSE)
        raise cls.in_use(f"{path} is written all the time. Wait for it or stop it.")

    @classmethod
    def _image(cls, path: Path) -> bytes:
        """Return the file without its log. Read by SQLite: closing it otherwise would drop locks of this process."""
        with contextlib.closing(cls._connect(f"{path.resolve().as_uri()}?immutable=1")) as connection:
            connection.execute("PRAGMA schema_version")
            return connection.serialize()

    def check(self) -> None:
        """Raise unless SQLite finds nothing wrong with the file."""
        problems = [row[0] for row in self.execute("PRAGMA quick_check")]
        if problems != ["ok"]:
            raise self.damaged(f"{self.path} is damaged: {problems[0]}. Restore the newest copy.")


def _log(path: Path, ending: str = "-wal") -> bytes:
    path = path.resolve()
    try:
        return path.with_name(path.name + ending).read_bytes()
    except FileNotFoundError:
        return b""
