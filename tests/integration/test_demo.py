"""The demonstration: what it checks can fail, and it kills every kind of process."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from fedvi.cli.main import main
from fedvi.errors import NotReached
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.demo.checking import Check, Files, check
from fedvi.federation.demo.local import Chaos, LocalFederation
from fedvi.federation.demo.proxy import FAULTS, SpoilingProxy
from fedvi.federation.demo.run import DemoReport
from fedvi.federation.invitation import Address
from fedvi.federation.site import Site
from fedvi.federation.site_file import SiteFile
from fedvi.federation.store.reader import Reader
from fedvi.federation.transports.https import Https
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
    with Reader.open(folder / "coordinator.db") as store:
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
    with Reader.open(folder / "coordinator.db") as store:
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
    scores: dict[str, Any] = {"accuracy": 0.8, "log_likelihood": -0.3, "seconds": 1.0, "seconds_to_first": 0.5}
    good = DemoReport(10, 0, 0, 0, 0, 0, -0.1, 1e-7, **scores, kills={}, spoilt={}, sites=())
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


KINDS = ("coordinator", "site", "SuperNode", "ClientApp")


def chaos(seed: int, absent: set[str]) -> Chaos:
    """Return chaos among things of all kinds, which can be killed again and again unless they are absent."""
    federation = SimpleNamespace(victims=lambda _: {kind: lambda kind=kind: kind not in absent for kind in KINDS})
    return Chaos(federation, seed)  # type: ignore[arg-type]


def test_chaos_kills_every_kind_equally_often_in_an_order_by_seed() -> None:
    killer = chaos(1, set())
    first = [killer.strike() for _ in range(3 * len(KINDS))]
    assert killer.kills == dict.fromkeys(KINDS, 3)
    again, other = chaos(1, set()), chaos(2, set())
    assert [again.strike() for _ in first] == first != [other.strike() for _ in first]


def test_kind_that_is_not_there_keeps_its_turn() -> None:
    absent = {"SuperNode"}
    killer = chaos(0, absent)
    assert {killer.strike() for _ in range(len(KINDS) - 1)} == set(KINDS) - absent
    assert killer.strike() == ""
    absent.clear()
    assert killer.strike() == "SuperNode"
    assert killer.kills == dict.fromkeys(KINDS, 1)


def test_a_party_is_started_again_until_it_has_ended_well(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    federation = LocalFederation.__new__(LocalFederation)
    federation.folder = tmp_path
    party = federation._party("north", "ledger", "show", mark)  # fails: there is no ledger
    party.ensure()
    party.wait(60)
    first = party.process
    assert first is not None
    assert first.returncode == 1
    party.again = lambda: ["--version"]
    party.ensure()
    party.wait(60)
    assert party.process is not first
    assert party.process is not None
    assert party.process.returncode == 0
    party.ensure()
    assert party.process.returncode == 0
    assert not party.kill()


class Upstream:
    """A coordinator's end of a proxy: counts what comes, and answers it."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                upstream.came.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "6")
                self.end_headers()
                self.wfile.write(b"answer")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_the_proxy_spoils_as_it_says(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedvi.federation.demo.proxy.FAULTS", (fault,))
    monkeypatch.setattr("fedvi.federation.demo.proxy.LATER", 0.2)
    there = Upstream()
    with SpoilingProxy(tmp_path, f"http://127.0.0.1:{there.server.server_port}", 1.0 if fault else 0.0) as proxy:
        address = Address(f"https://127.0.0.1:{proxy.port}", proxy.pin, "f", "north", bytes(32))
        carrier = Https(address)
        try:
            answer = carrier.send(b"question")
        except NotReached:
            answer = b""
        time.sleep(0.5)
        carrier.close()
    there.server.shutdown()
    there.server.server_close()
    assert proxy.counts == {fault or "carried": proxy.counts[fault or "carried"]}
    came = {"cut before": 0, "foreign error": 0, "doubled": 2, "copied later": 2}.get(fault, 1)
    assert there.came == [b"question"] * came
    expected = {"cut before": b"", "cut after": b"", "foreign error": b"<h1>The proxy of the house says no</h1>"}
    if fault == "altered":
        assert len(answer) == 6
        assert answer != b"answer"
    else:
        assert answer == expected.get(fault, b"answer")
