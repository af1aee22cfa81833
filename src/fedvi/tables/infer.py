"""A schema from a sample table.

Bounds, centres, scales and categories are read from the rows: use a table that is public or may be shown, or edit the
schema afterwards. The table is read in chunks, once or twice:

    number     low, high   smallest and largest value, rounded outwards to two digits of their distance
               centre      mean, scale: standard deviation, to three digits
               knots       of splines: -2, -1, 0, 1, 2 scales from the centre, within the bounds
    text       values      the most frequent ones, sorted
               reference   the negative one of two ("no", "0", ...), else the most frequent
               missing     a feature of its own if a value is missing in the table, else the reference
               unknown     a feature of its own if some values have none, else the reference
    target     two values: a class; more numbers: a number, whose scale is the standard deviation of the residuals of a
               ridge regression on the encoded features

Splines of a number with many zeros and a long tail are octaves: knots at its top, a half of it, a quarter, ..., and 0,
in log(1 + value). A column is a number if all its values are. What is left out, and why, is in the notes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedvi.checks import whole
from fedvi.errors import InputError
from fedvi.tables.columns import GAP, LOG1P, OTHER, REFERENCE, Category, Column, Number
from fedvi.tables.encode import Encoder
from fedvi.tables.hats import SPREAD, octaves
from fedvi.tables.interactions import Interaction
from fedvi.tables.read import Source, TableSource, open_table, plain
from fedvi.tables.schema import Schema
from fedvi.tables.summaries import Summary, is_number, look
from fedvi.tables.targets import BinaryTarget, NumberTarget, Target

NEGATIVES = ("0", "-1", "no", "false", "n", "f", "negative", "neg", "none", "absent", "control")
IDENTIFIER_VALUES = 50
MANY_ZEROS, LONG_TAIL = 0.2, 10
"""A number whose zeros are at least this share, and whose largest value is this many times the mean, has octaves."""

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
    splines: Sequence[str] = (),
    log1p: Sequence[str] = (),
    interactions: Sequence[str] = (),
    encoding: str = "utf-8",
) -> Inferred:
    """Return a schema for a table that may be shown, or raise `InputError`.

    target: the column to predict. ignore: columns to leave out. max_categories: how many values of a text column are
    told apart. splines, log1p: numbers that may have a curve, and whose logarithms are used.
    interactions: pairs of columns, such as "age:sex".

    >>> found = infer_schema({"age": [20, 47, 70], "sex": ["F", "M", "F"], "died": [0, 0, 1]}, "died")
    >>> found.schema.columns[0], found.schema.target
    (Number(name='age', low=20.0, high=70.0, centre=45.7, scale=20.4, missing='centre', transform='none', knots=()),
     BinaryTarget(name='died', values=('0', '1')))
    """
    whole("max_categories", max_categories, 1)
    reader = open_table(source, encoding=encoding)
    reader.require([target, *ignore])
    if target in ignore:
        raise InputError(f"Expected the target not to be ignored, got {target!r} as both.")
    names = [name for name in reader.columns if name not in ignore]
    for name in (*splines, *log1p):
        reader.require([name])
    pairs = [_pair(text, reader) for text in interactions]
    found = look(reader, names)
    rows = found[target].rows
    notes: list[str] = []
    wanted = _target(found[target], reader.name, notes)
    columns = []
    for name in names:
        if name != target:
            wishes = (["splines"] if name in splines else []) + ([LOG1P] if name in log1p else [])
            column = _column(found[name], max_categories, wishes, notes)
            if isinstance(column, str):
                notes.append(f"Column {name!r} was left out: {column}.")
            else:
                columns.append(column)
    if not columns:
        raise InputError(f"Expected a column of {reader.name} to predict {target!r} from, got none. {' '.join(notes)}")
    _check_wishes((*splines, *log1p), columns, notes)
    schema = Schema(tuple(columns), wanted, interactions=tuple(Interaction(pair) for pair in pairs))
    if isinstance(wanted, NumberTarget):
        schema = replace(schema, target=_with_residual_scale(schema, wanted, reader, rows))
    return Inferred(schema, tuple(notes), rows)


def _pair(text: str, reader: TableSource) -> tuple[str, str]:
    """Return the two columns of an interaction such as "age:sex"; names may hold colons themselves."""
    parts = text.split(":")
    for cut in range(1, len(parts)):
        first, second = ":".join(parts[:cut]), ":".join(parts[cut:])
        if first in reader.columns and second in reader.columns:
            return first, second
    if len(parts) == 2:
        reader.require(parts)
    raise InputError(f"Expected an interaction as two columns with a colon between them, got {text!r}.")


def _check_wishes(wishes: Sequence[str], columns: Sequence[Column], notes: Sequence[str]) -> None:
    for name in wishes:
        if not any(isinstance(column, Number) and column.name == name for column in columns):
            why = next((f" {note}" for note in notes if note.startswith(f"Column {name!r}")), "")
            raise InputError(f"Expected the name of a number for splines and log1p, got {name!r}.{why}")


def _column(found: Summary, max_categories: int, wishes: Collection[str], notes: list[str]) -> Column | str:
    """Return the column, or why it is left out."""
    if found.measured == 0:
        return "it holds no value"
    if found.is_number and found.low == found.high:
        return f"it is {found.low:g} in all rows"
    if found.is_number:
        return _number(found, wishes, notes)
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
    return _category(found, max_categories, notes)


def _number(found: Summary, wishes: Collection[str], notes: list[str]) -> Number:
    low, high = _bounds(found)
    missing = "indicator" if found.missing else "centre"
    many_zeros = found.low >= 0 and found.zeros >= MANY_ZEROS * found.measured
    in_octaves = "splines" in wishes and many_zeros and found.high >= LONG_TAIL * found.moments.mean
    if LOG1P not in wishes and not in_octaves:
        number = Number(found.name, low, high, *found.moments.rounded(low, high), missing)
    elif found.low < 0:
        raise InputError(f"Expected no number below 0 in column {found.name!r} for log1p, got {found.low:g}.")
    else:
        low = max(low, 0.0)
        centre, scale = found.logs.rounded(math.log1p(low), math.log1p(high))
        number = Number(found.name, low, high, centre, scale, missing, LOG1P)
    if "splines" not in wishes:
        return number
    if in_octaves:
        notes.append(
            f"Column {found.name!r} is 0 in {found.zeros} of {found.measured} rows and has a long tail: its knots are "
            "octaves, in log(1 + value)."
        )
        inner = [knot for knot in octaves(high)[1:-1] if knot >= found.least]
        return replace(number, knots=(low, *(inner or [high / 2]), high))
    if len(found.distinct) <= 2:
        raise InputError(f"Expected more than two values in column {found.name!r} for splines: two are on a line.")
    return with_splines(number)


def with_splines(number: Number) -> Number:
    """Return a number with knots at -2, -1, 0, 1 and 2 scales from its centre, within its bounds; steps to 3 digits."""
    knots = number.centre + number.scale * np.array(SPREAD)
    knots = np.expm1(knots) if number.transform == LOG1P else knots
    digits = 2 - math.floor(math.log10(min(np.diff(knots))))
    shown = [round(float(knot), digits) for knot in knots]
    first, last = max(number.low, shown[0]), min(number.high, shown[-1])
    return replace(number, knots=(first, *(knot for knot in shown[1:-1] if first < knot < last), last))


def _category(found: Summary, max_categories: int, notes: list[str]) -> Category | str:
    extras = (OTHER, *((GAP,) if found.missing else ()))
    values = sorted((value for value in found.counts if value not in extras), key=lambda v: (-found.counts[v], v))
    if not values:
        return f"it is {OTHER!r} in all rows"
    if len(found.counts) == 1 and not found.missing:
        return f"it is {values[0]!r} in all rows"
    if len(values) > max_categories:
        notes.append(
            f"Column {found.name!r} has {len(values)} values: the {max_categories} most frequent ones are told apart, "
            f"the others are counted as {OTHER!r}."
        )
    if found.missing:
        notes.append(f"Column {found.name!r} is missing in {found.missing} rows: {GAP!r} has a feature of its own.")
    kept = values[:max_categories]
    negative = [value for value in kept if len(kept) == 2 and value.lower() in NEGATIVES]
    others = OTHER in found.counts or len(values) > max_categories
    return Category(
        found.name,
        tuple(sorted(kept)),
        reference=(negative or kept)[0],
        unknown=OTHER if others else REFERENCE,
        missing=GAP if found.missing else REFERENCE,
    )


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
        low, high = _bounds(found)
        return NumberTarget(found.name, low, high, *found.moments.rounded(low, high))
    shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
    raise InputError(
        f"Expected two classes or numbers in column {found.name!r} of {table}, the target, got {len(values)} texts: "
        f"{shown}. Join classes until two are left, or correct the text among numbers."
    )


def _bounds(found: Summary) -> tuple[float, float]:
    """Return low and high, as few digits as are needed."""
    step = math.floor(math.log10(found.high - found.low)) - 1
    return _outwards(found.low, step, math.floor), _outwards(found.high, step, math.ceil)


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
