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

An experiment names its source of rows: `AdultData`, or `NpzData` for a file of one's own. `AdultData` can have more
columns than the paper: a constant 1 before all others, and 34 hats (`fedvi.tables.hats`) of the six numbers behind
them. Centres, units and tops of the hats are round numbers that somebody who knows such a census writes down without
looking at rows:

    age 40, 15    education-num 10, 2.5    hours-per-week 40, 12    fnlwgt log(v / 200,000), 0.6
                                                                    hats at centre + unit * (-2, -1, 0, 1, 2)
    capital-gain 100,000    capital-loss 5,000                      hats in log(1 + v) at top / 2^6, ..., top; none at 0
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Protocol

import numpy as np

from fedvi.checks import in_range, one_of, positive
from fedvi.errors import InputError
from fedvi.inference.rows import CheckedTable, Table
from fedvi.tables.hats import SPREAD, hats, octaves
from fedvi.tables.layout import HAT, INTERCEPT, LEVEL, NUMBER, Layout

FILE = "adult.npz"
SHA256 = "2e04dc2c54925249fed2d87d42b2680a283184a1ac6ce85b95185c7b935678cd"
ROWS = 48_842
TARGET = "income"
CENTRES = {"age": (40.0, 15.0), "education-num": (10.0, 2.5), "hours-per-week": (40.0, 12.0)}
FNLWGT = (2e5, 0.6)
TOPS = {"capital-gain": 1e5, "capital-loss": 5e3}
PAPER, CONSTANT, SPLINES = "paper", "constant", "splines"


@dataclass(frozen=True, eq=False)
class Adult:
    """All rows in the published order, adult.data before adult.test.

    columns: whole numbers or text by column name, target: +1 for an income above 50,000 dollars, else -1.
    """

    columns: Mapping[str, np.ndarray]
    target: np.ndarray


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows to distribute over clients, rows to test on (or None), and columns to partition by, such as `ByColumn`.

    layout: what is public about the features, if anything is.
    """

    train: Table
    test: Table | None
    columns: Mapping[str, np.ndarray] | None
    layout: Layout | None = field(default=None, kw_only=True)


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
    return _split(_cut(ROWS))


def _cut(rows: int) -> int:
    return math.ceil(0.8 * rows)


def _split(rows: int, columns: str = PAPER, limit: float | None = None) -> Split:
    """Return the first `rows` rows of the paper's order, the first four fifths of them to learn from."""
    x, y, features, layout = _encoded(columns, limit)
    order, cut = _order(), _cut(rows)
    kept = {name: column[order[:cut]] for name, column in load_adult().columns.items()}
    train, test = (x[:cut], y[:cut]), (x[cut:rows], y[cut:rows])
    return Split(train, test, kept, features, order[:cut], order[cut:rows], layout=layout)


@cache
def _order() -> np.ndarray:
    """Return the original row numbers, in the paper's order of rows."""
    return _frozen(np.random.RandomState(0).permutation(ROWS))  # NumPy's legacy generator, as the paper


@cache
def _encoded(columns: str, limit: float | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], Layout]:
    """Return x, y, the names of features and their layout, in the paper's order of rows. limit: of numbers."""
    order, blocks, kinds = _order(), dict[str, np.ndarray](), list[str]()
    bumps, exclusive = dict[str, np.ndarray](), list[tuple[int, ...]]()
    if columns != PAPER:
        blocks["(intercept)"], kinds = np.ones(ROWS, np.float32), [INTERCEPT]
    for name, (values, codes) in _read().items():
        if name == TARGET:
            y = (2 * codes[order] - 1).astype(np.float32)
        elif values.dtype.kind == "U":
            exclusive.append(tuple(range(len(kinds), len(kinds) + len(values))))
            kinds += [LEVEL] * len(values)
            levels = np.eye(len(values), dtype=np.float32)
            blocks |= {f"{name}={value}": level[codes[order]] for value, level in zip(values, levels, strict=True)}
        else:
            column = values[codes[order]].astype(float)
            scaled = (column - column.mean()) / column.std()
            blocks[name] = scaled if limit is None else np.clip(scaled, -limit, limit)
            kinds.append(NUMBER)
            bumps |= _hats(name, column) if columns == SPLINES else {}
    kinds += [HAT] * len(bumps)
    x = np.stack(list((blocks | bumps).values()), axis=1, dtype=np.float32, casting="same_kind")
    bound = 2.0 ** math.ceil(math.log2(float(np.abs(x).max())))
    return _frozen(x), _frozen(y), (*blocks, *bumps), Layout(tuple(kinds), tuple(exclusive), bound)


def _hats(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the hats of a number of the data set, by the name of each: such as 'age~[40]'."""
    if name in TOPS:
        knots = np.array(octaves(TOPS[name]))
        found = hats(np.log1p(values), np.log1p(knots))[:, 1:]
        knots = knots[1:]
    elif name == "fnlwgt":
        knots = FNLWGT[0] * np.exp(FNLWGT[1] * np.array(SPREAD))
        found = hats(np.log(values), np.log(knots))
    else:
        centre, unit = CENTRES[name]
        knots = centre + unit * np.array(SPREAD)
        found = hats(values, knots)
    return {f"{name}~[{knot:g}]": bump for knot, bump in zip(knots, found.T, strict=True)}


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
    columns: `paper` for its 108; `constant` for a 1 before them; `splines` for that and 34 hats behind them.
    limit: of the six numbers, in standard deviations; None for as they are.
    """

    part: str = "test"
    columns: str = PAPER
    limit: float | None = None

    def __post_init__(self) -> None:
        one_of("part", self.part, ("test", "validation"))
        one_of("columns", self.columns, (PAPER, CONSTANT, SPLINES))
        if self.limit is not None:
            positive("limit", self.limit)

    def load(self) -> Dataset:
        """Return the rows."""
        return _split(ROWS if self.part == "test" else _cut(ROWS), self.columns, self.limit)


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
