"""From a table and a schema to the design matrix, in chunks.

A chunk is one block of float32. Columns encode tiles of its rows, which fit into a core's cache. While a chunk is
encoded and used, another thread parses the next one. Memory is that of a few chunks; `encode` adds the whole matrix.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.parts import Counts
from fedvi.tables.read import NUMBER, TEXT, Chunk, Kind, Source, TableSource, open_table
from fedvi.tables.schema import Schema
from fedvi.tables.words import MISSING, NotANumber, plain

CHUNK_BYTES = 32 << 20
"""Bytes of x in one chunk, at most."""

TILE_ROWS = 32_768
"""Rows that are encoded together: what is made of them should stay in a core's cache."""

MEASURED_ROWS = 20
"""A column without any value is refused in tables of at least that many rows."""


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

    >>> from fedvi.tables import BinaryTarget, Category, Number
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
        self,
        schema: Schema,
        reader: TableSource,
        site_column: str | None = None,
        target: bool = True,
        strict: bool = True,
    ):
        self.schema, self.reader, self.site_column, self.strict = schema, reader, site_column, strict
        self.target = schema.target if target else None
        parts = (*schema.columns, *((self.target,) if self.target else ()))
        self.wanted: dict[str, Kind] = {name: kind for part in parts for name, kind in part.reads.items()}
        if site_column is not None and self.wanted.setdefault(site_column, TEXT) != TEXT:
            raise InputError(f"Expected the column of sites to be no number of the schema, got {site_column!r}.")

    def encode(self, chunk: Chunk, first: int, last: int) -> Encoded:
        """Return rows `first` to `last` of a chunk, encoded."""
        size = last - first
        x = np.empty((size, self.schema.dim), np.float32)
        y = None if self.target is None else np.empty(size, np.float32)
        counts = Counts(size)
        for start in range(0, size, TILE_ROWS):
            tile = slice(start, min(start + TILE_ROWS, size))
            part = chunk.part(first + tile.start, first + tile.stop)
            self._features(part, x[tile], counts)
            if self.target is not None and y is not None:
                y[tile] = self.target.encode(part, counts)
        sites = None if self.site_column is None else _sites(self.site_column, chunk.part(first, last))
        return Encoded(x, y, sites, counts)

    def _features(self, chunk: Chunk, x: np.ndarray, counts: Counts) -> None:
        """Write the features of all rows of a chunk into x."""
        at = int(self.schema.intercept)
        x[:, :at] = 1
        for column in self.schema.columns:
            found = column.encode(chunk, counts)
            x[:, at : at + found.shape[1]] = found
            at += found.shape[1]


def _sites(column: str, chunk: Chunk) -> np.ndarray:
    text = chunk.texts[column]
    gaps = np.isin(text.codes, [-1, *(code for code, value in enumerate(text.values) if value in MISSING)])
    if gaps.any():
        where = chunk.place(int(np.argmax(gaps)), column)
        raise InputError(f"Expected the name of a site in {where}, got none. Fill it in, or leave such rows out.")
    return np.array([plain(value) for value in text.values])[text.codes]


def chunks(encoder: Encoder) -> Iterator[Encoded]:
    """Yield all chunks; in the end, refuse a table in which a column has no value at all."""
    total = Counts()
    size = max(1, CHUNK_BYTES // (4 * encoder.schema.dim))
    with (
        closing(encoder.reader.chunks(encoder.wanted)) as chunks,
        closing(_ahead(chunks)) as ahead,
    ):
        for found in ahead:
            chunk = replace(found, strict=encoder.strict)
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
