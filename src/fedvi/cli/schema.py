"""`fedvi schema`: make the feature schema that sites share, and check tables against it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvi import console
from fedvi.cli.options import (
    AsJson,
    Decimal,
    Encoding,
    Force,
    Kinds,
    SchemaFile,
    Sheet,
    SiteColumn,
    Strict,
    Table,
    require_new,
    several,
    show_counts,
)
from fedvi.errors import InputError

app = typer.Typer(
    help="Make the feature schema that all sites share, and check tables against it.", no_args_is_help=True
)

KINDS = ("clipped", "missing", "unknown", "foreign")
"""What is counted."""

LARGE_FILE = 50 << 20
"""A check of a larger file (in bytes) shows its progress."""


def _columns(help_text: str) -> Any:
    """Return an option that names columns, one by one or with commas between them."""
    return typer.Option(metavar="COLUMN", help=help_text)


@app.command()
def infer(
    table: Table,
    target: Annotated[str, typer.Option(metavar="COLUMN", help="Predict this column.")],
    out: Annotated[Path, typer.Option(metavar="SCHEMA", help="Write this TOML file.")],
    event: Annotated[
        str, typer.Option(metavar="CLASS", help="Name the class of the target whose probability is meant.")
    ] = "",
    site_column: SiteColumn = None,
    ignore: Annotated[list[str] | None, _columns("Leave this column out. Several: A,B.")] = None,
    keep: Annotated[list[str] | None, _columns("Keep this column although it knows the target.")] = None,
    category: Annotated[list[str] | None, _columns("This column holds codes, not numbers.")] = None,
    number: Annotated[list[str] | None, _columns("This column holds numbers, whatever it looks like.")] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="This value means that nothing was measured. Several: =998,999."),
    ] = None,
    dates: Annotated[
        str, typer.Option(metavar="ORDER", help="Say what comes first in 03/04/2024: dmy, the day; or mdy.")
    ] = "",
    max_categories: Annotated[
        int, typer.Option(metavar="N", help="Tell at most N values of a text column apart.")
    ] = 20,
    min_count: Annotated[
        int, typer.Option(metavar="N", help="Keep values out of the schema that fewer than N rows have.")
    ] = 2,
    splines: Annotated[list[str] | None, _columns("Let this number have a curve. Several: A,B.")] = None,
    log1p: Annotated[list[str] | None, _columns("Take log(1 + value) of this number.")] = None,
    interaction: Annotated[
        list[str] | None, typer.Option(metavar="A:B", help="Multiply two columns, such as age:sex.")
    ] = None,
    encoding: Encoding = "",
    decimal: Decimal = "",
    sheet: Sheet = "",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a schema from a public table, or from a sample that may be shown.

    All decisions are printed, each with its reason. What a table cannot tell is
    asked: the answer is an option.

    Example: fedvi schema infer sample.csv --target died --event yes --out schema.toml
    """
    from fedvi.tables.inferring.infer import infer_schema
    from fedvi.tables.reading.source import open_table

    require_new(out, force)
    reader = open_table(table, encoding=encoding, decimal=decimal, sheet=sheet)
    reader.require([target])

    def columns(given: list[str] | None) -> list[str]:
        return several(given, reader.columns)

    found = infer_schema(
        reader,
        target,
        site_column=site_column,
        event=event,
        missing=_by_column(missing),
        dates=dates,
        max_categories=max_categories,
        min_count=min_count,
        interactions=several(interaction),
        ignore=columns(ignore),
        keep=columns(keep),
        category=columns(category),
        number=columns(number),
        splines=columns(splines),
        log1p=columns(log1p),
    )
    found.schema.save(out)
    for line in found.said:
        typer.echo(f"Note: {line}", err=True)
    typer.echo(
        f"Bounds, scales and categories come from {table}. Make sure that this table is public or may be shown, or "
        "edit them.",
        err=True,
    )
    rules = found.schema
    if as_json:
        origin = {"schema": str(out), "digest": rules.digest, "rows": found.rows, "repeated_rows": found.repeated}
        decided = [
            {"column": d.name, "becomes": d.becomes, "reason": d.reason, "values": d.shown} for d in found.decisions
        ]
        console.print_json({**origin, "features": rules.features, "decisions": decided, "said": found.said})
        return
    rows = [(each.name, each.becomes, each.shown, each.reason) for each in found.decisions]
    rows += [(each.name, "interaction", "", "the product of both") for each in rules.interactions]
    again = (
        f"Rows that agree with an earlier one in all columns: {found.repeated:,}. If they are copies, leave them out."
    )
    console.show(
        console.table("column|becomes|values|why", rows, f"{table}: {found.rows:,} rows"),
        *([again] if found.repeated else []),
        f"{rules.dim} features. Schema {rules.digest}",
        f"Wrote {out}. Read it, correct it, and give the same file to all sites. Next, at each site:",
        f"  fedvi schema check {out} TABLE",
    )


def _by_column(given: list[str] | None) -> dict[str, list[str]]:
    """Return values by column, from texts like `age=998,999`."""
    found: dict[str, list[str]] = {}
    for text in given or ():
        name, equals, values = text.rpartition("=")
        if not name or not equals or not values:
            raise InputError(f"Expected --missing COLUMN=VALUE, such as age=999, got {text!r}.")
        found.setdefault(name, []).extend(values.split(","))
    return found


@app.command()
def check(
    schema: SchemaFile,
    table: Table,
    site_column: SiteColumn = None,
    strict: Strict = False,
    encoding: Encoding = "",
    decimal: Decimal = "",
    sheet: Sheet = "",
    kinds: Kinds = None,
    as_json: AsJson = False,
) -> None:
    """Check a table, and count its clipped, missing and unknown values.

    Nothing leaves this machine.

    Example: fedvi schema check schema.toml clinic.csv
    """
    from fedvi.config import search
    from fedvi.tables.counts import Counts
    from fedvi.tables.encode import encode_chunks
    from fedvi.tables.reading.source import open_table
    from fedvi.tables.repeats import repeated_rows
    from fedvi.tables.schema import Schema

    if kinds:
        search(Path())
    rules = Schema.load(schema, kinds or ())  # another party may have written it
    reader = open_table(table, rules.dialect, encoding=encoding, decimal=decimal, sheet=sheet)
    if site_column is None and rules.site_column in reader.columns:
        site_column = rules.site_column
    counts, sites, classes = Counts(), Counter[str](), Counter[str]()
    large = not as_json and table.stat().st_size >= LARGE_FILE
    with console.progress(f"Reading {table.name}", 100, wanted=None if large else False) as show:
        for chunk in encode_chunks(rules, reader, site_column=site_column, nameless="", strict=strict):
            counts += chunk.counts
            if chunk.sites is not None:
                sites.update(chunk.sites.tolist())
            if chunk.y is not None:
                classes.update(rules.target.class_counts(chunk.y))
            show(round(100 * reader.fraction), "")
    counts.repeated = repeated_rows([reader], (site_column,))
    by_site = {name or "(none)": count for name, count in sorted(sites.items())}
    show_counts(counts, rules, reader.said)
    if as_json:
        console.print_json({"digest": rules.digest, **vars(counts), "sites": by_site, "classes": classes})
        return
    parts = [kind for kind in KINDS if kind != "foreign" or any(counts.foreign.values())]
    rows = (
        (column.name, *(_share(getattr(counts, kind).get(column.name), counts.rows) for kind in parts))
        for column in (*rules.columns, rules.target)
    )
    event = getattr(rules.target, "event", "")
    console.show(
        console.table("|".join(["column", *parts]), rows, f"{table}: {counts.rows:,} rows"),
        *(
            console.table(f"{what}|rows", ((name, f"{count:,}") for name, count in found.items()))
            for what, found in (("site", by_site), (f"class (the event is {event})", classes))
            if found
        ),
        f"The table fits schema {rules.digest}",
        "These counts reveal something about rows. fedvi sends them nowhere.",
    )


def _share(count: int | None, rows: int) -> str:
    return "" if count is None else f"{count:,} ({100 * count / rows:.2g}%)" if count else "0"
