"""Tables of all kinds, read in chunks: text files, workbooks, Parquet, Arrow files, data frames, dictionaries.

`open_table` returns a `TableSource`. It yields the wanted columns chunk by chunk, each as numbers or as text:

    numbers   float64, NaN where a value is missing
    text      a code per row and the distinct strings of the chunk, -1 where a value is missing

Who wants numbers gets them where all values of a chunk are plain numbers, and text elsewhere: what words mean is in
`fedvi.tables.reading.words`. Memory is that of a few chunks, however long the table is. Every error is one line that
names the place. In errors, rows are counted from 1, the header not counted.

**At a site** nothing may depend on a row but what is made of that row: there a table is opened as `private`. Nothing is
guessed then, and a line that is no row is skipped, not refused (`fedvi.tables.reading.site_files`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fedvi.checks import near, one_of
from fedvi.errors import InputError
from fedvi.tables.reading.chunk import Chunk, Kind
from fedvi.tables.reading.messages import check_once, in_one_line
from fedvi.tables.reading.words import COMMA, POINT

TEXT_FILES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET_FILES = (".parquet", ".pq")
ARROW_FILES = (".arrow", ".feather", ".ipc")
EXCEL_FILES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


@dataclass(frozen=True)
class Dialect:
    """How a table was written, as far as it does not say so itself. Empty: nobody has said; then it is guessed.

    encoding: of a text file. sheet: of a workbook.
    decimal: what separates decimals in numbers such as 45.123 or 1,234, which leave it open: "." or ",".
    """

    encoding: str = ""
    decimal: str = ""
    sheet: str = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not isinstance(getattr(self, field.name), str):
                raise InputError(f"Expected {field.name} of a dialect as text, got {getattr(self, field.name)!r}.")
        one_of("decimal", self.decimal, ("", POINT, COMMA))

    def with_given(self, **given: str) -> Dialect:
        """Return the dialect with those values that were given, which are not empty."""
        return dataclasses.replace(self, **{name: value for name, value in given.items() if value})


class TableSource(ABC):
    """A table that can be read in chunks, as often as its source can.

    name: how errors call it. columns: the names of its columns; given: how the source itself calls each.
    index: those of the columns that are a frame's index.
    dialect: how it was written. said: what people should know about how it is read.
    delimiter: what separates values in a text file. fraction: how much of it was read, from 0 to 1.
    path: of a file. again: whether it can be read more than once. decided: whether somebody has said what separates
    decimals in this table. skipped: lines that are no rows, when it was read last.
    private: at a site: nothing is guessed, and nothing is refused for what a row holds.
    if_empty: why a column may seem to hold nothing.
    """

    fraction: float = 0.0
    again: bool = True
    decided: bool = False
    path: Any = None
    delimiter: str = ""
    skipped: int = 0
    index: tuple[str, ...] = ()
    if_empty: str = ""

    def __init__(self, name: str, columns: Iterable[object], dialect: Dialect, private: bool):
        self.name, self.dialect, self.private, self.said = name, dialect, private, list[str]()
        self._set_columns(columns)

    def _set_columns(self, columns: Iterable[object]) -> None:
        """Take the names of columns; those without one are called by their place."""
        given = list(map(str, columns))
        names = [name.strip() for name in given]
        self.columns = tuple(name or _unnamed(number, names) for number, name in enumerate(names, 1))
        self.given = dict(zip(self.columns, given, strict=True))
        check_once(self.columns, f"column of {self.name}")
        if not self.columns:
            raise InputError(f"Expected columns in {self.name}, got none.")

    def chunks(self, wanted: Mapping[str, Kind]) -> Generator[Chunk, None, None]:
        """Yield the wanted columns, chunk by chunk, or raise `InputError` naming row, column and value."""
        self.require(wanted)
        start, self.skipped = 0, 0
        with in_one_line(self.name), contextlib.closing(self._read(dict(wanted))) as found:
            for chunk in found:
                start = chunk.start + chunk.rows
                if chunk.rows:
                    yield dataclasses.replace(chunk, decimal=self.dialect.decimal or POINT)
        if start == 0:
            raise InputError(f"Expected rows in {self.name}, got only a header with {len(self.columns)} columns.")

    def require(self, names: Iterable[str]) -> None:
        """Raise `InputError` for a column that is not there, with those that are."""
        names = list(names)
        self.find_header(names)
        for name in names:
            if name not in self.columns:
                there = ", ".join(self.columns[:30]) + (", ..." if len(self.columns) > 30 else "")
                close = near(name, self.columns) or self.hint
                raise InputError(f"Expected column {name!r} in {self.name}, got {there}.{close}")

    @property
    def hint(self) -> str:
        """What may be wrong, if a column is not there."""
        return ""

    def find_header(self, names: list[str]) -> None:  # noqa: B027 - most have one header
        """Take the header that has these names, where it may be elsewhere than expected."""

    @abstractmethod
    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        """Yield chunks of columns that are there."""


def _unnamed(number: int, names: list[str]) -> str:
    """Return how to call the column at this place, which has no name."""
    found = f"unnamed {number}"
    while found in names:
        found += "'"
    return found


@runtime_checkable
class SpeaksArrow(Protocol):
    """A table of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class WithItems(Protocol):
    """A frame of pandas, which gives its columns like a dictionary."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Yield names and columns."""


Source = str | os.PathLike[str] | TableSource | SpeaksArrow | Mapping[str, Any]
"""The path of a table, a reader, an object that speaks Arrow, or a dictionary of columns."""


def open_table(
    source: Source,
    dialect: Dialect | None = None,
    *,
    encoding: str = "",
    decimal: str = "",
    sheet: str = "",
    private: bool = False,
) -> TableSource:
    """Return a reader of a table.

    dialect: how it was written, such as a schema says. encoding, decimal, sheet: the same, where it is another.
    private: at a site: nothing is guessed, and no line is refused.

    >>> table = open_table({"age": [50, None], "sex": ["F", "M"]})
    >>> [chunk.numbers("age")[0].tolist() for chunk in table.chunks({"age": "number"})]
    [[50.0, nan]]
    """
    from fedvi.tables.reading.objects import CellsReader, ObjectReader, table_of

    written = (dialect or Dialect()).with_given(encoding=encoding, decimal=decimal, sheet=sheet)
    reader: TableSource
    if isinstance(source, TableSource):
        reader = source
        if private and not reader.private:
            raise InputError(f"Expected {reader.name} to be opened as private: open_table(..., private=True).")
        reader.dialect = written.with_given(**vars(source.dialect))  # what it was opened with comes first
    elif isinstance(source, str | os.PathLike):
        reader = _open_file(Path(source), str(source), written, private, bool(encoding))
        if sheet and not str(source).lower().endswith(EXCEL_FILES):
            raise InputError(f"Expected a workbook for the sheet {sheet!r}, got {source}. Leave --sheet out.")
    elif isinstance(source, Mapping | SpeaksArrow):
        kind, is_dictionary = type(source), isinstance(source, Mapping)
        name = "the dictionary" if is_dictionary else f"the {kind.__module__.split('.')[0]} {kind.__name__}"
        if private and isinstance(source, Mapping | WithItems):
            reader = CellsReader(dict(source.items()), name, written)
        else:
            reader = ObjectReader(table_of(source) if isinstance(source, Mapping) else source, name, written, private)
    else:
        raise InputError(
            f"Expected the path of a table, a data frame or a dictionary of columns, got {type(source).__name__}. "
            "Objects must speak Arrow, as those of pandas 2.2, polars and pyarrow do."
        )
    reader.decided = reader.decided or bool(decimal) or private
    return reader


def _open_file(path: Path, name: str, dialect: Dialect, private: bool, sure: bool) -> TableSource:
    """Return a reader of a file. sure: whether the encoding was said for this very file."""
    from fedvi.tables.reading.arrow_tables import ArrowReader, ParquetReader
    from fedvi.tables.reading.csv_tables import CsvReader
    from fedvi.tables.reading.excel_tables import ExcelReader

    with in_one_line(name):
        if path.is_dir():
            raise InputError(f"Expected the file of a table, got the directory {name}.")
        with open(path, "rb"):  # whether it is there, and may be read
            pass
    lower = path.name.lower()
    if lower.endswith(TEXT_FILES):
        return CsvReader(path, name, dialect, private, sure)
    if lower.endswith(PARQUET_FILES):
        return ParquetReader(path, name, dialect, private)
    if lower.endswith(ARROW_FILES):
        return ArrowReader(path, name, dialect, private)
    if lower.endswith(EXCEL_FILES):
        return ExcelReader(path, name, dialect, private)
    known = ", ".join((*TEXT_FILES, *EXCEL_FILES, *PARQUET_FILES, *ARROW_FILES))
    raise InputError(f"Expected the name of a table to end with one of {known}, got {name}.")


def ahead(chunks: Iterator[Chunk]) -> Generator[Chunk, None, None]:
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
