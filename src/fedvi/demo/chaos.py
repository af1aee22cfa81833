"""Killing processes of a federation at random, as crashes, reboots and tired people do."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

KINDS = {
    "site's job": "worker_process",
    "site's parent": "client_train",
    "coordinator's job": "runner_process",
    "coordinator's parent": "server_train",
}
"""What is killed, and the last part of the module that such a process runs."""


class Chaos:
    """Kills with SIGKILL. The seed decides which kind comes next; which process of it, the operating system.

    kills: how often each kind was hit.
    """

    def __init__(self, folder: Path, seed: int):
        self._folder, self._random = str(folder), random.Random(seed)
        self.kills: Counter[str] = Counter()

    def strike(self) -> str:
        """Kill one process, and return what it was; empty if there was none of the kind that was chosen."""
        import psutil

        kind = self._random.choice(list(KINDS))
        victims = self._processes(KINDS[kind])
        if not victims:
            return ""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._random.choice(victims).kill()
            self.kills[kind] += 1
        return kind

    def _processes(self, module: str) -> list[psutil.Process]:
        import psutil

        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if any(word.endswith(module) for word in words) and any(self._folder in word for word in words):
                found.append(process)
        return sorted(found, key=lambda process: process.pid)
