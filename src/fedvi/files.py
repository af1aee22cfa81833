"""Files: written whole or not at all, locks between processes, and the two hashes that files hold.

replacing     write beside a file, sync, take its place, sync the folder: after a crash there is the old or the new
digest        SHA-256 of plain values as canonical JSON
fingerprint   keyed hash of what identifies rows: without the key nobody can test a guess
"""

from __future__ import annotations

import abc
import contextlib
import errno
import glob
import hashlib
import hmac
import importlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from fedvi.errors import FedviError, FileFailed, InputError, LedgerInUse

fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # Windows
    fcntl = None


DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What goes wrong with a disk, not with a path."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write, which takes the place of `path` when the block ends, and is gone if it fails.

    Only a regular file is replaced. A link stays, and what it points to is replaced; a device or pipe is written into.
    private: only its owner may read it (mode 0600).
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        yield from _written_into(path)
        return
    if path.is_symlink():
        path = path.resolve()
    unfinished = unfinished_name(path)
    try:
        unfinished.unlink(missing_ok=True)  # of a process with the same number that was killed
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _written_into(path: Path) -> Iterator[BinaryIO]:
    """Give a device, a pipe or the like to write into."""
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: str | os.PathLike[str], error: OSError) -> FedviError:
    """Return the error for a file that cannot be written: of its path, or of a disk that is full or broken."""
    message = f"Cannot write {os.fspath(path)!r}: {error.strerror or error}."
    return FileFailed(message) if error.errno in DISK_ERRORS else InputError(message)


def write(path: str | os.PathLike[str], content: bytes | str, *, private: bool = False) -> None:
    """Write a whole file, as `replacing` does; text as UTF-8."""
    with replacing(path, private=private) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill, which only its owner may read. It takes the place of `path`, new or empty, at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield unfinished
        if path.exists():
            path.rmdir()
        os.replace(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def unfinished_name(path: Path) -> Path:
    """Return where this thread writes a file before it takes its place; what killed processes have left is removed."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.unfinished*"):
        process = left.name.split(".")[-2].split("-")[0]
        if fcntl is not None and process.isdigit() and not _is_alive(int(process)):
            left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.unfinished")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it belongs to somebody else
    return True


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
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until a folder's list of names is on disk, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def digest(values: Any, *, compact: bool = True) -> str:
    """Return the SHA-256 of plain values as canonical JSON: keys sorted, ASCII, no NaN.

    compact: without spaces; the chain of a ledger has them.
    """
    separators = (",", ":") if compact else None
    text = json.dumps(values, sort_keys=True, separators=separators, allow_nan=not compact)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(key: str, identity: str) -> str:
    """Return the keyed hash of a text that identifies rows. key: hexadecimal."""
    return hmac.new(bytes.fromhex(key), identity.encode(), hashlib.sha256).hexdigest()


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
    """A lock of the operating system on a file of its own, which is made if need be and never deleted."""

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
