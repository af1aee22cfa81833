"""A coordinator in several processes, and one that is killed."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

import crashing_federation
from coordinators import DESCRIPTION, content
from fedvi.federation.coordinator import Coordinator
from small_federation import answer, factor, message, open_coordinator
from victims import Victims


def test_processes_that_handle_messages_of_different_sites_lose_nothing(tmp_path: Path) -> None:
    chosen, count = crashing_federation.ENDLESS, 60
    path = tmp_path / "coordinator.db"
    with open_coordinator(tmp_path, chosen) as coordinator:
        processes = [
            subprocess.Popen([sys.executable, crashing_federation.__file__, "serve", str(path), name, str(count)])
            for name in chosen.sites
        ]
        assert [process.wait(180) for process in processes] == [0, 0, 0]
        assert coordinator.version == count * len(chosen.sites)
        assert coordinator.verify() < 1e-6
        assert [row.updates for row in coordinator.sites()] == [count] * 3
        assert coordinator.refusals() == []


def test_a_coordinator_killed_at_any_instant_has_applied_all_that_it_acknowledged_once(tmp_path: Path) -> None:
    chosen, path, rng = crashing_federation.ENDLESS, tmp_path / "coordinator.db", random.Random(0)
    open_coordinator(tmp_path, chosen).close()
    acknowledged = dict.fromkeys(chosen.sites, 0)
    victims = Victims(tmp_path / "cache", crashing_federation.__file__, "coordinator")
    kills = 25
    try:
        for _ in range(kills):
            arguments = f"{path} {' '.join(map(str, acknowledged.values()))}"
            said, end = victims.run(arguments, rng.randrange(5), rng.expovariate(1 / 0.01))
            assert end == "killed"
            for name, number in map(str.split, said):
                acknowledged[name] = int(number)
            with Coordinator.open(path) as coordinator:
                assert coordinator.verify() < 1e-6
                for row in coordinator.sites():
                    assert acknowledged[row.name] <= row.sequence <= acknowledged[row.name] + 1
            applied = content(path)["applied"]
            digests = {(row["site"], row["sequence"]): row["digest"] for row in applied}
            assert len(digests) == len(applied)
            for (name, number), digest in digests.items():
                assert digest == hashlib.sha256(crashing_federation.release(name, number)).hexdigest()
    finally:
        victims.stop()
    print(f"{kills} kills, {len(applied)} releases applied, {sum(acknowledged.values())} acknowledged")
    assert sum(acknowledged.values()) > kills


@pytest.mark.parametrize("instant", ["put_in_place", "Database.execute"])
def test_a_coordinator_killed_while_it_is_made_leaves_nothing_in_its_place(instant: str, tmp_path: Path) -> None:
    code = (
        "import os; from pathlib import Path; from fedvi import sqlite\n"
        "from small_federation import open_coordinator, description\n"
        f"sqlite.{instant} = lambda *_: os._exit(9)\n"
        f"open_coordinator(Path({str(tmp_path)!r}), description())"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1] / "support").returncode == 9
    assert not (tmp_path / "coordinator.db").exists()
    with open_coordinator(tmp_path, DESCRIPTION) as coordinator:
        assert answer(coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))).applied == 1
