"""Tables that Arrow reads or speaks: Parquet and Arrow files, data frames, dictionaries of columns.

The types do not matter. Whole numbers, booleans, decimals and text that holds numbers are numbers if numbers are
wanted. If text is wanted, 1 and 1.0 are "1", true is "true". Blanks around text are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedvi.errors import InputError
from fedvi.tables.reading.chunk import AS_IT_IS, TEXT, Chunk, Kind, Text
from fedvi.tables.reading.messages import GIVE_ENCODING, first_line, in_one_line, place
from fedvi.tables.reading.source import Dialect, TableSource
from fedvi.tables.reading.words import POINT, plain

VIEWS = pa.string_view(), pa.binary_view()
"""Arrow's newer types of text."""

CHUNK_ROWS = 1 << 17
"""Rows of other tables that are read at once."""


def chunks_of(
    found: Iterable[pa.RecordBatch],
    wanted: dict[str, Kind],
    table: TableSource,
    start: int = 0,
    *,
    from_frame: bool = False,
) -> Iterator[Chunk]:
    """Yield the wanted columns of record batches, in chunks of at most `CHUNK_ROWS` rows.

    from_frame: of pandas, which sorts categories unless somebody has put them in order.
    """
    name = table.name

    def text(array: pa.Array, column: str) -> Text:
        return _text(array, column, name, start, strict=not table.private, from_frame=from_frame)

    for large in found:
        for first in range(0, large.num_rows, CHUNK_ROWS):
            part = large.slice(first, CHUNK_ROWS)
            names = part.schema.names
            columns = {
                column: _column(part.column(names.index(table.given[column])), kind, column, name, text)
                for column, kind in wanted.items()
            }
            yield Chunk(name, start, part.num_rows, columns)
            start += part.num_rows


def _column(
    array: pa.Array, wanted: Kind, column: str, name: str, text: Callable[[pa.Array, str], Text]
) -> np.ndarray | Text:
    """Return numbers, if they are wanted and all values are; else text, which `text` makes."""
    kind, is_number = array.type, _is_number(array.type)
    if wanted == TEXT or (wanted == AS_IT_IS and not is_number):
        return text(array, column)
    if pa.types.is_float64(kind):
        return _as_numpy(array, np.nan, "f8")
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_temporal(kind):
        raise InputError(
            f"Expected numbers in column {column!r} of {name}, got {kind}. Leave it out, or make it a date."
        )
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif not is_number:
        return text(array, column)
    return _as_numpy(array.cast(pa.float64(), safe=False), np.nan, "f8")


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _as_numpy(array: pa.Array, missing: float, dtype: str) -> np.ndarray:
    """Return the numbers without a copy if none is missing; `to_numpy` and `fill_null` of Arrow would import pandas."""
    if not array.null_count:
        return np.from_dlpack(array)
    rows = slice(array.offset, array.offset + len(array))
    valid, numbers = (np.frombuffer(buffer, kind) for buffer, kind in zip(array.buffers(), ("u1", dtype), strict=True))
    return np.where(np.unpackbits(valid, bitorder="little")[rows], numbers[rows], missing)


def _text(array: pa.Array, column: str, name: str, start: int, *, strict: bool, from_frame: bool) -> Text:
    """Return a column as text. strict: whether bytes that are no UTF-8 are an error."""
    if pa.types.is_null(array.type):
        return Text(np.full(len(array), -1, np.int32), [])
    listed = pa.types.is_dictionary(array.type)
    try:
        if not pa.types.is_dictionary(array.type):
            if array.type in VIEWS:
                array = array.cast(pa.large_binary())
            array = array.dictionary_encode()
        listed = listed and not pa.types.is_binary(array.type.value_type)  # text files have nothing but such columns
        words = _words(array.dictionary, "strict" if strict else "replace")
        ordered = listed and (array.type.ordered or (from_frame and words != sorted(map(str, words))))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InputError(
            f"Expected text or numbers in column {column!r} of {name}, got {array.type}. Make one of it, such as by "
            "astype(str) in pandas, or leave it out."
        ) from None
    except UnicodeDecodeError as error:
        row = start + array.indices.index(array.dictionary.index(error.object).as_py()).as_py()
        got = repr(error.object)[1:]
        raise InputError(f"Expected UTF-8 text in {place(name, row, column)}, got {got}. {GIVE_ENCODING}") from None
    text = _stripped(_as_numpy(array.indices.cast(pa.int32()), -1, "i4"), words, ordered, listed)
    return replace(text, decimal=POINT) if _is_number(array.type.value_type) else text


def _words(values: pa.Array, errors: str) -> list[str | None]:
    """Return the texts of distinct values of any type. errors: what happens to bytes that are no UTF-8."""
    kind = values.type
    if pa.types.is_temporal(kind):
        return values.cast(pa.string()).to_pylist()
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        raise pa.ArrowTypeError(str(kind))
    if errors != "strict" and kind in (pa.string(), pa.large_string(), *VIEWS):
        values, kind = values.cast(pa.large_binary()), pa.large_binary()  # it may hold bytes that are no UTF-8
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else value.decode(errors=errors) for value in values.to_pylist()]
    return [value if isinstance(value, str) else _word(value) for value in values.to_pylist()]


def _word(value: Any) -> str | None:
    if value is None or value != value:  # NaN
        return None
    return plain(f"{value:f}" if isinstance(value, Decimal) else str(value))


def _stripped(codes: np.ndarray, words: list[str | None], ordered: bool, listed: bool) -> Text:
    """Drop blanks around the words; what is equal then gets one code, and the empty word none."""
    values: dict[str, int] = {}
    table = np.full(len(words) + 1, -1, np.int32)
    for code, word in enumerate(words):
        stripped = "" if word is None else word.strip()
        if stripped.startswith('="') and stripped.endswith('"'):
            stripped = stripped[2:-1].strip()  # how spreadsheets are told that something is a text
        if stripped:
            table[code] = values.setdefault(stripped, len(values))
    same = len(values) == len(words)
    return Text(codes if same else table[codes], list(values), ordered, listed)


class ParquetReader(TableSource):
    """A Parquet file."""

    def __init__(self, path: Path, name: str, dialect: Dialect, private: bool):
        self.path, self.name = path, name
        with self._open() as file:
            super().__init__(name, file.schema_arrow.names, dialect, private)
            self.index = index_of(file.schema_arrow)

    def _open(self, **options: list[str]) -> pa.parquet.ParquetFile:
        import pyarrow.parquet as pq

        with in_one_line(self.name):
            try:
                return pq.ParquetFile(self.path, **options)
            except pa.ArrowInvalid as error:
                raise InputError(f"Expected a Parquet file, got {self.name}: {first_line(error)}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        texts = [self.given[name] for name, kind in wanted.items() if kind == TEXT]
        with self._open(read_dictionary=texts) as file:
            total = max(file.metadata.num_rows, 1)
            found = file.iter_batches(CHUNK_ROWS, columns=[self.given[name] for name in wanted])
            for chunk in chunks_of(found, wanted, self):
                self.fraction = (chunk.start + chunk.rows) / total
                yield chunk


class ArrowReader(TableSource):
    """A file of Arrow's own format, with or without an index at its end."""

    def __init__(self, path: Path, name: str, dialect: Dialect, private: bool):
        self.path, self.name = path, name
        with self._open() as file:
            super().__init__(name, file.schema.names, dialect, private)
            self.index = index_of(file.schema)

    def _open(self) -> pa.RecordBatchReader | pa.ipc.RecordBatchFileReader:
        with in_one_line(self.name):
            if self.path.stat().st_size == 0:
                raise InputError(f"Expected a table in {self.name}, got an empty file.")
            source = pa.memory_map(str(self.path))
            try:
                return pa.ipc.open_file(source)
            except pa.ArrowInvalid:
                source.seek(0)
            try:
                return pa.ipc.open_stream(source)
            except (OSError, pa.ArrowInvalid) as error:
                raise InputError(f"Expected an Arrow file, got {self.name}: {first_line(error)}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        with self._open() as file:
            number = getattr(file, "num_record_batches", None)
            found = file if number is None else map(file.get_batch, range(number))
            yield from chunks_of(found, wanted, self)


def index_of(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that were the index of a frame of pandas."""
    described = schema.pandas_metadata or {}
    return tuple(each for each in described.get("index_columns", ()) if isinstance(each, str) and each in schema.names)
