"""One budget for people, not for files: tables that share rows are noticed, strangers are not."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import Budget, Ledger
from fedvi.errors import BudgetClosed, LedgerError, OtherData
from fedvi.federation.demo.run import SITES, adult_description
from fedvi.privacy.events import gaussian
from fedvi.privacy.ledger.ledger import read
from fedvi.privacy.ledger.overlap import Overlap, Sketch, _siphash, number_hashes, text_hashes
from fedvi.privacy.ledger.witness import machine_key, state_directory
from fedvi.tables import BinaryTarget, Number, Schema
from fedvi.tables.encode import sketch_of

KEY = bytes(range(32))
SCHEMA = Schema((Number("age", 0, 120, 50, 20),), BinaryTarget("smoker", ("0", "1")))
COLUMNS = ("age", "bmi", "lab", "sex", "ward", "kind", "smoker", "income")
Rows = list[list[Any]]


def people(count: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    columns = (
        rng.integers(18, 90, count).tolist(),
        rng.normal(27, 5, count).round(1).tolist(),
        rng.normal(5, 1, count).round(2).tolist(),
        rng.choice(["F", "M"], count).tolist(),
        rng.choice(list("abcdefgh"), count).tolist(),
        rng.choice(["x", "y", "z"], count).tolist(),
        rng.integers(0, 2, count).tolist(),
        rng.normal(30_000, 9_000, count).round().tolist(),
    )
    return [list(row) for row in zip(*columns, strict=True)]


def sketch(rows: Rows) -> Sketch:
    """Return the sketch of rows, whatever order their columns have, read as a table would be."""
    names = COLUMNS if len(rows[0]) == len(COLUMNS) else tuple(f"column {k}" for k in range(len(rows[0])))
    columns = {
        name: [str(value) for value in column] for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    return sketch_of(SCHEMA, columns, KEY)


TABLE = people(3000, 0)


def changed(rows: Rows, row: int, column: int, value: Any) -> Rows:
    return [
        [value if (r, c) == (row, column) else cell for c, cell in enumerate(cells)] for r, cells in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("what", "rows", "share"),
    [
        ("the same", TABLE, 1.0),
        ("a row less", TABLE[1:], 1.0),
        ("a cell changed", changed(TABLE, 7, 0, 99), 1.0),
        ("columns swapped", [row[::-1] for row in TABLE], 1.0),
        ("rows shuffled", [TABLE[k] for k in np.random.default_rng(5).permutation(len(TABLE))], 1.0),
        ("numbers written otherwise", [[f" {row[0]}.00", *row[1:]] for row in TABLE], 1.0),
        ("words in capitals", [[*row[:3], row[3].lower(), row[4].upper(), *row[5:]] for row in TABLE], 1.0),
        ("half of the rows", TABLE[:1500], 1.0),
        ("half of them others", TABLE[:1500] + people(1500, 3), 0.5),
    ],
)
def test_the_same_rows_are_noticed(what: str, rows: Rows, share: float) -> None:
    found = sketch(TABLE).overlap(sketch(rows))
    assert found.is_noticed, what
    assert found.share == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("a column less", [row[1:] for row in TABLE]),
        ("a column more", [[*row, 3] for row in TABLE]),
        ("a column in other units", [[row[0], row[1] * 2.2, *row[2:]] for row in TABLE]),
        ("a few among many", TABLE[:100] + people(3000, 4)),
    ],
)
def test_rows_that_agree_but_for_a_column_are_noticed(what: str, rows: Rows) -> None:
    assert sketch(TABLE).overlap(sketch(rows)).is_noticed, what


def test_strangers_are_not_taken_for_the_same_people() -> None:
    own = sketch(TABLE)
    assert [own.overlap(sketch(people(1000, seed))).is_noticed for seed in range(100, 115)] == [False] * 15


def narrow(seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    return [[*pair, seed % 2] for pair in rng.normal(size=(200, 2)).round(3).tolist()]


def test_strangers_in_narrow_tables_are_not_either() -> None:
    """Two numbers of three digits: without one of them, many rows of strangers look alike."""
    own = sketch(narrow(0))
    assert len(np.intersect1d(own.parts.hashes, sketch(narrow(2)).parts.hashes)) > 10
    assert sum(own.overlap(sketch(narrow(seed))).is_noticed for seed in range(1, 201)) <= 1
    assert own.overlap(sketch([[row[0], row[1] * 2.54, row[2]] for row in narrow(0)])).is_noticed
    assert own.overlap(sketch(narrow(0)[:20] + narrow(7))).is_noticed


def test_sites_of_the_demonstration_are_strangers(tmp_path: Path) -> None:
    """People of a census of whom many agree in all but one or two of fifteen columns."""
    schema = adult_description(tmp_path, 1.0, 5, 0).schema
    for number in range(5):
        sketches = [sketch_of(schema, tmp_path / f"{site}.csv", bytes([number]) * 32) for site in SITES]
        assert not any(one.overlap(two).is_noticed for one, two in itertools.combinations(sketches, 2))


def test_a_table_of_few_different_rows_tells_nothing() -> None:
    rng = np.random.default_rng(1)
    alike = [[int(value) for value in row] for row in rng.integers(0, 2, (2000, 6))]
    assert not sketch(alike).is_telling
    assert sketch(alike).overlap(sketch(alike)) == Overlap(0.0, 0, 0)


def test_the_hash_of_numbers_is_siphash() -> None:
    (found,) = _siphash(np.frombuffer(bytes(range(8)), np.uint64), bytes(range(16)))
    assert int(found) == 0x93F5F5799A932462  # of the authors' test vectors


def test_a_number_has_one_hash_however_it_comes() -> None:
    numbers = np.array([27.1, -3.0, 0.0, 1e-12, 1234567.5, np.nan])
    texts = ["27.10", " -3 ", "0.0", "1e-12", "1234567.5", ""]
    assert np.array_equal(number_hashes(numbers, KEY), text_hashes(np.arange(6), texts, KEY))
    assert len(np.unique(number_hashes(numbers, KEY))) == 6
    assert not np.array_equal(number_hashes(numbers, KEY), number_hashes(numbers, KEY[::-1]))


def test_a_sketch_of_many_batches_is_that_of_one() -> None:
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 2**63, 50_000).astype(np.uint64) for _ in range(3)]
    whole, parts = Sketch.of([columns], KEY), Sketch.of([[column[k::5] for column in columns] for k in range(5)], KEY)
    assert np.array_equal(whole.whole.hashes, parts.whole.hashes)
    assert np.array_equal(whole.parts.hashes, parts.parts.hashes)
    assert whole.whole.distinct == pytest.approx(50_000, rel=0.1)
    again = Sketch.from_bytes(whole.to_bytes())
    assert again.overlap(whole).share == pytest.approx(1.0, abs=0.05)
    assert len(whole.to_bytes()) < 80_000


def test_the_machines_key_is_made_once_and_for_its_owner_alone() -> None:
    assert machine_key() == machine_key()
    assert len(machine_key()) == 32
    if os.name == "posix":
        assert stat.S_IMODE(os.stat(state_directory() / "rows.key").st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_damaged_key_is_refused_with_a_remedy(content: bytes) -> None:
    machine_key()
    (state_directory() / "rows.key").write_bytes(content)
    with pytest.raises(LedgerError, match=rf"rows\.key is damaged: expected 32 bytes, got {len(content)}. Restore it"):
        machine_key()


def test_a_sketch_says_by_which_key_and_older_ones_are_read_that_do_not() -> None:
    own = sketch(TABLE)
    head, _, body = own.to_bytes().partition(b"\n")
    assert Sketch.from_bytes(own.to_bytes()).key == own.key
    assert KEY.hex() not in own.key
    before = Sketch.from_bytes(json.dumps(json.loads(head)[:-1]).encode() + b"\n" + body)
    assert before.key == ""
    assert own.overlap(before).share == 1.0


# Ledgers

EVENT, OTHER = gaussian(10.0, 1, 4), gaussian(11.0, 1, 4)


def make(path: Path, rows: Rows, digest: str, *accept: str, epsilon: float = 1.0) -> Ledger:
    return Ledger.create(path, Budget(epsilon, 1e-5), digest, sketch=sketch(rows), public_rows=100, accept=accept)


def test_a_second_ledger_for_some_of_the_same_rows_is_asked_about(tmp_path: Path) -> None:
    make(tmp_path / "old", TABLE, "a" * 64).close()
    with pytest.raises(OtherData, match=r"old \(100% of the rows\).*accept 'same people'.*'other people'"):
        make(tmp_path / "new", TABLE[1:], "b" * 64)
    assert not (tmp_path / "new").exists()
    make(tmp_path / "stranger", people(1000, 9), "c" * 64).close()


def test_a_second_ledger_is_asked_about_if_the_key_of_the_first_is_lost(tmp_path: Path) -> None:
    """Sketches by two keys have nothing in common; nobody can tell whether the rows have."""
    x, y = np.random.default_rng(0).normal(size=(500, 4)), np.ones(500)

    def made(name: str, rows: int, *accept: str) -> None:
        found = Sketch.of_arrays(x[:rows], y[:rows], machine_key())
        Ledger.create(tmp_path / name, Budget(1.0, 1e-5), f"{rows:064d}", sketch=found, accept=accept).close()

    made("old", 500)
    (state_directory() / "rows.key").unlink()
    with pytest.raises(
        OtherData, match=r"old \(unknown, because rows\.key is not the key that its rows were hashed by"
    ):
        made("new", 499)
    made("new", 499, "same people")
    assert [each.path for each in read(tmp_path / "new").older] == [str((tmp_path / "old").resolve())]
    with pytest.raises(OtherData, match=r"new \(100% of the rows\)"):
        made("newest", 498)


def test_a_word_that_other_people_look_alike_is_recorded(tmp_path: Path) -> None:
    make(tmp_path / "old", TABLE, "a" * 64).close()
    with make(tmp_path / "new", TABLE[1:], "b" * 64, "other people") as ledger:
        ledger.plan(EVENT, 3)
    book = read(tmp_path / "new")
    assert "other people" in book.statement("x").replace("\n   ", "")
    assert book.caveats == ()
    assert read(tmp_path / "old").charged == {}


def test_an_older_ledger_of_the_same_people_pays_too(tmp_path: Path) -> None:
    with make(tmp_path / "old", TABLE, "a" * 64) as old:
        old.plan(OTHER, 2)
        old.charge(OTHER)
    with make(tmp_path / "new", TABLE[1:], "b" * 64, "same people") as ledger:
        assert ledger.plan(EVENT, 3) == 3
        assert ledger.plan(EVENT) == 3  # planned already: nothing is paid again
    assert read(tmp_path / "old").charged == {OTHER: 1, EVENT: 3}
    assert read(tmp_path / "old").planned == {OTHER: 2, EVENT: 3}
    assert read(tmp_path / "old").remaining(OTHER) == 1
    assert [each.path for each in read(tmp_path / "new").older] == [str((tmp_path / "old").resolve())]


def test_every_plan_is_paid_also_one_like_another(tmp_path: Path) -> None:
    make(tmp_path / "old", TABLE, "a" * 64, epsilon=4.0).close()
    with make(tmp_path / "new", TABLE[1:], "b" * 64, "same people", epsilon=4.0) as ledger:
        ledger.plan(EVENT, 3)
        ledger.plan(EVENT, 3)
        ledger.charge(EVENT)
        ledger.plan(EVENT, 3, independent=True)
    assert read(tmp_path / "old").charged == {EVENT: 9}


def test_people_who_come_later_are_paid_for_by_their_own_ledger(tmp_path: Path) -> None:
    """A ledger of strangers has plans; then it is used for people who have one."""
    make(tmp_path / "old", TABLE, "a" * 64).close()
    with make(tmp_path / "new", people(1000, 9), "b" * 64) as ledger:
        ledger.plan(EVENT, 5)
        ledger.charge(EVENT)
    accept = ["other data", "same people"]
    with Ledger.open(tmp_path / "new", "c" * 64, sketch=sketch(TABLE[1:]), accept=accept) as ledger:
        assert ledger.plan(EVENT) == 4
    assert read(tmp_path / "old").charged == {EVENT: 4}


def test_ledgers_that_are_older_still_pay_too(tmp_path: Path) -> None:
    make(tmp_path / "oldest", TABLE, "a" * 64).close()
    one = [[row[0] + 100, *row[1:]] for row in TABLE]
    two = [[row[0] + 100, row[1] + 50, *row[2:]] for row in TABLE]
    assert not sketch(TABLE).overlap(sketch(two)).is_noticed
    make(tmp_path / "old", one, "b" * 64, "same people").close()
    with make(tmp_path / "new", two, "c" * 64, "same people") as ledger:
        ledger.plan(EVENT, 2)
    assert read(tmp_path / "old").charged == read(tmp_path / "oldest").charged == {EVENT: 2}


def test_ledgers_that_pay_for_each_other_pay_once(tmp_path: Path) -> None:
    make(tmp_path / "old", TABLE, "a" * 64).close()
    make(tmp_path / "new", TABLE[1:], "b" * 64, "same people").close()
    accept = ["other data", "same people"]
    with Ledger.open(tmp_path / "old", "c" * 64, sketch=sketch(TABLE[2:]), accept=accept) as old:
        old.plan(OTHER, 2)
    assert read(tmp_path / "new").charged == {OTHER: 2}


def test_rows_of_long_ago_are_remembered(tmp_path: Path) -> None:
    make(tmp_path / "old", TABLE, "a" * 64).close()
    strangers = sketch(people(1000, 9))
    Ledger.open(tmp_path / "old", "b" * 64, sketch=strangers, accept=["other data"]).close()
    with pytest.raises(OtherData, match=r"old \(100% of the rows\)"):
        make(tmp_path / "new", TABLE[1:], "c" * 64)


def test_a_kill_after_other_data_were_accepted_leaves_them_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is there, and the witness was not told of it: from now on nobody is asked about these rows."""
    make(tmp_path / "old", people(1000, 9), "a" * 64).close()
    with monkeypatch.context() as dying:
        dying.setattr("fedvi.privacy.ledger.witness.Witness.see", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            Ledger.open(tmp_path / "old", "b" * 64, sketch=sketch(TABLE), accept=["other data"])
    Ledger.open(tmp_path / "old", "b" * 64).close()
    with pytest.raises(OtherData, match=r"old \(100% of the rows\)"):
        make(tmp_path / "new", TABLE[1:], "c" * 64)


def test_older_ledgers_say_that_a_newer_one_was_rolled_back(tmp_path: Path) -> None:
    """What was released under the lost entries was about their people too."""
    make(tmp_path / "oldest", TABLE, "a" * 64).close()
    make(tmp_path / "old", TABLE[1:], "b" * 64, "same people").close()
    with make(tmp_path / "new", TABLE[2:], "c" * 64, "same people") as ledger:
        ledger.plan(EVENT, 2)
    shutil.copy(tmp_path / "new", tmp_path / "copy")
    for _ in range(2):
        with Ledger.open(tmp_path / "new", "c" * 64, accept=["rolled back"]) as ledger:
            ledger.charge(EVENT)
        shutil.copy(tmp_path / "copy", tmp_path / "new")
    for name, digest in (("oldest", "a" * 64), ("old", "b" * 64)):
        with Ledger.open(tmp_path / name, digest) as ledger:
            (caveat,) = ledger.spent.caveats
            assert caveat.startswith("of a newer ledger of the same people: the ledger was rolled back from entry 3")


def test_what_a_ledger_spent_elsewhere_is_paid_for_where_its_people_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "here", TABLE, "a" * 64).close()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("FEDVI_STATE_DIR", str(tmp_path / "elsewhere"))
        with make(tmp_path / "new", TABLE[1:], "b" * 64) as ledger:
            ledger.plan(EVENT, 3)
            ledger.charge(EVENT)
            ledger.charge(EVENT)
    accept = ["moved", "same people"]
    Ledger.open(tmp_path / "new", "b" * 64, sketch=sketch(TABLE[1:]), accept=accept).close()
    assert read(tmp_path / "here").charged == {EVENT: 3}  # two were used there, one may be used here


def test_a_ledger_that_was_moved_here_is_compared_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "old", TABLE, "a" * 64).close()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("FEDVI_STATE_DIR", str(tmp_path / "elsewhere"))
        make(tmp_path / "new", TABLE[1:], "b" * 64).close()
    with pytest.raises(OtherData, match=r"old \(100% of the rows\)"):
        Ledger.open(tmp_path / "new", "b" * 64, sketch=sketch(TABLE[1:]), accept=["moved"])
    Ledger.open(tmp_path / "new", "b" * 64, sketch=sketch(TABLE[1:]), accept=["moved", "other people"]).close()
    with pytest.raises(OtherData, match=r"new \(100% of the rows\)"):
        make(tmp_path / "newest", TABLE[2:], "c" * 64)


def test_an_older_ledger_of_another_unit_or_another_name_does_not_pay(tmp_path: Path) -> None:
    whole = Ledger.create(tmp_path / "old", Budget(1.0, 1e-5), "a" * 64, unit="client", sketch=sketch(TABLE))
    whole.close()
    with make(tmp_path / "new", TABLE[1:], "b" * 64, "same people") as ledger:
        with pytest.raises(LedgerError, match="is for one client, not for one"):
            ledger.plan(EVENT, 1)
        (tmp_path / "old").rename(tmp_path / "elsewhere")
        make(tmp_path / "old", people(1000, 9), "d" * 64).close()
        with pytest.raises(OtherData, match="but another"):
            ledger.plan(EVENT, 1)
        assert ledger.book.planned == {}


def test_a_table_in_which_all_rows_come_twice_is_noticed() -> None:
    assert sketch(TABLE).overlap(sketch(TABLE + TABLE)).is_noticed
    assert sketch(TABLE + TABLE[:1500]).overlap(sketch(TABLE[1:] + TABLE[:1500])).is_noticed


def test_what_the_older_ledger_cannot_pay_is_not_planned(tmp_path: Path) -> None:
    with make(tmp_path / "old", TABLE, "a" * 64) as old:
        most = old.plan(OTHER)
    assert most > 1
    with make(tmp_path / "new", TABLE[1:], "b" * 64, "same people") as ledger:
        with pytest.raises(BudgetClosed, match="a ledger of the same people"):
            ledger.plan(EVENT, 3)
        assert ledger.book.planned == {}
    (tmp_path / "old").unlink()
    with Ledger.open(tmp_path / "new", "b" * 64) as ledger, pytest.raises(OtherData, match="is not there"):
        ledger.plan(EVENT, 1)


def test_a_crash_between_two_ledgers_does_not_pay_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "old", TABLE, "a" * 64).close()
    with make(tmp_path / "new", TABLE[1:], "b" * 64, "same people") as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(ledger, "_append", lambda *_: (_ for _ in ()).throw(OSError("killed")))
            with pytest.raises(OSError, match="killed"):
                ledger.plan(EVENT, 3)
        assert ledger.plan(EVENT, 3) == 3
    assert read(tmp_path / "old").charged == {EVENT: 3}


def test_changed_rows_of_a_ledger_are_looked_for_in_others(tmp_path: Path) -> None:
    make(tmp_path / "old", TABLE, "a" * 64).close()
    strangers = people(1000, 9)
    make(tmp_path / "new", strangers, "b" * 64).close()
    with pytest.raises(OtherData, match="Some of this data has a ledger already"):
        Ledger.open(tmp_path / "new", "c" * 64, sketch=sketch(TABLE[:1000]), accept=["other data"])
    with Ledger.open(tmp_path / "new", "c" * 64, sketch=sketch(strangers[1:]), accept=["other data"]) as ledger:
        assert [entry.body["accepted"] for entry in ledger.book.acknowledgements] == ["other data"]
