"""One process at a time in a folder, which others can find, ask to stop, or send to the background."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from fedvi.errors import InputError, LedgerInUse
from fedvi.files import Lock

PATIENCE = 60.0
"""Seconds that a process gets to stop."""


@contextlib.contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Be the only process that runs with this file; SIGTERM then ends it like Ctrl-C."""
    try:
        lock = Lock(path.with_suffix(".lock"), what)
    except LedgerInUse:
        raise InputError(f"{what} is running already (process {running(path) or 'unknown'}).") from None
    except OSError as error:
        raise InputError(f"Cannot write {path.with_suffix('.lock')}: {error.strerror}.") from None
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        path.write_text(str(os.getpid()), encoding="utf-8")
        yield
    finally:
        path.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, before)
        lock.close()


def running(path: Path) -> int | None:
    """Return the process that runs with this file, or None."""
    try:
        number = int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    try:
        Lock(path.with_suffix(".lock"), str(path)).close()
    except LedgerInUse:
        return number
    return None


def ask_to_stop(path: Path, patience: float = PATIENCE) -> bool:
    """Ask the process that runs with this file to stop, and wait; tell whether there was one."""
    number = running(path)
    if number is None:
        return False
    os.kill(number, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while running(path) is not None:
        if time.monotonic() > deadline:
            raise InputError(f"Process {number} did not stop within {patience:g} seconds. Look at its log; kill it.")
        time.sleep(0.1)
    return True


def in_background(arguments: Sequence[str], log: Path, pid_file: Path, patience: float = PATIENCE) -> int:
    """Run `fedvi ARGUMENTS` on its own, its output in a log, and return its number once it is at work."""
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:  # it may count rows
        process = subprocess.Popen(
            [sys.executable, "-m", "fedvi", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    waiting = threading.Thread(target=process.wait, daemon=True)  # as long as this process lives: it leaves no zombie
    waiting.start()
    deadline = time.monotonic() + patience
    while running(pid_file) != process.pid:
        if not waiting.is_alive() or time.monotonic() > deadline:
            process.terminate()
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise InputError(f"It did not start: {' '.join(last) or 'no reason given'} (all of it: {log})")
        time.sleep(0.1)
    return process.pid


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
