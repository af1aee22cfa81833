"""What waits takes little: a site closes rows and ledger and starts itself anew; a coordinator never loads JAX."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedvi.federation.demo.bench import Caller
from fedvi.federation.demo.local import COORDINATOR, LocalFederation
from fedvi.federation.demo.run import tiny_description
from fedvi.federation.making import invite

pytestmark = pytest.mark.slow

RESTS_SOON = "import fedvi.cli.join as j; from fedvi.cli import main; j.REST_AFTER = 1.0; main()"


def has_jax(process: int) -> bool:
    return "jaxlib" in Path(f"/proc/{process}/maps").read_text()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_site_that_waits_long_needs_no_jax_and_goes_on_when_it_is_asked(tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, tiny_description(tmp_path, 4, ("north", "south")), 1.0)
    own = os.environ | {"FEDVI_STATE_DIR": str(tmp_path / "witnesses")}

    def joined(site: str) -> subprocess.Popen[bytes]:
        table = ("--data", tmp_path / f"{site}.csv", "--ledger", federation.ledger(site), "--eps", "1", "--yes")
        command = ("site", "join", invite(federation.coordinator, site), *table, "--folder", federation.home(site))
        return subprocess.Popen([sys.executable, "-c", RESTS_SOON, *map(str, command)], env=own)

    with federation.running(()), federation.store() as store, joined("north") as north:
        until(lambda: store.site("north").state == "working")
        until(lambda: not has_jax(north.pid))  # it has had it: rows and ledger were open
        assert north.poll() is None
        with joined("south") as south:
            until(lambda: store.site("north").sequence >= 1)
            assert has_jax(north.pid)
            assert north.wait(120) == south.wait(120) == 0
        assert federation.check(store).holds


def test_a_coordinator_does_without_jax(tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, tiny_description(tmp_path, 3, ("north",)), 1.0)
    with federation.running(()), federation.store() as store:
        coordinator = federation.parties[COORDINATOR].process
        assert coordinator is not None
        caller = Caller(federation, "north")
        for _ in range(3):
            caller.until_asked()
            caller.release(wait=False)
        until(lambda: len(store.readings()) == 3)
        assert not has_jax(coordinator.pid)
