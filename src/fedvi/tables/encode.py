"""From a table and a schema to the design matrix, in chunks.

A chunk is one block of float32, written column by column; categories go through a table from the chunk's distinct
strings to features, so that no row is looked at in Python. While a chunk is encoded and used, the next chunk is parsed
in another thread. Memory is that of a few chunks; `encode` adds the whole matrix, once.

`Counts` say what was clipped, missing and unknown at this site. They are for the people there: nothing sends them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.columns import OTHER, BinaryTarget, Category, Number, NumberTarget
from fedvi.tables.read import NUMBER, TEXT, Chunk, Kind, Source, Text, open_table
from fedvi.tables.schema import Schema
from fedvi.tables.words import MISSING, NotANumber, near, parse_number, place, plain

CHUNK_BYTES = 32 << 20
"""Bytes of x in one chunk, at most."""

TILE_ROWS = 32_768
"""Rows that are encoded together: what is made of them should stay in a core's cache."""

MEASURED_ROWS = 20
"""A column without any value is refused in tables of at least that many rows."""

SIGNS = np.array([-1, 1], np.float32)
"""The two classes of a target."""

_UNKNOWN, _MISSING = -1, -2


@dataclass
class Counts:
    """What happened to values, by column. For the site alone: it tells about rows."""

    rows: int = 0
    clipped: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        def both(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
            return {name: one.get(name, 0) + two.get(name, 0) for name in (one | two)}

        return Counts(
            self.rows + other.rows,
            both(self.clipped, other.clipped),
            both(self.missing, other.missing),
            both(self.unknown, other.unknown),
        )


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of the design matrix, their targets (-1 and +1 for two classes), and the sites that they belong to."""

    x: np.ndarray
    y: np.ndarray | None
    sites: np.ndarray | None
    counts: Counts


def encode(
    schema: Schema,
    source: Source,
    *,
    site_column: str | None = None,
    target: bool = True,
    encoding: str = "utf-8",
    strict: bool = True,
) -> Encoded:
    """Return a whole table encoded, or raise `InputError` naming row, column and value.

    site_column: the column that says which site a row belongs to. target: whether to read the target too.
    strict: False where rows are private. Nothing is then refused for what a row holds: what is no number counts as
        missing, and a row without a usable target has the target NaN. The schema must not ask for errors either.

    >>> columns = (Number("age", 0, 120, 50, 20), Category("sex", ("F", "M")))
    >>> schema = Schema(columns, BinaryTarget("died", ("no", "yes")))
    >>> encoded = encode(schema, {"age": [60, 150], "sex": ["M", None], "died": ["yes", "no"]})
    >>> encoded.x.tolist(), encoded.y.tolist()
    ([[1.0, 0.5, 0.0, 1.0, 0.0], [1.0, 3.5, 0.0, 0.0, 1.0]], [1.0, -1.0])
    >>> encoded.counts
    Counts(rows=2, clipped={'age': 1}, missing={'age': 0, 'sex': 1, 'died': 0}, unknown={'sex': 0})
    """
    encoder = Encoder(schema, open_table(source, encoding=encoding), site_column, target, strict)
    parts = _all_chunks(encoder)
    counts = sum((part.counts for part in parts), Counts())
    sites = np.concatenate([part.sites for part in parts if part.sites is not None]) if site_column else None
    y = np.concatenate([part.y for part in parts if part.y is not None]) if target else None
    if len(parts) == 1:
        return Encoded(parts[0].x, y, sites, counts)
    x = np.empty((counts.rows, schema.dim), np.float32)  # takes memory as it is written, while parts give theirs back
    end = counts.rows
    while parts:
        part = parts.pop().x
        x[end - len(part) : end] = part
        end -= len(part)
    return Encoded(x, y, sites, counts)


def encode_chunks(
    schema: Schema, source: Source, *, site_column: str | None = None, target: bool = True, encoding: str = "utf-8"
) -> Iterator[Encoded]:
    """Yield a table encoded, chunk by chunk in the order of its rows; memory does not grow with the table."""
    yield from chunks(Encoder(schema, open_table(source, encoding=encoding), site_column, target))


def _all_chunks(encoder: Encoder) -> list[Encoded]:
    """Return all chunks; unless it is strict, a column of numbers with other text in it is read as text."""
    while True:
        try:
            return list(chunks(encoder))
        except NotANumber as error:
            if encoder.strict or encoder.wanted.get(error.column) != NUMBER:
                raise
            encoder.wanted[error.column] = TEXT


class Encoder:
    """Encodes chunks of one table; counts go with every chunk.

    strict: whether to refuse a row for what it holds; if not, a target that is missing or foreign is NaN.
    """

    def __init__(
        self, schema: Schema, reader: Any, site_column: str | None = None, target: bool = True, strict: bool = True
    ):
        self.schema, self.reader, self.site_column, self.strict = schema, reader, site_column, strict
        self.target = schema.target if target else None
        parts = (*schema.columns, *((self.target,) if self.target else ()))
        self.wanted: dict[str, Kind] = {
            part.name: NUMBER if isinstance(part, Number | NumberTarget) else TEXT for part in parts
        }
        if site_column is not None and self.wanted.setdefault(site_column, TEXT) != TEXT:
            raise InputError(f"Expected the column of sites to be no number of the schema, got {site_column!r}.")
        self.codes: dict[str, dict[str, int]] = {
            part.name: _known(part) for part in parts if isinstance(part, Category | BinaryTarget)
        }
        self._lines = np.arange(TILE_ROWS) * schema.dim

    def encode(self, chunk: Chunk, first: int, last: int) -> Encoded:
        """Return rows `first` to `last` of a chunk, encoded."""
        size = last - first
        x = np.zeros((size, self.schema.dim), np.float32)
        y = None if self.target is None else np.empty(size, np.float32)
        counts = Counts(size)
        for start in range(0, size, TILE_ROWS):
            tile = slice(start, min(start + TILE_ROWS, size))
            part = chunk.part(first + tile.start, first + tile.stop)
            self._features(part, x[tile], counts)
            if y is not None:
                y[tile] = self._targets(part, counts)
        sites = None if self.site_column is None else self._sites(self.site_column, chunk.part(first, last))
        return Encoded(x, y, sites, counts)

    def _features(self, chunk: Chunk, x: np.ndarray, counts: Counts) -> None:
        """Write the features of all rows of a chunk into x, which is zero."""
        flat, lines = x.reshape(-1), self._lines[: chunk.rows]
        at = 0
        if self.schema.intercept:
            x[:, 0] = 1
            at = 1
        for column in self.schema.columns:
            if isinstance(column, Number):
                x[:, at], missing = self._number(column, self._values(column.name, chunk, counts), chunk.start, counts)
                if missing is not None and column.missing == "error":
                    row = chunk.start + int(np.argmax(missing))
                    raise self._missing_error(column.name, row, '"centre" or "indicator"')
                if missing is not None and column.missing == "indicator":
                    x[:, at + 1] = missing
            else:
                flat[lines + self._category(column, chunk.texts[column.name], chunk.start, counts, at)] = 1
            at += len(column.features)

    def _values(self, name: str, chunk: Chunk, counts: Counts) -> np.ndarray:
        """Return a column of numbers, NaN where there is none."""
        if name in chunk.numbers:
            return chunk.numbers[name]
        text = chunk.texts[name]
        table = np.array([*map(_number_or_nan, text.values), np.nan])
        foreign = np.array([*(np.isnan(table[:-1]) & ~np.isin(text.values, list(MISSING))), False])
        _add(counts.unknown, name, int(np.count_nonzero(foreign[text.codes])))
        return table[text.codes]

    def _number(
        self, column: Number | NumberTarget, values: np.ndarray, start: int, counts: Counts
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the scaled numbers, 0 where missing, and where that is, if anywhere."""
        if column.low <= values.min() and values.max() <= column.high:  # so none is missing: NaN is not below anything
            _add(counts.clipped, column.name, 0)
            _add(counts.missing, column.name, 0)
            return (values - column.centre) / column.scale, None
        infinite = np.isinf(values)
        if not self.strict:
            values = np.where(infinite, np.nan, values)
        elif infinite.any():
            row = int(np.argmax(infinite))
            raise InputError(
                f"Expected a finite number in {place(self.reader.name, start + row, column.name)}, "
                f"got {values[row]}. Correct it, or leave it empty."
            )
        missing = np.isnan(values)
        gaps = int(np.count_nonzero(missing))
        within = np.clip(values, column.low, column.high)
        changed = int(np.count_nonzero(within != values))  # and NaN is not equal to itself
        _add(counts.clipped, column.name, changed - gaps)
        _add(counts.missing, column.name, gaps)
        within -= column.centre
        within /= column.scale
        if not gaps:
            return within, None
        within[missing] = 0
        return within, missing

    def _category(self, column: Category, text: Text, start: int, counts: Counts, at: int) -> np.ndarray:
        """Return the number of the feature that is 1; `at` is that of the column's first."""
        found = self._look_up(column.name, text, at)
        if found.min(initial=0) >= 0:
            _add(counts.missing, column.name, 0)
            _add(counts.unknown, column.name, 0)
            return found
        unknown = int(np.count_nonzero(found == _UNKNOWN))
        missing = int(np.count_nonzero(found == _MISSING))
        _add(counts.missing, column.name, missing)
        _add(counts.unknown, column.name, unknown)
        if missing and column.missing == "error":
            raise self._missing_error(column.name, start + int(np.argmax(found == _MISSING)), f'"{OTHER}"')
        if unknown and column.unknown == "error":
            row = int(np.argmax(found == _UNKNOWN))
            raise InputError(
                f"Expected one of {_some(column.values)} in {place(self.reader.name, start + row, column.name)}, got "
                f"{text.values[text.codes[row]]!r}.{near(text.values[text.codes[row]], column.values)} "
                f'Add it to values in the schema, or set unknown = "{OTHER}".'
            )
        found[found < 0] = at + len(column.values)
        return found

    def _look_up(self, name: str, text: Text, at: int = 0) -> np.ndarray:
        """Return `at` and the code of each row's value in the schema, or that it is unknown or missing."""
        known = self.codes[name]
        table = np.empty(len(text.values) + 1, np.int64)
        table[-1] = _MISSING  # code -1
        for code, value in enumerate(text.values):
            found = known.get(value)
            if found is None:
                found = known.get(plain(value), _MISSING if value in MISSING else _UNKNOWN)
            table[code] = found + at if found >= 0 else found
        return table.take(text.codes, mode="wrap")  # code -1 is the last

    def _targets(self, chunk: Chunk, counts: Counts) -> np.ndarray:
        target, start = self.target, chunk.start
        assert target is not None
        if isinstance(target, NumberTarget):
            y, gaps = self._number(target, self._values(target.name, chunk, counts), start, counts)
            y = y.astype(np.float32)
        else:
            text = chunk.texts[target.name]
            found = self._look_up(target.name, text)
            y = SIGNS.take(found, mode="clip")
            if found.min(initial=0) >= 0:
                _add(counts.missing, target.name, 0)
                return y
            gaps, foreign = found == _MISSING, found == _UNKNOWN
            _add(counts.missing, target.name, int(np.count_nonzero(gaps)))
            if not self.strict:
                _add(counts.unknown, target.name, int(np.count_nonzero(foreign)))
                gaps |= foreign
            elif foreign.any():
                row = int(np.argmax(foreign))
                value = text.values[text.codes[row]]
                raise InputError(
                    f"Expected {target.values[0]!r} or {target.values[1]!r} in "
                    f"{place(self.reader.name, start + row, target.name)}, the target, got {value!r}. "
                    "Leave such rows out, or correct values in the schema."
                )
        if gaps is not None and gaps.any():
            if self.strict:
                where = place(self.reader.name, start + int(np.argmax(gaps)), target.name)
                raise InputError(f"Expected a value in {where}, the target, got none. Leave such rows out.")
            y[gaps] = np.nan
        return y

    def _sites(self, column: str, chunk: Chunk) -> np.ndarray:
        text, start = chunk.texts[column], chunk.start
        codes = text.codes
        gaps = np.isin(codes, [-1, *(code for code, value in enumerate(text.values) if value in MISSING)])
        if gaps.any():
            where = place(self.reader.name, start + int(np.argmax(gaps)), column)
            raise InputError(f"Expected the name of a site in {where}, got none. Fill it in, or leave such rows out.")
        return np.array([plain(value) for value in text.values])[codes]

    def _missing_error(self, name: str, row: int, others: str) -> InputError:
        return InputError(
            f"Expected a value in {place(self.reader.name, row, name)}, got none. "
            f"Fill it in, leave the row out, or set missing = {others} in the schema."
        )


def chunks(encoder: Encoder) -> Iterator[Encoded]:
    """Yield all chunks; in the end, refuse a table in which a column has no value at all."""
    total = Counts()
    size = max(1, CHUNK_BYTES // (4 * encoder.schema.dim))
    with (
        closing(encoder.reader.chunks(encoder.wanted)) as chunks,
        closing(_ahead(chunks)) as ahead,
    ):
        for chunk in ahead:
            for first in range(0, chunk.rows, size):
                encoded = encoder.encode(chunk, first, min(first + size, chunk.rows))
                total += encoded.counts
                yield encoded
    for name, missing in total.missing.items():
        if encoder.strict and missing == total.rows >= MEASURED_ROWS:
            raise InputError(
                f"Expected values in column {name!r} of {encoder.reader.name}, got none in {total.rows} rows. "
                "Is it the right column? If so, take it out of the schema."
            )


def _ahead(chunks: Iterator[Chunk]) -> Generator[Chunk, None, None]:
    """Yield chunks, each being read while the one before it is in use."""
    pool = ThreadPoolExecutor(1)
    coming = pool.submit(next, chunks, None)
    try:
        while (chunk := coming.result()) is not None:
            coming = pool.submit(next, chunks, None)
            yield chunk
    finally:
        wait([coming])  # a generator cannot be closed while it runs
        pool.shutdown(wait=False)


def _number_or_nan(text: str) -> float:
    try:
        return parse_number(text)
    except ValueError:
        return np.nan


def _known(part: Category | BinaryTarget) -> dict[str, int]:
    """Return the codes of values, in all spellings; exact ones win."""
    codes = {plain(value): code for code, value in enumerate(part.values)}
    codes |= {value: code for code, value in enumerate(part.values)}
    if isinstance(part, Category) and part.unknown == OTHER:
        codes.setdefault(OTHER, len(part.values))
    return codes


def _add(counts: dict[str, int], name: str, number: int) -> None:
    counts[name] = counts.get(name, 0) + number


def _some(values: tuple[str, ...]) -> str:
    return ", ".join(map(repr, values[:10])) + (", ..." if len(values) > 10 else "")
