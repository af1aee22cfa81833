"""A schema from a sample table.

Bounds, centres, scales and categories are read from the rows: use a table that is public or may be shown, or edit the
schema afterwards. The table is read in chunks, once or twice:

    number     low, high   smallest and largest value, rounded outwards to two digits of their distance
               centre      mean, scale: standard deviation, to three digits
    text       values      the most frequent ones, sorted
    target     two values: a class; more numbers: a number, whose scale is the standard deviation of the residuals of a
               ridge regression on the encoded features

A column is a number if all its values are. What is left out, and why, is in the notes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from fedvi.checks import whole
from fedvi.errors import InputError
from fedvi.tables.columns import OTHER, Category, Column, Number
from fedvi.tables.encode import Encoder
from fedvi.tables.read import (
    MISSING,
    NUMBER,
    TEXT,
    Kind,
    Source,
    TableSource,
    Text,
    as_text_where_needed,
    open_table,
    parse_number,
    plain,
)
from fedvi.tables.schema import Schema
from fedvi.tables.targets import BinaryTarget, NumberTarget, Target

NEGATIVES = ("0", "-1", "no", "false", "n", "f", "negative", "neg", "none", "absent", "control")
MOST_DISTINCT = 200_000
IDENTIFIER_VALUES = 50
RIDGE = 1e-6
REGRESSION_BYTES = 64 << 20
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
)


@dataclass(frozen=True)
class Inferred:
    """A schema, what a person should know about how it came about, and how many rows were read."""

    schema: Schema
    notes: tuple[str, ...]
    rows: int

    def __repr__(self) -> str:
        return f"Inferred({self.schema!r} from {self.rows} rows, {len(self.notes)} notes)"


def infer_schema(
    source: Source,
    target: str,
    *,
    ignore: Sequence[str] = (),
    max_categories: int = 20,
    encoding: str = "utf-8",
) -> Inferred:
    """Return a schema for a table that may be shown, or raise `InputError`.

    target: the column to predict. ignore: columns to leave out. max_categories: how many values of a text column get a
    feature of their own.

    >>> found = infer_schema({"age": [20, 47, 70], "sex": ["F", "M", "F"], "died": [0, 0, 1]}, "died")
    >>> found.schema.columns[0], found.schema.target
    (Number(name='age', low=20.0, high=70.0, centre=45.7, scale=20.4, missing='centre'),
     BinaryTarget(name='died', values=('0', '1')))
    """
    whole("max_categories", max_categories, 1)
    reader = open_table(source, encoding=encoding)
    reader.require([target, *ignore])
    if target in ignore:
        raise InputError(f"Expected the target not to be ignored, got {target!r} as both.")
    names = [name for name in reader.columns if name not in ignore]
    found = _look(reader, names)
    rows = found[target].rows
    notes: list[str] = []
    wanted = _target(found[target], reader.name, notes)
    columns = []
    for name in names:
        if name != target:
            column = _column(found[name], max_categories, notes)
            if isinstance(column, str):
                notes.append(f"Column {name!r} was left out: {column}.")
            else:
                columns.append(column)
    if not columns:
        raise InputError(f"Expected a column of {reader.name} to predict {target!r} from, got none. {' '.join(notes)}")
    schema = Schema(tuple(columns), wanted)
    if isinstance(wanted, NumberTarget):
        schema = Schema(schema.columns, _with_residual_scale(schema, wanted, reader, rows))
    return Inferred(schema, tuple(notes), rows)


@dataclass
class Summary:
    """What is known of a column so far; `mean` and `squares` (the sum of squared distances from it) are of numbers."""

    name: str
    rows: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0
    distinct: set[float] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    is_number: bool = False
    overflown: bool = False

    @property
    def measured(self) -> int:
        """How many rows have a value."""
        return self.rows - self.missing

    def add_numbers(self, values: np.ndarray) -> None:
        """Take in one chunk of numbers, by the parallel formula for means and squares."""
        self.is_number = True
        self.rows += len(values)
        here = values[~np.isnan(values)]
        self.missing += len(values) - len(here)
        if not len(here):
            return
        self.low, self.high = min(self.low, float(here.min())), max(self.high, float(here.max()))
        mean = float(here.mean())
        before, share = self.measured - len(here), len(here) / self.measured
        self.squares += float(np.square(here - mean).sum()) + (mean - self.mean) ** 2 * before * share
        self.mean += (mean - self.mean) * share
        if len(self.distinct) <= 2:
            self.distinct.update(np.unique(here)[:3].tolist())

    def add_text(self, text: Text) -> None:
        """Take in one chunk of text."""
        self.rows += len(text.codes)
        counts = np.bincount(text.codes + 1, minlength=len(text.values) + 1).tolist()
        self.missing += counts[0]
        for value, count in zip(text.values, counts[1:], strict=True):
            if value in MISSING:
                self.missing += count
            elif count and (len(self.counts) < MOST_DISTINCT or plain(value) in self.counts):
                self.counts[plain(value)] += count
            elif count:
                self.overflown = True


def _look(reader: TableSource, names: list[str]) -> dict[str, Summary]:
    """Return summaries of all columns: of numbers, if all values are."""
    with closing(reader.chunks(dict.fromkeys(names, TEXT))) as chunks:
        first = next(chunks)
    kinds: dict[str, Kind] = {
        name: NUMBER if all(map(is_number, first.texts[name].values[:1000])) else TEXT for name in names
    }

    def look() -> dict[str, Summary]:
        found = {name: Summary(name) for name in names}
        for chunk in reader.chunks(kinds):
            for name, summary in found.items():
                if kinds[name] == TEXT:
                    summary.add_text(chunk.texts[name])
                    continue
                values = chunk.numbers[name]
                if np.isinf(values).any():
                    row = int(np.argmax(np.isinf(values)))
                    raise InputError(f"Expected a finite number in {chunk.place(row, name)}, got {values[row]}.")
                summary.add_numbers(values)
        return found

    return as_text_where_needed(kinds, look)


def is_number(text: str) -> bool:
    """Tell whether a text holds a number, or a word of `MISSING`."""
    try:
        parse_number(text)
    except ValueError:
        return False
    return True


def _column(found: Summary, max_categories: int, notes: list[str]) -> Column | str:
    """Return the column, or why it is left out."""
    if found.measured == 0:
        return "it holds no value"
    if found.is_number and found.low == found.high:
        return f"it is {found.low:g} in all rows"
    if found.is_number:
        return Number(found.name, *_bounds_and_scale(found), missing="indicator" if found.missing else "centre")
    distinct = len(found.counts)
    if found.overflown or (distinct > IDENTIFIER_VALUES and distinct > found.measured / 2):
        least = "more than " if found.overflown else ""
        return f"{least}{distinct} distinct values in {found.measured} rows. It looks like an identifier"
    if _most(found, lambda value: DATE.fullmatch(value) is not None):
        return "it holds dates or times. Make numbers of them, if they matter"
    if _most(found, is_number):
        odd = next(value for value in found.counts if not is_number(value))
        notes.append(
            f"Column {found.name!r} became a category although most of its values are numbers: it holds {odd!r} too."
        )
    values = [value for value, _ in found.counts.most_common() if value != OTHER]
    if not values:
        return f"it is {OTHER!r} in all rows"
    if distinct == 1 and not found.missing:
        return f"it is {values[0]!r} in all rows"
    if len(values) > max_categories:
        notes.append(
            f"Column {found.name!r} has {len(values)} values: the {max_categories} most frequent ones became features, "
            f"the others are counted as {OTHER!r}."
        )
    return Category(found.name, tuple(sorted(values[:max_categories])))


def _most(found: Summary, holds: Callable[[str], bool]) -> bool:
    """Tell whether something holds for the values of most rows."""
    return sum(count for value, count in found.counts.items() if holds(value)) > found.measured / 2


def _target(found: Summary, table: str, notes: list[str]) -> Target:
    if found.measured == 0:
        raise InputError(f"Expected values in column {found.name!r} of {table}, the target, got none.")
    if found.missing:
        notes.append(f"The target {found.name!r} is missing in {found.missing} rows: leave them out before learning.")
    values = [plain(repr(value)) for value in sorted(found.distinct)] if found.is_number else sorted(found.counts)
    if len(values) == 1:
        raise InputError(
            f"Expected two classes or different numbers in column {found.name!r} of {table}, the target, "
            f"got only {values[0]!r}. Take a table with both."
        )
    if len(values) == 2:
        negative, positive = sorted(values, key=lambda value: value.lower() not in NEGATIVES)
        return BinaryTarget(found.name, (negative, positive))
    if found.is_number:
        return NumberTarget(found.name, *_bounds_and_scale(found))
    shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
    raise InputError(
        f"Expected two classes or numbers in column {found.name!r} of {table}, the target, got {len(values)} texts: "
        f"{shown}. Join classes until two are left, or correct the text among numbers."
    )


def _bounds_and_scale(found: Summary) -> tuple[float, float, float, float]:
    """Return low, high, centre and scale, as few digits as are needed."""
    step = math.floor(math.log10(found.high - found.low)) - 1
    low, high = _outwards(found.low, step, math.floor), _outwards(found.high, step, math.ceil)
    spread = math.sqrt(found.squares / found.measured)
    digits = 2 - math.floor(math.log10(spread))
    return low, high, min(max(round(found.mean, digits), low), high), round(spread, digits)


def _outwards(value: float, step: int, rounded: Callable[[float], int]) -> float:
    """Return the multiple of `10^step` that is next to a value, down or up.

    >>> _outwards(0.123, -2, math.ceil), _outwards(-1234.0, 2, math.floor)
    (0.13, -1300.0)
    """
    unit = 10.0**step
    nearest = round(value / unit)
    if not math.isclose(nearest * unit, value, rel_tol=1e-12):  # 0.3 / 0.1 is a little below 3
        nearest = rounded(value / unit)
    return round(nearest * unit, max(-step, 0))


def _with_residual_scale(schema: Schema, target: NumberTarget, reader: TableSource, rows: int) -> NumberTarget:
    """Return the target with the standard deviation of what a ridge regression leaves, in the target's units.

    Of a long table every second, third, ... row is used, so that they fit into `REGRESSION_BYTES`. They are multiplied
    when all are read: the threads of matrix products do not get along with those that parse.
    """
    step = math.ceil(rows * schema.dim * 4 / REGRESSION_BYTES)
    taken: list[tuple[np.ndarray, np.ndarray]] = []
    start = 0
    for chunk in Encoder(schema, reader, site_column=None, target=True, strict=False).chunks():
        x, y = chunk.rows
        used = np.arange(-start % step, len(y), step)
        used = used[np.isfinite(y[used])]
        taken.append((x[used], y[used]))
        start += len(y)
    x, y = (np.concatenate(parts).astype(float) for parts in zip(*taken, strict=True))
    weights = np.linalg.solve(x.T @ x + RIDGE * len(y) * np.eye(schema.dim), x.T @ y)
    left = float(np.mean(np.square(y - x @ weights)))
    scale = max(math.sqrt(left), 1e-3) * target.scale  # rows on a line say nothing about noise
    scale = max(scale, 1e-5 * (target.high - target.low))
    return replace(target, scale=round(scale, 2 - math.floor(math.log10(scale))))
