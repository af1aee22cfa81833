"""`fedvi fit`, `fedvi predict`, `fedvi inspect`: from tables to a posterior file, and from there to what it says."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from fedvi.cli.options import (
    TABLE_HELP,
    AsJson,
    Delta,
    Encoding,
    Force,
    Kinds,
    Level,
    ModelFile,
    SchemaFile,
    SiteColumn,
    Table,
    parsed_delta,
    require_new,
)
from fedvi.console import print_json, show, stdout, table
from fedvi.errors import InputError
from fedvi.files import replacing

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table as RichTable

    from fedvi.fitting.fitted import Coefficient, Fitted, SiteRecord
    from fedvi.tables.targets import Predictions

NARROWEST = 11
"""Characters of an interval's drawing at least; always an odd number, so that zero has its own."""


def fit(
    schema: SchemaFile,
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE...", help=f"{TABLE_HELP} Give one with --site-column, or one per site."),
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Write this posterior file.")],
    site_column: SiteColumn = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="Choose the model; your own as module:Class. Default: by the schema's target."
        ),
    ] = None,
    eps: Annotated[
        float | None, typer.Option("--eps", metavar="EPS", help="Set the budget of every site. Default: 1.")
    ] = None,
    delta: Delta = "auto",
    public_rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE=ROWS",
            help="Declare a site's number of rows. Default: the true one, rounded down to two digits.",
        ),
    ] = None,
    not_private: Annotated[
        bool, typer.Option("--not-private", help="Add no noise, to see what privacy costs.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Set the seed; the same seed gives the same file.")] = 0,
    updates: Annotated[int, typer.Option(min=1, metavar="N", help="Make N updates at every site.")] = 600,
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Spend a tenth of the budget on centres and scales of numbers.")
    ] = False,
    min_rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Join sites with fewer rows to one site 'other'.")
    ] = 1,
    test: Annotated[Path | None, typer.Option(metavar="TABLE", help="Score predictions on these rows.")] = None,
    encoding: Encoding = "utf-8",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to tables: simulate a federation of their sites with privacy budgets.

    It is a simulation, for planning and teaching: the noise is seeded, and all
    rows are read on this machine.

    Example: fedvi fit schema.toml patients.csv --site-column hospital
    --out model.fedvi
    """
    require_new(out, force)
    if not_private and eps is not None:
        raise InputError(f"Expected --eps or --not-private, got both (--eps {eps:g}). Leave one out.")
    from fedvi.fitting.fit import fit as fit_tables

    fitted = fit_tables(
        schema,
        tables,
        site_column=site_column,
        model=model,
        epsilon=None if not_private else 1.0 if eps is None else eps,
        delta=parsed_delta(delta),
        public_rows=_public_rows(public_rows),
        seed=seed,
        updates=updates,
        standardise=standardise,
        min_rows=min_rows,
        encoding=encoding,
        progress=False if as_json else None,
    )
    scores = {} if test is None else fitted.evaluate(test, encoding=encoding)
    fitted.save(out)
    if as_json:
        origin = {"model": str(out), "schema": fitted.schema.digest}
        sites = [dataclasses.asdict(site) for site in fitted.sites]
        print_json({**origin, "sites": sites, "scores": scores, "statement": fitted.statement})
    else:
        _show_fit(fitted, out, scores)


def _public_rows(given: list[str] | None) -> dict[str, int] | None:
    """Return the rows that sites declare, from texts like `north=1200`."""
    declared = {}
    for text in given or ():
        name, _, rows = text.rpartition("=")
        if not name or not rows.isdigit():
            raise InputError(f"Expected --public-rows SITE=ROWS, such as north=1200, got {text!r}.")
        declared[name] = int(rows)
    return declared or None


def _show_fit(fitted: Fitted, out: Path, scores: dict[str, float]) -> None:
    from fedvi.privacy.ledger.statement import rounded_up

    def row(site: SiteRecord) -> tuple[object, ...]:
        spent = "not private" if site.epsilon is None else f"{rounded_up(site.epsilon)} of {site.epsilon_max:g}"
        return site.name, site.rows, site.updates, spent, "-" if site.delta is None else f"{site.delta:g}"

    title = f"{len(fitted.sites)} sites, {len(fitted.schema.features)} features"
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())
    show(
        table("site|>rows|>updates|>epsilon|>delta", map(row, fitted.sites), title),
        *([f"Test rows: {shown}"] if scores else []),
        fitted.statement.splitlines()[0].capitalize() + ".",
        f"Wrote {out}. Next: fedvi predict {out} TABLE, fedvi inspect {out}",
    )


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
    encoding: Encoding = "utf-8",
    kinds: Kinds = None,
    force: Force = False,
) -> None:
    """Predict the target of every row of a table, with credible intervals, as CSV.

    The table needs no target. For two classes: prediction, probability of the
    second class, and the interval of that probability. For numbers: prediction,
    and the interval of the value itself. Rows keep their order.

    Example: fedvi predict model.fedvi new-patients.csv --out predictions.csv
    """
    from fedvi.fitting.fitted import Fitted

    if out is not None:
        require_new(out, force)
    fitted = Fitted.load(model, kinds or ())
    chunks = fitted.predict_chunks(table, level=level, id_column=id_column, encoding=encoding)
    if out is None:
        try:
            _write(chunks, sys.stdout.buffer)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    with replacing(out) as file:
        rows = _write(chunks, file)
    typer.echo(f"Wrote {rows} predictions to {out}.", err=True)


def _write(chunks: Iterator[Predictions], file: BinaryIO) -> int:
    """Write all predictions as CSV, and return how many."""
    import pyarrow as pa
    from pyarrow import csv

    writer: Any = None
    rows = 0
    for chunk in chunks:
        batch = pa.table({name: _arrow(column) for name, column in chunk.columns().items()})
        if writer is None:
            writer = csv.CSVWriter(file, batch.schema, write_options=csv.WriteOptions(quoting_style="needed"))
        writer.write_table(batch)
        rows += batch.num_rows
    writer.close()  # there was a chunk: tables without rows are refused
    return rows


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


def inspect(
    model: ModelFile,
    level: Level = 0.9,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="Show N coefficients, those farthest from zero first.")
    ] = 25,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the coefficients too: PNG, SVG or PDF."),
    ] = None,
    arviz: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write draws for ArviZ as netCDF. Needs fedvi\\[arviz].")
    ] = None,
    kinds: Kinds = None,
    as_json: AsJson = False,
) -> None:
    """Show a posterior's coefficients with credible intervals, its sites and its privacy.

    Coefficients are in units of the schema's scales, so they can be compared.

    Example: fedvi inspect model.fedvi --figure coefficients.svg
    """
    from fedvi.fitting.fitted import Fitted, read_header

    fitted = Fitted.load(model, kinds or ())
    coefficients = sorted(fitted.coefficients(level), key=lambda each: -abs(each.mean) / each.std)
    written = []
    if figure is not None:
        from fedvi.reports.figures.coefficients import draw_coefficients  # takes a while to import

        draw_coefficients(fitted, coefficients[:top], level, figure)
        written.append(f"Figure: {figure}")
    if arviz is not None:
        fitted.to_arviz().to_netcdf(str(arviz))
        written.append(f"Draws for ArviZ: {arviz}")
    if as_json:
        header = read_header(model)
        plain = {name: header[name] for name in ("model", "schema_hash", "sites", "privacy", "settings", "versions")}
        print_json({**plain, "coefficients": [dataclasses.asdict(each) for each in coefficients]})
        return
    more = [f"{len(coefficients) - top} more; see --top."] if len(coefficients) > top else []
    sites = ", ".join(f"{site.name} ({site.rows} rows, {site.updates} updates)" for site in fitted.sites)
    origin = (f"Sites: {sites}", f"Schema: {fitted.schema.digest[:12]}", fitted.statement)
    show(_table_of(coefficients[:top], level), *more, *origin, *written)


def _table_of(coefficients: list[Coefficient], level: float) -> RichTable:
    longest = max(len(each.feature) for each in coefficients)
    room = max(NARROWEST, min(41, stdout().width - min(longest, 28) - 46)) // 2 * 2 + 1
    reach = max(max(abs(each.low), abs(each.high)) for each in coefficients)

    def row(each: Coefficient) -> tuple[str, ...]:
        numbers = (f"{value:.2f}" for value in (each.mean, each.low, each.high))
        return each.feature, *numbers, f"{each.evidence_kept:.0%}", _drawing(each, reach, room)

    title = f"Coefficients, {level:.0%} credible intervals; kept: evidence that privacy noise has left"
    shown = table("feature|>mean|>low|>high|>kept|interval", map(row, coefficients), title)
    shown.columns[0].overflow = "fold"
    for column in shown.columns[1:]:
        column.no_wrap = True
    return shown


def _drawing(each: Coefficient, reach: float, room: int) -> str:
    """Return the interval as `room` characters, zero in the middle, `reach` at both ends."""

    def place(value: float) -> int:
        return round((value / reach + 1) / 2 * (room - 1)) if reach else room // 2

    line = [" "] * room
    line[room // 2] = "┊"
    low, high = place(each.low), place(each.high)
    line[low : high + 1] = "─" * (high - low + 1)
    line[place(each.mean)] = "●"
    return "".join(line)
