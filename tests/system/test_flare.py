"""The federation over NVIDIA FLARE: closed kits, callers who are who they are, and processes that come back."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

import small_federation
from engines import LEAKS, content, ended, make_folder, new_project, wait_for
from fedvi.errors import InputError
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.description import Description
from fedvi.federation.invitation import KIT_FILES, unpack_kit
from fedvi.federation.records import SiteRecord
from fedvi.federation.transports.flare.controller import SiteController
from fedvi.federation.transports.flare.jobs import write_job
from fedvi.federation.transports.flare.kits import add_site, make_kits
from fedvi.federation.transports.flare.names import CONTROLLER, EXECUTOR
from fedvi.federation.transports.flare.processes import Parent, coordinator_parent, find, site_parent
from fedvi.federation.transports.flare.signing import Signer, Verifier, common_name
from fedvi.federation.transports.flare.supervisor import Supervisor
from fedvi.federation.transports.flare.workspace import site_of, write_workspace
from fedvi.federation.wire import Answer, decode


def certificate(kit: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())


@pytest.fixture
def description() -> Description:
    return new_project()


@pytest.fixture
def folder(tmp_path: Path, description: Description) -> Path:
    """A coordinator's folder with kits for north and south."""
    return make_folder(tmp_path, description)


def test_site_takes_one_class_and_nothing_else_from_its_coordinator(folder: Path) -> None:
    for kit in (folder / "kits").iterdir():
        engine = write_workspace(kit)
        assert site_of(kit)[1] == kit.name
        resources = content(engine / "local" / "resources.json")
        assert resources["class_allow_list"] == [EXECUTOR]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["allow_log_streaming"] is False
        assert not any("log" in component["id"] for component in resources["components"])
        permissions = content(engine / "local" / "authorization.json")["permissions"]
        allowed = {(role, right) for role, rights in permissions.items() for right in rights if rights[right] != "none"}
        assert allowed == {("lead", "submit_job")}  # what it may submit, the list of classes says
        assert content(engine / "startup" / "fed_client.json")["require_signed_jobs"] is True


def test_kit_is_data_and_what_it_brings_besides_is_not_used(folder: Path, tmp_path: Path) -> None:
    kit = folder / "kits" / "north"
    found = {str(path.relative_to(kit)) for path in kit.rglob("*") if path.is_file()}
    assert found == set(KIT_FILES)
    ran = tmp_path / "ran"
    for place in (kit, kit / "engine", kit / "engine" / "local" / "custom", kit / "engine" / "startup"):
        place.mkdir(parents=True, exist_ok=True)
        for module in ("psutil", "nvflare", "sitecustomize", "fedvi"):
            (place / f"{module}.py").write_text(f"open({str(ran)!r}, 'w')")
    (kit / "engine" / "local" / "resources.json.default").write_text("{}")
    (kit / "engine" / "comm_config.json").write_text('{"comm_driver_path": "."}')
    parent = site_parent(kit)
    with ended(parent):
        parent.start()
        assert {path.name for path in (kit / "engine").iterdir()} <= {"startup", "local", "transfer", "parent.log"}
        wait_for(lambda: "created backbone" in parent.log.read_text())  # it has imported what it needs
        assert parent.alive()
    assert not ran.exists()
    assert {path.name for path in (kit / "engine" / "local").iterdir()} == {
        "resources.json",
        "authorization.json",
        "log_config.json",
    }


def test_kit_that_leads_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    kit, elsewhere = folder / "kits" / "north", tmp_path / "elsewhere"
    (elsewhere / "local").mkdir(parents=True)
    (kit / "engine").symlink_to(elsewhere)
    with pytest.raises(InputError, match="got a link to another"):
        site_parent(kit).start()
    assert (elsewhere / "local").exists()


def zip_of(kit: Path, **changes: bytes | None) -> Path:
    """Pack a kit with files changed, added or left out (None)."""
    files: dict[str, bytes | None] = {name: (kit / name).read_bytes() for name in KIT_FILES}
    files |= changes
    path = kit.parent / "carried.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            if data is not None:
                archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"local/custom/evil.py": b"1"}, "a file that no kit has: 'local/custom/evil.py'"),
        ({"../../evil.py": b"1"}, "a file that no kit has"),
        ({"startup/client.key": None}, "no such file: 'startup/client.key'"),
        ({"fedvi/schema.toml": b"a" * (17 << 20)}, "of at most 16777216 bytes"),
    ],
)
def test_kit_with_anything_else_in_it_is_refused(
    changes: dict[str, bytes | None], said: str, folder: Path, tmp_path: Path
) -> None:
    before = set(tmp_path.rglob("*"))
    path = zip_of(folder / "kits" / "north", **changes)
    with pytest.raises(InputError, match=re.escape(said)):
        unpack_kit(path)
    assert set(tmp_path.rglob("*")) - before == {path}


def test_unpacked_kit_is_for_its_owners_eyes_only(folder: Path) -> None:
    unpacked = unpack_kit(zip_of(folder / "kits" / "north"))
    assert {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()} == set(KIT_FILES)
    assert all(path.stat().st_mode & 0o077 == 0 for path in unpacked.rglob("*"))


def test_kit_of_a_site_that_the_federation_does_not_know_is_refused(folder: Path, description: Description) -> None:
    kit = folder / "kits" / "north"
    dataclasses.replace(description, sites=("south",)).save(kit / "fedvi")
    with pytest.raises(InputError, match="Expected a kit for one of south, got one for 'north'"):
        site_parent(kit)
    (kit / "startup" / "client.crt").write_text("none")
    with pytest.raises(InputError, match="Cannot use the certificate"):
        site_parent(kit)


def test_server_runs_a_job_per_site_and_keeps_its_files_to_itself(folder: Path, description: Description) -> None:
    coordinator_parent(folder)
    resources = content(folder / "server" / "local" / "resources.json")
    assert resources["class_allow_list"] == [CONTROLLER]
    scheduler = next(each for each in resources["components"] if each["id"] == "job_scheduler")
    assert scheduler["args"]["max_jobs"] > 1000
    assert "nvflare/" not in json.dumps(resources)  # by default jobs lie in a folder of all users
    server = content(folder / "server" / "startup" / "fed_server.json")["servers"][0]
    assert server["service"]["target"] == f"localhost:{description.port}"  # by which FLARE listens on loopback only
    assert server["connection_security"] == "mtls"
    permissions = content(folder / "server" / "local" / "authorization.json.default")["permissions"]
    assert {role for role, rights in permissions.items() if set(rights.values()) != {"none"}} == {"lead"}
    assert {permissions["lead"][right] for right in ("shell_commands", "byoc", "operate", "download_job")} == {"none"}


def test_kits_hold_the_project_and_keys_that_nobody_else_has(folder: Path, description: Description) -> None:
    for site in description.sites:
        kit = folder / "kits" / site
        assert Description.load(kit / "fedvi").digest == description.digest
        assert (kit / "startup" / "client.key").stat().st_mode & 0o077 == 0
        assert common_name(kit / "startup" / "client.crt") == site
        assert (folder / "certificates" / f"{site}.crt").read_bytes() == (kit / "startup" / "client.crt").read_bytes()
    kept = folder / "ca" / description.name / "state" / "cert.json"
    assert kept.stat().st_mode & 0o077 == 0
    keys = {path.read_text().strip() for path in folder.rglob("*.key")}
    assert len(keys) == len(description.sites) + 2  # and the server's, and the supervisor's
    assert not any(json.dumps(key)[1:-1] in kept.read_text() for key in keys)
    assert not list((folder / "ca").rglob("*.key"))


def test_late_site_gets_a_kit_of_the_same_authority(folder: Path, description: Description) -> None:
    before = (folder / "server" / "startup" / "server.crt").read_bytes()
    larger = dataclasses.replace(Description.load(folder), sites=(*description.sites, "west"))
    add_site(larger, folder, "west")
    root = x509.load_pem_x509_certificate((folder / "server" / "startup" / "rootCA.pem").read_bytes())
    certificate(folder / "kits" / "west").verify_directly_issued_by(root)
    assert Description.load(folder / "kits" / "west" / "fedvi") == larger
    assert (folder / "server" / "startup" / "server.crt").read_bytes() == before
    with pytest.raises(InputError, match="without a kit, got 'west'"):
        add_site(larger, folder, "west")
    with pytest.raises(InputError, match="one of the project's sites"):
        add_site(larger, folder, "east")
    with pytest.raises(InputError, match="a federation was made there"):
        make_kits(description, folder)


def test_supervisor_reaches_a_server_with_a_public_name_on_its_own_machine(tmp_path: Path) -> None:
    make_kits(small_federation.description(host="federation.example.org"), tmp_path)
    admin = content(tmp_path / "admin" / "startup" / "fed_admin.json")["admin"]
    assert (admin["host"], admin["server_identity"]) == ("localhost", "federation.example.org")
    engine = write_workspace(tmp_path / "kits" / "north")
    site = content(engine / "startup" / "fed_client.json")["servers"][0]
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
    code = (
        "import sys, fedvi.federation.transports.flare\n"
        "print([name for name in ('nvflare', 'jax') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_missing_engine_is_a_message_with_a_remedy() -> None:
    code = "import sys; sys.modules['nvflare'] = None; from fedvi.federation.transports.flare import make_kits"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert "NVIDIA FLARE is not installed. Install it with: pip install 'fedvi[flare]'" in said


class Recorder:
    """Stands for the durable server, and remembers what it was given."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, bytes]] = []

    def handle(self, name: str, data: bytes) -> bytes:
        self.handled.append((name, data))
        return b"answer"

    def site(self, name: str) -> SiteRecord:
        return SiteRecord(name, "working", 1)


def ask(folder: Path, payload: Any) -> tuple[Message, Recorder]:
    """Give a message to the job of north."""
    controller, recorder = SiteController("north"), Recorder()
    controller.server, controller.job = recorder, "job 1"  # type: ignore[assignment]
    controller.verifier = Verifier(folder / "certificates" / "north.crt")
    return controller.answer(Message({}, payload)), recorder


def signed(folder: Path, site: str, job: str = "job 1", data: bytes = b"release") -> bytes:
    return Signer(folder / "kits" / site / "startup" / "client.key").sign(job, data)


def test_bytes_of_the_site_reach_the_server_and_its_answer_the_site(folder: Path) -> None:
    reply, recorder = ask(folder, signed(folder, "north"))
    assert recorder.handled == [("north", b"release")]
    assert (reply.get_header(MessageHeaderKey.RETURN_CODE), reply.payload) == (ReturnCode.OK, b"answer")


def test_what_the_site_has_not_signed_for_this_job_is_refused(folder: Path) -> None:
    right = signed(folder, "north")
    for wrong in (
        signed(folder, "south"),
        signed(folder, "north", job="job 2"),
        right[:-1] + b"f",
        b"\0" + right[1:],
        right[:100],
        b"",
        b"release",
    ):
        reply, recorder = ask(folder, wrong)
        assert recorder.handled == []
        assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.UNAUTHENTICATED
        assert "serves site north only" in reply.get_header(MessageHeaderKey.ERROR)


def test_release_of_100_megabytes_is_refused_with_the_name_of_its_site(folder: Path) -> None:
    controller = SiteController("north")
    controller.job, controller.verifier = "job 1", Verifier(folder / "certificates" / "north.crt")
    with Coordinator.open(folder / "coordinator.db") as server:
        controller.server = server
        reply = controller.answer(Message({}, signed(folder, "north", data=bytes(100_000_000))))
        assert decode(reply.payload, Answer, 1 << 20).code == "malformed"
        assert [(each.site, each.code) for each in server.refusals()] == [("north", "malformed")]
        assert server.version == 0


def test_message_that_is_no_bytes_is_refused(folder: Path) -> None:
    reply, recorder = ask(folder, {"not": "bytes"})
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
def test_strangers_get_nowhere(folder: Path, description: Description, tmp_path: Path) -> None:
    make_kits(description, tmp_path / "foreign")
    impostor = tmp_path / "impostor"  # has south's certificate, and says that it is north
    shutil.copytree(folder / "kits" / "south", impostor)
    supervisor, stranger = Supervisor(folder), site_parent(impostor)
    settings = write_workspace(impostor) / "startup" / "fed_client.json"
    settings.write_text(settings.read_text().replace('"fqsn": "south"', '"fqsn": "north"'))
    stranger.command = [word.replace("uid=south", "uid=north") for word in stranger.command]
    stranger.prepare = lambda: None
    honest = site_parent(folder / "kits" / "south")

    def connected() -> tuple[str, ...]:
        supervisor.step()
        return supervisor.connected

    with ended(supervisor, honest, stranger):
        stranger.ensure()
        supervisor.step()
        wait_for(supervisor._listens)
        assert takes(description.port, trusting(folder / "kits" / "north"))
        assert not takes(description.port, None)
        assert not takes(description.port, trusting())
        assert not takes(description.port, trusting(tmp_path / "foreign" / "kits" / "north"))
        honest.ensure()
        wait_for(connected)
        wait_for(lambda: "authenticated as 'south' but claimed endpoint 'north'" in supervisor.parent.log.read_text())
        for _ in range(3):
            assert connected() == ("south",)
        with Coordinator.open(folder / "coordinator.db") as server:
            assert server.version == 0
