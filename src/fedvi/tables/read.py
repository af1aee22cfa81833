"""Tables of all kinds, read in chunks: CSV, TSV, Parquet, Arrow files, data frames, dictionaries of columns.

`open_table` returns a `TableSource`. It yields the wanted columns chunk by chunk, each as numbers or as text:

    number   float64, NaN where a value is missing
    text     a code per row and the distinct strings of the chunk, -1 where a value is missing

Memory is that of a few chunks, however long the table is. Every error is one line that names the place. In errors,
rows are counted from 1, the header not counted.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from fedvi.checks import near
from fedvi.errors import InputError

T = TypeVar("T")
Kind = Literal["number", "text"]
NUMBER: Kind = "number"
TEXT: Kind = "text"

TEXT_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_FILES = (".parquet", ".pq")
ARROW_FILES = (".arrow", ".feather", ".ipc")

MISSING = frozenset(
    ["", "?", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null"]
)
"""Words for "nothing was measured". In text columns they are left as they are: a schema may list them as values."""

GIVE_ENCODING = "Give its encoding, for example --encoding latin-1 (encoding='latin-1' in Python), or convert it."


class NotANumber(InputError):
    """Text stands where a number is wanted.

    column: where.
    """

    def __init__(self, message: str, column: str):
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, eq=False)
class Text:
    """A text column of a chunk: `values[codes[i]]` is row i, and -1 a row without a value."""

    codes: np.ndarray
    values: list[str]

    def word(self, row: int) -> str:
        """Return the value of a row that has one."""
        return self.values[self.codes[row]]

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of every row, NaN without one, and which rows hold text that is none."""
        numbers = np.full(len(self.values) + 1, np.nan)  # code -1 is the last
        foreign = np.zeros(len(self.values) + 1, bool)
        for code, value in enumerate(self.values):
            try:
                numbers[code] = parse_number(value)
            except ValueError:
                foreign[code] = True
        return numbers[self.codes], foreign[self.codes]


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


@dataclass
class Counts:
    """What happened to values, by column. For the site alone: it tells about rows, and nothing sends it."""

    rows: int = 0
    clipped: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        total = Counts(self.rows + other.rows, dict(self.clipped), dict(self.missing), dict(self.unknown))
        for what in ("clipped", "missing", "unknown"):
            for name, number in getattr(other, what).items():
                total.add(name, **{what: number})
        return total

    def add(self, name: str, **found: int) -> None:
        """Count values of a column that were `clipped`, `missing` or `unknown`."""
        for what, number in found.items():
            counts = getattr(self, what)
            counts[name] = counts.get(name, 0) + number


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


@runtime_checkable
class SpeaksArrow(Protocol):
    """A table of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Source = str | os.PathLike[str] | TableSource | SpeaksArrow | Mapping[str, Any]
"""The path of a table, a reader, an object that speaks Arrow, or a dictionary of columns."""


def open_table(source: Source, *, encoding: str = "utf-8") -> TableSource:
    """Return a reader of a table. encoding: of text files; others have none.

    >>> table = open_table({"age": [50, None], "sex": ["F", "M"]})
    >>> [chunk.numbers["age"].tolist() for chunk in table.chunks({"age": "number"})]
    [[50.0, nan]]
    """
    from fedvi.tables.arrow_tables import ObjectReader, table_of

    if isinstance(source, TableSource):
        return source
    if isinstance(source, str | os.PathLike):
        return _open_file(Path(source), str(source), encoding)
    if isinstance(source, Mapping):
        return ObjectReader(table_of(source), "the dictionary")
    if isinstance(source, SpeaksArrow):
        kind = type(source)
        return ObjectReader(source, f"the {kind.__module__.split('.')[0]} {kind.__name__}")
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


def as_text_where_needed(wanted: dict[str, Kind], read: Callable[[], T]) -> T:
    """Return what `read` returns. While it finds other text among numbers, that column is `wanted` as text instead."""
    while True:
        try:
            return read()
        except NotANumber as error:
            wanted[error.column] = TEXT


# What words mean, and where an error is.


def parse_number(text: str) -> float:
    """Return the number that a text holds, NaN for a word of `MISSING`, or raise ValueError.

    >>> parse_number(" +1e3 "), parse_number("?")
    (1000.0, nan)
    """
    text = text.strip()
    if text in MISSING:
        return math.nan
    if "_" in text:  # which Python allows, and nobody else
        raise ValueError(text)
    return float(text)


def plain(text: str) -> str:
    """Return one spelling for texts that mean the same whole number or truth value.

    >>> plain("1.0"), plain("-0.00"), plain("True"), plain("1.50"), plain("01")
    ('1', '0', 'true', '1.50', '01')
    """
    if re.fullmatch(r"-?\d+\.0*", text):
        text = text.partition(".")[0]
    if text == "-0":
        return "0"
    return text.lower() if text.lower() in ("true", "false") else text


def check_once(names: Iterable[str], what: str) -> None:
    """Raise `InputError` for a name that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"Expected every {what} once, got {name!r} twice. Rename one.")
        seen.add(name)


def place(name: str, row: int, column: str) -> str:
    """Return where a value stands, for errors; `row` counts from 0."""
    return f"row {row + 1} of column {column!r} of {name}"


@contextlib.contextmanager
def in_one_line(name: str) -> Iterator[None]:
    """Turn what the libraries raise for bad data and bad files into an `InputError` of one line."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"Expected to be allowed to read {name}, got permission denied.") from None
    except FileNotFoundError:
        raise InputError(f"Expected a table at {name}, got no such file.") from None
    except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
        raise InputError(f"Expected to read {name}, got: {first_line(error)}.") from None


def first_line(error: BaseException) -> str:
    """Return what an error says, in one line and without a full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).strip()[:300].rstrip(".:")
