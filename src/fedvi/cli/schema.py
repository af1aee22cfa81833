"""`fedvi schema`: make the feature schema that sites share, and check tables against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from fedvi import console
from fedvi.cli.options import AsJson, Encoding, Force, Kinds, SchemaFile, SiteColumn, Table, require_new

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
        int, typer.Option(metavar="N", help="Tell at most N values of a text column apart.")
    ] = 20,
    splines: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Let this number have a curve. Several: A,B."),
    ] = None,
    log1p: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Take log(1 + value) of this number. Several: A,B.")
    ] = None,
    interaction: Annotated[
        list[str] | None, typer.Option(metavar="A:B", help="Multiply two columns, such as age:sex.")
    ] = None,
    encoding: Encoding = "utf-8",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a schema from a public table, or from a sample that may be shown.

    Example: fedvi schema infer sample.csv --target died --out schema.toml --splines age --interaction age:sex
    """
    from fedvi.config import kind_of
    from fedvi.tables.infer import infer_schema
    from fedvi.tables.read import open_table

    require_new(out, force)
    reader = open_table(table, encoding=encoding)
    found = infer_schema(
        reader,
        target,
        ignore=ignore or (),
        max_categories=max_categories,
        splines=_several(splines, reader.columns),
        log1p=_several(log1p, reader.columns),
        interactions=_several(interaction, ()),
    )
    found.schema.save(out)
    typer.echo(
        f"Bounds, scales and categories come from {table}. Make sure that this table is public or may be shown, or "
        "edit them.",
        err=True,
    )
    rules = found.schema
    if as_json:
        origin = {"schema": str(out), "digest": rules.digest, "rows": found.rows}
        console.print_json({**origin, "features": rules.features, "notes": found.notes})
        return
    rows = [(part.name, kind_of(type(part)), part.shown, part.missing) for part in (*rules.columns, rules.target)]
    rows += [(each.name, "interaction", "the product of both", "") for each in rules.interactions]
    console.show(
        console.table("column|kind|range or values|missing", rows, f"Schema of {found.rows:,} rows"),
        *(f"Note: {note}" for note in found.notes),
        f"{rules.dim} features. Schema {rules.digest}",
        f"Wrote {out}. Read it, correct it, and give the same file to all sites. Next, at each site:",
        f"  fedvi schema check {out} TABLE",
    )


@app.command()
def check(
    schema: SchemaFile,
    table: Table,
    site_column: SiteColumn = None,
    encoding: Encoding = "utf-8",
    kinds: Kinds = None,
    as_json: AsJson = False,
) -> None:
    """Check a table, and count its clipped, missing and unknown values.

    Nothing leaves this machine.

    Example: fedvi schema check schema.toml clinic.csv
    """
    from fedvi.config import search
    from fedvi.tables.encode import encode_chunks
    from fedvi.tables.read import Counts, open_table
    from fedvi.tables.schema import Schema

    if kinds:
        search(Path())
    rules = Schema.load(schema, kinds or ())  # another party may have written it
    reader = open_table(table, encoding=encoding)
    counts, sites, classes = Counts(), Counter[str](), Counter[str]()
    large = not as_json and table.stat().st_size >= LARGE_FILE
    with console.progress(f"Reading {table.name}", 100, wanted=None if large else False) as show:
        for chunk in encode_chunks(rules, reader, site_column=site_column):
            counts += chunk.counts
            if chunk.sites is not None:
                sites.update(chunk.sites.tolist())
            if chunk.y is not None:
                classes.update(rules.target.class_counts(chunk.y))
            show(round(100 * reader.fraction), "")
    by_site = dict(sorted(sites.items()))
    if as_json:
        console.print_json({"digest": rules.digest, **vars(counts), "sites": by_site, "classes": classes})
        return
    parts = (counts.clipped, counts.missing, counts.unknown)
    rows = (
        (column.name, *(_share(part.get(column.name), counts.rows) for part in parts))
        for column in (*rules.columns, rules.target)
    )
    console.show(
        console.table("column|clipped|missing|unknown", rows, f"{table}: {counts.rows:,} rows"),
        *(
            console.table(f"{what}|rows", ((name, f"{count:,}") for name, count in found.items()))
            for what, found in (("site", by_site), ("class", classes))
            if found
        ),
        f"The table fits schema {rules.digest}",
        "These counts reveal something about rows. fedvi sends them nowhere.",
    )


def _several(given: list[str] | None, columns: Collection[str]) -> list[str]:
    """Return names that were given one by one, or with commas between them; a column's own name may hold commas."""
    return [name for each in given or [] for name in ([each] if each in columns else each.split(","))]


def _share(count: int | None, rows: int) -> str:
    return "" if count is None else f"{count:,} ({100 * count / rows:.2g}%)" if count else "0"
