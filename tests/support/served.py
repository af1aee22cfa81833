"""A coordinator on loopback, made-up sites with real keys that call it, and what it counts, logs and stores."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coordinators import content
from fedvi.errors import FedviError
from fedvi.federation import wire
from fedvi.federation.demo.engines import free_port
from fedvi.federation.enrolment import enrol
from fedvi.federation.envelope import MESSAGE, Correspondence, Transport, open_answer, seal
from fedvi.federation.invitation import Invitation
from fedvi.federation.making import CERTIFICATE, TLS_KEY, invite, make_certificate, make_federation, pin_of, read_key
from fedvi.federation.making import KEY as COORDINATORS_KEY
from fedvi.federation.settings import ADDRESS, KEY, load_address, transport_to
from fedvi.federation.store.file import FILE
from fedvi.federation.transports.serving import Service
from small_federation import answer, description, poll, release

LONG = 180.0
"""Seconds after which a test gives up."""

PATCHED = """
import json, sys
from fedvi.federation.transports import serving
vars(serving).update(json.loads(sys.argv.pop(1)))
from fedvi.cli.main import main
main()
"""


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < end, f"not within {LONG:g} s"
        time.sleep(0.02)


class Served:
    """A coordinator: `with served.process(**limits)`, or `with served.in_thread() as service`, again and again.

    limits: what is in place of constants of `serving`.
    """

    def __init__(self, folder: Path, *sites: str, updates: int = 40):
        self.folder, self.port, self.page = folder / "coordinator", free_port(), free_port()
        self._log, self.callers = folder / "coordinator.log", list[Transport]()
        self.description = make_federation(
            description(sites, updates, url=f"https://127.0.0.1:{self.port}"), self.folder
        )
        self.identity = self.description.identity
        self.public = read_key(self.folder / COORDINATORS_KEY).public_key().public_bytes_raw()

    @contextlib.contextmanager
    def process(self, *before: str, **limits: float) -> Iterator[subprocess.Popen[bytes]]:
        """Run the command. before: words before it."""
        where = "--host=127.0.0.1", f"--port={self.port}", f"--page-port={self.page}", "--log-json"
        command = *before, sys.executable, "-c", PATCHED, json.dumps(limits), "federation", "start"
        with self._log.open("wb") as log:
            process = subprocess.Popen([*command, str(self.folder), *where], stdout=log, stderr=log)
        try:
            until(lambda: process.poll() is not None or "Live page" in self.output)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LONG)

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[Service]:
        """Run the same without its process."""
        over = threading.Event()
        with Service(self.folder, host="127.0.0.1") as service:
            thread = threading.Thread(target=lambda: asyncio.run(service.run(over.is_set)))
            thread.start()
            try:
                yield service
            finally:
                over.set()
                thread.join()

    def close(self) -> None:
        """Close connections of callers."""
        for transport in self.callers:
            transport.close()

    def post(self, data: bytes, method: str = "POST", path: str = "/v1/message", **headers: str) -> tuple[int, bytes]:
        """Return HTTP code and body of an answer."""
        there = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LONG, context=unverified())
        with contextlib.closing(there):
            there.request(method, path, data, headers)
            reply = there.getresponse()
            return reply.status, reply.read()

    def signed(self, request: bytes, data: bytes) -> tuple[int, bytes]:
        """Return code and body of an answer that the coordinator has signed for this request."""
        return open_answer(self.public, self.identity, request, data)

    def content(self, *but: str) -> dict[str, Any]:
        """Return what the file says. but: sites that have asked meanwhile."""
        found = content(self.folder / FILE)
        for row in found["sites"]:
            if row["name"] in but:
                del row["last_seen"], row["counter"]
        return found

    def metric(self, name: str) -> float:
        """Return a number of the metrics; 0 if it is not there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/metrics", timeout=LONG) as page:
            found = re.search(rf"^{re.escape(name)} (.*)$", page.read().decode(), re.MULTILINE)
        return 0.0 if found is None else float(found[1])

    def refusals(self, why: str) -> float:
        """Return how many were counted."""
        return self.metric(f'fedvi_refusals_total{{code="{why}"}}')

    @property
    def log(self) -> list[dict[str, Any]]:
        """What was logged."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    @property
    def output(self) -> str:
        """All that it has said."""
        return self._log.read_text()


class Caller:
    """A made-up site with keys of its own: `home` is its folder; a second one may have the same."""

    def __init__(self, served: Served, name: str, home: Path, transport: Transport | None = None):
        if not (home / ADDRESS).exists():
            self.invitation = Invitation.parse(invite(served.folder, name))
            enrol(self.invitation, home)
        self.served, self.name, self.made = served, name, 0
        self.key, self.address = read_key(home / KEY), load_address(home)
        self.transport = transport or transport_to(home, self.address, None)
        served.callers.append(self.transport)
        self.letters = Correspondence(self.transport, self.address.federation, name, self.key, self.address.coordinator)

    def sealed(self, body: bytes, **changes: Any) -> bytes:
        """Return a signed request. changes: of its fields."""
        fields = {"key": self.key, "federation": self.served.identity, "name": self.name, "kind": MESSAGE, "wait": 0}
        return seal(**{**fields, "counter": time.time_ns(), "body": body, **changes})

    def poll(self, state: str = wire.WORKING) -> bytes:
        return poll(self.served.description, self.made, state)

    def ask(self, *, wait: bool = False, state: str = wire.WORKING) -> wire.Answer:
        return answer(self.letters.exchange(self.poll(state), wait=wait))

    def release(self, *, wait: bool = False, seed: int = 0) -> wire.Answer:
        """Answer the next question."""
        self.until_asked()
        return self.answered(wait=wait, seed=seed)

    def answered(self, *, wait: bool = False, seed: int = 0) -> wire.Answer:
        """Answer a question, whether it was asked or not."""
        self.made += 1
        return answer(self.letters.exchange(release(self.served.description, self.made, seed), wait=wait))

    def until_asked(self) -> None:
        """Wait for the next question."""
        until(lambda: self.ask(wait=True).kind == wire.QUESTION)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Ask again and again meanwhile: all is answered, and at the end a release is taken."""
        asked, over, errors = 0, threading.Event(), list[FedviError]()

        def work() -> None:
            nonlocal asked
            while not over.wait(0.02):
                try:
                    self.ask()
                except FedviError as error:
                    errors.append(error)
                asked += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
            soon = asked + 3
            until(lambda: asked > soon)
        finally:
            over.set()
            thread.join()
        assert not errors, errors[0]
        assert self.release().applied == self.made
        self.until_asked()


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Imposter:
    """Answers in a coordinator's place, with certificates in turn. pins: theirs; heard: all that was sent to it."""

    def __init__(self, folder: Path, answer: bytes, certificates: int = 1):
        self.heard, self.visits, self._answer = b"", 0, answer
        self.url = f"https://127.0.0.1:{free_port()}"
        self._contexts, self.pins = list[ssl.SSLContext](), list[str]()
        for number in range(certificates):
            own = folder / f"certificate {number}"
            own.mkdir(parents=True)
            make_certificate(own, self.url)
            self.pins.append(pin_of(own))
            self._contexts.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._contexts[-1].load_cert_chain(own / CERTIFICATE, own / TLS_KEY)
        self._socket = socket.create_server(("127.0.0.1", int(self.url.rpartition(":")[2])))
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with contextlib.suppress(OSError):
            for number in range(1000):
                connection, _ = self._socket.accept()
                self.visits += 1
                with contextlib.suppress(OSError), connection:
                    inside = self._contexts[number % len(self._contexts)].wrap_socket(connection, server_side=True)
                    with inside:
                        self.heard += inside.recv(1 << 16)
                        inside.sendall(self._answer)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
