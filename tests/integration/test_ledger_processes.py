"""Ledgers and several processes, some of them killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedvi.errors import (
    LedgerInUse,
)
from fedvi.privacy.ledger.ledger import Ledger
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
