"""Tables of all kinds, read in chunks: CSV, TSV, Parquet, Arrow files, data frames, dictionaries of columns.

`open_table` returns a `TableSource`. It yields the wanted columns chunk by chunk, each as numbers or as text:

    number   float64, NaN where a value is missing
    text     a code per row and the distinct strings of the chunk, -1 where a value is missing

Memory is that of a few chunks, however long the table is. Every error is one line that names the place.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedvi.config import near
from fedvi.errors import InputError
from fedvi.tables.words import check_once, in_one_line, place

Kind = Literal["number", "text"]
NUMBER: Kind = "number"
TEXT: Kind = "text"

Source = str | os.PathLike | Any
"""The path of a table, an object that speaks Arrow (pandas, polars, pyarrow), a dictionary of columns, a `TableSource`.
"""

TEXT_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_FILES = (".parquet", ".pq")
ARROW_FILES = (".arrow", ".feather", ".ipc")


@dataclass(frozen=True, eq=False)
class Text:
    """A text column of a chunk: `values[codes[i]]` is row i, and -1 a row without a value."""

    codes: np.ndarray
    values: list[str]

    def word(self, row: int) -> str:
        """Return the value of a row that has one."""
        return self.values[self.codes[row]]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows `start`, `start + 1`, ... of a table; `start` counts from 0.

    table: its name, for errors. strict: whether to refuse a row for what it holds; if not, such values are missing.
    """

    table: str
    start: int
    rows: int
    numbers: Mapping[str, np.ndarray]
    texts: Mapping[str, Text]
    strict: bool = True

    def place(self, row: int, column: str) -> str:
        """Return where a value stands, for errors; `row` counts from 0 in this chunk."""
        return place(self.table, self.start + row, column)

    def part(self, first: int, last: int) -> Chunk:
        """Return rows `first` to `last` of the chunk."""
        rows = slice(first, last)
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        texts = {name: Text(text.codes[rows], text.values) for name, text in self.texts.items()}
        return Chunk(self.table, self.start + first, last - first, numbers, texts, self.strict)


class TableSource(ABC):
    """A table that can be read in chunks, as often as its source can.

    name: how errors call it. columns: the names of its columns. fraction: how much of it was read, from 0 to 1.
    """

    fraction: float = 0.0

    def __init__(self, name: str, columns: Iterable[object]):
        self.name, self.columns = name, tuple(map(str, columns))
        check_once(self.columns, f"column of {name}")
        if not self.columns:
            raise InputError(f"Expected columns in {name}, got none.")

    def chunks(self, wanted: Mapping[str, Kind]) -> Generator[Chunk, None, None]:
        """Yield the wanted columns, chunk by chunk, or raise `InputError` naming row, column and value."""
        self.require(wanted)
        start = 0
        with in_one_line(self.name), contextlib.closing(self._read(dict(wanted))) as found:
            for chunk in found:
                start = chunk.start + chunk.rows
                if chunk.rows:
                    yield chunk
        if start == 0:
            raise InputError(f"Expected rows in {self.name}, got only a header with {len(self.columns)} columns.")

    def require(self, names: Iterable[str]) -> None:
        """Raise `InputError` for a column that is not there, with those that are."""
        for name in names:
            if name not in self.columns:
                there = ", ".join(self.columns[:30]) + (", ..." if len(self.columns) > 30 else "")
                raise InputError(f"Expected column {name!r} in {self.name}, got {there}.{near(name, self.columns)}")

    @abstractmethod
    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        """Yield chunks of columns that are there."""


def open_table(source: Source, *, name: str | None = None, encoding: str = "utf-8") -> TableSource:
    """Return a reader of a table.

    name: how errors call it. encoding: of text files; others have none.

    >>> table = open_table({"age": [50, None], "sex": ["F", "M"]})
    >>> [chunk.numbers["age"].tolist() for chunk in table.chunks({"age": "number"})]
    [[50.0, nan]]
    """
    from fedvi.tables.arrow_tables import ObjectReader, table_of

    if isinstance(source, TableSource):
        return source
    if isinstance(source, str | os.PathLike):
        return _open_file(Path(source), name or str(source), encoding)
    if isinstance(source, Mapping):
        return ObjectReader(table_of(source, name or "the dictionary"), name or "the dictionary")
    if hasattr(source, "__arrow_c_stream__"):
        kind = type(source)
        return ObjectReader(source, name or f"the {kind.__module__.split('.')[0]} {kind.__name__}")
    raise InputError(
        f"Expected the path of a table, a data frame or a dictionary of columns, got {type(source).__name__}. "
        "Objects must speak Arrow, as those of pandas 2.2, polars and pyarrow do."
    )


def _open_file(path: Path, name: str, encoding: str) -> TableSource:
    from fedvi.tables.arrow_tables import ArrowReader, ParquetReader
    from fedvi.tables.csv_tables import CsvReader

    with in_one_line(name):
        if path.is_dir():
            raise InputError(f"Expected the file of a table, got the directory {name}.")
        with open(path, "rb"):  # whether it is there, and may be read
            pass
    lower = path.name.lower()
    if lower.endswith(TEXT_FILES):
        return CsvReader(path, name, encoding)
    if lower.endswith(PARQUET_FILES):
        return ParquetReader(path, name)
    if lower.endswith(ARROW_FILES):
        return ArrowReader(path, name)
    known = ", ".join((*TEXT_FILES, *PARQUET_FILES, *ARROW_FILES))
    raise InputError(f"Expected the name of a table to end with one of {known}, got {name}.")
