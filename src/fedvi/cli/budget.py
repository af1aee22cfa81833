"""`fedvi budget`: plan what a privacy budget buys."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi import console
from fedvi.cli.options import parsed_delta
from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.privacy.budget import Calibration


def budget(
    eps: Annotated[float | None, typer.Option("--eps", metavar="EPS", help="Never exceed this epsilon.")] = None,
    delta: Annotated[
        str,
        typer.Option(
            metavar="DELTA", help="Set delta: a number; auto: min(1e-5, 1/(10 ROWS)); paper: 10^floor(log10(1/ROWS))."
        ),
    ] = "auto",
    rows: Annotated[
        int | None, typer.Option(metavar="N", help="Set the client's rows, for --delta auto or paper.")
    ] = None,
    sampling_rate: Annotated[
        float, typer.Option(metavar="P", help="Set the probability that a row is in a step's batch; 1: all rows.")
    ] = 0.02,
    noise_multiplier: Annotated[
        float | None, typer.Option(metavar="X", help="Set the noise's standard deviation, in clip norms.")
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Set the private steps per update.")] = 25,
    updates: Annotated[int | None, typer.Option(metavar="N", help="Set the number of updates.")] = None,
    accountant: Annotated[
        str, typer.Option(metavar="NAME", help="Choose pld, rdp, moments (the paper's) or filter.")
    ] = "pld",
    schema: Annotated[
        Path | None,
        typer.Option(metavar="SCHEMA", help="Forecast what --rows rows by this schema will say with --eps alone."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan a privacy budget: compute --eps, --noise-multiplier or --updates from the others.

    Give two of the three options; the third is computed.

    Example: fedvi budget --eps 0.5 --delta 1e-4 --noise-multiplier 5
    """
    from fedvi.privacy.budget import Budget, calibrate

    rule = parsed_delta(delta)
    if isinstance(rule, str) and rows is None:
        raise InputError("Expected --delta as a number, or --rows to compute it, got neither.")
    plan = calibrate(
        epsilon=eps,
        delta=rule if isinstance(rule, float) else Budget(1.0, rule).delta_for(rows or 0),
        sampling_rate=sampling_rate,
        steps=steps,
        updates=updates,
        noise_multiplier=noise_multiplier,
        accountant=accountant,
    )
    said = _forecast(schema, rows, eps, rule)
    if as_json:
        console.print_json(vars(plan) | ({"forecast": said} if said else {}))
    else:
        _show(plan, eps)
        console.show(*([f"Forecast, without other sites: {said}"] if said else []))


def _forecast(schema: Path | None, rows: int | None, eps: float | None, delta: float | str) -> str:
    """Return in words what a fit of so many rows will say; nothing without a schema."""
    if schema is None:
        return ""
    if rows is None or eps is None:
        raise InputError("Expected --rows and --eps for a forecast by --schema.")
    from fedvi.inference.forecasting import forecast
    from fedvi.tables.schema import Schema

    rules = Schema.load(schema, ())
    return forecast(rules, [rows], eps, delta=delta).in_words(rules.target.model().effect)


def _show(plan: Calibration, wanted: float | None) -> None:
    from fedvi.privacy.ledger.statement import ACCOUNTED_BY

    rows = {
        "updates": f"{plan.updates}",
        "noise multiplier": f"{plan.noise_multiplier:g} clip norms",
        "sampling rate": f"{plan.sampling_rate:g}",
        "steps per update": f"{plan.steps}",
        "delta": f"{plan.delta:g}",
        "epsilon, one row added or removed": f"{plan.epsilon:.4f}" + ("" if wanted is None else f" of {wanted:g}"),
        "epsilon, one row exchanged": f"{plan.epsilon_substitute:.4f}",
        "accountant": f"{plan.accountant} ({ACCOUNTED_BY[plan.accountant]})",
    }
    meaning = "No update fits this budget. Use more noise, fewer steps or a larger epsilon."
    if plan.updates:
        meaning = (
            f"What it means: after {plan.updates} updates, no conclusion from all that the client sent is more than "
            f"{math.exp(min(plan.epsilon, 20)):.3g} times as likely with any one of its rows as without it, except "
            f"with a probability of about {plan.delta:g}."
        )
    console.show(console.table("|", rows.items(), title="Privacy budget"), meaning)
