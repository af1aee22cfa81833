"""The rows of every site, out of one table with a column of sites, or out of one table per site."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from fedvi.checks import whole
from fedvi.datasets.partitions import ByColumn
from fedvi.errors import InputError
from fedvi.inference.rows import CheckedTable
from fedvi.tables.counts import Counts
from fedvi.tables.encode import Encoded, encode
from fedvi.tables.reading.source import Source, TableSource, open_table
from fedvi.tables.schema import Schema

Tables = Source | Mapping[str, Source] | Sequence[Source]


def open_tables(schema: Schema, tables: Tables, site_column: str | None) -> tuple[dict[str, TableSource], str | None]:
    """Return readers by the name of their site, and the column of sites if there is one table for all of them.

    Without a `site_column` that is the schema's, if the table has it; else one table is a federation of one.
    """
    if isinstance(tables, Mapping) and site_column is None and not set(schema.reads()) <= set(map(str, tables)):
        check_alike(map(str, tables))
        return {str(name): open_table(table, schema.dialect) for name, table in tables.items()}, None
    if isinstance(tables, Sequence) and not isinstance(tables, str):
        if site_column is None and len(tables) > 1:
            return _by_file(schema, tables), None
        if len(tables) != 1:
            raise InputError(f"Expected one table for the site column {site_column!r}, got {len(tables)}.")
        (tables,) = tables
    reader = open_table(tables, schema.dialect)
    if site_column is None and schema.site_column:
        reader.require(schema.reads())
        site_column = schema.site_column if schema.site_column in reader.columns else None
    return {"all" if reader.path is None else reader.path.stem: reader}, site_column


def _by_file(schema: Schema, tables: Sequence[Source]) -> dict[str, TableSource]:
    """Return tables by the names of their files."""
    paths = [table.path if isinstance(table, TableSource) else table for table in tables]
    names = [Path(path).stem for path in paths if isinstance(path, str | PathLike)]
    if len(names) < len(paths):
        raise InputError("Expected a site column, or the paths of several tables, or tables by the names of sites.")
    if len(set(names)) < len(names):
        raise InputError(f"Expected several files with different names, one per site, got {', '.join(names)}.")
    check_alike(names)
    return {name: open_table(table, schema.dialect) for name, table in zip(names, tables, strict=True)}


def check_alike(names: Iterable[str]) -> None:
    """Raise `InputError` if names of sites differ in how they are written only: each would have a whole budget."""
    seen: dict[str, str] = {}
    for name in names:
        same = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        same = str(int(same)) if same.isdecimal() else same
        if same in seen:
            raise InputError(
                f"Expected names of sites that differ in more than how they are written, got {seen[same]!r} and "
                f"{name!r}: if they are one site, it would have two budgets. Write them alike."
            )
        seen[same] = name


def read_sites(
    schema: Schema,
    tables: Mapping[str, TableSource],
    site_column: str | None = None,
    *,
    min_rows: int = 1,
    nameless: str | None = None,
    strict: bool = False,
) -> tuple[dict[str, CheckedTable], Counts]:
    """Return the encoded rows of every site by name, and what happened to values.

    min_rows: sites with fewer rows become one site 'other'. nameless: the site of rows without one; None: refuse them.
    """
    whole("min_rows", min_rows, 1)
    if nameless is not None and site_column is None:
        raise InputError(
            f"Expected a column of sites for rows that name none, which go to {nameless!r}, got no column."
        )
    encoded: dict[str, Encoded] = {
        name: encode(schema, table, site_column=site_column, nameless=nameless, strict=strict)
        for name, table in tables.items()
    }
    counts = sum((each.counts for each in encoded.values()), Counts())
    if site_column is None:
        return {name: each.rows for name, each in encoded.items()}, counts
    (whole_table,) = encoded.values()
    x, y = whole_table.rows
    groups = ByColumn(site_column, min_rows).split(y, {site_column: whole_table.sites})
    check_alike(groups)
    return {name: (x[rows], y[rows]) for name, rows in groups.items()}, counts
