"""What the commands about tables have in common: their arguments, and files that are not overwritten by accident."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.tables.counts import Counts
    from fedvi.tables.schema import Schema

TABLE_HELP = "Read a CSV, TSV (also .gz), Excel, Parquet or Arrow file."

Table = Annotated[Path, typer.Argument(metavar="TABLE", help=TABLE_HELP)]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="SCHEMA", help="Read this schema: a TOML file that all sites share.")
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Read this posterior file, from fedvi fit or fedvi federation export.")
]
SiteColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Take a row's site from this column.")]
Encoding = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Set the encoding of text files. Default: the schema's, else a guess (site join: UTF-8)."
    ),
]
Decimal = Annotated[
    str, typer.Option(metavar="CHAR", help="Say what separates decimals, . or , where 45.123 leaves it open.")
]
Sheet = Annotated[str, typer.Option(metavar="NAME", help="Read this sheet of a workbook.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse values that the schema does not expect, instead of counting them.")
]
Questions = Annotated[
    int | None, typer.Option(min=2, metavar="N", help="Ask every site N questions. Default: the plan's own number.")
]
Covariance = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="full: true intervals; diagonal: predictions with many columns and little privacy. Default: auto.",
    ),
]
PriorSd = Annotated[
    float | None,
    typer.Option(
        "--prior-sd", metavar="SD", help="Set the prior's standard deviation of a weight. Default: 1; numbers: 3.2."
    ),
]
Priors = Annotated[
    list[str] | None,
    typer.Option("--prior", metavar="COLUMN=MEAN,SD", help="Set the prior of a column's weights, or of a feature's."),
]
Nameless = Annotated[
    str | None, typer.Option(metavar="SITE", help="Give rows without a site to this one. Default: refuse them.")
]
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


def parsed_priors(given: list[str] | None) -> dict[str, tuple[float, float]]:
    """Return means and standard deviations by column, from texts like `age=0,0.5`."""
    found = dict[str, tuple[float, float]]()
    for text in given or ():
        name, _, pair = text.rpartition("=")
        try:
            mean, sd = map(float, pair.split(","))
        except ValueError:
            raise InputError(f"Expected --prior COLUMN=MEAN,SD, such as age=0,0.5, got {text!r}.") from None
        if name in found:
            raise InputError(f"Expected one prior of {name!r}, got two: {found[name]} and {(mean, sd)}.")
        found[name] = (mean, sd)
    return found


def several(given: list[str] | None, columns: Collection[str] = ()) -> list[str]:
    """Return names that were given one by one, or with commas between them; a column's own name may hold commas."""
    return [name for each in given or [] for name in ([each] if each in columns else each.split(","))]


def show_counts(counts: Counts, schema: Schema, said: Iterable[str] = (), *, warn: bool = True) -> None:
    """Say on standard error how tables were read and what happened to their values; and warn where it is much."""
    lines, _ = counts.lines(schema.expected)
    for line in (*said, *lines):
        typer.echo(f"Note: {line}", err=True)
    if warn:
        counts.warn(schema.expected)


FIGURES = (".png", ".svg", ".pdf")


def require_figure(path: Path, force: bool) -> None:
    """Raise `InputError` unless a figure may be written here, before the work for it begins."""
    if path.suffix.lower() not in FIGURES:
        raise InputError(f"Expected a figure named {', '.join(f'*{kind}' for kind in FIGURES)}, got {path}.")
    require_new(path, force)


def require_new(path: Path, force: bool) -> None:
    """Raise `InputError` if the file exists and is not to be overwritten."""
    if str(path) == "-":
        raise InputError("Expected the name of a file, got '-'. For standard output say /dev/stdout.")
    if path.exists() and not force:
        raise InputError(f"Expected a new file, got {path}, which exists. Use --force to overwrite it.")
