"""NVIDIA FLARE and Flower carry a federation's signed messages, in real processes that are killed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedvi.federation.demo.checking import Check, Files, check
from fedvi.federation.demo.engines import Engine
from fedvi.federation.demo.flare_engine import SERVER, FlareEngine
from fedvi.federation.demo.flower_engine import FlowerEngine
from fedvi.federation.description import Description
from fedvi.federation.enrolment import enrol
from fedvi.federation.envelope import Correspondence
from fedvi.federation.invitation import Invitation
from fedvi.federation.making import SOCKET, invite, make_federation, read_key
from fedvi.federation.settings import KEY, load_address, transport_to
from fedvi.federation.site import Site
from fedvi.federation.store.file import FILE, CoordinatorFile
from fedvi.federation.store.reader import Reader
from fedvi.federation.transports import base
from fedvi.federation.transports.serving import Service
from fedvi.privacy import Budget
from small_federation import description, rows_of, site_of

pytestmark = pytest.mark.slow
SITES = ("north", "south")
LONG = 400.0


class Federation:
    """A coordinator on its Unix socket, and two sites in threads, whose messages an engine carries.

    pause: seconds between a site's exchanges.
    """

    def __init__(self, folder: Path, updates: int, pause: float):
        self.folder, self.pause, self.errors = folder, pause, list[BaseException]()
        self.description = make_federation(description(SITES, updates, url=""), folder / "c")
        self.over = threading.Event()
        sites = [threading.Thread(target=self._kept, args=(self._work, number)) for number in range(len(SITES))]
        self.sites, self.coordinator = sites, threading.Thread(target=self._kept, args=(self._coordinate,))

    @property
    def socket(self) -> Path:
        return self.folder / "c" / SOCKET

    @contextlib.contextmanager
    def at_work(self, engine: Engine) -> Iterator[None]:
        self.engine = engine
        self.coordinator.start()
        with engine:
            engine.start()
            for each in self.sites:
                each.start()
            try:
                yield
                for each in self.sites:
                    each.join(LONG)
            finally:
                self.over.set()
                for each in (*self.sites, self.coordinator):
                    each.join()
        assert not self.errors

    def wait_for(self, answers: int) -> None:
        """Wait until the coordinator has so many answers."""
        with CoordinatorFile.open(self.folder / "c" / FILE) as store:
            until(lambda: store.version >= answers or self.errors)

    def check(self) -> Check:
        files = {site: Files(self.folder / f"{site}.db", self.folder / f"{site}.ledger") for site in SITES}
        with Reader.open(self.folder / "c" / FILE) as store:
            return check(store, files)

    def _kept(self, work: Callable[..., None], *arguments: int) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def _coordinate(self) -> None:
        with Service(self.folder / "c") as service:
            asyncio.run(service.run(self.over.is_set))

    def _work(self, number: int) -> None:
        """Join, and work to the end of the federation."""
        name = SITES[number]
        own, link = self.folder / name, self.engine.link_path(name)
        enrol(Invitation.parse(invite(self.folder / "c", name)), own, link, patience=LONG)
        address, transport = load_address(own), transport_to(own, load_address(own), link)
        letters = Correspondence(transport, address.federation, name, read_key(own / KEY), address.coordinator)

        def exchange(body: bytes, *, wait: bool) -> bytes:
            time.sleep(self.pause)
            return letters.exchange(body, wait=wait)

        try:
            with self._site(number, Description.load(own)) as site:
                base.run(site, exchange, self.over.is_set)
        finally:
            transport.close()

    def _site(self, number: int, chosen: Description) -> Site:
        place, ledger = self.folder / f"{SITES[number]}.db", self.folder / f"{SITES[number]}.ledger"
        return site_of(place, chosen, rows_of(number), Budget(1.0), ledger)


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < end, f"not within {LONG:g} s"
        time.sleep(0.02)


def left_behind(folder: Path) -> list[str]:
    """Return the commands of processes that have to do with a folder."""
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if str(folder) in line]


def test_flares_parents_are_killed_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    federation = Federation(tmp_path, updates=60, pause=0.2)
    engine = FlareEngine(tmp_path / "e", SITES, federation.socket)
    with federation.at_work(engine):
        for answers, victim in ((20, "FLARE's site"), (60, "FLARE's server")):
            federation.wait_for(answers)
            assert engine.victims("north")[victim]()
    found = federation.check()
    assert found.holds
    assert found.updates == 120
    assert not left_behind(tmp_path)


class OrdinaryServer(FlareEngine):
    """FLARE with a server that takes jobs, and a user who may do everything there."""

    user = "admin@hospital.org"

    def command(self, *command: str, times: int = 1) -> None:
        path = self.folder / "project.yml"
        project = json.loads(path.read_text())
        project["participants"].append({"name": self.user, "type": "admin", "org": "fedvi", "role": "project_admin"})
        path.write_text(json.dumps(project))
        super().command(*command, times=times)

    def run(self, name: str, *command: str) -> None:
        if name == SERVER:
            local = self.kit(name) / "local"
            (local / "authorization.json").unlink()
            usual = (local / "resources.json.default").read_text()
            (local / "resources.json").write_text(re.sub('"[^"]*/nvflare/', f'"{self.folder}/', usual))
        super().run(name, *command)

    def ask(self, expected: str, *command: str) -> None:
        """Give FLARE a command, again and again until it says what is expected."""
        asked = [sys.executable, "-m", "nvflare.cli", *command, "--startup-kit", str(self.kit(self.user))]
        environment = self.environment | {"HOME": str(self.folder)}
        until(lambda: expected in subprocess.run(asked, env=environment, capture_output=True, text=True).stdout)


def test_a_site_of_flare_does_nothing_for_flares_users(tmp_path: Path) -> None:
    app = tmp_path / "job" / "app" / "config"
    app.mkdir(parents=True)
    workflow = {"id": "any", "path": "nvflare.app_common.workflows.cyclic_ctl.CyclicController"}
    (app / "config_fed_server.json").write_text(json.dumps({"format_version": 2, "workflows": [workflow]}))
    (app / "config_fed_client.json").write_text(json.dumps({"format_version": 2, "executors": []}))
    meta = {"name": "job", "min_clients": 1, "resource_spec": {}, "deploy_map": {"app": ["@ALL"]}}
    (tmp_path / "job" / "meta.json").write_text(json.dumps(meta))
    with OrdinaryServer(tmp_path / "e", SITES[:1], tmp_path / "no.sock") as engine:
        engine.start()
        engine.ask("north: user 'admin@hospital.org' is not authorized", "system", "resources", "client", "north")
        engine.ask("job_id", "job", "submit", "-j", str(tmp_path / "job"))
        log = tmp_path / "e" / "localhost.log"
        until(lambda: "not enough sites have enough resources (ok sites 0 < min sites 1)" in log.read_text())
        engine.ask("SUBMITTED", "job", "list")
    assert not left_behind(tmp_path)


@pytest.mark.long
def test_a_clientapp_and_a_supernode_are_killed_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    federation = Federation(tmp_path, updates=3, pause=0.0)
    engine = FlowerEngine(tmp_path / "e", SITES, federation.socket)
    with federation.at_work(engine):
        federation.wait_for(2)
        until(engine.victims("north")["ClientApp"])
        assert engine.victims("south")["SuperNode"]()
        engine.make_key("stranger")
        engine.start_supernode("stranger")
    log = (tmp_path / "e" / "stranger.log").read_text()
    assert "Failed to activate SuperNode" in log
    assert "Receiving" not in log
    found = federation.check()
    assert found.holds
    assert found.updates == 6
    assert not left_behind(tmp_path)
