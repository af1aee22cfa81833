"""UCI Adult, shipped with the package, and the design matrix that the paper made of it. Data of an experiment.

48,842 people of the 1994 US census, 14 columns, and whether the income is above 50,000 dollars. `load_adult` gives the
columns as published; `paper_split` gives features and targets as the paper used them:

    numbers     (value - mean) / std, over all rows               6 features
    categories  one 0/1 feature each, '?' being one like others   102 features, no bias
    rows        permuted once, then the first ceil(0.8 N) = 39,074 train and 9,768 test

Means, deviations and categories are learned from ALL rows, test rows too, as in the paper: nothing here gives privacy
to this preprocessing. It is for experiments; a real federation has to agree on scales without looking at rows.

The file `adult.npz` holds each column as its sorted distinct values and a code per row, an index into the values. Codes
take as few bits as they need and are stored bit plane by bit plane: plane b has bit b of all codes. `adult.md` has
credit, licence and checksums; `scripts/build_adult.py` makes the file.

An experiment names its source of rows: `AdultData`, or `NpzData` for a file of one's own.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Protocol

import numpy as np

from fedvi.checks import in_range, one_of
from fedvi.errors import InputError
from fedvi.inference.rows import CheckedTable, Table

FILE = "adult.npz"
SHA256 = "2e04dc2c54925249fed2d87d42b2680a283184a1ac6ce85b95185c7b935678cd"
ROWS = 48_842
TARGET = "income"


@dataclass(frozen=True, eq=False)
class Adult:
    """All rows in the published order, adult.data before adult.test.

    columns: whole numbers or text by column name, target: +1 for an income above 50,000 dollars, else -1.
    """

    columns: Mapping[str, np.ndarray]
    target: np.ndarray


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows to distribute over clients, rows to test on (or None), and columns to partition by, such as `ByColumn`."""

    train: Table
    test: Table | None
    columns: Mapping[str, np.ndarray] | None


@dataclass(frozen=True, eq=False)
class Split(Dataset):
    """Features and targets to learn from and to judge by, in single precision. columns: of the training rows.

    features: names such as 'age' or 'workclass=Private'. train_rows, test_rows: where the rows are in `load_adult()`.
    """

    train: CheckedTable
    test: CheckedTable
    columns: Mapping[str, np.ndarray]
    features: tuple[str, ...]
    train_rows: np.ndarray
    test_rows: np.ndarray


@cache
def load_adult() -> Adult:
    """Return the data as published; read once, not to be written to.

    >>> adult = load_adult()
    >>> adult.columns["occupation"][:2].tolist(), adult.target[:2].tolist()
    (['Adm-clerical', 'Exec-managerial'], [-1, -1])
    """
    table = _read()
    columns = {name: _frozen(values[codes]) for name, (values, codes) in table.items() if name != TARGET}
    return Adult(MappingProxyType(columns), _frozen(2 * table[TARGET][1] - 1))


def paper_split() -> Split:
    """Return the paper's 39,074 training and 9,768 test rows.

    >>> paper_split().train[0].shape, paper_split().test[0].shape
    ((39074, 108), (9768, 108))
    """
    return _split(ROWS)


def validation_split() -> Split:
    """Return the paper's training rows only, the last fifth (7,814) as test rows: to choose settings by."""
    return _split(len(paper_split().train_rows))


def _split(rows: int) -> Split:
    """Return the first `rows` rows of the paper's order, the first four fifths of them to learn from."""
    x, y, order, features = _encoded()
    cut = math.ceil(0.8 * rows)
    columns = {name: column[order[:cut]] for name, column in load_adult().columns.items()}
    return Split((x[:cut], y[:cut]), (x[cut:rows], y[cut:rows]), columns, features, order[:cut], order[cut:rows])


@cache
def _encoded() -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return x, y, the original row numbers and the names of features, in the paper's order of rows."""
    order = np.random.RandomState(0).permutation(ROWS)  # NumPy's legacy generator, as the paper
    blocks: list[np.ndarray] = []
    features: list[str] = []
    for name, (values, codes) in _read().items():
        if name == TARGET:
            y = (2 * codes[order] - 1).astype(np.float32)
        elif values.dtype.kind == "U":
            blocks.append(np.eye(len(values), dtype=np.float32)[codes[order]])
            features.extend(f"{name}={value}" for value in values)
        else:
            column = values[codes[order]].astype(float)
            blocks.append(((column - column.mean()) / column.std())[:, None])
            features.append(name)
    x = np.concatenate(blocks, axis=1, dtype=np.float32, casting="same_kind")
    return _frozen(x), _frozen(y), _frozen(order), tuple(features)


@cache
def _read() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the distinct values and the codes of every column of the shipped file, whose checksum must be right."""
    source = files("fedvi.datasets") / FILE
    found = hashlib.sha256(source.read_bytes()).hexdigest() if source.is_file() else "no file"
    if found != SHA256:
        raise InputError(f"Expected {source} with sha256 {SHA256}, got {found}: damaged or missing. Reinstall fedvi.")
    with np.load(io.BytesIO(source.read_bytes()), allow_pickle=False) as arrays:
        names = [name.removesuffix(".values") for name in arrays.files if name.endswith(".values")]
        columns = {}
        for name in names:
            values, planes = arrays[f"{name}.values"], arrays[f"{name}.planes"]
            codes = (1 << np.arange(len(planes))) @ np.unpackbits(planes, axis=1, count=ROWS)
            columns[name] = (values if values.dtype.kind == "U" else values.astype(np.int64)), codes
        return columns


def _frozen(array: np.ndarray) -> np.ndarray:
    """Forbid writing to an array that all callers share."""
    array.setflags(write=False)
    return array


class Source(Protocol):
    """Where the rows of an experiment come from."""

    def load(self) -> Dataset:
        """Return the rows."""


@dataclass(frozen=True)
class AdultData:
    """UCI Adult as in the paper.

    part: `test` to learn from the training rows and measure on the test rows; `validation` to hold out a fifth of the
        training rows instead and leave the test rows alone, for choosing settings.
    """

    part: str = "test"

    def __post_init__(self) -> None:
        one_of("part", self.part, ("test", "validation"))

    def load(self) -> Dataset:
        """Return the rows."""
        return paper_split() if self.part == "test" else validation_split()


@dataclass(frozen=True)
class NpzData:
    """A NumPy file with arrays `x` and `y`, and maybe `x_test` and `y_test`.

    test_fraction: of the rows, to hold out for testing if the file has no test rows; 0 for none.
    seed: of the choice of these rows.
    """

    path: str
    test_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        in_range("test_fraction", self.test_fraction, 0, 0.9)

    def load(self) -> Dataset:
        """Return the rows, or raise `InputError` if the file has none."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in ("x", "y", "x_test", "y_test") if name in file.files}
        except (OSError, ValueError) as error:
            raise InputError(f"Cannot read {self.path!r} as a NumPy .npz file: {error}") from None
        if not {"x", "y"} <= arrays.keys():
            raise InputError(f"Expected arrays x and y in {self.path!r}, got {', '.join(arrays) or 'none of them'}.")
        x, y = arrays["x"], arrays["y"]
        if "x_test" in arrays and "y_test" in arrays:
            return Dataset((x, y), (arrays["x_test"], arrays["y_test"]), None)
        order = np.random.default_rng(self.seed).permutation(len(x))
        held_out, kept = np.split(order, [round(self.test_fraction * len(x))])
        return Dataset((x[kept], y[kept]), (x[held_out], y[held_out]) if len(held_out) else None, None)
