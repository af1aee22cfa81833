"""Ledgers and several processes, some of them killed."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from fedvi.errors import LedgerInUse
from fedvi.privacy.events import gaussian
from fedvi.privacy.ledger.ledger import Ledger, read
from ledgers import BUDGET, DATA, UPDATE

OTHER_PROCESS = """
import sys
from fedvi.errors import LedgerInUse
from fedvi.privacy import Ledger
try:
    Ledger.open(sys.argv[1], sys.argv[2])
except LedgerInUse as error:
    print(error)
    sys.exit(17)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def in_other_process(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OTHER_PROCESS, path, DATA], capture_output=True, text=True)


def test_two_processes_cannot_open_one_ledger(path: Path) -> None:
    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(UPDATE, 2)
        second = in_other_process(path)
        assert second.returncode == 17, second.stderr
        assert "is open in another process" in second.stdout
        with pytest.raises(LedgerInUse):
            Ledger.open(path, DATA)
        link = path.with_name("link.db")
        link.symlink_to(path)
        with pytest.raises(LedgerInUse):
            Ledger.open(link, DATA)
        ledger.charge(UPDATE)  # the first is not disturbed
    assert in_other_process(path).returncode == 0


def test_two_processes_cannot_make_two_ledgers_of_one_data_set(tmp_path: Path) -> None:
    """Several at once: one ledger, and a clear error for the others."""
    code = (
        "import sys; from fedvi import Budget; from fedvi.errors import OtherData; from fedvi.privacy import Ledger\n"
        f"try: Ledger.create(sys.argv[1], Budget(0.5, 1e-4), {DATA!r}).close(); print('made')\n"
        "except OtherData: print('refused')"
    )
    racing = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path / f"{index}.db"], stdout=subprocess.PIPE, text=True)
        for index in range(3)
    ]
    assert sorted(process.communicate()[0].strip() for process in racing) == ["made", "refused", "refused"]


def test_a_backup_in_the_same_process_does_not_unlock(path: Path, state_directory: Path) -> None:
    """Closing a file drops all locks of its kind that SQLite holds; ours on a file of its own stays."""
    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(UPDATE, 3)
        path.read_bytes()
        for seen in state_directory.glob("ledgers/*.witness"):
            seen.read_bytes()
        second = in_other_process(path)
        assert second.returncode == 17, second.stderr
        ledger.charge(UPDATE)
        assert sum(read(path).charged.values()) == 1
    assert sum(read(path).charged.values()) == 1  # the other process has not taken away what it went into


CHARGES = """
import sys, time
from fedvi.privacy import Ledger
from fedvi.privacy.events import gaussian
with Ledger.open(sys.argv[1], sys.argv[2]) as ledger:
    while True:
        number = ledger.charge(gaussian(5000.0, numbers=6))
        print(number, flush=True)
        time.sleep(0.001)
"""


def test_whoever_looks_at_a_ledger_at_work_sees_all_that_is_paid_and_disturbs_nobody(path: Path) -> None:
    """Through many turns of the log, until it is killed."""
    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(gaussian(5000.0, numbers=6), 20_000)
    command = [sys.executable, "-c", CHARGES, str(path), DATA]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said in map(int, itertools.islice(process.stdout, 600)):
            if said % 6 == 0:
                assert sum(read(path).charged.values()) >= said - 1  # entries 0 and 1 are no charges
        process.kill()
        said = max([said, *map(int, process.stdout.read().split())])
    paid = sum(read(path).charged.values())
    assert said - 1 <= paid <= said  # the last may have been paid, and not said
    with Ledger.open(path, DATA) as ledger:
        assert sum(ledger.book.charged.values()) == paid
        assert not ledger.book.acknowledgements


DIES = "lambda *_: os._exit(9)"


INSTANTS = {
    "witness.Witness.create": DIES,
    "witness.Witness.belongs_to": DIES,
    "witness.Witness.expect": DIES,
    "sqlite.put_in_place": "lambda made, path: put(made, path) if path.suffix == '.witness' else os._exit(9)",
    "witness.Witness.see": DIES,
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_maker_killed_at_any_instant_leaves_no_ledger_or_one_that_works(
    instant: str, path: Path, tmp_path: Path
) -> None:
    """A real process dies in the middle of making the ledger; the next one makes it, or goes on with it, unasked."""
    code = (
        "import os; from fedvi import sqlite; from fedvi.privacy import Budget, Ledger\n"
        "from fedvi.privacy.ledger import witness\n"
        f"put = sqlite.put_in_place; {instant} = {INSTANTS[instant]}\n"
        f"Ledger.create({str(path)!r}, Budget({BUDGET.epsilon}, {BUDGET.delta}), {DATA!r})"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert path.exists() == (instant == "witness.Witness.see")
    left = {each.name for each in tmp_path.iterdir() if "unfinished" in each.name}
    assert bool(left) == (instant == "sqlite.put_in_place")
    opened = Ledger.open(path, DATA) if path.exists() else Ledger.create(path, BUDGET, DATA)
    with opened as ledger:
        assert not ledger.book.charged
        assert not ledger.book.acknowledgements
    assert {each.name for each in tmp_path.iterdir() if "unfinished" in each.name} == set()
    with Ledger.open(path, DATA) as ledger:
        assert len(ledger.book.entries) == 1
