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
    "site's job": (False, 2),
    "site's parent": (False, 0),
    "coordinator's job": (True, 2),
    "coordinator's parent": (True, 0),
}
"""What is killed: whether it is the coordinator's, and of which generation."""


class Chaos:
    """Kills with SIGKILL. The seed decides which kind comes next; which process of it, the operating system.

    kills: how often each kind was hit.
    """

    def __init__(self, folder: Path, seed: int):
        self._folder, self._random = folder, random.Random(seed)
        self.kills: Counter[str] = Counter()

    def strike(self) -> str:
        """Kill one process, and return what it was; empty if there was none of the kind that was chosen."""
        import psutil

        kind = self._random.choice(list(KINDS))
        victims = self._processes(*KINDS[kind])
        if not victims:
            return ""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._random.choice(victims).kill()
            self.kills[kind] += 1
        return kind

    def _processes(self, coordinator: bool, generation: int) -> list[psutil.Process]:
        from fedvi.federation.flare.names import SERVER_FOLDER
        from fedvi.federation.flare.processes import find

        victims = (
            found.process
            for found in find(self._folder)
            if (found.folder.name == SERVER_FOLDER) == coordinator and found.generation == generation
        )
        return sorted(victims, key=lambda process: process.pid)
