"""One reader for tables: CSV, TSV, Parquet, Arrow files, data frames, and dictionaries of columns.

`open_table` gives a `Reader`, whatever the table is. Memory is that of a few batches, however long the table is, and
every error is one line that names the place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedvi.errors import InputError
from fedvi.tables.arrow_tables import ArrowReader, ObjectReader, ParquetReader, table_of
from fedvi.tables.csv_tables import CsvReader
from fedvi.tables.reader import Reader, in_one_line

Source = str | os.PathLike | Any
"""The path of a table, an object that speaks Arrow (pandas, polars, pyarrow), a dictionary of columns, a `Reader`."""

TEXT_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_FILES = (".parquet", ".pq")
ARROW_FILES = (".arrow", ".feather", ".ipc")


def open_table(source: Source, *, name: str | None = None, encoding: str = "utf-8") -> Reader:
    """Return a reader of a table.

    name: how errors call it. encoding: of text files; others have none.

    >>> table = open_table({"age": [50, None], "sex": ["F", "M"]})
    >>> [batch.numbers["age"].tolist() for batch in table.batches({"age": "number"})]
    [[50.0, nan]]
    """
    if isinstance(source, Reader):
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


def _open_file(path: Path, name: str, encoding: str) -> Reader:
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
