"""From the types of a table to numbers and text.

The types do not matter: whole numbers, truth values, decimals and text that holds numbers are numbers if numbers are
wanted; if text is wanted, 1 and 1.0 are "1", true is "true". Blanks around text are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.reader import NUMBER, TEXT, Chunk, Kind, NotANumber, Text, parse_number, place, plain

BATCH_ROWS = 1 << 17
"""Rows of other tables that are read at once."""


def batches_of(found: Iterable[Any], wanted: dict[str, Kind], name: str, start: int = 0) -> Iterator[Chunk]:
    """Yield the wanted columns of record batches of Arrow, in pieces of `BATCH_ROWS`."""
    for large in found:
        for first in range(0, large.num_rows, BATCH_ROWS):
            part = large.slice(first, BATCH_ROWS)
            yield _batch(part, wanted, name, start)
            start += part.num_rows


def _batch(part: Any, wanted: dict[str, Kind], name: str, start: int) -> Chunk:
    columns = {column: part.column(part.schema.names.index(column)) for column in wanted}
    return Chunk(
        start,
        part.num_rows,
        {column: _numbers(columns[column], column, name, start) for column in wanted if wanted[column] == NUMBER},
        {column: _text(columns[column], column, name) for column in wanted if wanted[column] == TEXT},
    )


def _numbers(array: Any, column: str, name: str, start: int) -> np.ndarray:
    import pyarrow as pa

    kind = array.type
    if pa.types.is_float64(kind):
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        raise InputError(
            f"Expected numbers in column {column!r} of {name}, got {kind}. Leave it out, or count days or seconds."
        )
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return numbers_of(_text(array, column, name), column, name, start)
    return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _text(array: Any, column: str, name: str) -> Text:
    import pyarrow as pa

    if pa.types.is_null(array.type):
        return Text(np.full(len(array), -1, np.int32), [])
    try:
        if not pa.types.is_dictionary(array.type):
            if array.type in (pa.string_view(), pa.binary_view()):
                array = array.cast(pa.large_string())
            array = array.dictionary_encode()
        words = words_of(array.dictionary)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InputError(f"Expected text or numbers in column {column!r} of {name}, got {array.type}.") from None
    indices = array.indices.cast(pa.int32())
    codes = (indices.fill_null(-1) if indices.null_count else indices).to_numpy(zero_copy_only=False)
    return stripped(codes, words)


def numbers_of(text: Text, column: str, name: str, start: int) -> np.ndarray:
    """Return the numbers that a text column holds, or raise `NotANumber`."""
    numbers = np.full(len(text.values) + 1, np.nan)  # code -1 is the last
    wrong = []
    for code, value in enumerate(text.values):
        try:
            numbers[code] = parse_number(value)
        except ValueError:
            wrong.append(code)
    bad = np.flatnonzero(np.isin(text.codes, wrong))
    if bad.size:
        value = text.values[text.codes[bad[0]]]
        remedy = "Correct it, or make the column a category."
        if re.fullmatch(r"[-+]?[\d.]*,\d+", value):
            remedy = "Write numbers with a decimal point and nothing between thousands."
        raise NotANumber(
            f"Expected a number in {place(name, start + int(bad[0]), column)}, got {value!r}. {remedy}", column
        )
    return numbers[text.codes]


def words_of(values: Any) -> list[str | None]:
    """Return the texts of distinct values of any type."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_temporal(kind):
        return values.cast(pa.string()).to_pylist()
    if pa.types.is_nested(kind):
        raise pa.ArrowTypeError(str(kind))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else value.decode() for value in values.to_pylist()]
    return [value if isinstance(value, str) else _word(value) for value in values.to_pylist()]


def _word(value: Any) -> str | None:
    if value is None or value != value:  # NaN
        return None
    if isinstance(value, Decimal):
        return plain(f"{value:f}")
    return plain(str(value))


def stripped(codes: np.ndarray, words: list[str | None]) -> Text:
    """Drop blanks around the words; what is equal then gets one code, and the empty word none."""
    values: dict[str, int] = {}
    table = np.full(len(words) + 1, -1, np.int32)
    for code, word in enumerate(words):
        stripped = "" if word is None else word.strip()
        if stripped:
            table[code] = values.setdefault(stripped, len(values))
    same = len(values) == len(words)
    return Text(codes if same else table[codes], list(values))
