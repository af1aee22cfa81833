"""Makes a site, or a coordinator, hostile from within its own processes; for test_hostile.py, on PYTHONPATH only.

Python imports this file at its start. When the engine's process of a job loads its half of the job, a thread begins to
ask other parties for what they must not give, and writes down what each of them answered.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TARGETS = {
    "fedvi.federation.flare.executor": ("SiteExecutor", "_work"),
    "fedvi.federation.flare.controller": ("SiteController", "control_flow"),
}
SECRET = "rows of north"  # the text of the file that is asked for


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
    ask("end of the attacks", "fedvi", "nothing", "server")


class Loader(importlib.abc.Loader):
    """Loads a module as it is, and lets a thread attack when one of its methods is called."""

    def __init__(self, real: importlib.abc.Loader):
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.real.exec_module(module)
        name, method = TARGETS[module.__name__]
        kind = getattr(module, name)
        real = getattr(kind, method)

        def hostile(self: Any, *args: Any) -> Any:
            context = next(each for each in args if hasattr(each, "get_engine"))
            cell = context.get_engine().get_cell().core_cell
            threading.Thread(target=attack, args=[cell], daemon=True).start()
            return real(self, *args)

        setattr(kind, method, hostile)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are made hostile."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in TARGETS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


if "HOSTILE_NAME" in os.environ:
    sys.meta_path.insert(0, Finder())
