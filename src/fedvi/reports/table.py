"""The tables as text: what every method reached, what was published, and what the clients spent.

The terminal, Markdown and the page show the same cells. Epsilons that only the trade-off figure needs are in a second,
compact table.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from fedvi import console
from fedvi.reports.grid import grid
from fedvi.reports.results import Report, Row

if TYPE_CHECKING:
    from rich.table import Table

    from fedvi.experiments.directory import Results

NONE = "\N{EN DASH}"
SHORT = {
    "data": "",
    "accuracy [%]": "acc [%]",
    "log-likelihood": "log-lik",
    "difference": "diff",
    "largest ε, accounted / proven": "largest ε",
    "communications": "updates",
}
"""Names of columns as short as a terminal needs them."""


def header(report: Report) -> list[str]:
    """Return the names of the columns."""
    names = ["data", "method"] + (["ε"] if any(row.budget is not None for row in report.table) else [])
    for measure in report.measures:
        names += [measure.axis, "paper", "difference"] if report.has_published else [measure.axis]
    private = any(row.accounted is not None or row.proven is not None for row in report.table)
    return [*names, *(["largest ε, accounted / proven"] if private else []), "communications"]


def cells(row: Row, names: list[str]) -> list[str]:
    """Return one row as text, in the order of the header."""
    text = [row.partition, row.label] + (["" if row.budget is None else f"{row.budget:g}"] if "ε" in names else [])
    for one in row.compared:
        text.append(number(one.mean, one.std, one.measure.digits))
        if "paper" in names:
            text.append(number(one.published, None, one.measure.digits))
            text.append(NONE if one.difference is None else signed(one.difference, one.measure.digits))
    if len(names) > len(text) + 1:
        spent = (row.accounted, row.proven)
        shown = " / ".join(NONE if e is None else "∞" if math.isinf(e) else f"{e:.3f}" for e in spent)
        text.append(NONE if spent == (None, None) else shown)
    return [*text, NONE if row.communications is None else f"{row.communications:,.0f}"]


def number(mean: float | None, std: float | None, digits: int) -> str:
    """Return mean and standard deviation as text."""
    return NONE if mean is None else f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def signed(value: float, digits: int) -> str:
    """Return a difference with its sign; a difference that rounds to nothing has none."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def compact(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of the trade-off table: a row per partition and epsilon, a column per method."""
    found = {(row.partition, row.budget or 0.0, row.base): row for row in report.other_budgets}
    bases = [row for row in report.bases.values() if any(base == row.base for _, _, base in found)]
    names = ["data", "ε", *(f"{row.name}: {m.axis}" for row in bases for m in report.measures)]
    lines = []
    for place, budget in sorted({(report.partitions.index(partition), budget) for partition, budget, _ in found}):
        partition = report.partitions[place]
        line = [partition, f"{budget:g}"]
        for base in bases:
            row = found.get((partition, budget, base.base))
            shown = [number(one.mean, one.std, one.measure.digits) for one in row.compared] if row else []
            line += shown or [NONE] * len(report.measures)
        lines.append(line)
    return names, lines


def markdown(outcome: Results, *, partitions: list[str] | None = None, tradeoff: bool = False) -> str:
    """Return the main table (or the trade-off table) as Markdown; the same run directory gives the same text.

    partitions: only these partitions, all when None.
    """
    report = Report(outcome)
    names = header(report)
    lines = [cells(row, names) for row in report.table]
    if tradeoff:
        names, lines = compact(report)
    shown = [line for line in lines if partitions is None or line[0] in partitions]
    return console.markdown([names, *shown], left=2)


def render_grid(outcome: Results) -> Table | None:
    """Return the first measure over a swept grid for a terminal, None when nothing was swept."""
    report = Report(outcome)
    found = grid(report)
    if found is None:
        return None
    values = found.values(report.measures[0])
    table = _simple(f"{report.measures[0].axis}: {' minus '.join(found.methods)}")
    for name in (f"{found.y} \\ {found.x}", *(f"{x:g}" for x in found.xs)):
        table.add_column(name, justify="right")
    for y in reversed(found.ys):
        table.add_row(f"{y:g}", *(signed(values[x, y], 1) if (x, y) in values else "" for x in found.xs))
    return table


def render(outcome: Results, width: int = console.WIDTH) -> Table:
    """Return the main table for a terminal so many characters wide.

    A narrow one has no room for epsilons, communications and the standard deviations of log-likelihoods.
    """
    from rich.markup import escape
    from rich.text import Text

    report = Report(outcome)
    names, narrow = header(report), width < console.WIDTH
    left_out = ("ε", "largest", "comm") if narrow else ("ε",)
    kept = [place for place, name in enumerate(names) if not name.startswith(left_out)]
    private = any(names[place].startswith("largest") for place in kept)
    note = " Largest ε: as accounted/as proven." if private else ""
    table = _simple(report.title, f"Simulation: seeded noise, not private.{note}")
    for place in kept:
        name = escape(SHORT.get(names[place], names[place]))
        table.add_column(name, justify="left" if place < 2 else "right", no_wrap=True)
    for _, rows in groupby(report.table, key=lambda row: row.partition):
        for row in rows:
            texts = [text.replace(" / ", "/") for text in cells(row, names)]
            texts[1] = row.method
            if narrow:
                texts = [
                    text.split(" ± ")[0] if name == "log-likelihood" else text.replace(" ", "")
                    for name, text in zip(names, texts, strict=True)
                ]
            colours = ["red" if row.over and name.startswith("largest") else "" for name in names]
            table.add_row(*(Text(texts[place], colours[place]) for place in kept))
        table.add_section()
    return table


def _simple(title: str, caption: str = "") -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    return Table(title=escape(title), caption=caption or None, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
