"""A federation on one machine: every party is a `fedvi` command of its own, with the engine's processes below it.

`Chaos` kills them at random, as crashes, reboots and tired people do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedvi.errors import FedviError
from fedvi.federation.coordinator_file import FILE, CoordinatorFile
from fedvi.federation.demo.checking import Check, Files, check
from fedvi.federation.description import Description
from fedvi.federation.invitation import make_federation
from fedvi.federation.settings import FOLDER, STATE

if TYPE_CHECKING:
    import psutil

COORDINATOR = "coordinator"
LOOK = 0.5
"""Seconds between two looks at a federation that runs."""


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


class LocalFederation:
    """A federation in a folder, which holds SITE.csv for every site of the description.

    The description's port is replaced by one of this machine that is free.
    """

    def __init__(self, folder: Path, description: Description, epsilon: float):
        self.folder, self.epsilon = folder.resolve(), epsilon
        self.description = make_federation(dataclasses.replace(description, port=free_port()), self.coordinator)
        self.parties: dict[str, Party] = {}

    @property
    def coordinator(self) -> Path:
        """The coordinator's folder."""
        return self.folder / COORDINATOR

    def store(self) -> CoordinatorFile:
        """Open the coordinator's file."""
        return CoordinatorFile.open(self.coordinator / FILE)

    def ledger(self, site: str) -> Path:
        """Return where a site has its ledger."""
        return self.folder / f"{site}.ledger"

    def kit(self, site: str) -> Path:
        """Return where a site has unpacked its kit."""
        return self.coordinator / "kits" / site

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start all parties; at the end, stop them and all that they started."""
        self.parties = {COORDINATOR: self._party(COORDINATOR, "federation", "start", self.coordinator, "--no-page")}
        for site in self.description.sites:
            table = ("--data", self.folder / f"{site}.csv", "--ledger", self.ledger(site))
            kit = self.kit(site).with_suffix(".zip")
            self.parties[site] = self._party(site, "site", "join", kit, *table, "--eps", self.epsilon, "--yes")
        try:
            self.ensure()
            yield
        finally:
            for party in self.parties.values():
                party.send(signal.SIGTERM)
            for party in self.parties.values():
                party.end()
            self._end_leftovers()

    def until_over(self, store: CoordinatorFile, seconds: float) -> Iterator[float]:
        """Yield the time again and again until the federation is over and all have seen it; restart who has died.

        seconds: after which it is given up.
        """
        deadline = time.monotonic() + seconds
        while not store.over:
            now = time.monotonic()
            if now > deadline:
                logs = self.folder / "*.log"
                raise FedviError(f"The federation did not end within {seconds:g} s. What its parties said: {logs}")
            self.ensure()
            yield now
            time.sleep(LOOK)
        for party in self.parties.values():
            party.wait(60)

    def ensure(self) -> None:
        """Start parties that have died."""
        for party in self.parties.values():
            party.ensure()

    def commands(self, coordinator: bool) -> list[subprocess.Popen[bytes]]:
        """Return the commands that run: the coordinator's, or the sites'."""
        wanted = (party for name, party in self.parties.items() if (name == COORDINATOR) == coordinator)
        return [party.process for party in wanted if party.process is not None and party.process.poll() is None]

    def check(self, store: CoordinatorFile) -> Check:
        """Compare the coordinator's file with the sites' files and ledgers."""
        sites = self.description.sites
        return check(store, {site: Files(self.kit(site) / FOLDER / STATE, self.ledger(site)) for site in sites})

    def _end_leftovers(self) -> None:
        """End what commands that were killed have left behind."""
        import psutil

        from fedvi.federation.transports.flare.processes import find

        while found := find(self.folder):
            for each in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.process.kill()

    def _party(self, name: str, *arguments: object) -> Party:
        environment = os.environ | {"FEDVI_STATE_DIR": str(self.folder / "witnesses")}  # ledgers of demonstrations
        return Party(list(map(str, arguments)), environment, self.folder / f"{name}.log")


class Party:
    """A command that is started again until it has ended well."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path):
        self._command, self._environment, self._log = [sys.executable, "-m", "fedvi", *arguments], environment, log
        self.process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Start it, unless it runs or has ended well."""
        if self.process is None or self.process.poll() not in (None, 0):
            with self._log.open("ab") as output:
                self.process = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, but not for ever."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None:
            self.process.send_signal(number)

    def end(self) -> None:
        """Wait for it, and kill it if it does not stop."""
        self.wait(20)
        self.send(signal.SIGKILL)
        self.wait(20)


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


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
