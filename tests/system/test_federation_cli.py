"""What coordinators and sites type: real commands and processes, errors of one line, a federation's whole life."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import console
from fedvi.cli.federation import coordinator as coordinator_cli
from fedvi.cli.main import main
from fedvi.console import progress
from fedvi.errors import LedgerRolledBack
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.demo.engines import free_port
from fedvi.federation.description import Description
from fedvi.federation.making import invite
from fedvi.federation.service import ask_to_stop
from fedvi.federation.settings import SiteSettings
from fedvi.federation.store.file import CoordinatorFile
from fedvi.federation.store.records import SiteRecord
from fedvi.federation.store.status import ago, status_of
from fedvi.fitting import Fitted
from fedvi.privacy.ledger import ledger as ledgers
from small_federation import SCHEMA

FEDVI = [sys.executable, "-c", "from fedvi.cli import main; main()"]


def write_table(path: Path, number: int, rows: int = 200) -> Path:
    rng = np.random.default_rng(number)
    numbers = rng.normal(size=(rows, 2)).round(3)
    answers = np.where(rng.random(rows) < 1 / (1 + np.exp(numbers[:, 1] - numbers[:, 0])), "yes", "no")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "y"])
        writer.writerows([*pair, answer] for pair, answer in zip(numbers.tolist(), answers, strict=True))
    return path


def write_description(folder: Path, updates: int = 10, **changes: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    SCHEMA.save(folder / "schema.toml")
    lines = {"name": '"trial"', "sites": '["north", "south"]', "schema": '"schema.toml"', **changes}
    top = "".join(f"{key} = {value}\n" for key, value in lines.items())
    text = f'{top}[coordinator]\nurl = "https://localhost:{free_port()}"\n[training]\nrows = 400\nupdates = {updates}\n'
    (folder / "federation.toml").write_text(text)
    return folder / "federation.toml"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation that was made and not started."""
    folder = tmp_path_factory.mktemp("made")
    run("federation", "init", write_description(folder), "--out", folder / "coordinator")
    return folder / "coordinator"


def run(*arguments: Any, code: int = 0, **options: Any) -> str:
    done = subprocess.run([*FEDVI, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process, where errors are found without waiting for imports."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedvi", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


Here = Callable[..., tuple[int, str, str]]


def test_template_is_a_federation_that_can_be_made(tmp_path: Path, here: Here) -> None:
    code, text, _ = here("federation", "template")
    assert code == 0
    content = tomllib.loads(text)
    assert {"name", "sites", "schema", "coordinator", "training", "privacy", "start", "stop"} <= set(content)
    SCHEMA.save(tmp_path / "schema.toml")
    (tmp_path / "federation.toml").write_text(text)
    code, _, err = here("federation", "init", tmp_path / "federation.toml", "--out", tmp_path / "made")
    assert code == 2
    assert "placeholder 'https://coordinator.example.org:8443'" in err
    (tmp_path / "federation.toml").write_text(text.replace("coordinator.example.org", "localhost"))
    code, out, err = here("federation", "init", tmp_path / "federation.toml", "--out", tmp_path / "made")
    assert (code, err) == (0, "")
    assert all(f"fedvi federation invite {tmp_path / 'made'} {site}" in out for site in content["sites"])
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


def test_made_federation_is_not_made_again(made: Path, here: Here) -> None:
    before = (made / "coordinator.db").read_bytes()
    code, _, err = here("federation", "init", made / "federation.toml", "--out", made)
    assert code == 2
    assert "new or empty folder" in err
    assert (made / "coordinator.db").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sites": '["North"]'}, "lower-case"),
        ({"sites": '["coordinator"]'}, "coordinator"),
        ({"schema": '"nowhere.toml"'}, "nowhere.toml"),
        ({"nonsense": "1"}, "nonsense"),
    ],
)
def test_wrong_federations_are_refused_in_one_line(
    changes: dict[str, str], said: str, tmp_path: Path, here: Here
) -> None:
    code, _, err = here("federation", "init", write_description(tmp_path, 10, **changes), "--out", tmp_path / "made")
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "made").exists()


def test_status_and_export_before_anybody_joined(made: Path, tmp_path: Path, here: Here) -> None:
    code, out, _ = here("federation", "status", made, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["version"], found["running"], found["over"]) == (0, False, False)
    assert [site["state"] for site in found["sites"]] == ["absent", "absent"]
    assert found["health"] == ["Not joined yet: north, south."]
    code, _, err = here("federation", "export", made, "--out", tmp_path / "model.fedvi")
    assert code == 2
    assert "none yet" in err
    code, out, _ = here("federation", "stop", made)
    assert "No coordinator" in out
    code, _, err = here("federation", "status", tmp_path)
    assert code == 2
    assert "federation init" in err


@pytest.fixture(scope="module")
def served(made: Path) -> Iterator[Path]:
    """The same, at work."""
    run("federation", "start", made, "--background", "--no-page")
    yield made
    ask_to_stop(made / "start.pid")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where somebody joins: with an invitation, into a folder."""

    line: str
    home: Path

    def joining(self, table: Path, ledger: Path, *more: Any) -> tuple[Any, ...]:
        how = ("--data", table, "--eps", "1", "--ledger", ledger, "--folder", self.home)
        return ("site", "join", self.line, *how, *more)


def place_in(made: Path, folder: Path, site: str = "north") -> Place:
    folder.mkdir(exist_ok=True)
    return Place(invite(made, site), folder / site)


def nobody_works(settings: SiteSettings, site: Any) -> None:
    """Replace the work of a site, which would go on to the end of the federation."""


def test_who_does_not_promise_has_made_no_ledger(served: Path, tmp_path: Path) -> None:
    place, table = place_in(served, tmp_path), write_table(tmp_path / "table.csv", 0)
    command = [*FEDVI, *map(str, place.joining(table, tmp_path / "ledger"))]
    done = subprocess.run(command, input="n\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "epsilon 1 at delta 1e-05" in done.stdout
    assert "200 rows stay here" in done.stdout
    assert "the declared number of rows, 200" in done.stdout
    assert not (tmp_path / "ledger").exists()
    assert not list(Path(os.environ["FEDVI_STATE_DIR"]).glob("*"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,y\n1,no\n2,yes\n", "column 'b'"),
        ("a,b,y\n1,2,no\n", "at least 2 rows"),
    ],
)
def test_tables_that_do_not_fit_the_schema_are_refused_before_anything_is_made(
    text: str, said: str, served: Path, tmp_path: Path, here: Here
) -> None:
    place, table = place_in(served, tmp_path), tmp_path / "table.csv"
    table.write_text(text)
    code, _, err = here(*place.joining(table, tmp_path / "ledger", "--yes"))
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "1,x,yes",
            ["Noticed (this stays here): Values that are no number", "b 1 (0.498 %)", "Warning (this stays here)"],
        ),
        ("1,inf,yes", ["Noticed (this stays here): Values that are no number", "b 1 (0.498 %)"]),
        ("1,2,perhaps", ["Values that are not listed", "y 1", "1 rows hold what is no number, or a foreign label"]),
        ("1,2,", ["Values missing (this stays here): y 1", "1 rows hold what is no number, or a foreign label"]),
        ('1,2,"yes', ["with an open quotation mark: 1 left out"]),
        ("1,2,yes,4", ["Lines with a value too many or too few, or with an open quotation mark: 1 left out"]),
        ("1,2,yes\n1,2,yes", ["Rows that agree with an earlier one in all columns: 1 of"]),
    ],
)
def test_no_site_refuses_because_of_what_a_row_holds(
    line: str, said: list[str], served: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal would be a noiseless answer about rows; people at the site are told, and nobody else."""
    monkeypatch.setattr("fedvi.cli.join.work", nobody_works)
    place, table = place_in(served, tmp_path), write_table(tmp_path / "table.csv", 0)
    table.write_text(table.read_text() + line + "\n")
    code, out, err = here(*place.joining(table, tmp_path / "ledger", "--yes"))
    assert (code, err) == (0, "")
    assert all(words in out for words in said), out
    assert ledgers.read(tmp_path / "ledger").public_rows == 200


def test_wrong_invitations_folders_and_options_are_named(served: Path, tmp_path: Path, here: Here) -> None:
    place, table = place_in(served, tmp_path), write_table(tmp_path / "table.csv", 0)
    for arguments, said in (
        (("site", "join", tmp_path / "none"), "Expected an invitation"),
        (("site", "join", table), "Expected an invitation"),
        (("site", "join", place.line[:-9]), "This invitation is not whole"),
        (("site", "join", place.line, "--folder", place.home, "--eps", "1"), "missing: --data, --ledger"),
        (("site", "join", place.line, "--folder", place.home), "Expected --data, --eps and --ledger"),
        (("site", "join", place.home), "Expected an invitation"),
        (("site", "join", tmp_path), "Nobody has joined"),
        (("site", "status", tmp_path / "other"), "site join first"),
        (("site", "pause", tmp_path), "Nobody has joined"),
        (place.joining(table, tmp_path / "ledger", "--yes", "--eps", "-1"), "eps"),
    ):
        code, _, err = here(*arguments)
        assert code == 2, arguments
        assert said in err
        assert len(err.splitlines()) == 1
        assert place.line not in err


def test_an_invitation_comes_from_standard_input_and_lets_in_once(served: Path, tmp_path: Path) -> None:
    place, table = place_in(served, tmp_path), write_table(tmp_path / "table.csv", 0)
    arguments = list(map(str, place.joining(table, tmp_path / "ledger")))
    arguments[2] = "-"
    done = subprocess.run([*FEDVI, *arguments], input=place.line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1  # nobody can confirm: standard input is used up
    assert "You are about to promise" in done.stdout
    other = dataclasses.replace(place, home=tmp_path / "other")
    refused = run(*other.joining(table, tmp_path / "other.ledger", "--yes"), code=3)
    assert "This invitation was used already" in refused
    assert place.line not in refused


def test_a_policy_may_ask_for_a_person(served: Path, tmp_path: Path, here: Here) -> None:
    place, table = place_in(served, tmp_path), write_table(tmp_path / "table.csv", 0)
    (tmp_path / "policy.toml").write_text("ask_before_first_release = true")
    code, _, err = here(*place.joining(table, tmp_path / "ledger", "--yes"))
    assert code == 2
    assert "ask_before_first_release" in err
    assert not (tmp_path / "ledger").exists()
    (tmp_path / "policy.toml").write_text("largest_epsilon = 0.5")
    code, _, err = here(*place.joining(table, tmp_path / "ledger", "--yes"))
    assert code == 2
    assert "refuses epsilon 1" in err


def test_a_site_takes_a_new_key_and_a_revoked_one_is_refused(
    served: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, table = place_in(served, tmp_path), write_table(tmp_path / "table.csv", 0)
    with monkeypatch.context() as patched:
        patched.setattr("fedvi.cli.join.work", nobody_works)
        assert here(*place.joining(table, tmp_path / "ledger", "--yes"))[0] == 0
    before = (place.home / "site.key").read_bytes()
    assert here("site", "rekey", place.home)[0] == 0
    new = (place.home / "site.key").read_bytes()
    assert new != before
    (place.home / "site.next.key").write_bytes(new)  # as if the answer had been lost
    (place.home / "site.key").write_bytes(before)
    assert here("site", "rekey", place.home)[0] == 0
    assert (place.home / "site.key").read_bytes() == new
    assert here("federation", "revoke", served, "north")[0] == 0
    code, _, err = here("site", "join", place.home, "--yes")
    assert code == 3
    assert "revoked" in err
    assert here("federation", "revoke", served, "nobody")[0] == 1


def test_what_people_accepted_at_joining_holds_once(
    served: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of the ledger that somebody restores later is noticed, although one was accepted before."""
    monkeypatch.setattr("fedvi.cli.join.work", nobody_works)
    place, table, ledger = place_in(served, tmp_path), write_table(tmp_path / "table.csv", 0), tmp_path / "ledger"
    backup = tmp_path / "backup"

    def join(*more: str) -> tuple[int, str, str]:
        return here(*place.joining(table, ledger, "--yes", *more))

    def release_and_restore() -> None:
        with SiteSettings.load(place.home).open() as client, Coordinator.open(tmp_path / "there.db") as server:
            for _ in range(3):
                request = client.request()
                assert request is not None
                client.receive(server.handle("north", request))
        shutil.copy(backup, ledger)

    assert join()[0] == 0
    shutil.copy(ledger, backup)
    Coordinator.create(tmp_path / "there.db", Description.load(served)).close()
    release_and_restore()
    assert "accept 'rolled back'" in join()[2]
    assert join("--accept", "rolled back")[0] == 0
    assert SiteSettings.load(place.home).accept == ()
    release_and_restore()
    with pytest.raises(LedgerRolledBack):
        SiteSettings.load(place.home).open()
    assert "accept 'rolled back'" in here("site", "join", place.home, "--yes")[2]


def test_status_of_a_coordinator_says_why_messages_were_refused_and_what_to_do(
    made: Path, tmp_path: Path, here: Here
) -> None:
    folder = tmp_path / "copy"
    assert here("federation", "backup", made, folder)[0] == 0
    with Coordinator.open(folder / "coordinator.db") as server:
        server.handle("north", b"nonsense")
    code, out, _ = here("federation", "status", folder)
    assert code == 0
    assert "Refused in the last ten minutes: 1 message of north." in out
    assert "north: Expected a message of fedvi, got 8 bytes that are none." in out
    assert f"Start it: fedvi federation start {folder}" in out


def test_status_of_a_site_says_what_was_spent_and_what_to_do(
    served: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedvi.cli.join.work", nobody_works)
    place = place_in(served, tmp_path)
    assert here(*place.joining(write_table(tmp_path / "table.csv", 0), tmp_path / "ledger", "--yes"))[0] == 0
    here("site", "pause", place.home)
    code, out, _ = here("site", "status", place.home)
    assert code == 0
    assert "this site: never heard by the coordinator, wanted: paused; its command is not running." in out
    assert "Last answer of the coordinator: none yet." in out
    assert f"Spent: epsilon 0 of 1 at delta 1e-05. Ledger: {tmp_path / 'ledger'}" in out
    assert f"Go on: fedvi site join {place.home}" in out


def test_a_pause_outlives_the_command(
    served: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash or a reboot a service starts it again, and nobody was asked."""
    monkeypatch.setattr("fedvi.cli.join.work", nobody_works)
    place = place_in(served, tmp_path)
    assert here(*place.joining(write_table(tmp_path / "table.csv", 0), tmp_path / "ledger", "--yes"))[0] == 0
    here("site", "pause", place.home)
    code, out, _ = here("site", "join", place.home, "--yes")
    assert code == 0
    assert f"It is paused, and stays so. Go on: fedvi site resume {place.home}" in out
    assert json.loads(here("site", "status", place.home, "--json")[1])["wanted"] == "paused"
    here("site", "resume", place.home)
    here("site", "join", place.home, "--yes")
    assert json.loads(here("site", "status", place.home, "--json")[1])["wanted"] == "working"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7200, "2 h ago"), (300_000, "3 days ago")],
)
def test_times_are_told_in_units_that_people_use(seconds: float, said: str) -> None:
    assert ago(seconds) == said


def test_words_of_the_coordinator_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("site", 5, "updates") as show:
        show(1, "working: [/red] and [bold]")
    assert "working: [/red] and [bold]" in capsys.readouterr().err


def test_words_of_sites_are_shown_as_they_are(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with CoordinatorFile.open(made / "coordinator.db") as store:
        status = status_of(store)
    named = dataclasses.replace(status.sites[0], name="[/red]", state="[bold]")
    console.show(coordinator_cli.table_of(dataclasses.replace(status, sites=(named,))))
    shown = capsys.readouterr().out
    assert "[/red]" in shown
    assert "[bold]" in shown


def eventually(condition: Callable[[], Any], seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.3)
    return found


@pytest.fixture
def ended() -> Iterator[list[tuple[str, Path]]]:
    """Collect what runs in the background, and end it whatever happens."""
    started: list[tuple[str, Path]] = []
    yield started
    for _, pid in started:
        ask_to_stop(pid)


@pytest.mark.slow
def test_life_of_a_federation(tmp_path: Path, ended: list[tuple[str, Path]], here: Here) -> None:
    """Made, started, joined, paused, resumed, joined late, left, stopped, started again, finished, exported."""
    folder = tmp_path / "coordinator"

    def run(*arguments: Any, code: int = 0) -> str:
        ended, out, err = here(*arguments)
        assert ended == code, out + err
        return out if code == 0 else err

    run("federation", "init", write_description(tmp_path, updates=20), "--out", folder)
    tables = {
        site: write_table(tmp_path / f"{site}.csv", number) for number, site in enumerate(("north", "south", "west"))
    }

    def states() -> dict[str, SiteRecord]:
        with CoordinatorFile.open(folder / "coordinator.db") as store:
            return {site.name: site for site in store.sites()}

    def start() -> None:
        ended.append(("coordinator", folder / "start.pid"))
        run("federation", "start", folder, "--background", "--no-page", "--test", tables["north"])

    def join(site: str) -> Path:
        place = place_in(folder, tmp_path / site, site)
        ended.append((site, place.home / "join.pid"))
        run(*place.joining(tables[site], tmp_path / site / "ledger", "--yes", "--background"))
        return place.home

    start()
    assert "is running already" in run("federation", "start", folder, "--no-page", code=2)
    north = join("north")
    eventually(lambda: states()["north"].sequence >= 1)
    run("site", "pause", north)
    eventually(lambda: states()["north"].state == "paused")
    assert json.loads(run("site", "status", north, "--json"))["state"] == "paused"
    assert run("federation", "invite", folder, "west").startswith("fedvi1_")
    west = join("west")
    eventually(lambda: states()["west"].sequence >= 1)
    assert "Stopped" in run("federation", "stop", folder)
    released = {name: site.sequence for name, site in states().items()}
    start()
    south = join("south")
    eventually(lambda: states()["south"].sequence >= 1)
    assert "Left" in run("site", "leave", south)
    assert states()["south"].state == "left"
    run("site", "join", south, "--yes", "--background")  # it may come back, while the others are not done
    eventually(lambda: states()["south"].state not in ("left", "absent"))
    run("site", "resume", north)
    eventually(lambda: {site.state for site in states().values()} == {"finished"})
    eventually(lambda: not (folder / "start.pid").exists())
    assert all(states()[name].sequence >= count for name, count in released.items())
    assert {site.sequence for site in states().values()} == {20}

    model = tmp_path / "model.fedvi"
    assert "Checked" in run("federation", "export", folder, "--out", model)
    assert "exists" in run("federation", "export", folder, "--out", model, code=2)
    fitted = Fitted.load(model)
    assert [site.name for site in fitted.sites] == ["north", "south", "west"]
    assert all(site.epsilon is not None and site.epsilon <= 1 for site in fitted.sites)
    assert np.asarray(fitted.posterior.mean)[1] > 0 > np.asarray(fitted.posterior.mean)[2]
    assert "epsilon" in run("federation", "status", folder)
    assert "Over: every site" in run("federation", "start", folder, "--no-page")
    for site, home in (("north", north), ("south", south), ("west", west)):
        found = json.loads(run("site", "status", home, "--json"))
        assert found["releases"] == 20, site
        assert not found["running"]
