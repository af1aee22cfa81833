"""Readers of what Arrow reads or speaks: Parquet and Arrow files, data frames, dictionaries of columns."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from fedvi.errors import InputError
from fedvi.tables import arrays
from fedvi.tables.arrays import batches_of
from fedvi.tables.reader import TEXT, Chunk, Kind, Reader, first_line, in_one_line


class ParquetReader(Reader):
    """A Parquet file."""

    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        with self._open() as file:
            self.columns = tuple(file.schema_arrow.names)
        self._check_columns()

    def _open(self, **options: Any) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with in_one_line(self.name):
            try:
                return pq.ParquetFile(self.path, **options)
            except pa.ArrowInvalid as error:
                raise InputError(f"Expected a Parquet file, got {self.name}: {first_line(error)}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        texts = [name for name, kind in wanted.items() if kind == TEXT]
        with self._open(read_dictionary=texts) as file:
            total = max(file.metadata.num_rows, 1)
            found = file.iter_batches(arrays.BATCH_ROWS, columns=list(wanted))
            for batch in batches_of(found, wanted, self.name):
                self.fraction = (batch.start + batch.rows) / total
                yield batch


class ArrowReader(Reader):
    """A file of Arrow's own format, with or without an index at its end."""

    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        with self._open() as file:
            self.columns = tuple(file.schema.names)
        self._check_columns()

    def _open(self) -> Any:
        import pyarrow as pa

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
            yield from batches_of(found, wanted, self.name)


class ObjectReader(Reader):
    """An object that speaks Arrow."""

    def __init__(self, source: Any, name: str):
        self.source, self.name = source, name
        self.first: Any = self._stream()
        self.columns = tuple(map(str, self.first.schema.names))
        self._check_columns()

    def _stream(self) -> Any:
        import pyarrow as pa

        with in_one_line(self.name):
            try:
                return pa.RecordBatchReader.from_stream(self.source)
            except (TypeError, ValueError, pa.ArrowException) as error:  # mixed types, a column twice, one column only
                what = "one column" if "non-struct" in str(error) else first_line(error)
                raise InputError(f"Expected {self.name} to be a table, got: {what}.") from None

    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        import pyarrow as pa

        stream, self.first = self.first, None
        if stream is None:
            if isinstance(self.source, pa.RecordBatchReader):
                raise InputError(f"Expected a table that can be read again, got {self.name}: give a table or a file.")
            stream = self._stream()
        yield from batches_of(stream, wanted, self.name)


def table_of(columns: Mapping[Any, Any], name: str) -> Any:
    """Return a dictionary of columns as a table of Arrow."""
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for column, values in columns.items():
        try:
            arrays[str(column)] = pa.array(values, from_pandas=True)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InputError(
                f"Expected a list of values for column {column!r} of {name}: {first_line(error)}."
            ) from None
    try:
        return pa.table(arrays)
    except ValueError:
        lengths = ", ".join(f"{column} {len(values)}" for column, values in arrays.items())
        raise InputError(f"Expected columns of equal length in {name}, got {lengths}.") from None
