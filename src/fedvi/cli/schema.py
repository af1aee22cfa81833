"""`fedvi schema`: make the feature schema that sites share, and check tables against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedvi import console
from fedvi.cli.options import AsJson, Encoding, Force, SchemaFile, SiteColumn, Table, require_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedvi.tables.infer import Inferred
    from fedvi.tables.parts import Counts
    from fedvi.tables.read import TableSource
    from fedvi.tables.schema import Schema

app = typer.Typer(
    help="Make the feature schema that all sites share, and check tables against it.", no_args_is_help=True
)

LARGE_FILE = 50 << 20
"""A check of a larger file (in bytes) shows its progress."""


@app.command()
def infer(
    table: Table,
    target: Annotated[str, typer.Option(metavar="COLUMN", help="Predict this column.")],
    out: Annotated[Path, typer.Option(metavar="SCHEMA", help="Write this TOML file.")],
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave this column out. Repeat it for several.")
    ] = None,
    max_categories: Annotated[
        int, typer.Option(metavar="N", help="Make features of at most N values of a text column.")
    ] = 20,
    encoding: Encoding = "utf-8",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a schema from a public table, or from a sample that may be shown.

    Example: fedvi schema infer sample.csv --target died --out schema.toml
    """
    from fedvi.tables.infer import infer_schema

    require_new(out, force)
    found = infer_schema(table, target, ignore=ignore or (), max_categories=max_categories, encoding=encoding)
    found.schema.save(out)
    typer.echo(
        f"Bounds, scales and categories come from {table}. Make sure that this table is public or may be shown, or "
        "edit them.",
        err=True,
    )
    if as_json:
        console.print_json(_inferred(found, out))
    else:
        _show_schema(found, out)


@app.command()
def check(
    schema: SchemaFile,
    table: Table,
    site_column: SiteColumn = None,
    encoding: Encoding = "utf-8",
    as_json: AsJson = False,
) -> None:
    """Check a table, and count its clipped, missing and unknown values.

    Nothing leaves this machine.

    Example: fedvi schema check schema.toml clinic.csv
    """
    from fedvi.tables.encode import encode_chunks
    from fedvi.tables.parts import Counts
    from fedvi.tables.read import open_table
    from fedvi.tables.schema import Schema

    rules = Schema.load(schema)
    reader = open_table(table, encoding=encoding)
    counts, sites, classes = Counts(), Counter[str](), Counter[str]()
    with _progress(reader, table, quiet=as_json) as advance:
        for chunk in encode_chunks(rules, reader, site_column=site_column):
            counts += chunk.counts
            if chunk.sites is not None:
                sites.update(_counted(chunk.sites))
            if chunk.y is not None:
                classes.update(rules.target.class_counts(chunk.y))
            advance()
    if as_json:
        console.print_json(_checked(rules, counts, sites, classes))
    else:
        _show_check(rules, table, counts, sites, classes)


def _counted(sites: Any) -> dict[str, int]:
    import numpy as np

    names, counts = np.unique(sites, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


@contextmanager
def _progress(reader: TableSource, table: Path, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Give a function that shows the reader's progress: on a terminal, for large files."""
    small = quiet or table.stat().st_size < LARGE_FILE
    with console.progress(f"Reading {table.name}", 100, wanted=False if small else None) as show:
        yield lambda: show(round(100 * reader.fraction), "")


def _inferred(found: Inferred, out: Path) -> dict[str, Any]:
    return {
        "schema": str(out),
        "digest": found.schema.digest,
        "rows": found.rows,
        "features": list(found.schema.features),
        "notes": list(found.notes),
    }


def _checked(schema: Schema, counts: Counts, sites: Counter[str], classes: Counter[str]) -> dict[str, Any]:
    return {
        "digest": schema.digest,
        "rows": counts.rows,
        "clipped": counts.clipped,
        "missing": counts.missing,
        "unknown": counts.unknown,
        "sites": dict(sites),
        "classes": dict(classes),
    }


def _show_schema(found: Inferred, out: Path) -> None:
    rows = ((part.name, part.kind, part.shown, part.missing) for part in (*found.schema.columns, found.schema.target))
    console.show(
        console.table("column|kind|range or values|missing", rows, f"Schema of {found.rows:,} rows"),
        *(f"Note: {note}" for note in found.notes),
        f"{found.schema.dim} features. Schema {found.schema.digest}",
        f"Wrote {out}. Read it, correct it, and give the same file to all sites. Next, at each site:",
        f"  fedvi schema check {out} TABLE",
    )


def _show_check(schema: Schema, table: Path, counts: Counts, sites: Counter[str], classes: Counter[str]) -> None:
    parts = (counts.clipped, counts.missing, counts.unknown)
    rows = (
        (column.name, *(_share(part.get(column.name), counts.rows) for part in parts))
        for column in (*schema.columns, schema.target)
    )
    counted = [
        console.table(f"{what}|rows", ((name, f"{count:,}") for name, count in found.items()))
        for what, found in (("site", sites), ("class", classes))
        if found
    ]
    console.show(
        console.table("column|clipped|missing|unknown", rows, f"{table}: {counts.rows:,} rows"),
        *counted,
        f"The table fits schema {schema.digest}",
        "These counts reveal something about rows. fedvi sends them nowhere.",
    )


def _share(count: int | None, rows: int) -> str:
    return "" if count is None else f"{count:,} ({100 * count / rows:.2g}%)" if count else "0"
