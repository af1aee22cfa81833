"""The demonstration: what it checks can fail, and it kills every kind of process."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from fedvi.cli.main import main
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.coordinator_file import CoordinatorFile
from fedvi.federation.demo.checking import Check, Files, check
from fedvi.federation.demo.local import KINDS, Chaos, LocalFederation
from fedvi.federation.demo.run import DemoReport
from fedvi.federation.site import Site
from fedvi.federation.site_file import SiteFile
from fedvi.federation.transports.flare.processes import MARK
from fedvi.federation.wire import pack, unpack
from fedvi.inference.update import init_client
from small_federation import description, open_coordinator, open_site

DESCRIPTION = description(updates=6)


def run(folder: Path, unpaid: bool = False) -> None:
    """Run a federation to its end; each site pays for one update that is lost in a crash.

    unpaid: whether north does not pay for the update after that.
    """
    with open_coordinator(folder, DESCRIPTION) as server:
        for number, name in enumerate(DESCRIPTION.sites):
            with open_site(folder, DESCRIPTION, number) as client:
                exchange(client, server, name, 3)  # it asks, and answers twice
                client._private.ledger.charge(client._private.event)
            with open_site(folder, DESCRIPTION, number) as client:
                exchange(client, server, name, 1)
                with pytest.MonkeyPatch.context() as patch:
                    if unpaid and name == "north":
                        patch.setattr(client._private.ledger, "charge", lambda *_: None)
                    exchange(client, server, name, 1)
                exchange(client, server, name, 9)
        for number, name in enumerate(DESCRIPTION.sites):
            with open_site(folder, DESCRIPTION, number) as client:
                exchange(client, server, name, 9)
        assert server.over


def exchange(client: Site, server: Coordinator, name: str, most: int) -> None:
    for _ in range(most):
        if (request := client.request()) is not None:
            client.receive(server.handle(name, request))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDVI_STATE_DIR", str(folder / "witnesses"))
        run(folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of the files, to be tampered with."""
    return shutil.copytree(finished, tmp_path / "copy")


def checked(folder: Path) -> Check:
    with CoordinatorFile.open(folder / "coordinator.db") as store:
        return check(
            store, {name: Files(folder / f"{name}.db", folder / f"{name}.ledger") for name in DESCRIPTION.sites}
        )


def change(path: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def test_honest_federation_holds_whatever_was_lost_in_crashes(finished: Path) -> None:
    found = checked(finished)
    assert found.holds
    assert dataclasses.replace(found, difference=0.0, max_epsilon_over_budget=0.0) == Check(10, 0, 0, 0, 0, 0, 0.0, 0.0)
    assert -0.2 < found.max_epsilon_over_budget <= 0


def test_site_that_does_not_pay_is_found_although_another_charge_was_lost(tmp_path: Path) -> None:
    """Its ledger has as many charges as it made releases."""
    run(tmp_path, unpaid=True)
    found = checked(tmp_path)
    assert found.unpaid == 1
    assert not found.holds


UNLIMITED = [
    ("coordinator", "CREATE TABLE other AS SELECT * FROM applied"),
    ("coordinator", "DROP TABLE applied"),
    ("coordinator", "ALTER TABLE other RENAME TO applied"),
]
"""Let the table of updates hold any rows."""

AGAIN = "INSERT INTO applied SELECT 11, site, sequence, 0.0, 'x' FROM applied WHERE version = 10"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ([("north", "UPDATE site SET releases = releases + 1")], {"lost": 1}),
        ([("north", "UPDATE site SET releases = 6"), ("south", "UPDATE site SET releases = 4")], {"lost": 2}),
        ([("coordinator", "DELETE FROM applied WHERE version = 10")], {"updates": 9, "lost": 2}),
        ([("coordinator", "UPDATE federation SET version = 11")], {"lost": 1}),
        (
            [*UNLIMITED, ("coordinator", AGAIN), ("coordinator", "UPDATE federation SET version = 11")],
            {"updates": 11, "duplicated": 1, "lost": 0},
        ),
        ([("coordinator", "UPDATE applied SET digest = 'x' WHERE version IN (1, 10)")], {"duplicated": 1}),
        (
            [*UNLIMITED, ("coordinator", "UPDATE applied SET sequence = 3 - sequence WHERE sequence IN (1, 2)")],
            {"disordered": 2, "duplicated": 0, "lost": 0},
        ),
        ([("north", "UPDATE paid SET entry = (SELECT min(entry) FROM paid)")], {"unpaid": 4}),
        ([("north", "UPDATE paid SET entry = 0 WHERE release = 3")], {"unpaid": 1}),
        ([("north", "UPDATE paid SET entry = 1000 WHERE release = 3")], {"unpaid": 1}),
        ([("north", "DELETE FROM paid WHERE release = 1")], {"unpaid": 1}),
    ],
)
def test_files_that_disagree_are_counted_as_they_disagree(
    changes: list[tuple[str, str]], found: dict[str, int], folder: Path
) -> None:
    for name, statement in changes:
        change(folder / f"{name}.db", statement)
    now = checked(folder)
    assert {field: getattr(now, field) for field in found} == found
    assert not now.holds


def test_factor_of_a_site_is_the_coordinators_bit_for_bit(folder: Path) -> None:
    with SiteFile.open(folder / "north.db") as file:
        state = unpack(init_client(DESCRIPTION.spec.algorithm, DESCRIPTION.spec.prior), file.load().state or b"")
    nearly = dataclasses.replace(state, factor=jax.tree.map(lambda leaf: np.nextafter(leaf, np.inf), state.factor))
    change(folder / "north.db", "UPDATE site SET state = ?", pack(nearly))
    found = checked(folder)
    assert (found.differing, found.lost) == (1, 0)
    assert not found.holds


def test_q_that_is_not_what_answers_say_is_found(folder: Path) -> None:
    with CoordinatorFile.open(folder / "coordinator.db") as store:
        asked: Any = store.asked
    q = dataclasses.replace(asked.posterior, natural_mean=asked.posterior.natural_mean + 1)
    change(folder / "coordinator.db", "UPDATE federation SET asked = ?", pack(dataclasses.replace(asked, posterior=q)))
    found = checked(folder)
    assert 1e-5 < found.difference < math.inf
    assert not found.holds


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"lost": 1}, 1),
        ({"duplicated": 1}, 1),
        ({"disordered": 1}, 1),
        ({"unpaid": 1}, 1),
        ({"differing": 1}, 1),
        ({"max_epsilon_over_budget": 1e-9}, 1),
        ({"difference": 2e-5}, 1),
        ({"difference": float("nan")}, 1),
    ],
)
def test_demo_ends_with_code_1_unless_everything_holds(
    changes: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = DemoReport(10, 0, 0, 0, 0, 0, -0.1, 1e-7, accuracy=0.8, log_likelihood=-0.3, kills={}, seconds=1.0, sites=())
    monkeypatch.setattr("fedvi.federation.demo.run.demonstrate", lambda *_, **__: dataclasses.replace(good, **changes))
    for options in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["fedvi", "federation", "demo", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert int(ended.value.code or 0) == code
        printed = capsys.readouterr().out
        if options:
            assert {"accuracy", "log_likelihood", "updates", "lost", "duplicated", "max_epsilon_over_budget"} <= set(
                json.loads(printed)
            )
        else:
            assert ("All checks passed." in printed) == (code == 0)


class Immortal:
    """A process that can be killed again and again."""

    pid = 1

    def kill(self) -> None:
        pass


def chaos(patch: pytest.MonkeyPatch, seed: int, absent: set[str]) -> Chaos:
    """Return chaos among processes of all kinds that are not absent."""
    kinds = {value: kind for kind, value in KINDS.items()}
    patch.setattr(Chaos, "_processes", lambda _, *kind: [] if kinds[kind] in absent else [Immortal()])
    return Chaos(SimpleNamespace(), seed)  # type: ignore[arg-type]


def test_chaos_kills_every_kind_equally_often_in_an_order_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    killer = chaos(monkeypatch, 1, set())
    first = [killer.strike() for _ in range(3 * len(KINDS))]
    assert killer.kills == dict.fromkeys(KINDS, 3)
    again, other = chaos(monkeypatch, 1, set()), chaos(monkeypatch, 2, set())
    assert [again.strike() for _ in first] == first != [other.strike() for _ in first]


def test_kind_that_is_not_there_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"site's job"}
    killer = chaos(monkeypatch, 0, absent)
    assert {killer.strike() for _ in range(len(KINDS) - 1)} == set(KINDS) - absent
    assert killer.strike() == ""
    absent.clear()
    assert killer.strike() == "site's job"
    assert killer.kills == dict.fromkeys(KINDS, 1)


def test_commands_of_all_parties_are_found_and_what_they_leave_is_ended(tmp_path: Path) -> None:
    """Parties that do nothing, and a process in the folder of one, as a command that is killed leaves it."""
    federation = LocalFederation.__new__(LocalFederation)
    federation.folder = tmp_path
    federation.parties = {name: federation._party(name) for name in ("coordinator", *DESCRIPTION.sites)}
    for party in federation.parties.values():
        party._command = [sys.executable, "-c", "import time; time.sleep(60)"]
    federation.ensure()
    marked = os.environ | {MARK: str(tmp_path / "kit")}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=marked) as left:
        for coordinator, count in ((True, 1), (False, 2)):
            commands = federation.commands(coordinator)
            assert len(commands) == count
            for command in commands:
                command.kill()
        for party in federation.parties.values():
            party.wait(60)
        assert federation.commands(True) == federation.commands(False) == []
        federation._end_leftovers()
        assert left.wait(10) == -signal.SIGKILL
