"""From a table and a schema to the design matrix, in chunks.

A chunk is one block of float32. Columns encode tiles of its rows, which fit into a core's cache. While a chunk is
encoded and used, another thread parses the next one. Memory is that of a few chunks; `encode` adds the whole matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.counts import Counts
from fedvi.tables.numbers import Date
from fedvi.tables.reading.chunk import AS_IT_IS, TEXT, Chunk, Text
from fedvi.tables.reading.decimals import either_way, look_at, written_numbers
from fedvi.tables.reading.source import Source, TableSource, ahead, open_table
from fedvi.tables.reading.words import MISSING, POINT, plain
from fedvi.tables.schema import Schema

if TYPE_CHECKING:
    from fedvi.privacy.ledger.overlap import Sketch

CHUNK_BYTES = 32 << 20
"""Bytes of x in one chunk, at most."""

TILE_ROWS = 32_768
"""Rows that are encoded together: what is made of them should stay in a core's cache."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of the design matrix, their targets (-1 and +1 for two classes), and the sites that they belong to.

    ids: what stands in the column of identifiers, to the letter.
    """

    x: np.ndarray
    y: np.ndarray | None
    sites: np.ndarray | None
    counts: Counts
    ids: np.ndarray | None = None

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
    strict: bool = False,
    private: bool = False,
    nameless: str | None = None,
) -> Encoded:
    """Return a whole table encoded, or raise `InputError`.

    site_column: the column that says which site a row belongs to; nameless: the site of rows for which it does not;
        None to refuse them.
    target: whether to read the target too; rows without a usable one are left out, and counted.
    strict: refuse a table for any value that the schema does not expect, naming row, column and value.
    private: at a site: rows are private, so that nothing is refused for what a row holds. A row without a usable
        target is kept, with NaN. The schema must not ask for errors either.

    >>> from fedvi.tables import BinaryTarget, Category, Number
    >>> columns = (Number("age", 0, 120, 50, 20), Category("sex", ("F", "M")))
    >>> schema = Schema(columns, BinaryTarget("died", ("no", "yes")))
    >>> encoded = encode(schema, {"age": [60, 150], "sex": ["M", None], "died": ["yes", "no"]})
    >>> encoded.x.tolist(), encoded.y.tolist()
    ([[1.0, 0.5, 1.0], [1.0, 3.5, 0.0]], [1.0, -1.0])
    >>> encoded.counts.clipped, encoded.counts.missing["sex"]
    ({'age': 1}, 1)
    """
    reader = open_table(source, schema.dialect, private=private)
    parts = list(Encoder(schema, site_column, target, strict, nameless).chunks(reader))
    counts = sum((part.counts for part in parts), Counts(skipped=reader.skipped))
    sites = np.concatenate([part.sites for part in parts if part.sites is not None]) if site_column else None
    y = np.concatenate([part.y for part in parts if part.y is not None]) if target else None
    if len(parts) == 1:
        return Encoded(parts[0].x, y, sites, counts)
    x = np.empty((sum(len(part.x) for part in parts), schema.dim), np.float32)  # takes memory as it is written, while
    end = len(x)  # parts give theirs back
    while parts:
        part = parts.pop().x
        x[end - len(part) : end] = part
        end -= len(part)
    return Encoded(x, y, sites, counts)


def encode_chunks(schema: Schema, source: Source, *, private: bool = False, **how: Any) -> Iterator[Encoded]:
    """Yield a table encoded, chunk by chunk in the order of its rows; memory does not grow with the table.

    how: as in `encode`.
    """
    yield from Encoder(schema, **how).chunks(open_table(source, schema.dialect, private=private))


class Encoder:
    """Encodes chunks of tables; see `encode`. wanted: which columns it reads, and how."""

    def __init__(
        self,
        schema: Schema,
        site_column: str | None = None,
        target: bool = True,
        strict: bool = False,
        nameless: str | None = None,
        id_column: str | None = None,
    ):
        self.schema, self.site_column, self.strict, self.nameless = schema, site_column, strict, nameless
        self.id_column = id_column
        self.target = schema.target if target else None
        self.wanted = schema.reads(target=target)
        if site_column == schema.target.name:
            raise InputError(f"Expected another column of sites than the target, got {site_column!r} as both.")
        for name in (site_column, id_column):
            if name is not None:
                self.wanted[name] = TEXT  # a number of the schema is read out of it all the same

    def chunks(self, reader: TableSource) -> Iterator[Encoded]:
        """Yield all chunks of a table; in the end, refuse one in which a column has no value at all."""
        self._settle(reader)
        total = Counts()
        size = max(1, CHUNK_BYTES // (4 * self.schema.dim))
        with closing(reader.chunks(self.wanted)) as chunks, closing(ahead(chunks)) as coming:
            for found in coming:
                chunk = replace(found, strict=self.strict)
                for first in range(0, chunk.rows, size):
                    encoded = self.encoded(chunk.part(first, min(first + size, chunk.rows)), private=reader.private)
                    total += encoded.counts
                    yield encoded
        if not reader.private:
            total.check_measured(reader.name)

    def _settle(self, reader: TableSource) -> None:
        """Look at how numbers and dates are written in this table, if the schema does not say it, or other than it."""
        names = [name for name, kind in self.schema.reads(target=self.target is not None).items() if kind != TEXT]
        dates = [column for column in self.schema.columns if isinstance(column, Date)]
        if reader.private or not reader.again or not (names or dates):
            return
        with closing(reader.chunks(dict.fromkeys([*names, *(each.name for each in dates)], AS_IT_IS))) as chunks:
            first = next(chunks)
        for column in dates:
            column.check_order(first)
        if reader.decided or not names:
            return
        found, schema = look_at(written_numbers(first, names), reader.delimiter), reader.dialect.decimal
        reader.decided = True
        if found.asked and (not schema or found.decimal not in ("", schema)):
            name, word = next(iter(found.asked.items()))
            raise InputError(
                f"Expected to know what separates decimals in {reader.name}: column {name!r} holds {either_way(word)}. "
                "Say --decimal . or --decimal , (in Python open_table(path, decimal=...))."
            )
        if found.decimal not in ("", schema or POINT):
            reader.dialect = reader.dialect.with_given(decimal=found.decimal)
            reader.said.append(f"{reader.name} has {found.decimal!r} between decimals, other than the schema says.")
        reader.said += found.said

    def encoded(self, chunk: Chunk, *, private: bool = False) -> Encoded:
        """Return the rows of a chunk encoded. private: keep those without a usable target."""
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
        sites = None if self.site_column is None else self._sites(self.site_column, chunk)
        ids = None if self.id_column is None else _words(chunk.text(self.id_column))
        usable = None if private or y is None else ~np.isnan(y)
        if y is None or usable is None or usable.all():
            return Encoded(x, y, sites, counts, ids)
        counts.unusable = int(np.count_nonzero(~usable))
        sites, ids = (None if each is None else each[usable] for each in (sites, ids))
        return Encoded(x[usable], y[usable], sites, counts, ids)

    def _sites(self, column: str, chunk: Chunk) -> np.ndarray:
        text = chunk.text(column)
        gaps = np.isin(text.codes, [-1, *(code for code, value in enumerate(text.values) if value in MISSING)])
        if gaps.any() and self.nameless is None:
            where = chunk.place(int(np.argmax(gaps)), column)
            raise InputError(
                f"Expected the name of a site in {where}, got none. Fill it in, leave such rows out, or say which site "
                "they belong to: --nameless other."
            )
        names = np.array([plain(value) for value in (*text.values, self.nameless or "")])
        return names[np.where(gaps, len(text.values), text.codes)]


def _words(text: Text) -> np.ndarray:
    """Return the word in each row, empty where there is none."""
    return np.array([*text.values, ""])[text.codes]


def sketch_of(schema: Schema, source: Source, key: bytes) -> Sketch:
    """Return the sketch of a raw table: all of its columns, also those that no schema asks for.

    schema: which columns are numbers; others are looked at as text, value by value.
    """
    from fedvi.privacy.ledger.overlap import Sketch, number_hashes, text_hashes

    reader = open_table(source, schema.dialect, private=True)
    reader.find_header(list(schema.reads()))
    wanted = {name: schema.reads().get(name, TEXT) for name in reader.columns if name not in reader.index}

    def hashes(chunk: Chunk, name: str) -> np.ndarray:
        column = chunk.columns[name]
        if wanted[name] == TEXT and isinstance(column, Text):
            return text_hashes(np.asarray(column.codes), column.values, key)
        values, foreign = chunk.numbers(name)
        hashes = number_hashes(values, key)
        if isinstance(column, Text) and foreign.any():
            hashes[foreign] = text_hashes(np.asarray(column.codes), column.values, key)[foreign]
        return hashes

    return Sketch.of(([hashes(chunk, name) for name in wanted] for chunk in reader.chunks(wanted)), key)
