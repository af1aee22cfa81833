"""`fedvi forecast`: how wide intervals will be, before a budget is spent."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedvi.cli.options import (
    AsJson,
    Covariance,
    Delta,
    Force,
    Level,
    Priors,
    PriorSd,
    Questions,
    SchemaFile,
    parsed_delta,
    parsed_priors,
    require_figure,
)
from fedvi.console import print_json, progress, show, table
from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.inference.forecasting import Forecast
    from fedvi.tables.schema import Schema
    from fedvi.tables.typical import Typical


def forecast(
    schema: SchemaFile,
    rows: Annotated[str, typer.Option(metavar="N,N,...", help="Set the number of rows of every site.")],
    eps: Annotated[
        str, typer.Option("--eps", metavar="EPS", help="Set the budget of every site; or one each: 1,1,0.5.")
    ] = "1",
    delta: Delta = "auto",
    correlation: Annotated[
        float | None,
        typer.Option(metavar="R", help="Take features for correlated by R. Default: as the schema says, else 0.3."),
    ] = None,
    event_share: Annotated[
        float | None,
        typer.Option(metavar="P", help="Set the share of rows with the event. Default: the schema's, or .5."),
    ] = None,
    questions: Questions = None,
    covariance: Covariance = "auto",
    prior_sd: PriorSd = None,
    prior: Priors = None,
    effects: Annotated[
        float | None, typer.Option(metavar="SD", help="Set how large coefficients are. Default: as the prior says.")
    ] = None,
    level: Level = 0.9,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Show N features, the widest first.")] = 25,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it too: PNG, SVG or PDF.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Forecast how wide intervals will be, and how much evidence noise leaves.

    From public numbers alone: schema, rows, budgets and plan. Nothing is spent,
    and no table is read. Effects are taken to be as large as the prior says.

    Example: fedvi forecast schema.toml --rows 1400,1000,600 --eps 1
    """
    from fedvi.checks import in_range
    from fedvi.inference import forecasting
    from fedvi.tables.schema import Schema

    if figure is not None:
        require_figure(figure, force)
    in_range("--level", level, 0.001, 0.999)
    rules = Schema.load(schema, ())
    sites, budgets = [int(count) for count in _numbers("--rows", rows, whole=True)], _numbers("--eps", eps)
    settings: dict[str, Any] = {
        "delta": parsed_delta(delta),
        "typical": _typical(rules, correlation, event_share),
        "questions": questions or 0,
        "covariance": covariance,
        "prior_sd": prior_sd,
        "priors": parsed_priors(prior),
        "effects": effects,
    }
    plan: dict[str, Any] = {"rows": sites, "epsilon": budgets}
    wanted = False if as_json else None
    with progress("forecast", 6, wanted=wanted) as shown:
        shown(0, PLANNED)
        planned = forecasting.forecast(rules, **settings, **plan)
        found = {PLANNED: planned}
        for number, (what, change) in enumerate(_changes(planned, budgets, effects).items(), 1):
            shown(number, what)
            found[what] = forecasting.forecast(rules, **{**settings, **plan, **change})
    if figure is not None:
        from fedvi.reports.figures.forecast import draw_forecast

        with progress("figure", None, wanted=wanted):
            draw_forecast(rules, planned, found[WITHOUT], settings, level, figure)
    if as_json:
        bought = [
            {"change": what, "typical_half_width": each.typical(level), "evidence_kept": each.evidence}
            for what, each in found.items()
        ]
        about = {"schema": rules.digest, "unit": rules.target.unit, "level": level, "covariance": planned.covariance}
        own = {"rows": sites, "epsilon": planned.epsilons, "questions": planned.questions, "warning": planned.reason}
        print_json({**about, **own, "features": planned.table(level), "changes": bought})
        return
    _show(rules, planned, found, level, top, figure)


PLANNED, WITHOUT = "as planned", "no noise (not private)"


def _changes(planned: Forecast, epsilons: list[float], effects: float | None) -> dict[str, dict[str, Any]]:
    """Return what could be bought, or might be so, in place of what is planned. effects: their size, if it was said."""
    from fedvi.tables.schema import INTERCEPT

    rows = list(planned.rows)
    epsilons = epsilons * len(rows) if len(epsilons) == 1 else epsilons
    own = [sd for name, sd in zip(planned.features, planned.prior.tolist(), strict=True) if name != INTERCEPT]
    one_more = {"rows": [*rows, round(statistics.mean(rows))], "epsilon": [*epsilons, statistics.mean(epsilons)]}
    return {
        "if effects are half as large": {"effects": (statistics.median(own) if effects is None else effects) / 2},
        "twice the rows at every site": {"rows": [2 * count for count in rows]},
        "one more such site": one_more,
        "twice the epsilon": {"epsilon": [2 * epsilon for epsilon in epsilons]},
        WITHOUT: {"epsilon": None, "covariance": "auto"},
    }


def _typical(schema: Schema, correlation: float | None, event_share: float | None) -> Typical:
    """Return what rows are like, by the schema or as it was said."""
    from fedvi.checks import in_range
    from fedvi.tables.typical import CORRELATION, Typical

    if event_share is not None:
        in_range("--event-share", event_share, 0.001, 0.999)
    if schema.typical is None or correlation is not None:
        guess = Typical.guess(schema, CORRELATION if correlation is None else correlation)
        found = guess if schema.typical is None else dataclasses.replace(schema.typical, own=guess.own)
    else:
        found = schema.typical
    return found if event_share is None else dataclasses.replace(found, event=event_share)


def _numbers(option: str, text: str, *, whole: bool = False) -> list[float]:
    """Return the numbers that were given with commas between them."""
    try:
        found = [float(int(part)) if whole else float(part) for part in text.split(",")]
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"Expected {option} as {kind} with commas between sites, got {text!r}.") from None
    return found


def _show(
    rules: Schema, planned: Forecast, found: dict[str, Forecast], level: float, top: int, figure: Path | None
) -> None:
    lines = sorted(planned.table(level), key=lambda each: -each["half_width"])
    ratio = "" if not rules.target.model().effect else "|>ratio"

    def row(each: dict[str, Any]) -> tuple[str, ...]:
        mark = " *" if each["prior_decides"] else ""
        shown = (f"{each['feature']}{mark}", f"{each['sd']:.3g}", f"{each['half_width']:.3g}")
        factor = (f"x/÷ {each['ratio']:.3g}",) if ratio else ()
        return *shown, *factor, f"{each['evidence_kept']:.0%}"

    sites = f"{len(planned.rows)} sites" if len(planned.rows) > 1 else "one site"
    title = f"Forecast: {rules.target.unit}, {sites}, {sum(planned.rows):,} rows, {planned.covariance} covariance"
    features = table(f"feature|>sd|>{level:.0%} interval +-{ratio}|>evidence kept", map(row, lines[:top]), title)
    bought = table(
        f"what|>typical {level:.0%} interval +-|>evidence kept",
        ((what, f"{each.typical(level):.3g}", f"{each.evidence:.0%}") for what, each in found.items()),
        "What it would buy",
    )
    notes = [f"{len(lines) - top} more; see --top."] if len(lines) > top else []
    if any(each["prior_decides"] for each in lines[:top]):
        notes.append("* The prior decides: the interval is more than half as wide as the prior's.")
    if planned.reason:
        notes.append(f"Warning: a fit would say that its intervals are not to be trusted: {planned.reason}.")
    if rules.typical is None:
        notes.append(
            "The schema does not say what rows are like: numbers are taken for correlated (--correlation), levels for "
            "equally frequent. fedvi schema infer finds it in a sample."
        )
    written = [] if figure is None else [f"Figure: {figure}"]
    show(features, *notes, bought, "In units of the schema's scales, as fedvi inspect. Nothing was spent.", *written)
