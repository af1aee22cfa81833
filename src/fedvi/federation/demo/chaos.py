"""Killing processes of a federation at random, as crashes, reboots and tired people do."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedvi.federation.demo.local import LocalFederation

if TYPE_CHECKING:
    import subprocess

    import psutil

COMMAND, PARENT, JOB = -1, 0, 2
"""Generations of a party's processes: the command that people run, and below it the engine's."""

KINDS = {
    "site's command": (False, COMMAND),
    "site's parent": (False, PARENT),
    "site's job": (False, JOB),
    "coordinator's command": (True, COMMAND),
    "coordinator's parent": (True, PARENT),
    "coordinator's job": (True, JOB),
}
"""What is killed: whether it is the coordinator's, and of which generation."""


class Chaos:
    """Kills with SIGKILL: all kinds in turn, then again in another order.

    The seed decides the order, as far as there are processes of the kind whose turn it is; which process of it, the
    operating system. kills: how often each kind was hit.
    """

    def __init__(self, federation: LocalFederation, seed: int):
        self._federation, self._random = federation, random.Random(seed)
        self._turns: list[str] = []
        self.kills: Counter[str] = Counter()

    def strike(self) -> str:
        """Kill one process, and return what it was; empty if there is none of those whose turn has not come yet."""
        import psutil

        self._turns = self._turns or self._random.sample(list(KINDS), len(KINDS))
        for kind in self._turns:
            if victims := self._processes(*KINDS[kind]):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._random.choice(victims).kill()
                    self.kills[kind] += 1
                    self._turns.remove(kind)
                    return kind
        return ""

    def _processes(self, coordinator: bool, generation: int) -> Sequence[psutil.Process | subprocess.Popen[bytes]]:
        from fedvi.federation.transports.flare.names import SERVER_FOLDER
        from fedvi.federation.transports.flare.processes import find

        if generation == COMMAND:
            return self._federation.commands(coordinator)
        victims = [
            found.process
            for found in find(self._federation.folder)
            if (found.folder.name == SERVER_FOLDER) == coordinator and found.generation == generation
        ]
        return sorted(victims, key=lambda process: process.pid)
