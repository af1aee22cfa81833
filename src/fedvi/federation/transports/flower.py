"""Flower as a carrier of signed bytes: `server` runs beside the coordinator, `client` beside each site.

In Flower the server speaks first, so roles turn: its message brings the site's last answer, the reply is the site's
next request. Neither end holds rows, keys or JAX: both only move bytes between Flower and a Unix socket.

    python -m fedvi.federation.transports.flower FOLDER     writes the app for `flwr run`; see docs/flower.md
"""

from __future__ import annotations

import math
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedvi.errors import FedviError
from fedvi.federation.transports.link import LARGEST, Visitor, deliver

TTL = 60.0
"""Seconds after which Flower gives up a message: a ClientApp may have been killed with it."""

LOOK = 0.3
"""Seconds between two looks at the SuperLink for replies."""

REST = 10.0
"""Seconds until a site is asked again whose SuperNode or ClientApp was away."""

COORDINATOR = 30.0
"""Seconds that the coordinator may take for an answer; it holds back some for a while."""

APP = """\
[project]
name = "fedvi-relay"
version = "1.0.0"
description = "Carries the signed messages of a fedvi federation"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "fedvi"

[tool.flwr.app.components]
serverapp = "fedvi.federation.transports.flower:server"
clientapp = "fedvi.federation.transports.flower:client"

[tool.flwr.app.config]
coordinator-socket = "coordinator.sock"
seconds = 0.0
"""

server = ServerApp()
client = ClientApp()


@client.query()  # type: ignore[untyped-decorator]
def visit(message: Message, context: Context) -> Message:
    """Hand the coordinator's answer to the site's process, return its next request: b"" if it has none or is away."""
    request = b""
    try:
        visitor = Visitor(Path(str(context.node_config["fedvi-socket"])))
        try:
            request = visitor.exchange(_data(message))
        finally:
            visitor.close()
    except Exception:  # Flower would send the text of any exception to the server
        time.sleep(5)  # the site's process may come back; each message costs a new Python process
    return Message(_record(request), reply_to=message)


@server.main()  # type: ignore[untyped-decorator]
def carry(grid: Grid, context: Context) -> None:
    """Bring each site's requests to the coordinator, and its answers back, each site at its own pace."""
    socket, seconds = Path(str(context.run_config["coordinator-socket"])), float(str(context.run_config["seconds"]))
    end = time.monotonic() + (seconds or math.inf)  # 0: until `flwr stop`
    travelling: dict[str, int] = {}  # messages under way, and their nodes
    answers: dict[int, Future[bytes]] = {}
    rest: dict[int, float] = {}
    with ThreadPoolExecutor(64) as coordinator:
        while (now := time.monotonic()) < end:
            for node in set(grid.get_node_ids()) - set(travelling.values()):
                if rest.get(node, 0.0) <= now and (node not in answers or answers[node].done()):
                    answer = answers.pop(node).result() if node in answers else b""
                    message = Message(_record(answer), dst_node_id=node, message_type=MessageType.QUERY, ttl=TTL)
                    travelling |= {number: node for number in grid.push_messages([message]) if number}
            for reply in grid.pull_messages(list(travelling)):
                node = travelling.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    print(f"Node {node}: Flower's error {reply.error.code}, next try in {REST:g} s", flush=True)
                    rest[node] = now + REST
                elif request := _data(reply):
                    answers[node] = coordinator.submit(_answer, socket, request)
            time.sleep(LOOK)


def _answer(socket: Path, request: bytes) -> bytes:
    try:
        return deliver(socket, request, COORDINATOR)
    except FedviError:  # the site's process offers its request again
        time.sleep(REST)
        return b""


def _record(data: bytes) -> RecordDict:
    return RecordDict({"fedvi": ConfigRecord({"data": data})})


def _data(message: Message) -> bytes:
    """Return a message's bytes, b"" if it has none: the other end may send anything."""
    records = message.content.config_records if message.has_content() else {}
    data = records["fedvi"].get("data") if "fedvi" in records else None
    return data if isinstance(data, bytes) and len(data) <= LARGEST else b""


def write_app(folder: Path) -> None:
    """Write the app for `flwr run`: one file that names what is installed at both ends."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(APP, encoding="utf-8")


if __name__ == "__main__":
    write_app(Path(sys.argv[1]))
