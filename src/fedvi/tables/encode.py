"""From a table and a schema to the design matrix, in chunks.

A chunk is one block of float32. Columns encode tiles of its rows, which fit into a core's cache. While a chunk is
encoded and used, another thread parses the next one. Memory is that of a few chunks; `encode` adds the whole matrix.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.read import MISSING, TEXT, Chunk, Counts, Source, TableSource, as_text_where_needed, open_table, plain
from fedvi.tables.schema import Schema

if TYPE_CHECKING:
    from fedvi.privacy.ledger.overlap import Sketch

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

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Both x and y, of a table that was read with its target."""
        assert self.y is not None
        return self.x, self.y


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
    ([[1.0, 0.5, 1.0], [1.0, 3.5, 0.0]], [1.0, -1.0])
    >>> encoded.counts
    Counts(rows=2, clipped={'age': 1}, missing={'age': 0, 'sex': 1, 'died': 0}, unknown={'sex': 0})
    """
    encoder = Encoder(schema, open_table(source, encoding=encoding), site_column, target, strict)
    parts = list(encoder.chunks()) if strict else as_text_where_needed(encoder.wanted, lambda: list(encoder.chunks()))
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
    yield from Encoder(schema, open_table(source, encoding=encoding), site_column, target, strict=True).chunks()


class Encoder:
    """Encodes chunks of one table; see `encode`. wanted: which columns it reads, and how."""

    def __init__(self, schema: Schema, reader: TableSource, site_column: str | None, target: bool, strict: bool):
        self.schema, self.reader, self.site_column, self.strict = schema, reader, site_column, strict
        self.target = schema.target if target else None
        self.wanted = schema.reads(target=target)
        if site_column is not None and self.wanted.setdefault(site_column, TEXT) != TEXT:
            raise InputError(f"Expected the column of sites to be no number of the schema, got {site_column!r}.")

    def chunks(self) -> Iterator[Encoded]:
        """Yield all chunks; in the end, refuse a table in which a column has no value at all."""
        total = Counts()
        size = max(1, CHUNK_BYTES // (4 * self.schema.dim))
        with closing(self.reader.chunks(self.wanted)) as chunks, closing(_ahead(chunks)) as ahead:
            for found in ahead:
                chunk = replace(found, strict=self.strict)
                for first in range(0, chunk.rows, size):
                    encoded = self._encoded(chunk.part(first, min(first + size, chunk.rows)))
                    total += encoded.counts
                    yield encoded
        for name, missing in total.missing.items():
            if self.strict and missing == total.rows >= MEASURED_ROWS:
                raise InputError(
                    f"Expected values in column {name!r} of {self.reader.name}, got none in {total.rows} rows. "
                    "Is it the right column? If so, take it out of the schema."
                )

    def _encoded(self, chunk: Chunk) -> Encoded:
        x = np.empty((chunk.rows, self.schema.dim), np.float32)
        y = None if self.target is None else np.empty(chunk.rows, np.float32)
        counts = Counts(chunk.rows)
        for start in range(0, chunk.rows, TILE_ROWS):
            tile = slice(start, min(start + TILE_ROWS, chunk.rows))
            part, at = chunk.part(tile.start, tile.stop), int(self.schema.intercept)
            x[tile, :at] = 1
            for column in self.schema.columns:
                found = column.encode(part, counts)
                x[tile, at : at + found.shape[1]] = found
                at += found.shape[1]
            products = self.schema.products
            for place, (left, right) in enumerate(zip(products.left, products.right, strict=True), at):
                np.multiply(x[tile, left], x[tile, right], out=x[tile, place])
            if self.target is not None and y is not None:
                y[tile] = self.target.encode(part, counts)
        return Encoded(x, y, None if self.site_column is None else _sites(self.site_column, chunk), counts)


def _sites(column: str, chunk: Chunk) -> np.ndarray:
    text = chunk.texts[column]
    gaps = np.isin(text.codes, [-1, *(code for code, value in enumerate(text.values) if value in MISSING)])
    if gaps.any():
        where = chunk.place(int(np.argmax(gaps)), column)
        raise InputError(f"Expected the name of a site in {where}, got none. Fill it in, or leave such rows out.")
    return np.array([plain(value) for value in text.values])[text.codes]


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


def sketch_of(schema: Schema, source: Source, key: bytes, *, encoding: str = "utf-8") -> Sketch:
    """Return the sketch of a raw table: all of its columns, also those that no schema asks for.

    schema: which columns are numbers; others are looked at as text, value by value.
    """
    from fedvi.privacy.ledger.overlap import Sketch, number_hashes, text_hashes

    reader = open_table(source, encoding=encoding)
    wanted = dict.fromkeys(reader.columns, TEXT) | {
        name: kind for name, kind in schema.reads().items() if name in reader.columns
    }

    def hashes(chunk: Chunk, name: str) -> np.ndarray:
        if name in chunk.numbers:
            return number_hashes(chunk.numbers[name], key)
        return text_hashes(np.asarray(chunk.texts[name].codes), chunk.texts[name].values, key)

    return as_text_where_needed(
        wanted, lambda: Sketch.of(([hashes(chunk, name) for name in wanted] for chunk in reader.chunks(wanted)), key)
    )
