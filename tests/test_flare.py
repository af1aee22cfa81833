"""The federation over NVIDIA FLARE: closed kits, callers who are who they are, and processes that come back."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from nvflare.apis.client import Client
from nvflare.apis.fl_constant import CellMessageAuthHeaderKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

import small_federation
from fedvi.errors import InputError
from fedvi.federation.flare import Supervisor, add_site, coordinator_parent, make_kits, site_parent
from fedvi.federation.flare.controller import SiteController
from fedvi.federation.flare.jobs import write_job
from fedvi.federation.flare.names import CONTROLLER, EXECUTOR
from fedvi.federation.flare.processes import Parent, find
from fedvi.federation.project import Project
from fedvi.federation.server import Server

"""Seconds that a federation of these tests may take, on a machine that does other things too."""


LEAKS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""FLARE's session does not close the sockets of connections that were refused."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def content(path: Path) -> Any:
    return json.loads(path.read_text())


def certificate(kit: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())


def wait_for(happened: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.1)


@pytest.fixture
def project() -> Project:
    return small_federation.project(port=free_port(), updates=150)


@pytest.fixture
def folder(tmp_path: Path, project: Project) -> Path:
    """A coordinator's folder with kits for north and south."""
    made = tmp_path / "coordinator"
    make_kits(project, made)
    project.save(made)
    Server.create(made / "coordinator.db", project).close()
    return made


def test_site_takes_one_class_and_nothing_else_from_its_coordinator(folder: Path) -> None:
    for kit in (folder / "kits").iterdir():
        resources = content(kit / "local" / "resources.json.default")
        assert resources["class_allow_list"] == [EXECUTOR]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["allow_log_streaming"] is False
        assert not any("log" in component["id"] for component in resources["components"])
        permissions = content(kit / "local" / "authorization.json.default")["permissions"]
        allowed = {(role, right) for role, rights in permissions.items() for right in rights if rights[right] != "none"}
        assert allowed == {("lead", "submit_job")}  # what it may submit, the list of classes says
        assert content(kit / "startup" / "fed_client.json")["require_signed_jobs"] is True
        assert not [path for path in kit.rglob("*") if path.suffix in {".sh", ".txt", ".py"}]


def test_server_runs_a_job_per_site_and_keeps_its_files_to_itself(folder: Path, project: Project) -> None:
    coordinator_parent(folder)
    resources = content(folder / "server" / "local" / "resources.json")
    assert resources["class_allow_list"] == [CONTROLLER]
    scheduler = next(each for each in resources["components"] if each["id"] == "job_scheduler")
    assert scheduler["args"]["max_jobs"] > 1000
    assert "nvflare/" not in json.dumps(resources)  # by default jobs lie in a folder of all users
    server = content(folder / "server" / "startup" / "fed_server.json")["servers"][0]
    assert server["service"]["target"] == f"localhost:{project.port}"  # by which FLARE listens on loopback only
    assert server["connection_security"] == "mtls"
    permissions = content(folder / "server" / "local" / "authorization.json.default")["permissions"]
    assert {role for role, rights in permissions.items() if set(rights.values()) != {"none"}} == {"lead"}
    assert {permissions["lead"][right] for right in ("shell_commands", "byoc", "operate", "download_job")} == {"none"}


def test_kits_hold_the_project_and_keys_that_nobody_else_has(folder: Path, project: Project) -> None:
    for site in project.sites:
        kit = folder / "kits" / site
        assert Project.load(kit / "fedvi") == project
        assert (kit / "startup" / "client.key").stat().st_mode & 0o077 == 0
        assert certificate(kit).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value == site
    kept = folder / "ca" / project.name / "state" / "cert.json"
    assert kept.stat().st_mode & 0o077 == 0
    keys = {path.read_text().strip() for path in folder.rglob("*.key")}
    assert len(keys) == len(project.sites) + 2  # and the server's, and the supervisor's
    assert not any(json.dumps(key)[1:-1] in kept.read_text() for key in keys)
    assert not list((folder / "ca").rglob("*.key"))


def test_late_site_gets_a_kit_of_the_same_authority(folder: Path, project: Project) -> None:
    before = (folder / "server" / "startup" / "server.crt").read_bytes()
    larger = dataclasses.replace(project, sites=(*project.sites, "west"))
    add_site(larger, folder, "west")
    root = x509.load_pem_x509_certificate((folder / "server" / "startup" / "rootCA.pem").read_bytes())
    certificate(folder / "kits" / "west").verify_directly_issued_by(root)
    assert Project.load(folder / "kits" / "west" / "fedvi") == larger
    assert (folder / "server" / "startup" / "server.crt").read_bytes() == before
    with pytest.raises(InputError, match="without a kit, got 'west'"):
        add_site(larger, folder, "west")
    with pytest.raises(InputError, match="one of the project's sites"):
        add_site(larger, folder, "east")
    with pytest.raises(InputError, match="a federation was made there"):
        make_kits(project, folder)


def test_supervisor_reaches_a_server_with_a_public_name_on_its_own_machine(tmp_path: Path) -> None:
    make_kits(small_federation.project(host="federation.example.org"), tmp_path)
    admin = content(tmp_path / "admin" / "startup" / "fed_admin.json")["admin"]
    assert (admin["host"], admin["server_identity"]) == ("localhost", "federation.example.org")
    site = content(tmp_path / "kits" / "north" / "startup" / "fed_client.json")["servers"][0]
    assert site["service"]["target"].startswith("federation.example.org:")


def test_job_is_configuration_for_one_site(tmp_path: Path) -> None:
    job = write_job("north", tmp_path)
    assert {path.suffix for path in job.rglob("*") if path.is_file()} == {".json"}
    assert content(job / "meta.json")["deploy_map"] == {"coordinator": ["server"], "site": ["north"]}
    theirs = content(job / "site" / "config" / "config_fed_client.json")
    assert [each["executor"] for each in theirs["executors"]] == [{"path": EXECUTOR, "args": {}}]
    ours = content(job / "coordinator" / "config" / "config_fed_server.json")
    assert [each["args"] for each in ours["workflows"]] == [{"site": "north"}]


def test_federation_is_imported_without_engine_and_without_jax() -> None:
    code = "import sys, fedvi.federation.flare; print([name for name in ('nvflare', 'jax') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_missing_engine_is_a_message_with_a_remedy() -> None:
    code = "import sys; sys.modules['nvflare'] = None; from fedvi.federation.flare import make_kits"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert "NVIDIA FLARE is not installed. Install it with: pip install 'fedvi[flare]'" in said


class Recorder:
    """Stands for the durable server, and remembers what it was given."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, bytes]] = []

    def handle(self, name: str, data: bytes) -> bytes:
        self.handled.append((name, data))
        return b"answer"

    def finished(self, name: str) -> bool:
        return name == "done"


def ask(token: str | None, payload: Any = b"release", **claimed: str) -> tuple[Message, Recorder]:
    controller, recorder = SiteController("north"), Recorder()
    controller.server = recorder  # type: ignore[assignment]
    controller.clients = lambda: {"token of north": Client("north", "token of north")}
    headers = {CellMessageAuthHeaderKey.TOKEN: token, CellMessageAuthHeaderKey.CLIENT_NAME: "north", **claimed}
    return controller.answer(Message(headers, payload)), recorder


def test_bytes_of_the_site_reach_the_server_and_its_answer_the_site() -> None:
    reply, recorder = ask("token of north")
    assert recorder.handled == [("north", b"release")]
    assert (reply.get_header(MessageHeaderKey.RETURN_CODE), reply.payload) == (ReturnCode.OK, b"answer")


@pytest.mark.parametrize("token", ["token of south", "", None])
def test_caller_is_known_by_its_token_and_not_by_what_it_claims(token: str | None) -> None:
    reply, recorder = ask(token)
    assert recorder.handled == []
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.UNAUTHENTICATED
    assert "serves site north only" in reply.get_header(MessageHeaderKey.ERROR)


def test_message_that_is_no_bytes_is_refused() -> None:
    reply, recorder = ask("token of north", {"not": "bytes"})
    assert recorder.handled == []
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.INVALID_REQUEST


def test_start_and_stop_end_what_a_killed_parent_left(tmp_path: Path) -> None:
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], "
    parent = Parent(tmp_path, "none", [], ["old-*"])
    parent.command = [sys.executable, "-c", child + "start_new_session=True); time.sleep(60)"]
    (tmp_path / "old-job").mkdir()
    with ended(parent):
        parent.ensure()
        assert not (tmp_path / "old-job").exists()
        wait_for(lambda: len(parent.processes()) == 2)
        assert parent.process is not None
        orphan = next(each.process for each in find(tmp_path) if each.generation == 1)
        parent.process.kill()
        parent.process.wait()
        assert not parent.alive()
        assert orphan in parent.processes()
        parent.start()
        assert orphan not in parent.processes()
        wait_for(lambda: len(parent.processes()) == 2)
    assert find(tmp_path) == []


def test_parent_that_dies_at_once_is_started_less_and_less_often(tmp_path: Path) -> None:
    parent = Parent(tmp_path, "none", [], [])
    parent.command = [sys.executable, "-c", ""]
    waits = []
    with ended(parent):
        for _ in range(3):
            parent.started = float("-inf")
            parent.ensure()
            waits.append(parent.wait)
            assert parent.process is not None
            parent.process.wait()
        started = parent.process
        parent.ensure()
        assert parent.process is started
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]


@contextlib.contextmanager
def ended(*parents: Parent | Supervisor) -> Iterator[None]:
    """End parents and all that they started, whatever happens."""
    try:
        yield
    finally:
        for parent in parents:
            parent.stop()
        gc.collect()  # what FLARE leaks comes to light here, and not in another test


def takes(port: int, context: ssl.SSLContext | None) -> bool:
    """Tell whether the server leaves a connection open for more than a moment."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        try:
            if context is None:
                connection.sendall(b"no greeting of TLS " * 4)
            else:
                connection = stack.enter_context(context.wrap_socket(connection))
            connection.settimeout(2)
            while connection.recv(1024):  # a refused certificate is said after the client's part of the greeting
                pass
        except TimeoutError:
            return True
        except (ssl.SSLError, ConnectionError):
            pass
    return False


def trusting(kit: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    return context


@pytest.mark.slow
@LEAKS
def test_strangers_get_nowhere(folder: Path, project: Project, tmp_path: Path) -> None:
    make_kits(project, tmp_path / "foreign")
    impostor = tmp_path / "impostor"  # has south's certificate, and says that it is north
    shutil.copytree(folder / "kits" / "south", impostor)
    settings = impostor / "startup" / "fed_client.json"
    settings.write_text(settings.read_text().replace('"fqsn": "south"', '"fqsn": "north"'))
    supervisor, stranger = Supervisor(folder), site_parent(impostor)
    honest = site_parent(folder / "kits" / "south")

    def connected() -> tuple[str, ...]:
        supervisor.step()
        return supervisor.connected

    with ended(supervisor, honest, stranger):
        stranger.ensure()
        supervisor.step()
        wait_for(supervisor._listens)
        assert takes(project.port, trusting(folder / "kits" / "north"))
        assert not takes(project.port, None)
        assert not takes(project.port, trusting())
        assert not takes(project.port, trusting(tmp_path / "foreign" / "kits" / "north"))
        honest.ensure()
        wait_for(connected)
        wait_for(lambda: "authenticated as 'south' but claimed endpoint 'north'" in supervisor.parent.log.read_text())
        for _ in range(3):
            assert connected() == ("south",)
        with Server.open(folder / "coordinator.db") as server:
            assert server.version == 0
