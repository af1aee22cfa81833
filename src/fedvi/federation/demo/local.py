"""A federation on one machine: every party is a `fedvi` command of its own, with the engine's processes below it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedvi.federation.coordinator_file import FILE, CoordinatorFile
from fedvi.federation.demo.checking import Check, Files, check
from fedvi.federation.description import Description
from fedvi.federation.invitation import make_federation
from fedvi.federation.settings import FOLDER, STATE

if TYPE_CHECKING:
    import psutil

COORDINATOR = "coordinator"


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
                party.interrupt()
            for party in self.parties.values():
                party.end()
            self._end_leftovers()

    def ensure(self) -> None:
        """Start parties that have died."""
        for party in self.parties.values():
            party.ensure()

    def commands(self, coordinator: bool) -> list[psutil.Process]:
        """Return the commands that run: the coordinator's, or the sites'."""
        running = ((name, party.process()) for name, party in self.parties.items())
        return [process for name, process in running if process and (name == COORDINATOR) == coordinator]

    def wait(self) -> None:
        """Wait until all parties have seen that it is over."""
        for party in self.parties.values():
            party.wait()

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
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def ensure(self) -> None:
        """Start it, unless it runs or has ended well."""
        if self._process is not None and self._process.poll() in (None, 0):
            return
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.starts += 1

    def process(self) -> psutil.Process | None:
        """Return its process, if it runs."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            if self._process is not None and self._process.poll() is None:
                return psutil.Process(self._process.pid)
        return None

    def wait(self, seconds: float = 60) -> None:
        """Wait until it has ended, but not for ever."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return

    def interrupt(self) -> None:
        """Ask it to stop, as Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait for it, and kill it if it does not stop."""
        self.wait(20)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
