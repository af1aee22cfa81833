"""A federation on one machine: every party is a `fedvi` command of its own, an engine's processes beside them.

`Chaos` kills them at random, as crashes, reboots and tired people do; a proxy may spoil what sites and coordinator say.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from fedvi.errors import FedviError, InputError
from fedvi.federation.demo.checking import Check, Files, check
from fedvi.federation.demo.engines import Engine, free_port
from fedvi.federation.demo.proxy import SpoilingProxy
from fedvi.federation.description import Description
from fedvi.federation.making import SOCKET, invite, make_federation
from fedvi.federation.settings import FILE as SITE
from fedvi.federation.settings import STATE
from fedvi.federation.store.file import FILE
from fedvi.federation.store.reader import Reader

COORDINATOR = "coordinator"
HTTPS, FLARE, FLOWER = TRANSPORTS = ("https", "flare", "flower")
LOOK = 0.2
"""Seconds between two looks at a federation that runs."""

SPOILT = 0.2
"""Share of the exchanges that a proxy spoils during chaos."""


class LocalFederation:
    """A federation in a folder, which holds SITE.csv for every site of the description.

    The description's address is replaced by one of this machine. transport: what carries messages. spoilt: whether a
    proxy is between sites and coordinator, and spoils a part of what it carries.
    """

    def __init__(
        self, folder: Path, description: Description, epsilon: float, transport: str = HTTPS, spoilt: bool = False
    ):
        self.folder, self.epsilon = folder.resolve(), epsilon
        self.parties: dict[str, Party] = {}
        self.proxy: SpoilingProxy | None = None
        self.engine = self._engine(transport, description.sites)
        self._port, place = free_port(), {"url": ""}
        if transport == HTTPS:
            place = {"url": f"https://127.0.0.1:{self._port}"}
            if spoilt:
                self.proxy = SpoilingProxy(self.folder / "proxy", f"http://127.0.0.1:{self._port}", SPOILT)
                place = {"url": f"https://127.0.0.1:{self.proxy.port}", "tls": self.proxy.pin}
        self.description = make_federation(dataclasses.replace(description, **place), self.coordinator)  # type: ignore[arg-type]

    @property
    def coordinator(self) -> Path:
        """The coordinator's folder."""
        return self.folder / COORDINATOR

    def store(self) -> Reader:
        """Open the coordinator's file."""
        return Reader.open(self.coordinator / FILE)

    def ledger(self, site: str) -> Path:
        """Return where a site has its ledger."""
        return self.folder / f"{site}.ledger"

    def home(self, site: str) -> Path:
        """Return the folder of a site."""
        return self.folder / "sites" / site

    @contextlib.contextmanager
    def running(self, sites: Sequence[str] | None = None) -> Iterator[None]:
        """Start the coordinator and these sites, all by default; at the end, stop them and all that they started."""
        where = ("--host", "127.0.0.1", "--port", self._port)
        self.parties = {
            COORDINATOR: self._party(COORDINATOR, "federation", "start", self.coordinator, "--no-page", *where)
        }
        for site in self.description.sites if sites is None else sites:
            table = ("--data", self.folder / f"{site}.csv", "--ledger", self.ledger(site), "--eps", self.epsilon)
            line, home = invite(self.coordinator, site), self.home(site)
            link = ("--link", self.engine.link_path(site)) if self.engine else ()
            party = self._party(site, "site", "join", line, *table, "--folder", home, *link, "--yes")
            party.again = partial(_rejoining, home)
            self.parties[site] = party
        try:
            self.ensure()
            if self.engine is not None:
                self.engine.start()
            yield
        finally:
            for party in self.parties.values():
                party.send(signal.SIGTERM)
            for party in self.parties.values():
                party.end()
            for each in (self.engine, self.proxy):
                if each is not None:
                    each.close()

    def until_over(self, store: Reader, seconds: float) -> Iterator[float]:
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

    def check(self, store: Reader) -> Check:
        """Compare the coordinator's file with the sites' files and ledgers."""
        sites = self.description.sites
        return check(store, {site: Files(self.home(site) / STATE, self.ledger(site)) for site in sites})

    def victims(self, rng: random.Random) -> dict[str, Callable[[], bool]]:
        """Return what may be killed, and how; False if there is none of it now."""
        site = rng.choice(self.description.sites)
        parties = {COORDINATOR: self.parties[COORDINATOR].kill, "site": self.parties[site].kill}
        return parties | ({} if self.engine is None else self.engine.victims(site))

    def _engine(self, transport: str, sites: tuple[str, ...]) -> Engine | None:
        if transport == HTTPS:
            return None
        if importlib.util.find_spec({FLARE: "nvflare", FLOWER: "flwr"}[transport]) is None:
            raise InputError(f"{transport} is not installed. Install it from a checkout: pip install '.[{transport}]'")
        from fedvi.federation.demo import flare_engine, flower_engine

        kind = {FLARE: flare_engine.FlareEngine, FLOWER: flower_engine.FlowerEngine}[transport]
        return kind(self.folder / transport, sites, self.coordinator / SOCKET)

    def _party(self, name: str, *arguments: object) -> Party:
        environment = os.environ | {"FEDVI_STATE_DIR": str(self.folder / "witnesses")}  # ledgers of demonstrations
        return Party(list(map(str, arguments)), environment, self.folder / f"{name}.log")


def _rejoining(home: Path) -> list[str] | None:
    """Return what a site is started with that has joined before."""
    return ["site", "join", str(home), "--yes"] if (home / SITE).exists() else None


class Party:
    """A command that is started again until it has ended well. again: what to start later, if anything else."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path):
        self._arguments, self._environment, self._log = arguments, environment, log
        self.process: subprocess.Popen[bytes] | None = None
        self.again: Callable[[], list[str] | None] = lambda: None

    def ensure(self) -> None:
        """Start it, unless it runs or has ended well."""
        if self.process is None or self.process.poll() not in (None, 0):
            with self._log.open("ab") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "fedvi", *(self.again() or self._arguments)],
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

    def kill(self) -> bool:
        """Kill it; False if it does not run."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.kill()
        return True

    def end(self) -> None:
        """Wait for it, and kill it if it does not stop."""
        self.wait(20)
        self.send(signal.SIGKILL)
        self.wait(20)


class Chaos:
    """Kills with SIGKILL: all kinds in turn, then again in another order.

    The seed decides the order, as far as there is something of the kind whose turn it is. kills: how often each kind
    was hit.
    """

    def __init__(self, federation: LocalFederation, seed: int):
        self._federation, self._random = federation, random.Random(seed)
        self._turns: list[str] = []
        self.kills: Counter[str] = Counter()

    def strike(self) -> str:
        """Kill something, and return what it was; empty if there is nothing whose turn has not come yet."""
        victims = self._federation.victims(self._random)
        self._turns = self._turns or self._random.sample(list(victims), len(victims))
        for kind in self._turns:
            if victims[kind]():
                self.kills[kind] += 1
                self._turns.remove(kind)
                return kind
        return ""
