"""Processes to be killed: started one after another by forking from one that has imported everything already.

A script calls `fork_for_every_line(work)`; each line on its standard input is one victim's arguments. A victim writes
`ready` and then whatever it wants to say, a line each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path


class Victims:
    """Starts victims one after another and kills them; what JAX compiles is kept between them."""

    def __init__(self, cache: Path, *script: str) -> None:
        keep = {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        self.process = subprocess.Popen(
            [sys.executable, *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **keep},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.lines = self.process.stdin, self.process.stdout

    def run(self, arguments: str, lines: int, delay: float) -> tuple[list[str], str]:
        """Start a victim, kill it so long after it has said so many lines, and return what it said and how it ended.

        Lines, because a busy machine gets nowhere in any given time; -1 to count from its birth.
        """
        self.requests.write(f"{arguments}\n")
        self.requests.flush()
        said: list[str] = []
        child = 0
        for line in self.lines:
            match line.split():
                case ["pid", number]:
                    child = int(number)
                    if lines < 0:
                        threading.Timer(delay, _kill, [child]).start()
                case ["ready"]:
                    pass
                case ["killed"] | ["ended", _]:
                    return said, line.strip()
                case _:
                    said.append(line.strip())
            if (line.strip() == "ready" and lines == 0) or lines == len(said) > 0:
                threading.Timer(delay, _kill, [child]).start()
        raise AssertionError("the parent of the victims died")

    def stop(self) -> None:
        self.requests.close()
        self.process.wait()
        self.lines.close()


def say(*words: object) -> None:
    """Write a line at once, in one piece."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def fork_for_every_line(work: Callable[..., None]) -> None:
    """Fork a victim for every line on standard input, and report how each ended; JAX is imported once only."""
    warnings.simplefilter("ignore")  # forking is safe here: nothing has started a thread yet
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            ended = 1
            say("pid", os.getpid())  # before all else that it says: who does not know it cannot kill it
            try:
                work(*line.split())
                ended = 0
            finally:
                os._exit(ended)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        say("killed") if killed else say("ended", os.waitstatus_to_exitcode(status))


def _kill(child: int) -> None:
    assert child > 0, "number 0 would be the whole group of this process"
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
