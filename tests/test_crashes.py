"""Killed at any instant, a client has paid for at least what it released, and never for more than its budget."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import crashing_client
from fedvi.privacy import ledger as ledgers

KILLS = 100


class Victims:
    """Starts clients one after another and kills them; what JAX compiles is kept between them."""

    def __init__(self, cache: Path) -> None:
        keep = {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        self.process = subprocess.Popen(
            [sys.executable, crashing_client.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **keep},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.lines = self.process.stdin, self.process.stdout

    def run(self, ledger: Path, seed: int, delay: float) -> tuple[int, str]:
        """Start a client, kill it so long after it is ready, and return what it released and how it ended."""
        self.requests.write(f"{ledger} {seed}\n")
        self.requests.flush()
        released, child = 0, 0
        for line in self.lines:
            word, *rest = line.split()
            match word:
                case "pid":
                    child = int(rest[0])
                case "ready":
                    threading.Timer(delay, _kill, [child]).start()
                case "closed":
                    pass
                case "killed" | "ended":
                    return released, line.strip()
                case _:
                    released += 1
        raise AssertionError("the clients' parent died")

    def stop(self) -> None:
        self.requests.close()
        self.process.wait()
        self.lines.close()


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("half", [0, 1])  # so that two workers share the work
def test_killed_clients_have_paid_for_all_that_they_released(half: int, tmp_path: Path) -> None:
    """SIGKILL at random instants of private updates, until the budget is spent, and again with other data."""
    rng, victims = random.Random(half), Victims(tmp_path / "cache")
    total = closed = kills = 0
    try:
        while kills < KILLS:
            seed = 1000 * half + closed
            path = tmp_path / f"ledger {seed}.db".replace(" ", "-")
            released = lost = 0
            end = "killed"
            while kills < KILLS and end == "killed":
                got, end = victims.run(path, seed, rng.expovariate(1 / 0.05))
                assert end in ("killed", "ended 0")
                released, kills, lost = released + got, kills + (end == "killed"), lost + 1
                book = ledgers.read(path)
                paid, planned = sum(book.charged.values()), sum(book.planned.values())
                assert released <= paid <= released + lost  # of each life at most the update in hand is lost
                assert paid <= planned
                assert book.spent.epsilon <= crashing_client.BUDGET.epsilon
            closed, total = closed + (end == "ended 0"), total + released
    finally:
        victims.stop()
    print(f"{kills} kills, {total} releases, {closed} budgets spent to the end")
    assert total > KILLS
