"""Clients, sites and coordinators that are killed at any instant: nothing is lost, nothing is spent twice."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

import crashing_client
import crashing_federation
from coordinators import content
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.privacy.ledger import ledger as ledgers
from site_exchanges import saved
from small_federation import open_coordinator
from victims import Victims


@pytest.mark.parametrize(("half", "most"), [(0, 40), pytest.param(1, 120, marks=pytest.mark.long)])
def test_killed_clients_have_paid_for_all_that_they_released(half: int, most: int, tmp_path: Path) -> None:
    """SIGKILL at random instants of private updates, until the budget is spent, and again with other data."""
    rng, victims = random.Random(half), Victims(tmp_path / "cache", crashing_client.__file__)
    total = closed = kills = 0
    try:
        while kills < most:
            seed = 1000 * half + closed
            path = tmp_path / f"ledger {seed}.db".replace(" ", "-")
            released = lost = 0
            end = "killed"
            while kills < most and end == "killed":
                said, end = victims.run(f"{path} {seed}", rng.randrange(6), rng.expovariate(1 / 0.02))
                got = len(said) - said.count("closed")
                assert end in ("killed", "ended 0")
                released, kills, lost = released + got, kills + (end == "killed"), lost + 1
                book = ledgers.read(path)
                paid, planned = sum(book.charged.values()), sum(book.planned.values())
                assert released <= paid <= released + lost  # of each life at most the update in hand is lost
                assert paid <= planned
                assert book.spent.epsilon <= crashing_client.BUDGET.epsilon
            closed, total = closed + (end == "ended 0"), total + released
    finally:
        victims.stop()
    print(f"{kills} kills, {total} releases, {closed} budgets spent to the end")
    assert total > most


def test_a_site_killed_at_any_instant_loses_nothing_and_overspends_nothing(tmp_path: Path) -> None:
    chosen, rng = crashing_federation.DESCRIPTION, random.Random(1)
    victims = Victims(tmp_path / "cache", crashing_federation.__file__, "site")
    digests: dict[int, str] = {}
    lives = kills = 0
    try:
        for lives in range(1, 21):
            before = saved(tmp_path)["pending"] if lives > 1 else None
            said, end = victims.run(f"{tmp_path} 0", 1 + rng.randrange(9), rng.expovariate(1 / 0.01))
            assert end in ("killed", "ended 0")
            kills += end == "killed"
            sent = [line.split() for line in said if line.startswith("sent") and wire.POLL not in line]
            if before is not None:
                assert (
                    sent[0][3] == hashlib.sha256(before).hexdigest()
                )  # what was pending goes first, byte by byte the same
            for _, _, number, digest in sent:
                assert digests.setdefault(int(number), digest) == digest
            row, book = saved(tmp_path), ledgers.read(tmp_path / "north.ledger")
            paid = sum(book.charged.values())
            assert len(digests) <= row["releases"] <= paid <= row["releases"] + kills
            assert all(paid <= book.planned[event] for event, paid in book.charged.items())
            assert book.spent.epsilon <= crashing_federation.EPSILON
            with Coordinator.open(tmp_path / "coordinator.db") as coordinator:
                assert coordinator.verify() < 1e-6
                applied = coordinator.sites()[0].sequence
                assert row["releases"] - (row["pending"] is not None) <= applied <= row["releases"]
            if end == "ended 0":
                break
    finally:
        victims.stop()
    print(f"{kills} kills, {applied} releases applied, {paid} paid for")
    assert applied > kills / 2 > 5
    assert chosen.digest == row["federation"]


def test_a_site_killed_while_it_joins_joins_when_it_is_started_again(tmp_path: Path) -> None:
    """Ledger, witness and file of a site come into being one after another; a kill between them does no harm."""
    rng, victims = random.Random(2), Victims(tmp_path / "cache", crashing_federation.__file__, "site")
    kills = 0
    try:
        for number, name in enumerate(crashing_federation.DESCRIPTION.sites[:2]):
            folder = tmp_path / name
            folder.mkdir()
            for _ in range(4):
                said, end = victims.run(f"{folder} {number}", -1, rng.uniform(0, 1.5))
                assert end == "killed", (said, end)
                kills += not said
            said, end = victims.run(f"{folder} {number}", 6, 0.0)
            assert end == "killed"
            assert len(said) >= 6
            assert not ledgers.read(folder / f"{name}.ledger").acknowledgements
            assert len(list(folder.glob(f"{name}.db"))) == 1
    finally:
        victims.stop()
    print(f"{kills} of 8 killed before they had said a word")


def test_processes_that_handle_messages_of_different_sites_lose_nothing(tmp_path: Path) -> None:
    chosen, count = crashing_federation.SHORT, 12
    path = tmp_path / "coordinator.db"
    with open_coordinator(tmp_path, chosen) as coordinator:
        processes = [
            subprocess.Popen([sys.executable, crashing_federation.__file__, "serve", str(path), name])
            for name in chosen.sites
        ]
        assert [process.wait(180) for process in processes] == [0, 0, 0]
        assert coordinator.version == count * len(chosen.sites)
        assert coordinator.verify() < 1e-6
        assert [row.sequence for row in coordinator.sites()] == [count] * 3
        assert coordinator.refusals() == []


def test_a_coordinator_killed_at_any_instant_has_applied_all_that_it_acknowledged_once(tmp_path: Path) -> None:
    chosen, path, rng = crashing_federation.LONG, tmp_path / "coordinator.db", random.Random(0)
    open_coordinator(tmp_path, chosen).close()
    acknowledged = dict.fromkeys(chosen.sites, 0)
    victims = Victims(tmp_path / "cache", crashing_federation.__file__, "coordinator")
    kills = 25
    try:
        for life in range(kills):
            arguments = f"{path} {' '.join(map(str, acknowledged.values()))}"
            said, end = victims.run(arguments, rng.randrange(5), rng.expovariate(1 / 0.01))
            assert end == "killed"
            for name, number in map(str.split, said):
                acknowledged[name] = int(number)
            with Coordinator.open(path) as coordinator:
                assert life % 8 or coordinator.verify() < 1e-6  # it reads all answers again
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
