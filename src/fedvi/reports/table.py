"""The numbers as text: tables for the terminal, Markdown and the page, and the page's summary.

All tables show the same cells. Epsilons that only the trade-off figure needs are in a second, compact table.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from fedvi import console
from fedvi.reports.charts import grid
from fedvi.reports.results import ACCURACY, Report, Row

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
    private = ["largest ε, accounted / proven"] if any(row.spent for row in report.table) else []
    return [*names, *private, "communications"]


def cells(row: Row, names: list[str]) -> list[str]:
    """Return one row as text, in the order of the header."""
    text = [row.partition, row.label] + (["" if row.budget is None else f"{row.budget:g}"] if "ε" in names else [])
    for one in row.compared:
        text.append(number(one.mean, one.std, one.measure.digits))
        if "paper" in names:
            text.append(number(one.published, None, one.measure.digits))
            text.append(NONE if one.difference is None else signed(one.difference, one.measure.digits))
    if len(names) > len(text) + 1:
        spent = ["∞" if math.isinf(epsilon) else f"{epsilon:.3f}" for epsilon in row.spent or ()]
        text.append(" / ".join(spent) or NONE)
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


def paragraph(report: Report) -> str:
    """Return the summary in plain words."""
    seeds = max((len(row.result.runs) for row in report.rows), default=0)
    where = [f"{_count(len(report.partitions), 'partition')} of rows over clients"] if report.partitions else []
    where += [f"a grid of {_count(len(report.cells), 'partition')}"] if report.cells else []
    compares = f"This report compares {_count(len(report.bases), 'method')} on {' and '.join(where) or 'nothing'}"
    parts = [f"{compares}, with {_count(seeds, 'seed')} each."]
    if agree := _agreements(report):
        parts.append(f"{sum(agree)} of {len(agree)} published numbers were reproduced within tolerance.")
    if failed := sum(len(row.result.failed) for row in report.rows):
        parts.append(f"{_count(failed, 'run')} failed and {'is' if failed == 1 else 'are'} not in the numbers.")
    return " ".join([*parts, *_budgets(report), *_price(report)])


def headlines(report: Report) -> list[tuple[str, str]]:
    """Return the numbers that a reader should see first, each with what it means."""
    cards = []
    if agree := _agreements(report):
        cards.append((f"{sum(agree)} / {len(agree)}", "published numbers reproduced within tolerance"))
    kept = [(accuracy, row) for accuracy, row in _accuracies(report) if not row.over]
    for kind, private in (("within a privacy budget", True), ("without privacy", False)):
        if pairs := [(accuracy, row) for accuracy, row in kept if (row.budget is not None) == private]:
            accuracy, row = max(pairs, key=lambda pair: pair[0])
            what = row.label if row.budget is None else f"{row.label}, ε = {row.budget:g}"
            cards.append((f"{accuracy:.2f}\u00a0%", f"best accuracy {kind}: {what}, partition {row.partition}"))
    worst = max(report.table, key=lambda row: row.share_spent, default=None)
    if worst and worst.spent and worst.over:
        meaning = f"largest ε of a client with a budget of {worst.budget:g}: {worst.label}, partition {worst.partition}"
        accounted, proven = worst.spent
        cards.append((f"{max(worst.spent):.3g}", meaning + (" (proven)" if proven > accounted else "")))
    elif any(row.spent and row.budget for row in report.table):
        cards.append(("0", "clients over their budget"))
    return cards


def _agreements(report: Report) -> list[bool]:
    """Return whether ours agrees, for every published number."""
    return [one.agrees for row in report.table for one in row.compared if one.agrees is not None]


def _accuracies(report: Report) -> list[tuple[float, Row]]:
    """Return the rows of the main table that have an accuracy."""
    found = [(one.mean, row) for row in report.table for one in row.compared if one.measure == ACCURACY]
    return [(mean, row) for mean, row in found if mean is not None]


def _budgets(report: Report) -> list[str]:
    """Say which methods exceeded their budgets, and which did not."""
    spenders: dict[str, list[Row]] = {}
    for row in report.table:
        if row.spent and row.budget is not None:
            spenders.setdefault(row.base, []).append(row)
    said, kept = [], []
    for rows in spenders.values():
        worst = max(rows, key=lambda row: row.share_spent)
        if worst.spent and worst.over:
            spent = "{:.3f} by its own rule, {:.3f} proven".format(*worst.spent)
            said.append(f"“{worst.name}” exceeded its budgets: with ε = {worst.budget:g} a client spent {spent}.")
        else:
            kept.append(f"“{worst.name}”")
    if kept:
        names = " and ".join(part for part in (", ".join(kept[:-1]), kept[-1]) if part)
        said.append(f"No client exceeded its budget under {names}.")
    return said


def _price(report: Report) -> list[str]:
    """Say how the private methods compare at the smallest budget of the table."""
    smallest = min((row.budget for row in report.table if row.budget is not None), default=None)
    parts = []
    for base, first in report.bases.items():
        means = [mean for mean, row in _accuracies(report) if row.base == base and row.budget == smallest]
        if means:
            parts.append(f"{first.name} {sum(means) / len(means):.2f}\u00a0%")
    over = " on average over the partitions" if len(report.partitions) > 1 else ""
    return [f"Accuracy with ε = {smallest:g}{over}: {'; '.join(parts)}."] if parts and smallest is not None else []


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
