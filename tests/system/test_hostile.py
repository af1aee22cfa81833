"""Parties that have certificates and are hostile: which requests come through, and real processes that try."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engines import LEAKS, ended, make_folder, new_project, wait_for
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.demo.run import tiny_description
from fedvi.federation.settings import SiteSettings
from fedvi.federation.transports.flare.accepting import objection
from fedvi.federation.transports.flare.gate import Gate, at_server, at_servers_job, at_site
from fedvi.federation.transports.flare.jobs import SITE_CONFIGURATION
from fedvi.federation.transports.flare.names import ADMIN
from fedvi.federation.transports.flare.processes import site_parent
from fedvi.federation.transports.flare.supervisor import Supervisor

MESSAGE, TOKENS, SHELL = ("fedvi", "message"), ("server_parent_listener", "get_clients"), ("admin", "sys.shell")
NORTH = at_site("coordinator.org")
BULK, TASK, NETWORK = ("cellnet.channel", "bulk"), ("task", "register"), ("_net_manager", "cells")


@pytest.mark.parametrize(
    ("gate", "peer", "origin", "destination", "kind", "admitted"),
    [
        (at_server, "north", "north", "server", TASK, True),
        (at_server, "north", "north.1", "server.1", MESSAGE, True),
        (at_server, "south", "north", "server", TASK, False),  # says that it is another
        (at_server, "south", "north.1", "server.1", MESSAGE, False),
        (at_server, "south", "server.2", "server.1", MESSAGE, False),
        (at_server, "south", "south.2", "north", SHELL, False),  # from site to site
        (at_server, "south", "south.2", "north.1", MESSAGE, False),
        (at_server, "south", "south", "server", TOKENS, False),
        (at_server, "south", "south", "server", NETWORK, False),
        (at_server, "south", "south.2", "server.1", BULK, False),
        (at_server, "south", "south", "server", ("hci_channel", "command"), False),
        (at_server, ADMIN, "_admin_1", "server", ("hci_channel", "command"), True),
        (at_server, ADMIN, "_admin_1", "north", SHELL, False),
        (at_server, None, "server.1", "north", ("fedvi", "runs"), True),
        (at_server, None, "north.1", "server", TOKENS, False),
        (at_servers_job, None, "north.1", "server.1", MESSAGE, True),
        (at_servers_job, None, "north.1", "server.1", BULK, False),
        (at_servers_job, "north", "north.1", "server.1", MESSAGE, False),
        (NORTH, "coordinator.org", "server", "north", ("admin", "admin"), True),
        (NORTH, "coordinator.org", "server.1", "north", ("fedvi", "runs"), True),
        (NORTH, "coordinator.org", "server.1", "north.1", ("return_only", "fedvi:message"), True),
        (NORTH, "coordinator.org", "south.2", "north", ("admin", "admin"), False),
        (NORTH, "coordinator.org", "server", "north", NETWORK, False),
        (NORTH, "coordinator.org", "server.1", "north.1", ("client_command", "abort"), False),
        (NORTH, "coordinator.org", "server", "north", BULK, False),
        (NORTH, "south", "server", "north", ("admin", "admin"), False),  # a server that is none
        (NORTH, None, "north", "north.1", ("client_command", "abort"), True),
        (NORTH, None, "server.1", "north.1", None, True),  # answers, by way of the site's own process
        (NORTH, "coordinator.org", "server.1", "north.1", None, True),
        (NORTH, "coordinator.org", "south.2", "north", None, False),
        (at_server, "north", "north.1", "server.1", None, True),
        (at_server, "south", "south.2", "north", None, False),
        (at_server, "south", "north.1", "server.1", None, False),
        (NORTH, None, "north.1", "server.1", MESSAGE, True),
        (NORTH, None, "north.1", "south", SHELL, False),
    ],
)
def test_gate_admits_what_a_federation_needs_and_nothing_else(
    gate: Gate, peer: str | None, origin: str, destination: str, kind: tuple[str, str] | None, admitted: bool
) -> None:
    assert gate(peer, origin, destination, kind) is admitted


def test_site_behind_its_gate_runs_no_commands_takes_no_huge_frames_and_looks_for_no_settings_in_jobs() -> None:
    code = """
from fedvi.federation.transports.flare import accepting, gate
accepting.restrict()
gate.close(gate.at_site("coordinator.org"))
from nvflare.fuel.f3.cellnet.cell import Cell, CoreCell
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.drivers import socket_conn
from nvflare.private.fed.app.deployer.base_client_deployer import BaseClientDeployer
left = {topic for each in BaseClientDeployer().req_processors for topic in each.get_topics()}
print(sorted(left), 1e8 < socket_conn.MAX_FRAME_SIZE < 2e8, CoreCell.__name__, CommConfigurator().get_config())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    topics = ["abort", "check_resource", "cancel_resource", "deploy", "notify_job_status", "start_job"]
    wanted = sorted(f"{'scheduler' if 'resource' in topic else 'train'}.{topic}" for topic in topics)
    assert said.stdout.strip() == f"{wanted} True Gated None", said.stderr


def packed(**changes: bytes | None) -> bytes:
    """Return a site's half of a job as it comes, with files changed, added or left out."""
    files: dict[str, bytes | None] = {
        "config/config_fed_client.json": json.dumps(SITE_CONFIGURATION).encode(),
        "config/.__nvfl_sig.json": b"{}",
        ".__nvfl_submitter.crt": b"",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in (files | changes).items():
            if content is not None:
                archive.writestr(name, content)
    return data.getvalue()


NUMBER = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = SITE_CONFIGURATION | {"components": [{"id": "evil", "path": "os.system", "args": {}}]}


@pytest.mark.parametrize(
    ("topic", "job", "body", "accepted"),
    [
        ("train.deploy", NUMBER, packed(), True),
        ("train.deploy", "local", packed(), False),  # a folder of the site's own
        ("train.deploy", None, packed(), False),
        ("train.deploy", f"{NUMBER}/..", packed(), False),
        ("train.deploy", NUMBER, packed(**{"config/comm_config.json": b"{}"}), False),
        ("train.deploy", NUMBER, packed(**{"config/pwn.py": b""}), False),
        ("train.deploy", NUMBER, packed(**{"custom/pwn.py": b""}), False),
        ("train.deploy", NUMBER, packed(**{"config/config_fed_client.json": None}), False),
        ("train.deploy", NUMBER, packed(**{"config/config_fed_client.json": json.dumps(OTHER).encode()}), False),
        ("train.deploy", NUMBER, packed(**{".__nvfl_sig.json": bytes(2 << 20)}), False),
        ("train.deploy", NUMBER, b"no zip", False),
        ("train.deploy", NUMBER, None, False),
        ("train.start_job", NUMBER, {}, True),
        ("train.start_job", "startup", {}, False),
        ("scheduler.check_resource", None, {}, True),
        ("train.abort", "local", None, False),
    ],
)
def test_site_takes_the_job_of_its_own_fedvi_and_no_other(topic: str, job: Any, body: Any, accepted: bool) -> None:
    assert (objection(topic, job, body) == "") is accepted


@contextmanager
def hostile(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> Iterator[None]:
    """Let processes that are started within be hostile."""
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "injected"))
        changed.setenv("FEDVI_INJECTED", "hostile")
        changed.setenv("HOSTILE_NAME", name)
        changed.setenv("HOSTILE_FOLDER", str(folder))
        yield


@pytest.mark.slow
@LEAKS
def test_hostile_site_and_hostile_coordinator_get_no_file_no_token_and_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """South and the coordinator's own processes ask for what they must not have; north, honest, goes on meanwhile."""
    (tmp_path / "secret.txt").write_text("rows of north")
    description = new_project(updates=1000, epsilon=10.0)
    folder = make_folder(tmp_path, description)
    tiny_description(tmp_path, 2, description.sites)  # writes the tables
    for site in description.sites:
        SiteSettings(folder / "kits" / site, tmp_path / f"{site}.csv", tmp_path / f"{site}.ledger", 1.0).save()
    supervisor = Supervisor(folder)
    north, south = (site_parent(folder / "kits" / site) for site in ("north", "south"))
    done = {"south": tmp_path / "south.jsonl", "coordinator": tmp_path / "coordinator.jsonl"}

    def attacked() -> bool:
        supervisor.step()
        if "north" in supervisor.turns and supervisor.turns["north"].job and supervisor.server.site("north").sequence:
            (tmp_path / "job").write_text(supervisor.turns["north"].job)
        return all(path.exists() and "end of the attacks" in path.read_text() for path in done.values())

    with ended(supervisor, north, south):
        with hostile(monkeypatch, "coordinator", tmp_path):
            supervisor.step()
        with hostile(monkeypatch, "south", tmp_path):
            south.start()
        north.start()
        wait_for(attacked, 120)
        after = supervisor.server.site("north").sequence
        wait_for(lambda: supervisor.server.site("north").sequence > after)
        log, north_log = supervisor.parent.log.read_text(), north.log.read_text()

    said = {name: [json.loads(line) for line in path.read_text().splitlines()] for name, path in done.items()}
    for name, answers in said.items():
        assert len(answers) >= 8, name
        assert not [each for each in answers if "rows of north" in each[2]], name
    assert {code for _, code, _ in said["south"]} == {"unauthenticated"}, said["south"]
    assert {each[0]: each[2] for each in said["coordinator"]}["shell by another name"] == "invalid_request"
    assert log.count("Refused: 'south.") >= 7
    assert log.count("Dropped 'south.") >= 1
    assert "adhoc connector" not in north_log
    with Coordinator.open(folder / "coordinator.db") as server:
        assert server.refusals() == []
        assert server.verify() < 1e-6
