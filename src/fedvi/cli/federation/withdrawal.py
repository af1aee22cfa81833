"""`fedvi federation withdraw` and `report`: take a site out again, and what each site contributes to q."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.federation.coordinator import PID, Folder, arrival, opened, table_of
from fedvi.cli.options import TABLE_HELP, AsJson, Force, require_new
from fedvi.console import print_json, show, table
from fedvi.errors import InputError
from fedvi.files import write

if TYPE_CHECKING:
    from rich.table import Table

    from fedvi.federation.store.contributions import Contribution, Price
    from fedvi.federation.store.reader import Reader

REFRESH = 2
"""Questions that are asked after a withdrawal, if the reserve has them and nothing is said."""

SHOWN = 3
"""Coefficients that are shown per site."""


def withdraw(
    folder: Folder,
    site: Annotated[str, typer.Argument(help="The site, with its further tables; north.2: that table alone.")],
    refresh: Annotated[
        int | None, typer.Option(min=0, metavar="K", help="Ask K questions of the reserve then. Default: up to 2.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a site's answers out of q, for good, and ask the others again. Works while the federation runs.

    Example: fedvi federation withdraw coordinator north --refresh 2
    """
    from fedvi.federation.service import running
    from fedvi.federation.store.contributions import Snapshot, belongs, prices_of

    if as_json and not yes:
        raise InputError("Expected --yes with --json: nobody can be asked.")
    with opened(folder) as store:
        store.site(site)
        names = [name for name in store.names if belongs(name, site) and name not in store.withdrawn]
        if not names:
            raise InputError(f"{site!r} was withdrawn already. See: fedvi federation report {folder}")
        asked = _refresh(store, names, refresh)
        (before,) = [each for each in Snapshot.of(store).contributions(only=site) if each.withdrawn is None]
        if before.answers and before.kl is None:
            raise InputError(f"Nothing was withdrawn: {before.problem}. Ask all sites for more answers first.")
        prices = prices_of(store, names, asked)
        if not as_json:
            _show_plan(store, names, before, prices, asked)
        if not yes and not typer.confirm(f"Withdraw {' and '.join(names)}?"):
            raise typer.Exit(1)
        store.withdraw(names, asked, time.time())
        store.read_if_due()
        (after,) = [each for each in Snapshot.of(store).contributions(only=site) if set(each.tables) == set(names)]
        problem, is_running = store.problem, running(folder / PID) is not None
    if as_json:
        told = {"withdrawn": names, "refresh": asked, "prices": [dataclasses.asdict(each) for each in prices]}
        print_json(told | {"contribution": dataclasses.asdict(after), "problem": problem, "running": is_running})
        return
    show(f"Withdrawn: {', '.join(names)}. {after.words}", *([f"q cannot be read now: {problem}"] if problem else []))
    show(f"What remains, later: fedvi federation report {folder}")
    if asked and not is_running:
        show(f"Sites answer when the coordinator runs: fedvi federation start {folder}")


def _refresh(store: Reader, names: list[str], wanted: int | None) -> int:
    """Return how many questions to ask then, or raise `InputError`."""
    from fedvi.federation.store.contributions import prices_of

    left = store.description.spec.updates - store.most_questions
    able = any(each.able for each in prices_of(store, names, 0))
    if wanted is None:
        return min(REFRESH, left) if able else 0
    if wanted > left:
        raise InputError(
            f"Expected --refresh up to {left}, got {wanted}: all other questions are planned, and all else is spent by "
            f"then. [plan] reserve keeps some for this; here it was {store.description.reserve}."
        )
    if wanted and not able:
        raise InputError(f"Expected --refresh 0, got {wanted}: no site is left that can answer.")
    return wanted


def _show_plan(store: Reader, names: list[str], before: Contribution, prices: list[Price], refresh: int) -> None:
    """Say what would happen, and what it would cost."""
    description = store.description
    planned, most, asked = description.spec.updates, store.most_questions, int(store.asked.count)
    answers = "1 answer" if before.answers == 1 else f"{before.answers} answers"
    show(
        f"{' and '.join(names)}: {answers} of {description.name} would leave q, for good.",
        "Nothing more is taken of the site: it is told so when it calls next, and stops. The others are told too.",
        "Not undone: models that were exported, and what the site has spent. Its answers stay in coordinator.db, "
        "outside of q, so that the history can be checked.",
        f"KL(q || q without it) is {before.kl:.3g} nats now." if before.kl is not None else before.problem,
        "Not exact: the others have answered questions that were asked with the site in q. Questions that are asked "
        "then make up for it.",
    )
    if asked < most:
        show(f"{most - asked} questions of the plan are still to be asked in any case.")
    if not any(price.answers for price in prices):
        show("No other site has answered anything: q would be the prior.")
    show(
        f"Refresh: {refresh} of the {planned - most} questions that are left of [plan] reserve. They are within the "
        "plan that each site has promised, and paid from it: no ledger admits more than its maximum.",
    )
    if prices:
        show(_price_table(prices, min(most + refresh, planned)))


def _price_table(prices: list[Price], questions: int) -> Table:
    from fedvi.privacy.ledger.statement import rounded_up

    def shown(epsilon: float | None, unknown: str = "-") -> str:
        return unknown if epsilon is None else rounded_up(epsilon)

    rows = (
        (
            *(price.site, price.state, price.answers, shown(price.epsilon)),
            shown(price.epsilon_after, "not known" if price.able else "answers no more"),
            "-" if price.epsilon_max is None else f"{price.epsilon_max:g}",
        )
        for price in prices
    )
    columns = f"site|state|>answers|>epsilon declared|>after question {questions}|>at most"
    return table(columns, rows, title="Price for the sites that stay, by what they declare")


def report(
    folder: Folder,
    test: Annotated[
        Path | None, typer.Option(metavar="TABLE", help=f"Show how predictions of these rows change. {TABLE_HELP}")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="HTML", help="Write a page to print, too.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show what each site contributes to q, and what remains of those withdrawn. Works while the federation runs.

    Example: fedvi federation report coordinator --test public.csv --out report.html
    """
    from fedvi.federation.page.report import moment, report_page
    from fedvi.federation.store.contributions import contributions_of
    from fedvi.federation.store.status import status_of

    if out is not None:
        require_new(out, force)
    with opened(folder) as store:
        found = dataclasses.replace(status_of(store), contributions=contributions_of(store, test))
    if out is not None:
        write(out, report_page(found))
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    show(table_of(found), *arrival(found), contribution_table(found.contributions))
    for each in found.contributions:
        if each.withdrawn is not None:
            show(f"{', '.join(each.tables)} was withdrawn at {moment(each.withdrawn)}. {each.words}")
        elif each.problem:
            show(f"{each.site}: {each.problem}")
    show(f"Messages refused: {sum(site.refused for site in found.sites)}.", *found.health)
    if out is not None:
        typer.echo(f"Wrote {out}.")


def contribution_table(contributions: tuple[Contribution, ...]) -> Table:
    """Return the table of what sites contribute."""

    tested = any(each.mean_prediction is not None for each in contributions)
    columns = [("nats", "{:.3g}", "kl"), ("evidence kept without", "{:.0%}", "evidence_kept")]
    if tested:
        columns += [("predictions", "{:.3g}", "mean_prediction"), ("largest", "{:.3g}", "largest_prediction")]

    def row(each: Contribution) -> tuple[object, ...]:
        numbers = ((form, getattr(each, field)) for _, form, field in columns)
        shown = ["-" if number is None else form.format(number) for form, number in numbers]
        most = [f"{change.feature} {change.mean_change:+.2g}" for change in each.largest_changes[:SHOWN]]
        name = each.site if each.withdrawn is None else f"{each.site} (withdrawn)"
        return name, each.rows, each.answers, *shown, ", ".join(most)

    names = "|>".join(["site", "rows", "answers", *(name for name, _, _ in columns)])
    title = "What each site contributes: KL(q || q without it), and what changes with it"
    return table(f"{names}|coefficients that change most", map(row, contributions), title=title)
