"""`fedvi inspect`: what a posterior file says, and what to know before it is believed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.options import AsJson, Kinds, Level, ModelFile, require_figure
from fedvi.console import print_json, show, stdout, table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from fedvi.fitting.fitted import Fitted
    from fedvi.fitting.records import Coefficient

NARROWEST = 11
"""Characters of an interval's drawing at least; always an odd number, so that zero has its own."""


SIGNS, PLAIN_SIGNS = "┊─●", "|-o"
"""What intervals are drawn with; in terminals that know no others, with letters."""

DECIDED = "* The prior decides: the posterior is more than half as wide. Its interval says little about the rows."


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

    if figure is not None:
        require_figure(figure, force=True)
    fitted = Fitted.load(model, kinds or ())
    fitted.verify()
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
        arrived = {"converged": fitted.converged, "convergence": fitted.convergence, "warnings": fitted.warnings}
        target = fitted.schema.target
        read = {"predicts": target.predicted, "unit": target.unit, "answered": header["answered"], **arrived}
        print_json({**plain, **read, "coefficients": [dataclasses.asdict(each) for each in coefficients]})
        return
    more = [f"{len(coefficients) - top} more; see --top."] if len(coefficients) > top else []
    shown = coefficients[:top]
    decided = [DECIDED] if any(each.prior_decides for each in shown) else []
    show(_table_of(shown, level, fitted.schema.target.unit), *decided, *more, *_origin(fitted), *written)


def _origin(fitted: Fitted) -> list[str]:
    """Return where a posterior comes from, and what to know before it is believed."""
    sites = ", ".join(f"{site.name} ({site.rows} rows, {site.updates} answers)" for site in fitted.sites)
    lines = [f"Sites: {sites}", f"Schema: {fitted.schema.digest[:12]}"]
    plan = fitted.answered.plan
    about = f"{plan.moments} of them about moments of the rows" if plan.moments else "without noise"
    lines.append(f"Covariance: {plan.covariance}, read out of {plan.questions} questions, {about}")
    return [*lines, *fitted.verdict, fitted.statement]


def _table_of(coefficients: list[Coefficient], level: float, unit: str) -> RichTable:
    longest = max(len(each.feature) for each in coefficients)
    console = stdout()
    signs = SIGNS if console.encoding.lower().startswith("utf") else PLAIN_SIGNS
    room = max(NARROWEST, min(41, console.width - min(longest, 28) - 46)) // 2 * 2 + 1
    reach = max(max(abs(each.low), abs(each.high)) for each in coefficients)

    def row(each: Coefficient) -> tuple[str, ...]:
        numbers = (f"{value:.2f}" for value in (each.mean, each.low, each.high))
        name = f"{each.feature} *" if each.prior_decides else each.feature
        return name, *numbers, f"{each.evidence_kept:.0%}", _drawing(each, reach, room, signs)

    title = f"Coefficients ({unit}), {level:.0%} credible intervals; kept: evidence that privacy noise has left"
    shown = table("feature|>mean|>low|>high|>kept|interval", map(row, coefficients), title)
    shown.columns[0].overflow = "fold"
    for column in shown.columns[1:]:
        column.no_wrap = True
    return shown


def _drawing(each: Coefficient, reach: float, room: int, signs: str) -> str:
    """Return the interval as `room` characters, zero in the middle, `reach` at both ends. signs: zero, line, mean."""

    def place(value: float) -> int:
        return round((value / reach + 1) / 2 * (room - 1)) if reach else room // 2

    line = [" "] * room
    zero, through, mean = tuple(signs)
    line[room // 2] = zero
    low, high = place(each.low), place(each.high)
    line[low : high + 1] = through * (high - low + 1)
    line[place(each.mean)] = mean
    return "".join(line)
