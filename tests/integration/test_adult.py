"""UCI Adult: nothing lost on the way into the package, and the paper's design matrix."""

from __future__ import annotations

import hashlib
import lzma
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedvi.datasets import adult, load_adult, paper_split, validation_split
from fedvi.datasets.adult import AdultData, Dataset, Split
from fedvi.errors import InputError
from scripts.build_adult import COLUMNS, NUMBERS

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src" / "fedvi" / "datasets" / "adult.npz"
IN_ADULT_DATA = 32_561
PUBLISHED = {  # as on the repository's page; the text is written anew from what is shipped
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Nothing read before is remembered, and nothing read in the test is remembered after it."""
    for function in (adult._read, adult._encoded, adult._order, load_adult):
        function.cache_clear()
    yield
    for function in (adult._read, adult._encoded, adult._order, load_adult):
        function.cache_clear()


def as_published() -> dict[str, bytes]:
    """Return the two original files, as the shipped data say that they were."""
    income = np.where(load_adult().target > 0, ">50K", "<=50K")
    columns = [column.tolist() for column in load_adult().columns.values()]
    lines = [", ".join(map(str, row)) for row in zip(*columns, income, strict=True)]
    train, test = lines[:IN_ADULT_DATA], [f"{line}." for line in lines[IN_ADULT_DATA:]]
    texts = {"adult.data": [*train, "\n"], "adult.test": ["|1x3 Cross validator", *test, "\n"]}
    return {name: "\n".join(text).encode() for name, text in texts.items()}


def build(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "build_adult.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_published_files_can_be_written_from_the_shipped_one() -> None:
    assert {name: hashlib.sha256(text).hexdigest() for name, text in as_published().items()} == PUBLISHED


def test_script_builds_the_shipped_file_to_the_byte(tmp_path: Path) -> None:
    texts = as_published()
    data, test = tmp_path / "adult.data", tmp_path / "adult.test.xz"
    data.write_bytes(texts["adult.data"])
    test.write_bytes(lzma.compress(texts["adult.test"], preset=0))
    built = build(data, test, "--out", tmp_path / "adult.npz")
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "adult.npz").read_bytes() == SHIPPED.read_bytes()
    assert built.stdout == f"adult.npz: 595,250 bytes, sha256 {adult.SHA256}\n"


def test_script_refuses_originals_that_are_not(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("39, State-gov\n")
    built = build(tmp_path / "other", tmp_path / "other", "--out", tmp_path / "adult.npz")
    assert built.returncode == 1
    assert f"to be adult.data with sha256 {PUBLISHED['adult.data']}, got" in built.stderr
    assert not (tmp_path / "adult.npz").exists()


def test_checksums_are_documented_and_right() -> None:
    assert hashlib.sha256(SHIPPED.read_bytes()).hexdigest() == adult.SHA256
    assert SHIPPED.stat().st_size < 700_000
    document = SHIPPED.with_suffix(".md").read_text()
    assert all(checksum in document for checksum in (adult.SHA256, *PUBLISHED.values()))
    assert "CC BY 4.0" in document
    assert "10.24432/C5XW20" in document


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("damage", ["one bit", "cut short", "missing"])
def test_a_damaged_file_is_refused(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray(SHIPPED.read_bytes())
    content[300_000] ^= 1
    if damage != "missing":
        (tmp_path / "adult.npz").write_bytes(content if damage == "one bit" else SHIPPED.read_bytes()[:-100])
    monkeypatch.setattr(adult, "files", lambda _: tmp_path)
    with pytest.raises(InputError, match=r"Expected .*adult.npz with sha256 .*Reinstall fedvi\."):
        load_adult()
    with pytest.raises(InputError, match="Reinstall fedvi"):
        paper_split()


def test_first_row_of_each_published_file_is_as_printed_there() -> None:
    columns, target = load_adult().columns, load_adult().target
    first = [column[0] for column in columns.values()]
    assert first == [39, "State-gov", 77516, "Bachelors", 13, "Never-married", "Adm-clerical", "Not-in-family",
                     "White", "Male", 2174, 0, 40, "United-States"]  # fmt: skip
    test = [column[IN_ADULT_DATA] for column in columns.values()]
    assert test == [25, "Private", 226802, "11th", 7, "Never-married", "Machine-op-inspct", "Own-child",
                    "Black", "Male", 0, 0, 40, "United-States"]  # fmt: skip
    assert target[[0, 7, IN_ADULT_DATA, IN_ADULT_DATA + 2]].tolist() == [-1, 1, -1, 1]


def test_counts_are_those_of_the_data_set() -> None:
    columns, target = load_adult().columns, load_adult().target
    assert tuple(columns) == COLUMNS
    assert {column.shape for column in columns.values()} == {(48_842,)} == {target.shape}
    assert [int(np.sum(target == label)) for label in (-1, 1)] == [37_155, 11_687]
    assert [int(np.sum(columns[name] == "?")) for name in ("workclass", "occupation", "native-country")] == [
        2799,
        2809,
        857,
    ]
    assert (columns["age"].min(), columns["age"].max(), columns["capital-gain"].max()) == (17, 90, 99_999)


def test_features_are_standardised_numbers_and_one_of_each_category() -> None:
    split = paper_split()
    x = np.concatenate([split.train[0], split.test[0]]).astype(float)
    assert x.shape == (48_842, 108)
    assert len(split.features) == len(set(split.features)) == 108
    numbers = [split.features.index(name) for name in NUMBERS]
    assert [COLUMNS.index(name) for name in NUMBERS] == [0, 2, 4, 10, 11, 12]
    np.testing.assert_allclose(x[:, numbers].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(x[:, numbers].std(axis=0), 1, atol=1e-6)
    others = np.delete(x, numbers, axis=1)
    assert set(np.unique(others)) == {0, 1}
    assert set(others.sum(axis=1)) == {8}
    assert split.features[:3] == ("age", "workclass=?", "workclass=Federal-gov")
    assert split.features[-1] == "native-country=Yugoslavia"


@pytest.mark.parametrize("make", [paper_split, validation_split])
def test_encoded_rows_are_the_rows_they_say(make: Callable[[], Split]) -> None:
    split, whole = make(), load_adult()
    for (x, y), rows in ((split.train, split.train_rows), (split.test, split.test_rows)):
        assert x.dtype == y.dtype == np.float32
        assert np.array_equal(y, whole.target[rows])
        age = whole.columns["age"]
        np.testing.assert_allclose(x[:, 0], ((age - age.mean()) / age.std())[rows], atol=1e-6)
        for name in ("workclass=Never-worked", "sex=Female", "native-country=?"):
            column, value = name.split("=")
            assert np.array_equal(x[:, split.features.index(name)], whole.columns[column][rows] == value)
    assert np.array_equal(split.columns["race"], whole.columns["race"][split.train_rows])


def test_paper_split_has_the_papers_rows() -> None:
    split = paper_split()
    order = np.random.RandomState(0).permutation(48_842)
    assert np.array_equal(np.concatenate([split.train_rows, split.test_rows]), order)
    assert (len(split.train[0]), len(split.test[0])) == (39_074, 9_768)
    assert np.mean(split.train[1] == -1) == pytest.approx(0.76, abs=0.005)  # the paper's lambda


def test_validation_split_never_sees_a_test_row() -> None:
    split, paper = validation_split(), paper_split()
    assert (len(split.train[0]), len(split.test[0])) == (31_260, 7_814)
    assert np.array_equal(np.concatenate([split.train_rows, split.test_rows]), paper.train_rows)
    assert np.array_equal(np.concatenate([split.train[0], split.test[0]]), paper.train[0])


def bump(values: np.ndarray, left: float, at: float, right: float) -> np.ndarray:
    """Return one hat by its definition; left or right is the knot itself where the hat is flat beyond it."""
    up = np.ones_like(values) if left == at else (values - left) / (at - left)
    down = np.ones_like(values) if right == at else (right - values) / (right - at)
    return np.clip(np.minimum(up, down), 0, 1)


def by_name(data: Dataset) -> dict[str, np.ndarray]:
    assert isinstance(data, Split)
    return dict(zip(data.features, np.concatenate([data.train[0], data.test[0]]).T, strict=True))


def test_spline_columns_are_hats_at_round_numbers_beside_the_papers_columns() -> None:
    split, paper = AdultData(columns="splines").load(), paper_split()
    assert isinstance(split, Split)
    found, rows = by_name(split), np.concatenate([split.train_rows, split.test_rows])
    assert len(split.features) == 143
    assert split.features[:109] == ("(intercept)", *paper.features)
    assert np.array_equal(split.train[0][:, 1:109], paper.train[0])
    assert np.all(found["(intercept)"] == 1)
    raw = {name: load_adult().columns[name][rows].astype(float) for name in NUMBERS}
    for name, centre, unit in (("age", 40, 15), ("education-num", 10, 2.5), ("hours-per-week", 40, 12)):
        knots = [centre + unit * step for step in range(-2, 3)]
        for left, at, right in zip([knots[0], *knots], knots, [*knots[1:], knots[-1]], strict=False):
            np.testing.assert_allclose(found[f"{name}~[{at:g}]"], bump(raw[name], left, at, right), atol=1e-6)
    units = np.log(raw["fnlwgt"] / 2e5) / 0.6
    knots = [2e5 * np.exp(0.6 * step) for step in range(-2, 3)]
    for step, at in zip(range(-2, 3), knots, strict=True):
        ends = max(step - 1, -2), min(step + 1, 2)
        np.testing.assert_allclose(found[f"fnlwgt~[{at:g}]"], bump(units, ends[0], step, ends[1]), atol=1e-6)
    for name, top in (("capital-gain", 1e5), ("capital-loss", 5e3)):
        knots = [0.0, *(top / 2**down for down in range(6, -1, -1))]
        assert not any(np.any(found[f"{name}~[{at:g}]"][raw[name] == 0]) for at in knots[1:])
        for left, at, right in zip(knots[:-1], knots[1:], [*knots[2:], top], strict=True):
            by_log = [float(np.log1p(knot)) for knot in (left, at, right)]
            np.testing.assert_allclose(found[f"{name}~[{at:g}]"], bump(np.log1p(raw[name]), *by_log), atol=1e-6)


def test_layout_says_what_the_columns_are() -> None:
    split = AdultData(part="validation", columns="splines", limit=3.0).load()
    assert isinstance(split, Split)
    assert split.layout is not None
    assert split.layout.intercept
    assert split.layout.bound == 4
    assert np.abs(split.train[0]).max() == 3
    counts = {kind: split.layout.kinds.count(kind) for kind in ("intercept", "number", "level", "hat")}
    assert counts == {"intercept": 1, "number": 6, "level": 102, "hat": 34}
    assert len(split.layout.exclusive) == 8
    for group in split.layout.exclusive:
        assert {split.features[j].split("=")[0] for j in group} == {split.features[group[0]].split("=")[0]}
        assert np.all(split.train[0][:, group].sum(axis=1) == 1)
    paper = paper_split().layout
    assert paper is not None
    assert not paper.intercept
    assert paper.bound == 16
    assert AdultData(columns="constant").load().train[0].shape == (39_074, 109)


def test_shared_arrays_cannot_be_written_to() -> None:
    assert load_adult() is load_adult()
    split = paper_split()
    assert np.shares_memory(split.train[0], paper_split().train[0])
    arrays = [*split.train, *split.test, split.train_rows, split.test_rows, load_adult().target]
    for array in [*arrays, *load_adult().columns.values()]:
        assert not array.flags.writeable
    with pytest.raises(TypeError, match="does not support item assignment"):
        load_adult().columns["age"] = arrays[0]  # type: ignore[index]
