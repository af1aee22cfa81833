"""Between sites and their coordinator: a reverse proxy that ends TLS, a proxy of the house, another network."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fedvi.errors import NotReached
from fedvi.federation.demo.engines import free_port
from fedvi.federation.demo.run import tiny_description
from fedvi.federation.making import CERTIFICATE, TLS_KEY, make_certificate, pin_of
from fedvi.federation.settings import load_address
from fedvi.federation.store.file import FILE, CoordinatorFile
from fedvi.federation.transports.https import Https
from fedvi.federation.transports.serving import PER_ADDRESS
from served import LONG, Caller, Served, until

pytestmark = pytest.mark.slow
FEDVI = sys.executable, "-m", "fedvi"
DEPLOY = Path(__file__).parents[2] / "deploy"
UPDATES = 3


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def init(folder: Path, url: str, *more: object) -> Path:
    """Make a federation of north with the command, and the table of north; return the coordinator's folder."""
    description = dataclasses.replace(tiny_description(folder, UPDATES, ("north",)), url=url)
    description.save(folder / "own")
    run(*FEDVI, "federation", "init", folder / "own" / "federation.toml", "--out", folder / "c", *more)
    return folder / "c"


@contextlib.contextmanager
def at_work(coordinator: Path, *where: str, inside: tuple[str, ...] = ()) -> Iterator[None]:
    """Run a coordinator, which ends with its federation."""
    command = [*inside, *FEDVI, "federation", "start", str(coordinator), "--no-page", *where]
    log = coordinator.with_suffix(".log")
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            until(lambda: "Listening" in log.read_text() or process.poll() is not None)
            yield
            assert process.wait(LONG) == 0, log.read_text()
        finally:
            process.kill()
    with CoordinatorFile.open(coordinator / FILE) as file:
        assert (file.over, file.version) == (True, UPDATES)


def join(coordinator: Path, *inside: str) -> None:
    """Invite north, join as north, and work to the end of the federation."""
    folder = coordinator.parent
    line = run(*FEDVI, "federation", "invite", coordinator, "north").strip()
    files = "--data", folder / "north.csv", "--ledger", folder / "north.ledger", "--folder", folder / "north"
    assert "The federation is over" in run(*inside, *FEDVI, "site", "join", line, *files, "--eps", 1, "--yes")


# A reverse proxy


@contextlib.contextmanager
def nginx(folder: Path, port: int, upstream: str) -> Iterator[None]:
    """Run nginx with the configuration that is shipped, but with these places, as this user."""
    text = (DEPLOY / "nginx.conf").read_text()
    for old, new in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "server 127.0.0.1:8002;": f"server {upstream};",
        "/etc/ssl/fedvi/fullchain.pem": str(folder / CERTIFICATE),
        "/etc/ssl/fedvi/privkey.pem": str(folder / TLS_KEY),
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "fedvi.conf").write_text(text)
    kinds = "client_body", "proxy", "fastcgi", "uwsgi", "scgi"
    own = "".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    head = f"daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr; events {{}}"
    (folder / "nginx.conf").write_text(f"{head} http {{ access_log off; {own} include {folder}/fedvi.conf; }}")
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "nginx is needed"
    with subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: process.poll() is not None or listens(port))
            yield
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@pytest.mark.parametrize("trusted", ["this certificate", "by the system"])
def test_behind_nginx_a_site_joins_works_and_finishes(
    trusted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, proxy = free_port(), tmp_path / "proxy"
    url = f"https://127.0.0.1:{port}"
    proxy.mkdir()
    make_certificate(proxy, url)
    if trusted == "this certificate":
        coordinator, backend = init(tmp_path, url, "--tls-pin", proxy / CERTIFICATE), free_port()
        upstream, where = f"127.0.0.1:{backend}", (f"--port={backend}",)
    else:
        coordinator, where = init(tmp_path, url, "--tls-pin", "system"), ("--port=0",)
        upstream = f"unix:{coordinator}/coordinator.sock"
        monkeypatch.setenv("SSL_CERT_FILE", str(proxy / CERTIFICATE))
    with nginx(proxy, port, upstream), at_work(coordinator, *where):
        join(coordinator)
        trusts = ssl.create_default_context(cafile=proxy / CERTIFICATE)
        for path in ("/", "/metrics", "/status.json"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"{url}{path}", context=trusts)
    address = msgspec.structs.replace(load_address(tmp_path / "north"), tls=pin_of(coordinator))
    with nginx(proxy, port, upstream), pytest.raises(NotReached, match="not the one in the invitation"):
        Https(address, pytest.fail).send(b"to the coordinator itself")


# A proxy of the house


class HouseProxy:
    """Carries whatever CONNECT asks for. asked: for what, with all headers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.asked = self._socket.getsockname()[1], list[str]()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._socket.accept()[0],), daemon=True).start()

    def _serve(self, site: socket.socket) -> None:
        with contextlib.suppress(OSError), site:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += site.recv(1)
            self.asked.append(head.decode())
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as there:
                site.sendall(b"HTTP/1.1 200 Go on\r\n\r\n")
                threading.Thread(target=self._pump, args=(there, site), daemon=True).start()
                self._pump(site, there)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with contextlib.closing(Served(tmp_path, "north")) as made, made.in_thread():
        yield made


def test_a_site_goes_through_the_proxy_of_its_house_unless_no_proxy_says_otherwise(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(HouseProxy()) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:my%20word@127.0.0.1:{proxy.port}")
        north = Caller(served, "north", tmp_path / "north")
        assert north.release().applied == 1
        assert len(proxy.asked) == 2  # to join, and then
        for asked in proxy.asked:
            assert asked.startswith(f"CONNECT 127.0.0.1:{served.port} HTTP/1.")
            assert "Basic bWU6bXkgd29yZA==" in asked
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert Caller(served, "north", tmp_path / "north").letters.exchange(north.poll())
        assert len(proxy.asked) == 2
    monkeypatch.delenv("NO_PROXY")
    with pytest.raises(NotReached, match="HTTPS_PROXY"):
        Caller(served, "north", tmp_path / "north").ask()


# Another machine's network


def network(*inside: str) -> subprocess.Popen[bytes]:
    """Start a process in a network of its own, and return it."""
    process = subprocess.Popen([*inside, "sh", "-c", "echo ready; exec sleep 1000"], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.read(6) == b"ready\n"
    return process


@pytest.fixture
def networks() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Give what runs a command in one of two networks that a cable connects: 10.77.0.1 and fd77::1; .2, ::2 and ::3."""
    as_root = subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL).returncode == 0
    own = () if as_root else ("-r",)
    if not shutil.which("ip") or subprocess.run(["unshare", *own, "-n", "true"]).returncode:
        assert "CI" not in os.environ, "Expected iproute2, and leave to make network namespaces."
        pytest.skip("needs iproute2, and leave to make network namespaces")
    with contextlib.ExitStack() as stack:
        inside = list[tuple[str, ...]]()
        for _ in range(2):
            before = inside[0] if inside and not as_root else ()
            process = network(*before, "unshare", *(() if before else own), "-n")
            stack.enter_context(process)
            stack.callback(process.kill)
            users = () if as_root else ("-U", "--preserve-credentials")
            inside.append(("nsenter", "-t", str(process.pid), *users, "-n"))
        ours, theirs = inside
        run(*ours, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", theirs[2])
        for each, addresses in ((ours, "10.77.0.1/24 fd77::1/64"), (theirs, "10.77.0.2/24 fd77::2/64 fd77::3/64")):
            for address in addresses.split():
                run(*each, "ip", "address", "add", address, "dev", "cable", *(["nodad"] if ":" in address else []))
            run(*each, "ip", "link", "set", "cable", "up")
        yield ours, theirs


CROWD = """
import socket, sys
def opened(address, own):
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    made.bind((own, 0))
    made.connect((address, int(sys.argv[1])))
    return made
def is_open(each):
    each.settimeout(1 if each is crowd[-1] else 0.1)
    try:
        return each.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False
for address, *owns in (("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2", "fd77::3")):
    crowd = [opened(address, own) for own in owns for _ in range(40 // len(owns))]
    print(sum(map(is_open, reversed(crowd))))
"""


def test_in_another_network_a_site_joins_works_and_finishes_and_nobody_has_all_connections(
    networks: tuple[tuple[str, ...], tuple[str, ...]], tmp_path: Path
) -> None:
    here, there = networks
    port = free_port()
    coordinator = init(tmp_path, f"https://10.77.0.1:{port}")
    with at_work(coordinator, inside=here):
        assert run(*there, sys.executable, "-c", CROWD, port).split() == [str(PER_ADDRESS)] * 2
        join(coordinator, *there)
