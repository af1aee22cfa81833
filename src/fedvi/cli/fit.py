"""`fedvi fit`: from tables to a posterior file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedvi.cli.options import (
    TABLE_HELP,
    AsJson,
    Covariance,
    Decimal,
    Delta,
    Encoding,
    Force,
    Nameless,
    Priors,
    PriorSd,
    Questions,
    SchemaFile,
    Sheet,
    SiteColumn,
    Strict,
    parsed_delta,
    parsed_priors,
    require_new,
    show_counts,
)
from fedvi.console import print_json, show, table
from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.fitting.fitted import Fitted
    from fedvi.fitting.records import SiteRecord


def fit(
    schema: SchemaFile,
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE...", help=f"{TABLE_HELP} Give one, with --site-column or not, or one per site."),
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Write this posterior file.")],
    site_column: SiteColumn = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="Choose the model; your own as module:Class. Default: by the schema's target."
        ),
    ] = None,
    eps: Annotated[
        float | None, typer.Option("--eps", metavar="EPS", help="Set the budget of every site. Default: 1.")
    ] = None,
    delta: Delta = "auto",
    public_rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE=ROWS",
            help="Declare a site's number of rows. Default: the true one, rounded down to two digits.",
        ),
    ] = None,
    not_private: Annotated[
        bool, typer.Option("--not-private", help="Add no noise, to see what privacy costs.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Set the seed; the same seed gives the same file.")] = 0,
    questions: Questions = None,
    covariance: Covariance = "auto",
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Spend a tenth of the budget on centres and scales of numbers.")
    ] = False,
    min_rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Join sites with fewer rows to one site 'other'.")
    ] = 1,
    nameless: Nameless = None,
    prior_sd: PriorSd = None,
    prior: Priors = None,
    test: Annotated[Path | None, typer.Option(metavar="TABLE", help="Score predictions on these rows.")] = None,
    strict: Strict = False,
    encoding: Encoding = "",
    decimal: Decimal = "",
    sheet: Sheet = "",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to tables: simulate a federation of their sites with privacy budgets.

    It is a simulation, for planning and teaching: the noise is seeded, and all
    rows are read on this machine.

    Example: fedvi fit schema.toml patients.csv --site-column hospital
    --out model.fedvi
    """
    require_new(out, force)
    if not_private and eps is not None:
        raise InputError(f"Expected --eps or --not-private, got both (--eps {eps:g}). Leave one out.")
    from fedvi.fitting.fit import fit as fit_tables
    from fedvi.tables.reading.source import open_table
    from fedvi.tables.schema import Schema

    loaded = Schema.load(schema)
    written: dict[str, Any] = {"encoding": encoding, "decimal": decimal, "sheet": sheet}
    fitted = fit_tables(
        loaded,
        [open_table(path, loaded.dialect, **written) for path in tables],
        site_column=site_column,
        model=model,
        epsilon=None if not_private else 1.0 if eps is None else eps,
        delta=parsed_delta(delta),
        public_rows=_public_rows(public_rows),
        seed=seed,
        questions=questions,
        covariance=covariance,
        standardise=standardise,
        min_rows=min_rows,
        nameless=nameless,
        prior_sd=prior_sd,
        priors=parsed_priors(prior),
        strict=strict,
        progress=False if as_json else None,
    )
    if fitted.counts is not None:
        show_counts(fitted.counts, fitted.schema, fitted.said, warn=False)  # the fit has warned
    scores = {} if test is None else fitted.evaluate(open_table(test, loaded.dialect, **written), strict=strict)
    fitted.save(out)
    if as_json:
        origin = {"model": str(out), "schema": fitted.schema.digest}
        sites = [dataclasses.asdict(site) for site in fitted.sites]
        arrived = {"converged": fitted.converged, "convergence": fitted.convergence, "warnings": fitted.warnings}
        values = {} if fitted.counts is None else vars(fitted.counts)
        print_json(
            {**origin, "sites": sites, "scores": scores, "statement": fitted.statement, **arrived, "values": values}
        )
    else:
        _show_fit(fitted, out, scores)


def _public_rows(given: list[str] | None) -> dict[str, int] | None:
    """Return the rows that sites declare, from texts like `north=1200`."""
    declared = {}
    for text in given or ():
        name, _, rows = text.rpartition("=")
        if not name or not rows.isdigit():
            raise InputError(f"Expected --public-rows SITE=ROWS, such as north=1200, got {text!r}.")
        declared[name] = int(rows)
    return declared or None


def _decided(fitted: Fitted) -> list[str]:
    """Return a line about coefficients that the prior decides."""
    names = [each.feature for each in fitted.coefficients() if each.prior_decides]
    if not names:
        return []
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return [f"The prior decides {len(names)} of {fitted.schema.dim} coefficients: {shown}. Another prior: --prior-sd."]


def _show_fit(fitted: Fitted, out: Path, scores: dict[str, float]) -> None:
    from fedvi.privacy.ledger.statement import rounded_up

    def row(site: SiteRecord) -> tuple[object, ...]:
        spent = "not private" if site.epsilon is None else f"{rounded_up(site.epsilon)} of {site.epsilon_max:g}"
        return site.name, site.rows, site.updates, spent, "-" if site.delta is None else f"{site.delta:g}"

    sites, features = len(fitted.sites), len(fitted.schema.features)
    kind = fitted.answered.plan.covariance
    where = f"{sites} sites" if sites > 1 else "one site"
    title = f"{fitted.schema.target.unit}: {where}, {features} features, {kind} covariance"
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items())
    show(
        table("site|>rows|>answers|>epsilon|>delta", map(row, fitted.sites), title),
        *([f"Test rows: {shown}"] if scores else []),
        fitted.statement.splitlines()[0].capitalize() + ".",
        *fitted.verdict,
        *_decided(fitted),
        f"Wrote {out}. Next: fedvi predict {out} TABLE, fedvi inspect {out}",
    )
