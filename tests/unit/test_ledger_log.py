"""The log beside a ledger's file: whole after a crash, gone when it is closed, and no way to a larger budget."""

from __future__ import annotations

import contextlib
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedvi.errors import BudgetClosed, LedgerDamaged, LedgerError, LedgerInUse, LedgerRolledBack
from fedvi.privacy.events import gaussian
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.privacy.ledger.entries import Book, Entry
from fedvi.privacy.ledger.ledger import Ledger
from fedvi.privacy.ledger.locked import Locked
from fedvi.privacy.ledger.witness import Witness, verify_witness
from ledgers import BUDGET, DATA, UPDATE

PLANNED = 40
NORMAL, EXTRA = 1, 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed ledger of which ten updates are paid for."""
    path = tmp_path / "ledger.db"
    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(UPDATE, PLANNED)
        for _ in range(10):
            ledger.charge(UPDATE)
    return path


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def witness_of(state: Path) -> Path:
    (found,) = state.glob("ledgers/*.witness")
    return found


def paid(path: Path) -> int:
    return sum(ledgers.read(path).charged.values())


@contextlib.contextmanager
def killed(*paths: Path) -> Iterator[dict[Path, bytes]]:
    """Leave files and logs as a kill at the end of the block would, though who has them open closes them after that."""
    kept: dict[Path, bytes] = {}
    try:
        yield kept
    finally:
        for path in paths:
            for each in (path, log_of(path)):
                each.unlink(missing_ok=True)
                if each in kept:
                    each.write_bytes(kept[each])


def keep(kept: dict[Path, bytes], *paths: Path) -> None:
    kept |= {each: each.read_bytes() for path in paths for each in (path, log_of(path)) if each.exists()}


@pytest.fixture
def crashed(path: Path, state_directory: Path) -> Path:
    """The same ledger after a kill, five updates later, with its log and that of its witness."""
    both = path, witness_of(state_directory)
    with killed(*both) as kept, Ledger.open(path, DATA) as ledger:
        for _ in range(5):
            ledger.charge(UPDATE)
        keep(kept, *both)
    assert log_of(path).stat().st_size > 0
    return path


def test_a_copy_of_a_closed_ledger_is_complete_and_nothing_else_is_left(path: Path, tmp_path: Path) -> None:
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    copy = shutil.copy(path, tmp_path / "copy.db")
    assert paid(Path(copy)) == 10
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM entries WHERE kind = 'charge'").fetchone() == (10,)


def test_every_charge_is_seen_at_once_while_the_ledger_is_open(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with Ledger.open(path, DATA) as ledger:
        for number in range(11, 31):
            ledger.charge(UPDATE)
            assert paid(path) == paid(link) == number
            assert "nothing newer" in verify_witness(ledgers.read(path))
        assert {each.name for each in tmp_path.iterdir()} == {path.name, log_of(path).name, link.name}
        with pytest.raises(LedgerInUse):
            Ledger.open(link, DATA)
        ledger.charge(UPDATE)
    assert paid(path) == 31


def test_the_log_is_put_into_the_file_now_and_then(path: Path) -> None:
    """Who copies a ledger that is open gets all but the last hundred entries or so."""
    with Ledger.create(path.with_name("long.db"), BUDGET, DATA, accept="second ledger") as ledger:
        ledger.plan(event := gaussian(500.0, numbers=6), 1000)
        for _ in range(400):
            ledger.charge(event)
        alone = shutil.copy(path.with_name("long.db"), path.with_name("alone.db"))
        assert 280 < paid(Path(alone)) <= 400
        assert log_of(path.with_name("long.db")).stat().st_size < 500_000
    assert paid(path.with_name("long.db")) == 400


def test_after_a_kill_nothing_that_was_paid_is_missing(crashed: Path, tmp_path: Path) -> None:
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert paid(crashed) == 15
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before  # who looks changes nothing
    with Ledger.open(crashed, DATA) as ledger:
        assert sum(ledger.book.charged.values()) == 15
        assert not ledger.book.acknowledgements
        assert ledger.remaining(UPDATE) == PLANNED - 15
    assert paid(crashed) == 15
    assert not log_of(crashed).exists()


def test_a_ledger_whose_log_is_lost_was_rolled_back(crashed: Path) -> None:
    log_of(crashed).unlink()
    assert paid(crashed) == 10
    with pytest.raises(LedgerRolledBack, match="lacks entry 16"):
        Ledger.open(crashed, DATA)
    with pytest.raises(LedgerRolledBack, match="an older copy"):
        verify_witness(ledgers.read(crashed))


@pytest.mark.parametrize("seed", range(60))
def test_no_damage_to_a_log_makes_a_ledger_admit_more(crashed: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    content = bytearray(log_of(crashed).read_bytes())
    match seed % 3:
        case 0:
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        case 1:
            del content[rng.integers(len(content)) :]
        case _:
            start = int(rng.integers(len(content)))
            content[start : start + 500] = rng.bytes(500)
    log_of(crashed).write_bytes(bytes(content))
    with contextlib.suppress(LedgerRolledBack, LedgerDamaged), Ledger.open(crashed, DATA) as ledger:
        assert sum(ledger.book.charged.values()) == 15
    with contextlib.suppress(LedgerDamaged):
        assert paid(crashed) <= 15


def test_the_log_of_another_ledger_is_no_way_to_a_larger_budget(crashed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with killed(other) as kept, Ledger.create(other, BUDGET, "another", accept="second ledger") as ledger:
        ledger.plan(UPDATE, PLANNED)
        keep(kept, other)
    log_of(crashed).write_bytes(log_of(other).read_bytes())
    with pytest.raises(LedgerError):
        Ledger.open(crashed, DATA)


def test_a_ledger_is_locked_before_its_file_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, or a backup in this one, may have dropped SQLite's lock: nobody may touch the log then."""
    with Ledger.open(path, DATA):
        opened: list[Path] = []
        monkeypatch.setattr(Locked, "open", opened.append)
        for again in (path, Path(shutil.copy(path, path.with_name("copy.db")))):
            with pytest.raises(LedgerInUse, match="open in another process"):
                Ledger.open(again, DATA)
        assert opened == []


# The witness


def test_a_witness_that_lags_behind_raises_no_alarm_and_goes_on(path: Path, state_directory: Path) -> None:
    """After a power cut: all of the ledger is on disk, and the last that its witness saw is not."""
    seen = witness_of(state_directory)
    lagging = seen.read_bytes()
    for number in (13, 16):
        with Ledger.open(path, DATA) as ledger:
            for _ in range(3):
                ledger.charge(UPDATE)
        assert paid(path) == number
        seen.write_bytes(lagging)
        assert "nothing newer" in verify_witness(ledgers.read(path))
        with Ledger.open(path, DATA) as ledger:
            assert not ledger.book.acknowledgements
            assert not ledger.book.caveats
        assert seen.read_bytes() != lagging  # it has caught up
    older = shutil.copy(path, path.with_name("older.db"))
    with Ledger.open(path, DATA) as ledger:
        ledger.charge(UPDATE)
    shutil.copy(older, path)
    with pytest.raises(LedgerRolledBack):
        Ledger.open(path, DATA)


def test_a_witness_syncs_what_it_sees_first_and_no_charge(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new ledger whose witness has lost that it is there would be taken for one from another machine."""
    how, see = list[int](), Witness.see

    def noted(self: Witness, entry: Entry) -> None:
        how.extend(self._database.only("PRAGMA synchronous"))
        see(self, entry)

    monkeypatch.setattr(Witness, "see", noted)
    with Ledger.open(path, DATA) as ledger:
        ledger.charge(UPDATE)
        ledger.charge(UPDATE)
    assert how == [EXTRA, NORMAL, NORMAL]
    how.clear()
    with Ledger.create(tmp_path / "new.db", BUDGET, "others"):
        assert how == [EXTRA]


# Files of former versions


def former(path: Path) -> None:
    """Make a ledger one with a rollback journal."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)


def test_a_ledger_with_a_rollback_journal_is_read_and_continued(path: Path) -> None:
    former(path)
    assert path.read_bytes()[18:20] == b"\1\1"
    assert paid(path) == 10
    assert path.read_bytes()[18:20] == b"\1\1"
    with Ledger.open(path, DATA) as ledger:
        ledger.charge(UPDATE)
        assert paid(path) == 11
    assert paid(path) == 11
    former(path)  # and a former version goes on with it
    with Ledger.open(path, DATA) as ledger:
        assert sum(ledger.book.charged.values()) == 11


def test_what_a_killed_former_version_had_half_written_is_undone(path: Path) -> None:
    former(path)
    journal = path.with_name(f"{path.name}-journal")
    book: Book = ledgers.read(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # writes pages before it commits
        connection.execute("BEGIN IMMEDIATE")
        for number in range(100, 200):
            connection.execute("INSERT INTO entries VALUES (?, '', 'charge', ?, '')", (number, "x" * 3000))
        half = {each: each.read_bytes() for each in (path, journal)}
        connection.execute("ROLLBACK")
    for each, content in half.items():
        each.write_bytes(content)
    assert len(half[path]) > 100_000
    assert ledgers.read(path).entries == book.entries
    assert {each: each.read_bytes() for each in half} == half
    with Ledger.open(path, DATA) as ledger:
        assert ledger.book.entries == book.entries
        ledger.charge(UPDATE)
    assert paid(path) == 11


def test_a_full_disk_while_the_log_is_written_costs_nothing_and_loses_nothing(path: Path) -> None:
    with Ledger.open(path, DATA) as ledger:
        ledger.charge(UPDATE)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log_of(path).stat().st_size + 100, hard))
        try:
            for _ in range(3):
                with pytest.raises(LedgerError):
                    ledger.charge(UPDATE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert paid(path) == 11
        ledger.charge(UPDATE)
        assert paid(path) == 12
        for _ in range(PLANNED - 12):
            ledger.charge(UPDATE)
        with pytest.raises(BudgetClosed):
            ledger.charge(UPDATE)
    assert paid(path) == PLANNED
