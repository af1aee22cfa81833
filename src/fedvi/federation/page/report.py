"""A report of a federation to print: one file without scripts, whose policy allows its own style and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

from fedvi.federation.store.contributions import Change, Contribution
from fedvi.federation.store.status import Status
from fedvi.privacy.ledger.statement import rounded_up
from fedvi.web.pages import asset, filled, source

SHOWN = 8
"""Coefficients that are shown per site, those that change most."""

LONGEST = 3.0
"""Standard deviations of the longest bar."""


def report_page(status: Status) -> str:
    """Return the page. status: with contributions."""
    css = asset("web/base.css") + asset("federation/page/report.css")
    parts = status.contributions
    tested = any(each.mean_prediction is not None for each in parts)
    test = "Predictions: change for the rows of the public table, without sign. " if tested else ""
    refused = sum(site.refused for site in status.sites)
    arrived = {None: "-", True: "yes", False: "not yet"}[status.arrived]
    cards = {
        "questions asked": f"{status.asked} of {status.questions}",
        "answers of all sites": str(status.version),
        "arrived: q is where it should be": arrived,
        "messages refused": str(refused),
    }
    return filled(
        asset("federation/page/report.html"),
        {
            "css": css,
            "policy": source(css),
            **{key: escape(getattr(status, key)) for key in ("name", "predicts", "model", "schema")},
            "features": str(status.features),
            "time": moment(status.time),
            "state": escape(_state(status)),
            "cards": "".join(f"<div><dd>{escape(value)}</dd><dt>{name}</dt></div>" for name, value in cards.items()),
            "health": "\n".join(f'<p class="warning">{escape(each)}</p>' for each in status.health),
            "sites": _sites(status),
            "test": test,
            "contributions": _contributions(parts, tested=tested),
            "changes": _changes(parts),
            "withdrawals": _withdrawals(parts),
        },
    )


def moment(time: float) -> str:
    """Return a time as people read it."""
    return datetime.fromtimestamp(time).strftime("%F %T")


def _state(status: Status) -> str:
    since = "Nobody has answered yet." if status.started is None else f"First answer: {moment(status.started)}."
    return f"{since} {f'Ended: {status.stop}.' if status.stop else 'It goes on.'}"


def _sites(status: Status) -> str:
    rows = (
        (
            *(_name(site.name), escape(site.state), str(site.answered), "-" if site.rows is None else str(site.rows)),
            "-" if site.epsilon is None else f"{rounded_up(site.epsilon)} of {site.epsilon_max:g}",
            *("-" if site.delta is None else f"{site.delta:g}", str(site.refused)),
        )
        for site in status.sites
    )
    return _table("Site|State:|Answers|Rows declared|Epsilon declared|Delta|Messages refused", rows)


def _contributions(parts: Sequence[Contribution], *, tested: bool) -> str:
    most = max((each.kl or 0.0 for each in parts), default=0.0)

    def row(each: Contribution) -> list[str]:
        bar = _bar(0.0, 100 * (each.kl or 0.0) / (most or 1.0))
        nats = escape(each.problem) if each.kl is None else f'<span class="number">{_digits(each.kl)}</span> {bar}'
        kept = "-" if each.evidence_kept is None else f"{each.evidence_kept:.0%}"
        own = [_named(each), str(each.rows), str(each.answers), nats, kept]
        return own + ([_digits(each.mean_prediction), _digits(each.largest_prediction)] if tested else [])

    more = "|Predictions, mean|Predictions, largest" if tested else ""
    return _table(f"Site|Rows declared|Answers|KL, nats:|Evidence kept without it{more}", map(row, parts))


def _changes(parts: Sequence[Contribution]) -> str:
    def row(one: Change) -> tuple[str, ...]:
        length = 50 * min(abs(one.mean_change) / one.sd, LONGEST) / LONGEST
        bar = _bar(50.0, length) if one.mean_change >= 0 else _bar(50.0 - length, length, "less")
        number = f'<span class="number">{one.mean_change:+.3g}</span>'
        return _name(one.feature), f"{one.mean:.3g}", f"{one.sd:.2g}", f"{number} {bar}", f"{one.sd_change:+.2g}"

    columns = "Coefficient|Mean|Sd|Change of mean|Change of sd"
    return "".join(
        f"<h3>{_named(each)}</h3>{_table(columns, map(row, each.largest_changes[:SHOWN]), kind='dense')}"
        for each in parts
        if each.changes
    )


def _withdrawals(parts: Sequence[Contribution]) -> str:
    gone = [each for each in parts if each.withdrawn is not None]
    said = "".join(
        f"<div><dt>{_named(each)}, {moment(each.withdrawn or 0.0)}</dt><dd>{escape(each.words)}</dd></div>"
        for each in gone
    )
    return f'<dl class="plain">{said}</dl>' if gone else '<p class="note">None.</p>'


def _table(columns: str, rows: Iterable[Sequence[str]], kind: str = "cells") -> str:
    """Return a table of cells that are HTML. columns: their names with bars between; one that ends in : is of text.

    kind: of cells that are cards where there is no room, or `dense`.
    """
    names = [(name.removesuffix(":"), ' class="text"' if name.endswith(":") else "") for name in columns.split("|")]
    head = "".join(f'<th scope="col"{look}>{name}</th>' for name, look in names)

    def line(cells: Sequence[str]) -> str:
        rest = zip(names[1:], cells[1:], strict=True)
        own = "".join(f'<td data-name="{name}"{look}>{cell}</td>' for (name, look), cell in rest)
        return f'<tr><th scope="row">{cells[0]}</th>{own}</tr>'

    return f"<table class='{kind}'><thead><tr>{head}</tr></thead><tbody>{''.join(map(line, rows))}</tbody></table>"


def _bar(start: float, length: float, kind: str = "more") -> str:
    """Return a bar from `start`, of 100."""
    zero = start + length if kind == "less" else start
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{kind}" x="{start:.1f}" y="1" width="{length:.1f}" height="8"/>'
        f'<line x1="{zero:.1f}" y1="0" x2="{zero:.1f}" y2="10"/></svg>'
    )


def _named(each: Contribution) -> str:
    return _name(", ".join(each.tables)) + ("" if each.withdrawn is None else " (withdrawn)")


def _name(text: str) -> str:
    return f"<bdi>{escape(text)}</bdi>"


def _digits(number: float | None) -> str:
    return "-" if number is None else f"{number:.3g}"
