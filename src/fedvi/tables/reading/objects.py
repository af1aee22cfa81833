"""Tables that are objects in Python: frames, tables of Arrow, dictionaries of columns."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pyarrow as pa

from fedvi.errors import InputError
from fedvi.tables.reading.arrow_tables import chunks_of, index_of
from fedvi.tables.reading.cells import of_one_type
from fedvi.tables.reading.chunk import AS_IT_IS, Chunk, Kind
from fedvi.tables.reading.messages import first_line, in_one_line
from fedvi.tables.reading.source import Dialect, SpeaksArrow, TableSource

UNREADABLE = (TypeError, ValueError, OverflowError)
"""What cells raise that Arrow cannot take, beside its own exceptions."""


class ObjectReader(TableSource):
    """An object that speaks Arrow."""

    def __init__(self, source: SpeaksArrow, name: str, dialect: Dialect, private: bool):
        self.source, self.name = source, name
        self.private = private
        self.first: pa.RecordBatchReader | None = self._stream()
        super().__init__(name, self.first.schema.names, dialect, private)
        self.index, self.again = index_of(self.first.schema), not isinstance(source, pa.RecordBatchReader)

    def _stream(self) -> pa.RecordBatchReader:
        with in_one_line(self.name):
            try:
                return pa.RecordBatchReader.from_stream(self.source)
            except (*UNREADABLE, pa.ArrowException) as error:  # mixed types, a column twice, one column only
                columns = dict(self.source.items()) if hasattr(self.source, "items") else {}
                if columns and len(set(columns)) == len(getattr(self.source, "columns", ())):  # a frame of pandas
                    return table_of(columns, self.name, private=self.private).to_reader()
                what = "one column" if "non-struct" in str(error) else first_line(error)
                raise InputError(f"Expected {self.name} to be a table, got: {what}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        stream, self.first = self.first, None
        if stream is None:
            if not self.again:
                raise InputError(f"Expected a table that can be read again, got {self.name}: give a table or a file.")
            stream = self._stream()
        from_frame = self.name.startswith("the pandas ") or stream.schema.pandas_metadata is not None
        yield from chunks_of(stream, wanted, self, from_frame=from_frame)


class CellsReader(TableSource):
    """A dictionary of columns whose cells may be of any type each, at a site: each means the same beside any other."""

    def __init__(self, columns: Mapping[Any, Any], name: str, dialect: Dialect):
        self.source = {str(name): cells for name, cells in columns.items()}
        super().__init__(name, self.source, dialect, private=True)

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        yield from chunks_of_cells(self.source, wanted, self)


def chunks_of_cells(columns: Mapping[str, Any], wanted: dict[str, Kind], table: TableSource) -> Iterator[Chunk]:
    """Yield the wanted columns, each by the name that the source gives it, as chunks."""
    kinds = {table.given[name]: kind for name, kind in wanted.items()}
    made = table_of({name: columns[name] for name in kinds}, table.name, kinds, private=table.private)
    yield from chunks_of(made.to_batches(), wanted, table)


def table_of(
    columns: Mapping[str, Any],
    name: str = "the dictionary",
    kinds: Mapping[str, Kind] | None = None,
    *,
    private: bool = False,
) -> pa.Table:
    """Return a dictionary of columns as a table of Arrow.

    name: what errors call it. kinds: of columns whose cells may be of any type each, such as those of workbooks.
    private: at a site, no cell is refused.
    """
    arrays: dict[str, pa.Array] = {}
    for column, values in columns.items():
        try:
            try:
                typed = str(getattr(values, "dtype", "object")) != "object"
                cells = values if kinds is None or typed else of_one_type(values, kinds[column], private=private)
                arrays[str(column)] = pa.array(cells, from_pandas=True)
            except (OverflowError, pa.ArrowException):  # cells of several types, and whole numbers of many digits
                arrays[str(column)] = pa.array(of_one_type(values, AS_IT_IS, private=private))
        except (*UNREADABLE, pa.ArrowException) as error:
            got = first_line(error)
            raise InputError(f"Expected a list of values for column {column!r} of {name}: {got}.") from None
    try:
        return pa.table(arrays)
    except ValueError:
        lengths = ", ".join(f"{column} {len(values)}" for column, values in arrays.items())
        raise InputError(f"Expected columns of equal length in {name}, got {lengths}.") from None
