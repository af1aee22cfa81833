"""What the commands about tables have in common: their arguments, and files that are not overwritten by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedvi.errors import InputError

TABLE_HELP = "Read a CSV, TSV (also .gz), Parquet or Arrow file."

Table = Annotated[Path, typer.Argument(metavar="TABLE", help=TABLE_HELP)]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="SCHEMA", help="Read this schema: a TOML file that all sites share.")
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Read this posterior file, from fedvi fit or fedvi federation export.")
]
SiteColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Take a row's site from this column.")]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="Set the encoding of text files, such as latin-1.")]
Level = Annotated[float, typer.Option(metavar="P", help="Set the probability of credible intervals.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind", metavar="MODULE:CLASS", help="Allow the file to use this class of your own. Its code will run."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


Delta = Annotated[
    str,
    typer.Option(
        metavar="DELTA", help="Set delta: a number; auto: min(1e-5, 1/(10 N)) for N rows; paper: 10^floor(log10(1/N))."
    ),
]


def parsed_delta(text: str) -> float | str:
    """Return delta as it was typed: a number, or the name of a rule."""
    try:
        return float(text)
    except ValueError:
        return text


def require_new(path: Path, force: bool) -> None:
    """Raise `InputError` if the file exists and is not to be overwritten."""
    if path.exists() and not force:
        raise InputError(f"Expected a new file, got {path}, which exists. Use --force to overwrite it.")
