"""What tests of the engine share: a coordinator's folder, its supervisor and sites, and an end for all of them."""

from __future__ import annotations

import contextlib
import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import small_federation
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.demo.local import free_port
from fedvi.federation.description import Description
from fedvi.federation.transports.flare.kits import make_kits
from fedvi.federation.transports.flare.processes import Parent
from fedvi.federation.transports.flare.supervisor import Supervisor

LEAKS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""FLARE's session does not close the sockets of connections that were refused."""


def new_project(**changes: Any) -> Description:
    return small_federation.description(**{"port": free_port(), "updates": 30, **changes})


def make_folder(place: Path, description: Description) -> Path:
    """Make a coordinator's folder with kits for north and south."""
    folder = place / "coordinator"
    make_kits(description, folder)
    description.save(folder)
    Coordinator.create(folder / "coordinator.db", description).close()
    return folder


def content(path: Path) -> Any:
    return json.loads(path.read_text())


def wait_for(happened: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.1)


@contextlib.contextmanager
def ended(*parents: Parent | Supervisor) -> Iterator[None]:
    """End parents and all that they started, whatever happens."""
    try:
        yield
    finally:
        for parent in parents:
            parent.stop()
        gc.collect()  # what FLARE leaks comes to light here, and not in another test
