"""`fedvi predict`: from a posterior file and a table to predictions with intervals, as CSV."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from fedvi.cli.options import (
    Decimal,
    Encoding,
    Force,
    Kinds,
    Level,
    ModelFile,
    Sheet,
    Strict,
    Table,
    require_new,
    show_counts,
)
from fedvi.files import replacing
from fedvi.tables.counts import Counts

if TYPE_CHECKING:
    import numpy as np

    from fedvi.tables.targets import Predictions


def predict(
    model: ModelFile,
    table: Table,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write this CSV file. Default: standard output.")
    ] = None,
    level: Level = 0.9,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Copy this column, to identify rows.")
    ] = None,
    strict: Strict = False,
    encoding: Encoding = "",
    decimal: Decimal = "",
    sheet: Sheet = "",
    kinds: Kinds = None,
    force: Force = False,
) -> None:
    """Predict the target of every row of a table, with credible intervals, as CSV.

    The table needs no target. For two classes: prediction, probability of the
    event, the interval of that probability, and the event. For numbers:
    prediction, and the interval of the value itself. Rows keep their order.

    Example: fedvi predict model.fedvi new-patients.csv --out predictions.csv
    """
    from fedvi.fitting.fitted import Fitted
    from fedvi.tables.reading.source import open_table

    if out is not None:
        require_new(out, force)
    fitted = Fitted.load(model, kinds or ())
    for line in fitted.warnings:
        typer.echo(f"Warning: {line}", err=True)
    reader = open_table(table, fitted.schema.dialect, encoding=encoding, decimal=decimal, sheet=sheet)
    chunks = fitted.predict_chunks(reader, level=level, id_column=id_column, strict=strict)
    if out is None:
        try:
            rows, counts = _write(chunks, sys.stdout.buffer)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
    else:
        with replacing(out) as file:
            rows, counts = _write(chunks, file)
    show_counts(counts, fitted.schema, reader.said)
    if out is not None:
        typer.echo(f"Wrote {rows} predictions to {out}.", err=True)


def _write(chunks: Iterator[tuple[Predictions, Counts]], file: BinaryIO) -> tuple[int, Counts]:
    """Write all predictions as CSV; return how many, and what happened to values."""
    import pyarrow as pa
    from pyarrow import csv

    writer: Any = None
    rows, counts = 0, Counts()
    for chunk, found in chunks:
        batch = pa.table({name: _arrow(column) for name, column in chunk.columns().items()})
        if writer is None:
            writer = csv.CSVWriter(file, batch.schema, write_options=csv.WriteOptions(quoting_style="needed"))
        writer.write_table(batch)
        rows += batch.num_rows
        counts += found
    writer.close()  # there was a chunk: tables without rows are refused
    return rows, counts


def _arrow(column: np.ndarray) -> Any:
    """Return a column for Arrow; numbers in single precision, which is as much as they have and prints as few digits.

    By its memory: `pa.array` would import pandas, if it is installed.
    """
    import numpy as np
    import pyarrow as pa

    if column.dtype.kind == "f":
        numbers = np.ascontiguousarray(column, np.float32)
        return pa.Array.from_buffers(pa.float32(), len(numbers), [None, pa.py_buffer(numbers)])
    words = [str(word).encode() for word in column.tolist()]
    ends = np.cumsum([0, *map(len, words)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(words))]
    return pa.Array.from_buffers(pa.large_string(), len(words), buffers)
