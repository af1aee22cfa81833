"""The ledger: charged before anything is drawn, append-only, locked, bound to its data, and hard to roll back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federations import logistic_tables
from fedvi import PVI, Budget, Gaussian, LogisticRegression
from fedvi.errors import (
    BudgetClosed,
    ChosenLate,
    ImproperError,
    InputError,
    LedgerDamaged,
    LedgerError,
    LedgerInUse,
    LedgerRolledBack,
    OtherData,
)
from fedvi.inference import GradientSteps, PrivateClient, Public, Server
from fedvi.inference import private_client as private_module
from fedvi.privacy import ClientLevel, FullBatchGaussian
from fedvi.privacy.events import gaussian
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.privacy.ledger.entries import OPENED, Book, opening, write_entries
from fedvi.privacy.ledger.ledger import Ledger
from fedvi.privacy.ledger.overlap import Sketch, rows_digest
from fedvi.privacy.ledger.witness import machine_key
from fedvi.privacy.published import FixedSizeGaussian, PublishedRule
from fedvi.privacy.sampling import System
from ledgers import BUDGET, DATA, UPDATE

SUMMARY = gaussian(20.0, numbers=6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def make(path: Path, updates: int = 3, charges: int = 0, budget: Budget = BUDGET) -> None:
    with Ledger.create(path, budget, DATA) as ledger:
        ledger.plan(UPDATE, updates)
        for _ in range(charges):
            ledger.charge(UPDATE)


def test_a_ledger_admits_what_the_accountant_admits_and_not_one_more(path: Path) -> None:
    with Ledger.create(path, BUDGET, DATA) as ledger:
        assert ledger.plan(UPDATE) == 69
        for _ in range(69):
            ledger.charge(UPDATE)
        with pytest.raises(BudgetClosed, match=r"Update 70 would spend eps=0.5015 of 0.5: budget closed"):
            ledger.charge(UPDATE)
        assert ledger.spent.epsilon <= 0.5
        assert ledger.spent.updates == 69
    assert ledgers.read(path).spent.epsilon == pytest.approx(0.497, abs=5e-4)


def test_preprocessing_and_training_share_one_budget(path: Path) -> None:
    with Ledger.create(path, BUDGET, DATA) as ledger:
        assert ledger.plan(SUMMARY, 1, "preprocessing") == 1
        most = ledger.plan(UPDATE)
        assert most == BUDGET.most_updates(UPDATE, {SUMMARY: 1}) < 69
        ledger.charge(SUMMARY, "preprocessing")
        for _ in range(most):
            ledger.charge(UPDATE)
        assert 0.48 < ledger.spent.epsilon <= 0.5
        for event in (SUMMARY, UPDATE):
            with pytest.raises(BudgetClosed):
                ledger.charge(event)


def test_a_charge_is_on_disk_before_it_returns(path: Path) -> None:
    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(UPDATE)
        for count in range(1, 4):
            ledger.charge(UPDATE)
            assert ledgers.read(path).charged == {UPDATE: count}  # read by its own connection, while locked


def test_a_ledger_outlives_runs(path: Path) -> None:
    make(path, updates=5, charges=2)
    with Ledger.open(path, DATA) as ledger:
        assert ledger.plan(UPDATE) == ledger.remaining(UPDATE) == 3
        ledger.charge(UPDATE)
    with Ledger.open(path, DATA) as ledger:
        assert ledger.remaining(UPDATE) == 2
        assert not ledger.spent.caveats


def test_a_ledger_of_version_0_1_is_read(path: Path) -> None:
    """It says `example` for a row and `word` for an acknowledgement; the chain is written out here."""
    make(path)
    connection = sqlite3.connect(path)
    connection.executescript("DROP TRIGGER never_changed; DROP TRIGGER never_deleted;")
    opening = json.loads(connection.execute("SELECT body FROM entries").fetchone()[0]) | {"unit": "example"}
    bodies = [
        ("opened", opening),
        ("word", {"accepted": "moved"}),
        ("word", {"accepted": "rolled back", "caveat": "x"}),
    ]
    connection.execute("DELETE FROM entries")
    chain = ""
    for number, (kind, body) in enumerate(bodies):
        text = json.dumps([chain, number, "2026-01-01", kind, body], sort_keys=True)
        chain = hashlib.sha256(text.encode()).hexdigest()
        row = (number, "2026-01-01", kind, json.dumps(body), chain)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    book = ledgers.read(path)
    assert book.unit == "row"
    assert [entry.body["accepted"] for entry in book.acknowledgements] == ["moved", "rolled back"]
    assert book.spent.caveats == ("x",)
    with Ledger.open(path, DATA, accept="rolled back") as ledger:
        ledger.plan(UPDATE, 1)
        ledger.charge(UPDATE)
        assert "Protected: one row." in ledger.spent.statement("it")


def test_releases_whose_noise_was_not_on_a_lattice_are_no_guarantee(path: Path) -> None:
    """Ledgers of earlier versions do not say how many numbers got noise."""
    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(UPDATE, 2)
        ledger.plan(gaussian(20.0), 1)
        ledger.charge(UPDATE)
        assert not ledger.spent.caveats
        ledger.charge(gaussian(20.0))
    assert "NOT A GUARANTEE: 1 releases were made by an earlier version" in ledgers.read(path).spent.statement("it")


def test_planning_more_than_fits_is_refused(path: Path) -> None:
    with Ledger.create(path, BUDGET, DATA) as ledger:
        with pytest.raises(BudgetClosed, match="70 updates would spend eps="):
            ledger.plan(UPDATE, 70)
        ledger.plan(UPDATE)
        with pytest.raises(BudgetClosed, match="beside what is planned"):
            ledger.plan(SUMMARY)
        with pytest.raises(LedgerError, match="Expected a planned event"):
            ledger.charge(SUMMARY)
        assert ledger.book.charged == {}


def test_settings_chosen_after_a_release_need_a_filter_or_a_word(path: Path, tmp_path: Path) -> None:
    make(path, updates=5, charges=2)
    with Ledger.open(path, DATA) as ledger:
        with pytest.raises(ChosenLate, match=r"2 releases were made .* say independent=True"):
            ledger.plan(SUMMARY, 1)
        assert ledger.plan(SUMMARY, 1, independent=True) == 1
        assert ledger.remaining(UPDATE) == 0  # what was not used is given up
    other = rows_digest(np.zeros((2, 2)), np.zeros(2))
    with Ledger.create(tmp_path / "filter.db", Budget(0.5, 1e-4, "filter"), other) as ledger:
        assert ledger.plan(UPDATE, 20) == 20
        ledger.charge(UPDATE)
        most = ledger.plan(SUMMARY)
        for _ in range(most):
            ledger.charge(SUMMARY)
        assert ledger.spent.epsilon <= 0.5
        assert ledger.spent.epsilon_substitute is None
        with pytest.raises(BudgetClosed):
            ledger.plan(gaussian(1.0, numbers=6), 1)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations([0, 0, 0, 1]))
def test_the_order_of_entries_does_not_matter(tmp_path_factory: pytest.TempPathFactory, order: list[int]) -> None:
    path = tmp_path_factory.mktemp("order") / "ledger.db"
    with Ledger.create(path, BUDGET, DATA, accept="second ledger") as ledger:
        ledger.plan(SUMMARY, 1)
        ledger.plan(UPDATE, 3)
        for index in order:
            ledger.charge((UPDATE, SUMMARY)[index])
        assert ledger.spent.epsilon == BUDGET.spent({UPDATE: 3, SUMMARY: 1})


def test_a_copy_cannot_be_open_beside_the_ledger(path: Path) -> None:
    make(path)
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with Ledger.open(path, DATA), pytest.raises(LedgerInUse):
        Ledger.open(copy, DATA)


@pytest.mark.parametrize("number", [2, 7, -1])
def test_a_ledger_of_an_unknown_format_is_refused(path: Path, number: int) -> None:
    make(path, charges=1)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    connection.close()
    for look in (lambda: Ledger.open(path, DATA), lambda: ledgers.read(path)):
        with pytest.raises(LedgerError, match=rf"a ledger in format 1, got format {number}: .* Use that version"):
            look()


def test_a_ledger_without_a_format_number_is_read_and_continued(path: Path) -> None:
    make(path, charges=1)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    before = ledgers.read(path)
    with Ledger.open(path, DATA) as ledger:
        assert ledger.remaining(UPDATE) == 2
        ledger.charge(UPDATE)
    after = ledgers.read(path)
    assert after.charged == {UPDATE: 2}
    assert after.entries[: len(before.entries)] == before.entries


def test_a_forked_process_cannot_charge(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(UPDATE, 2)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(LedgerError, match="opened by another process"):
            ledger.charge(UPDATE)
        monkeypatch.undo()
        assert ledgers.read(path).charged == {}


def test_entries_cannot_be_changed_or_deleted(path: Path) -> None:
    make(path, charges=2)
    connection = sqlite3.connect(path)
    for statement in ("UPDATE entries SET kind = 'word'", "DELETE FROM entries WHERE number = 3"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = replace(body, '5.0', '9.0') WHERE number = 3",
        "UPDATE entries SET time = '2000-01-01' WHERE number = 2",
        "DELETE FROM entries WHERE number = 2",
        "DELETE FROM entries WHERE number = 0",
        "UPDATE entries SET body = '{' WHERE number = 3",
        "DROP TABLE entries",
        "INSERT INTO entries SELECT number + 1, time, kind, body, chain FROM entries WHERE number = 3",
    ],
)
def test_a_changed_entry_is_noticed(path: Path, statement: str) -> None:
    make(path, charges=2)
    connection = sqlite3.connect(path)
    connection.executescript("DROP TRIGGER never_changed; DROP TRIGGER never_deleted;")
    connection.execute(statement)
    connection.commit()
    connection.close()
    for look in (lambda: Ledger.open(path, DATA), lambda: ledgers.read(path)):
        with pytest.raises(LedgerDamaged, match=r"ledger\.db"):
            look()


@pytest.mark.parametrize("keep", [0, 10, 100, 4096, 6000, 8192])
def test_a_truncated_file_is_noticed(path: Path, keep: int) -> None:
    make(path, updates=60, charges=40)
    os.truncate(path, min(keep, path.stat().st_size - 1))
    with pytest.raises(LedgerDamaged):
        Ledger.open(path, DATA)
    with pytest.raises(LedgerDamaged):
        ledgers.read(path)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_no_damage_makes_a_ledger_admit_more(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Random bytes overwritten: the ledger is refused, or (where nothing was hit) holds all that it held."""
    path = tmp_path_factory.mktemp("damage") / "ledger.db"
    with Ledger.create(path, BUDGET, DATA, accept="second ledger") as ledger:
        ledger.plan(UPDATE, 20)
        for _ in range(10):
            ledger.charge(UPDATE)
    rng = np.random.default_rng(seed)
    content = bytearray(path.read_bytes())
    for place in rng.integers(0, len(content), int(rng.integers(1, 40))):
        content[place] = int(rng.integers(0, 256))
    path.write_bytes(content)
    try:
        with Ledger.open(path, DATA) as ledger:
            assert ledger.book.charged == {UPDATE: 10}
            assert ledger.remaining(UPDATE) == 10
    except LedgerError:
        pass


def test_something_else_is_no_ledger(path: Path, tmp_path: Path) -> None:
    path.write_text("a letter to grandmother, long enough to be a header of something")
    with pytest.raises(LedgerDamaged):
        Ledger.open(path, DATA)
    with pytest.raises(LedgerError, match="got none"):
        Ledger.open(tmp_path / "missing.db", DATA)
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, BUDGET, DATA)
    with pytest.raises(LedgerError, match="Cannot make"):
        Ledger.create(tmp_path / "no" / "such" / "folder.db", BUDGET, DATA)


def test_a_ledger_that_cannot_be_made_leaves_nothing_behind(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a directory should be")
    with monkeypatch.context() as patched:
        patched.setenv("FEDVI_STATE_DIR", str(blocked))
        with pytest.raises(LedgerError, match="Set FEDVI_STATE_DIR"):
            Ledger.create(path, BUDGET, DATA)
    assert not path.exists()
    with monkeypatch.context() as patched:
        patched.setattr("fedvi.privacy.ledger.ledger.write_entries", lambda *_: power_cut(None))
        with pytest.raises(RuntimeError, match="power cut"):
            Ledger.create(path, BUDGET, DATA)
    assert not path.exists()
    Ledger.create(path, BUDGET, DATA).close()


def test_a_word_is_recorded_with_what_it_allows_or_not_at_all(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while moving or making a second ledger: the word is there, or has to be given again."""
    make(path, charges=1)
    with monkeypatch.context() as patched:
        patched.setenv("FEDVI_STATE_DIR", str(tmp_path / "elsewhere"))
        with monkeypatch.context() as dying:
            dying.setattr(Ledger, "_append", lambda *_: power_cut(None))
            with pytest.raises(RuntimeError):
                Ledger.open(path, DATA, accept="moved")
        with pytest.raises(LedgerRolledBack, match="not known on this machine"):
            Ledger.open(path, DATA)
        with Ledger.open(path, DATA, accept="moved") as ledger:
            assert any("'moved' was accepted" in note for note in ledger.spent.notes)
    second = tmp_path / "second.db"
    with monkeypatch.context() as dying:
        dying.setattr("fedvi.privacy.ledger.witness.Witness.see", lambda *_: power_cut(None))
        with pytest.raises(RuntimeError):
            Ledger.create(second, BUDGET, DATA, accept="second ledger")
    assert not second.exists()


def forget_that_it_was_made(state_directory: Path) -> None:
    """Put the one witness back to where it expects a ledger and has not seen it: its maker was killed there."""
    (seen,) = state_directory.glob("ledgers/*.witness")
    with contextlib.closing(sqlite3.connect(seen)) as connection, connection:
        connection.execute("UPDATE head SET number = -1")


def test_a_kill_while_a_ledger_is_made_does_not_give_two_budgets(
    path: Path, tmp_path: Path, state_directory: Path
) -> None:
    Ledger.create(path, BUDGET, DATA).close()
    forget_that_it_was_made(state_directory)
    with pytest.raises(OtherData, match=r"has a ledger already: .*ledger\.db"):
        Ledger.create(tmp_path / "second.db", BUDGET, DATA)
    with Ledger.open(path, DATA) as ledger:
        assert not ledger.book.acknowledgements
    assert not (tmp_path / "second.db").exists()


def test_a_ledger_whose_maker_was_killed_is_asked_about_if_another_was_made_meanwhile(
    path: Path, tmp_path: Path, state_directory: Path
) -> None:
    """It was taken elsewhere, so that the maker of the other could not find it; one row less is noticed too."""
    x, y, key = np.random.default_rng(0).normal(size=(200, 4)), np.ones(200), machine_key()
    Ledger.create(path, BUDGET, rows_digest(x, y), sketch=Sketch.of_arrays(x, y, key)).close()
    forget_that_it_was_made(state_directory)
    elsewhere, less = path.rename(tmp_path / "elsewhere.db"), (x[1:], y[1:])
    Ledger.create(tmp_path / "second.db", BUDGET, rows_digest(*less), sketch=Sketch.of_arrays(*less, key)).close()
    with pytest.raises(OtherData, match=r"has a ledger already: .*second\.db"):
        Ledger.open(elsewhere, rows_digest(x, y))
    Ledger.open(elsewhere, rows_digest(x, y), accept="other people").close()
    Ledger.open(elsewhere, rows_digest(x, y)).close()


@pytest.mark.parametrize("left", ["-wal", "-journal"])
def test_what_is_left_of_a_ledger_that_is_gone_is_not_played_into_a_new_one(path: Path, left: str) -> None:
    log = path.with_name(path.name + left)
    log.write_bytes(b"of another")
    with pytest.raises(LedgerError, match=rf"ledger\.db{left} is left over .* take both away"):
        Ledger.create(path, BUDGET, DATA)
    assert log.exists()
    assert not path.exists()


def test_a_new_ledger_is_read_from_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on disk counts, not what was to be written."""
    opened = opening("another", "00", DATA, "row", "", BUDGET, None)
    entries = Book("another").following((OPENED, opened))
    monkeypatch.setattr(ledgers, "write_entries", lambda made, _: write_entries(made, entries))
    with pytest.raises(LedgerError, match="holds something else than was written"):
        Ledger.create(path, BUDGET, DATA)
    assert not path.exists()


def test_a_failed_creation_does_not_block_other_data(path: Path, state_directory: Path) -> None:
    (state_directory / "ledgers").mkdir()
    (state_directory / "ledgers" / "0123.witness").touch()  # a disk was full
    Ledger.create(path, BUDGET, DATA).close()


def test_a_full_disk_stops_the_charge_and_nothing_is_lost(path: Path) -> None:
    make(path, updates=60, charges=3)
    with Ledger.open(path, DATA) as ledger:
        pages = ledger._database.execute("PRAGMA page_count")[0][0]
        ledger._database.execute(f"PRAGMA max_page_count = {pages}")
        made = 3
        with pytest.raises(LedgerError, match="full"):  # noqa: PT012
            while True:
                ledger.charge(UPDATE)
                made += 1
        assert ledger.book.charged == {UPDATE: made}
    assert ledgers.read(path).charged == {UPDATE: made}


def test_an_older_copy_is_refused(path: Path) -> None:
    make(path, updates=10, charges=2)
    old = path.with_name("old.db")
    shutil.copy(path, old)
    with Ledger.open(path, DATA) as ledger:
        ledger.charge(UPDATE)
    shutil.copy(old, path)
    with pytest.raises(LedgerRolledBack, match="lacks entry 4"):
        Ledger.open(path, DATA)
    with Ledger.open(path, DATA, accept="rolled back") as ledger:
        assert "NOT A GUARANTEE: the ledger was rolled back from entry 4" in ledger.spent.statement("it")
        assert "Confirmed by a person: 'rolled back' was accepted" in ledger.spent.statement("it")
    with Ledger.open(path, DATA) as ledger:
        assert ledger.spent.caveats  # for ever


def test_a_copy_that_went_another_way_is_refused(path: Path) -> None:
    """Same length, other history: the chain tells."""
    make(path, updates=10, charges=2)
    fork = path.with_name("fork.db")
    shutil.copy(path, fork)
    with Ledger.open(path, DATA) as ledger:
        ledger.charge(UPDATE, "training")
    with pytest.raises(LedgerRolledBack):
        Ledger.open(fork, DATA)


def test_a_ledger_from_another_machine_needs_a_word(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path, charges=1)
    monkeypatch.setenv("FEDVI_STATE_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(LedgerRolledBack, match="not known on this machine"):
        Ledger.open(path, DATA)
    with Ledger.open(path, DATA, accept=["moved"]) as ledger:
        assert ledger.book.charged == {UPDATE: 1}
    Ledger.open(path, DATA).close()


def test_a_replaced_or_deleted_file_is_noticed_while_open(path: Path) -> None:
    make(path, updates=10, charges=2)
    with Ledger.open(path, DATA) as ledger:
        path.rename(path.with_name("away.db"))
        with pytest.raises(LedgerError, match="moved, replaced or deleted"):
            ledger.charge(UPDATE)
        shutil.copy(path.with_name("away.db"), path)
        with pytest.raises(LedgerError, match="moved, replaced or deleted"):
            ledger.charge(UPDATE)


def power_cut(_: object) -> None:
    raise RuntimeError("power cut")


def test_a_crash_before_the_witness_saw_is_no_rollback(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, updates=10, charges=2)
    with Ledger.open(path, DATA) as ledger:
        monkeypatch.setattr(ledger._witness, "see", power_cut)
        with pytest.raises(RuntimeError, match="power cut"):
            ledger.charge(UPDATE)
    with Ledger.open(path, DATA) as ledger:
        assert ledger.book.charged == {UPDATE: 3}  # paid, though nothing was drawn: no refunds


def test_a_ledger_belongs_to_its_data(path: Path, tmp_path: Path) -> None:
    make(path, charges=1)
    other = rows_digest(np.zeros((3, 2)), np.ones(3))
    with pytest.raises(OtherData, match="belongs to other data"):
        Ledger.open(path, other)
    with pytest.raises(OtherData, match=r"has a ledger already: .*ledger\.db"):
        Ledger.create(tmp_path / "second.db", BUDGET, DATA)
    with Ledger.open(path, other, accept="other data") as ledger:
        assert ledger.book.charged == {UPDATE: 1}
    Ledger.open(path, other).close()
    with pytest.raises(OtherData):
        Ledger.open(path, DATA)
    with pytest.raises(OtherData, match="has a ledger already"):
        Ledger.create(tmp_path / "second.db", BUDGET, other)


def test_deleting_a_ledger_does_not_renew_the_budget(path: Path) -> None:
    make(path, charges=1)
    path.unlink()
    with pytest.raises(OtherData, match="If the older ledger is lost, restore it"):
        Ledger.create(path, BUDGET, DATA)
    with Ledger.create(path, BUDGET, DATA, accept="second ledger") as ledger:
        assert ledger.spent.caveats


def test_digest_knows_the_same_rows_in_any_order_and_type_and_tells_others_apart() -> None:
    x, y = np.random.default_rng(0).normal(size=(4, 3)), np.arange(4.0)
    same = rows_digest(x, y)
    assert same == rows_digest(x[::-1], y[::-1]) == rows_digest(x.astype(np.float32), list(y))
    changed = [(x + 1e-3, y), (x, y[::-1]), (x[:3], y[:3]), (x.reshape(4, 3, 1)[:, :2], y), (np.roll(x, 1, 1), y)]
    zero = rows_digest(np.zeros((2, 1)), np.zeros(2))
    assert zero == rows_digest(-np.zeros((2, 1)), np.zeros(2))
    twice = (np.concatenate([x, x]), np.concatenate([y, y]))
    assert len({same, *(rows_digest(*pair) for pair in [*changed, twice])}) == 7


def test_data_in_another_order_or_type_has_no_second_budget(path: Path, tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(5, 2)), np.ones(5)
    Ledger.create(path, BUDGET, rows_digest(x, y)).close()
    with pytest.raises(OtherData, match="has a ledger already"):
        Ledger.create(tmp_path / "again.db", BUDGET, rows_digest(x[::-1].astype(np.float32), y))


def test_a_damaged_witness_is_no_way_to_a_second_budget(path: Path, tmp_path: Path, state_directory: Path) -> None:
    make(path, charges=1)
    (seen,) = state_directory.glob("ledgers/*.witness")
    seen.write_bytes(b"x" * seen.stat().st_size)
    with pytest.raises(OtherData, match="damaged witness"):
        Ledger.create(tmp_path / "second.db", BUDGET, DATA)
    with pytest.raises(LedgerDamaged):
        Ledger.open(path, DATA)


def test_a_ledger_stays_in_its_thread(path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Ledger.create(path, BUDGET, DATA) as ledger:
        ledger.plan(UPDATE, 3)
        with ThreadPoolExecutor(1) as pool, pytest.raises(LedgerError, match="in the thread that opened it"):
            pool.submit(ledger.charge, UPDATE).result()
        assert ledger.book.charged == {}


def test_the_fingerprint_is_keyed_and_the_key_is_not_exported(path: Path, tmp_path: Path) -> None:
    from fedvi.cli.ledger import export

    make(path)
    book = ledgers.read(path)
    assert DATA not in str(export(book))
    assert book.entries[0].body["salt"] not in str(export(book))
    with Ledger.create(tmp_path / "second.db", BUDGET, DATA, accept="second ledger") as second:
        assert second.book.fingerprint != book.fingerprint


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(0.5), r"Expected delta as a number, got 'auto'"),
        (PublishedRule(0.5, 1e-4), "Expected a budget that is a guarantee"),
        (0.5, "Expected a budget that is a guarantee"),
    ],
)
def test_budgets_without_a_guarantee_are_refused(path: Path, budget: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ledger.create(path, budget, DATA)
    with pytest.raises(InputError, match="one of row, client"):
        Ledger.create(path, BUDGET, DATA, unit="household")
    with pytest.raises(InputError, match="Expected accept to be one of"):
        Ledger.create(path, BUDGET, DATA, accept="anything")
    assert not path.exists()


DIM = 3


PRIOR = Gaussian.standard(DIM)


PUBLIC = Public(PRIOR, jnp.asarray(1.0), jnp.asarray(60.0))


ALGORITHM = PVI(GradientSteps(5, 0.1, FullBatchGaussian(40.0, 1.0)))


def client(path: Path, algorithm: Any = ALGORITHM, budget: Budget = BUDGET, seed: int = 0) -> PrivateClient:
    table = logistic_tables([60], DIM, seed)["site 0"]
    return PrivateClient.open(path, table, LogisticRegression(), algorithm, PUBLIC, budget)


def test_a_private_client_works_until_its_budget_is_spent(path: Path) -> None:
    with client(path) as site:
        coordinator, planned = Server.start(PRIOR, ["site"]), site.remaining
        event = gaussian(40.0, 5, numbers=2 * DIM)
        assert planned == BUDGET.most_updates(event) > 3
        for made in range(planned):
            release = site.update(coordinator.posterior)
            assert release.event == event
            assert int(release.sequence) == made + 1
            coordinator = coordinator.receive("site", release)
        with pytest.raises(BudgetClosed):
            site.update(coordinator.posterior)
    book = ledgers.read(path)
    assert sum(book.charged.values()) == planned
    assert book.spent.epsilon <= 0.5 < BUDGET.spent({event: planned + 1})
    assert not book.spent.caveats


def test_nothing_is_drawn_before_the_charge_nor_after_the_budget(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    class Watched(System):
        def words(self, count: int) -> np.ndarray:
            drawn.append(sum(ledgers.read(path).charged.values()))
            return super().words(count)

    monkeypatch.setattr(private_module, "System", Watched)
    with client(path, budget=Budget(0.3, 1e-3)) as site:
        planned = site.remaining
        for _ in range(planned):
            site.update(PRIOR)
        with pytest.raises(BudgetClosed):
            site.update(PRIOR)
    assert sorted(set(drawn)) == list(range(1, planned + 1))
    assert drawn == sorted(drawn)


def test_a_bad_request_costs_nothing(path: Path) -> None:
    with client(path) as site:
        with pytest.raises(ImproperError):
            site.update(PRIOR**-1)
        assert site.ledger.book.charged == {}


def test_two_updates_never_share_noise(path: Path) -> None:
    factors = []
    with client(path) as site:
        start = site.state
        for _ in range(8):
            site.state = start
            factors.append(tuple(np.asarray(site.update(PRIOR).factor.natural_mean)))
    moved = [each for each in factors if any(each)]  # one update in eleven has a negative precision, and moves nothing
    assert len(set(moved)) == len(moved) >= 2


def test_a_client_with_client_level_privacy_pays_too(path: Path) -> None:
    algorithm = PVI(GradientSteps(5, 0.1), client_level=ClientLevel(30.0, 1.0))
    with client(path, algorithm, Budget(0.5, 1e-3)) as site:
        assert site.ledger.book.unit == "client"
        assert site.update(PRIOR).event == gaussian(30.0, numbers=2 * DIM)
        assert "everything that the client holds" in site.ledger.spent.statement("it")
    with pytest.raises(InputError, match="Expected the ledger's own budget and unit"):
        client(path, ALGORITHM, Budget(0.5, 1e-3))


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (PVI(), "Expected an algorithm with a guarantee of privacy, got one that adds no noise"),
        (PVI(GradientSteps(5, 0.1, FixedSizeGaussian())), "batches of fixed size are accounted as Poisson"),
    ],
)
def test_a_private_client_refuses_what_is_not_private(path: Path, algorithm: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        client(path, algorithm)
    assert not path.exists()


def test_settings_changed_after_opening_have_no_effect_or_are_noticed(path: Path) -> None:
    noise: Any = np.array(40.0)
    with client(path, PVI(GradientSteps(5, 0.1, FullBatchGaussian(noise, 1.0)))) as site:
        noise[...] = 0.01
        site.update(PRIOR)
        own: Any = site._algorithm.solver.mechanism
        assert float(own.noise_multiplier) == 40.0
        own.noise_multiplier[...] = 0.01
        with pytest.raises(InputError, match="they were changed"):
            site.update(PRIOR)
        assert sum(site.ledger.book.charged.values()) == 1


def test_a_client_can_go_on_where_it_stopped(path: Path) -> None:
    coordinator = Server.start(PRIOR, ["site"])
    with client(path) as site:
        coordinator = coordinator.receive("site", site.update(coordinator.posterior))
        state = site.state
    table = logistic_tables([60], DIM, 0)["site 0"]
    with PrivateClient.open(path, table, LogisticRegression(), ALGORITHM, PUBLIC, BUDGET, state=state) as site:
        coordinator = coordinator.receive("site", site.update(coordinator.posterior))
    assert int(coordinator.state.version) == 2


def test_a_private_client_refuses_another_budget_and_other_rows(path: Path) -> None:
    client(path).close()
    with pytest.raises(InputError, match="Expected the ledger's own budget"):
        client(path, budget=Budget(5.0, 1e-4))
    with pytest.raises(OtherData):
        client(path, seed=1)
    with pytest.raises(BudgetClosed, match="beside what is planned"):
        client(path, PVI(GradientSteps(5, 0.1, FullBatchGaussian(5.0))))
    client(path).close()  # and each of these let go of the lock
