"""Blocks of plain rows of a CSV, read by compiled code in half the time that Arrow takes, which knows all forms of CSV.

The code is compiled when fedvi is installed, if there is a compiler. Without one, and for blocks that are not plain
(`_plain_rows.c` says which are), Arrow reads them. Both ways give the same numbers and the same words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedvi.tables.arrays import stripped
from fedvi.tables.reader import NUMBER, TEXT, Kind, Text, parse_number

parse: Callable[[memoryview, bytes, bytes], tuple[int, list[bytearray], list[list[bytes]]] | None] | None
try:
    from fedvi.tables import _plain_rows

    parse = _plain_rows.parse
except ImportError:  # nobody could compile it
    parse = None

LETTERS = {NUMBER: "n", TEXT: "t", None: "-"}
CODE = np.int64(0xFFFF)
"""The bits of a NaN that hold the code of an odd word."""


def read_plain_rows(
    block: memoryview, delimiter: str, columns: tuple[str, ...], wanted: dict[str, Kind]
) -> tuple[int, dict[str, Any]] | None:
    """Return the number of rows and the wanted columns of a block that ends with a line; None if it is not plain."""
    if parse is None or not len(block):
        return None
    kinds = "".join(LETTERS[wanted.get(name)] for name in columns)
    found = parse(block, delimiter.encode(), kinds.encode())
    if found is None:
        return None
    rows, buffers, words = found
    parts = {name: (buffer, known) for name, buffer, known in zip(columns, buffers, words, strict=True)}
    try:
        numbers = {name: _numbers(*parts[name], rows) for name in wanted if wanted[name] == NUMBER}
    except ValueError:  # what is wrong, and where, is found out by those who know rows
        return None
    return rows, numbers | {name: _text(*parts[name], rows) for name in wanted if wanted[name] == TEXT}


def _numbers(buffer: bytearray, words: list[bytes], rows: int) -> np.ndarray:
    numbers = np.frombuffer(buffer, np.float64, rows)
    if words:
        odd = np.flatnonzero(np.isnan(numbers))
        values = np.array([parse_number(word.decode()) for word in words])
        numbers[odd] = values[numbers.view(np.int64)[odd] & CODE]
    return numbers


def _text(buffer: bytearray, words: list[bytes], rows: int) -> Text:
    return stripped(np.frombuffer(buffer, np.int64, rows), [word.decode() for word in words])
