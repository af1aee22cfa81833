"""NVIDIA FLARE as a carrier of bytes: two components for the processes that FLARE runs at a site and at its server.

    SiteRelay         visits the site's link, sends each request to the server by FLARE, brings the answer back
    CoordinatorRelay  delivers what comes to the coordinator's Unix socket, and replies with the answer

Both are entries in `local/resources.json`; no job is submitted. These processes hold no rows, no ledger and no key of
fedvi, and import no JAX. Whatever is away, a site or coordinator or FLARE's server, they wait and try again.

    python -m fedvi.federation.transports.flare KIT SOCKET     writes both files of KIT/local; see docs/flare.md
"""

from __future__ import annotations

import json
import sys
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.widgets.widget import Widget

from fedvi.errors import FedviError, InputError
from fedvi.federation.transports.link import Visitor, deliver

CHANNEL, TOPIC, SERVER = "fedvi", "message", "server"

TIMEOUT = 10.0
"""Seconds that a site's relay waits for FLARE's reply. The coordinator's relay gives up one second earlier."""

SHORTEST, LONGEST = 0.25, 2.0
"""Seconds until a relay tries again, at first and at most."""


class SiteRelay(Widget):
    """At a site: carries what is offered at a link. paths: Unix sockets of links; one for each table of the site."""

    def __init__(self, paths: list[str]):
        super().__init__()
        self._paths, self._pause = [*map(Path, paths)], SHORTEST
        self.register_event_handler(EventType.SYSTEM_START, self._start)

    def _start(self, _event: str, context: Any) -> None:
        cell = context.get_engine().client.cell.core_cell
        for path in self._paths:
            threading.Thread(target=self._run, args=(path, cell), name="fedvi-relay", daemon=True).start()

    def _run(self, path: Path, cell: Any) -> None:
        while True:
            try:
                self._visit(path, cell)
            except FedviError:  # the site is away
                self._rest()
            except Exception:  # whatever it is, the relay lives on
                self.logger.exception("fedvi's relay failed, and tries again")
                self._rest()

    def _visit(self, path: Path, cell: Any) -> None:
        """Carry requests and answers until the site goes away."""
        visitor, request, answer = Visitor(path), b"", b""
        try:
            while True:
                last, request = request, visitor.exchange(answer)
                if request and request == last:  # no answer came, or the site did not take it
                    self._rest()
                elif request:
                    self._pause = SHORTEST
                answer = self._ask(cell, request) if request else b""
        finally:
            visitor.close()

    def _ask(self, cell: Any, request: bytes) -> bytes:
        """Return the coordinator's answer, empty if none comes."""
        reply = cell.send_request(CHANNEL, TOPIC, SERVER, Message(payload=request), timeout=TIMEOUT, optional=True)
        good = reply is not None and reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK
        return _data(reply) if good else b""

    def _rest(self) -> None:
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST)


class CoordinatorRelay(Widget):
    """At the server: delivers what comes to the coordinator. path: the coordinator's Unix socket."""

    def __init__(self, path: str):
        super().__init__()
        self._path = Path(path)
        self.register_event_handler(EventType.SYSTEM_START, self._start)

    def _start(self, _event: str, context: Any) -> None:
        context.get_engine().get_cell().core_cell.register_request_cb(CHANNEL, TOPIC, self._answer)

    def _answer(self, request: Any) -> Any:
        try:
            answer = deliver(self._path, _data(request), TIMEOUT - 1)
        except FedviError:  # the coordinator is away, or the message is empty or too large
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
        return make_reply(ReturnCode.OK, body=answer)


def _data(message: Any) -> bytes:
    """Return a message's bytes, b"" if it has none: the other end may send any object."""
    data = message.payload
    return bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b""


def write_local(kit: Path, socket: Path) -> None:
    """Have the FLARE of a fresh kit, a site's or the server's, carry messages from or to a socket, and nothing else."""
    made, local = files("fedvi.federation.transports") / "flare_local", kit / "local"
    if (local / "resources.json").exists() or not (local / "resources.json.default").exists():
        raise InputError(f"Expected a kit as FLARE makes it, got {kit}. In one that is in use, change local/ by hand.")
    role = "server" if (kit / "startup" / "fed_server.json").exists() else "site"
    resources = json.loads((made / f"{role}.json").read_text(encoding="utf-8"))
    args = resources["components"][0]["args"]
    args |= {"path": str(socket)} if role == "server" else {"paths": [str(socket)]}
    (local / "resources.json").write_text(json.dumps(resources, indent=2) + "\n", encoding="utf-8")
    (local / "authorization.json").write_bytes((made / "authorization.json").read_bytes())


if __name__ == "__main__":
    write_local(*map(Path, sys.argv[1:]))
