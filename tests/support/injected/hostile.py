"""Makes a site, or a coordinator, hostile from within its own processes; for test_hostile.py.

When the engine's process of a job begins its half of the job, a thread asks other parties for what they must not give,
and writes down what each of them answered.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loading import change_when_loaded


def attack(cell: Any) -> None:
    """Ask, and write down every answer as a line of JSON: name of the attack, code, payload."""
    from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
    from nvflare.fuel.f3.message import Message
    from nvflare.private.admin_defs import Message as AdminMessage

    folder = Path(os.environ["HOSTILE_FOLDER"])
    while not (folder / "job").exists():
        time.sleep(0.1)
    job = f"server.{(folder / 'job').read_text()}"

    def ask(name: str, channel: str, topic: str, target: str, payload: Any = None, **headers: Any) -> None:
        reply = cell.send_request(channel, topic, target, Message(headers, payload), timeout=5)
        code = reply.get_header(MessageHeaderKey.RETURN_CODE) if reply is not None else None
        body = getattr(reply, "payload", None)
        said = getattr(body, "body", body)
        with (folder / f"{os.environ['HOSTILE_NAME']}.jsonl").open("a") as file:
            file.write(json.dumps([name, str(code), str(said)]) + "\n")

    command = AdminMessage(topic="sys.shell", body=f"cat {folder / 'secret.txt'}")
    ask("shell", CellChannel.CLIENT_MAIN, "sys.shell", "north", command)
    ask("shell by another name", CellChannel.CLIENT_MAIN, "admin", "north", command)
    ask("cells of the network", "_net_manager", "cells", "server")
    ask("tokens", CellChannel.SERVER_PARENT_LISTENER, "get_clients", "server", job_id=job)
    message = {"target": job, "channel": "fedvi", "topic": "message", "message": {"headers": {}, "payload": b"evil"}}
    ask("message in a message", CellChannel.CELLNET, "bulk", job, [message])
    transit = {MessageHeaderKey.SERVER_TRANSIT_REQUIRED: True}
    ask("message in transit", CellChannel.CELLNET, "bulk", job, [message], **transit)
    ask("release of another site", "fedvi", "message", job, b"evil" * 100)
    for victim in ("north", "server"):  # an answer that nobody has asked for, with an address to connect to
        headers = {
            MessageHeaderKey.MSG_TYPE: "reply",
            MessageHeaderKey.ORIGIN: "south.x",
            MessageHeaderKey.FROM_CELL: "y",
            MessageHeaderKey.TO_CELL: victim,
            MessageHeaderKey.DESTINATION: victim,
            MessageHeaderKey.REQ_ID: "none",
            MessageHeaderKey.CHANNEL: "task",
            MessageHeaderKey.TOPIC: "register",
            MessageHeaderKey.CONN_URL: "tcp://127.0.0.1:9",
        }
        if "server" in cell.agents:  # a site's job has one
            cell._send_to_endpoint(cell.agents["server"].endpoint, Message(headers, b""))
    ask("end of the attacks", "fedvi", "nothing", "server")


def attacking(kind: str, method: str) -> Callable[[Any], None]:
    """Return a change by which a thread attacks when a method of a class is called."""

    def change(module: Any) -> None:
        changed = getattr(module, kind)
        real = getattr(changed, method)

        def hostile(self: Any, *args: Any) -> Any:
            context = next(each for each in args if hasattr(each, "get_engine"))
            cell = context.get_engine().get_cell().core_cell
            threading.Thread(target=attack, args=[cell], daemon=True).start()
            return real(self, *args)

        setattr(changed, method, hostile)

    return change


change_when_loaded(
    {
        "fedvi.federation.transports.flare.executor": attacking("SiteExecutor", "_work"),
        "fedvi.federation.transports.flare.controller": attacking("SiteController", "control_flow"),
    }
)
