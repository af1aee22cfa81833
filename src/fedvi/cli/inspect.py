"""`fedvi inspect`: the content and the origin of a posterior file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.options import AsJson, Kinds, Level, ModelFile
from fedvi.console import print_json

if TYPE_CHECKING:
    from fedvi.fitting.fitted import Coefficient, Fitted

NARROWEST = 11
"""Characters of an interval's drawing at least; always an odd number, so that zero has its own."""


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
    from fedvi.fitting.fitted import Fitted
    from fedvi.fitting.posterior_file import read_header

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
    _show(fitted, coefficients, top, level)
    for line in written:
        typer.echo(line)


def _show(fitted: Fitted, coefficients: list[Coefficient], top: int, level: float) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    shown = coefficients[:top]
    table = Table(title=f"Coefficients, {level:.0%} credible intervals; kept: evidence that privacy noise has left")
    table.add_column("feature", overflow="fold")
    for name in ("mean", "low", "high", "kept"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    longest = max(len(each.feature) for each in shown)
    room = max(NARROWEST, min(41, console.width - min(longest, 28) - 46)) // 2 * 2 + 1
    reach = max(max(abs(each.low), abs(each.high)) for each in shown)
    for each in shown:
        numbers = (f"{value:.2f}" for value in (each.mean, each.low, each.high))
        table.add_row(escape(each.feature), *numbers, f"{each.evidence_kept:.0%}", drawing(each, reach, room))
    console.print(table)
    if len(coefficients) > top:
        console.print(f"{len(coefficients) - top} more; see --top.")
    sites = ", ".join(f"{site.name} ({site.rows} rows, {site.updates} updates)" for site in fitted.sites)
    console.print(f"Sites: {sites}", markup=False, soft_wrap=True)
    console.print(f"Schema: {fitted.schema.digest[:12]}", markup=False)
    console.print(fitted.statement, markup=False, highlight=False, soft_wrap=True)


def drawing(each: Coefficient, reach: float, room: int) -> str:
    """Return the interval as `room` characters, zero in the middle, `reach` at both ends."""

    def place(value: float) -> int:
        return round((value / reach + 1) / 2 * (room - 1)) if reach else room // 2

    line = [" "] * room
    line[room // 2] = "┊"
    low, high = place(each.low), place(each.high)
    line[low : high + 1] = "─" * (high - low + 1)
    line[place(each.mean)] = "●"
    return "".join(line)
