"""The main table: what every method reached, what was published, and what the clients spent.

Rows are plain data; the terminal, Markdown and the page each show the same rows. Epsilons that only the trade-off
figure needs are in a second, compact table.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedvi import console
from fedvi.reports.figures.grid import grid
from fedvi.reports.results import Row, rows, tradeoff_rows
from fedvi.reports.view import View

if TYPE_CHECKING:
    from rich.table import Table

    from fedvi.experiments.directory import Results

NONE = "\N{EN DASH}"
WIDE = 112
"""Characters that the whole table needs."""


def header(outcome: Results) -> list[str]:
    """Return the names of the columns."""
    view = View(outcome)
    found = rows(outcome)
    names = ["data", "method"] + (["ε"] if any(row.budget is not None for row in found) else [])
    for measure in view.measures:
        names += [measure.axis, "paper", "difference"] if view.has_reference else [measure.axis]
    private = any(row.accounted is not None or row.proven is not None for row in found)
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
        text.append(epsilons(row))
    return [*text, NONE if row.communications is None else f"{row.communications:,.0f}"]


def number(mean: float | None, std: float | None, digits: int) -> str:
    """Return mean and standard deviation as text."""
    if mean is None:
        return NONE
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def signed(value: float, digits: int) -> str:
    """Return a difference with its sign; a difference that rounds to nothing has none."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def epsilons(row: Row) -> str:
    """Return the largest epsilons, as accounted and as proven."""
    if row.accounted is None and row.proven is None:
        return NONE
    return " / ".join(NONE if v is None else "∞" if math.isinf(v) else f"{v:.3f}" for v in (row.accounted, row.proven))


def compact(outcome: Results) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of the trade-off table: a row per partition and epsilon, a column per method."""
    view, found = View(outcome), tradeoff_rows(outcome)
    bases = [base for base in view.bases if any(view.base(row.method) == base for row in found)]
    by_key = {(row.partition, row.budget, view.base(row.method)): row for row in found}
    names = ["data", "ε", *(f"{view.labels[base]}: {m.axis}" for base in bases for m in view.measures)]
    lines = []
    keys = {(view.partitions.index(row.partition), row.budget or 0.0) for row in found}
    for partition, budget in ((view.partitions[index], budget) for index, budget in sorted(keys)):
        line = [partition, f"{budget:g}"]
        for base in bases:
            row = by_key.get((partition, budget, base))
            for index in range(len(view.measures)):
                one = row.compared[index] if row else None
                line.append(number(one.mean, one.std, one.measure.digits) if one else NONE)
        lines.append(line)
    return names, lines


def markdown(outcome: Results, *, partitions: list[str] | None = None, tradeoff: bool = False) -> str:
    """Return the main table (or the trade-off table) as Markdown; the same run directory gives the same text.

    partitions: only these partitions, all when None.
    """
    if tradeoff:
        names, lines = compact(outcome)
    else:
        names = header(outcome)
        lines = [cells(row, names) for row in rows(outcome)]
    lines = [line for line in lines if partitions is None or line[0] in partitions]
    return console.markdown([names, *lines], left=2)


def render_grid(outcome: Results) -> Table | None:
    """Return the first measure over a swept grid for a terminal, None when nothing was swept."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    view = View(outcome)
    found = grid(view)
    if found is None:
        return None
    measure = view.measures[0]
    values = found.values(view, measure)
    table = Table(title=f"{measure.axis}: {' minus '.join(found.methods)}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(f"{found.y} \\ {found.x}", justify="right")
    for x in found.xs:
        table.add_column(f"{x:g}", justify="right")
    for y in reversed(found.ys):
        table.add_row(f"{y:g}", *(signed(values[x, y], 1) if (x, y) in values else "" for x in found.xs))
    return table


def render(outcome: Results, width: int = WIDE) -> Table:
    """Return the main table for a terminal so many characters wide.

    A narrow one has no room for epsilons, communications and the standard deviations of log-likelihoods.
    """
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    view, names, found = View(outcome), header(outcome), rows(outcome)
    title, caption = escape(view.title), "Simulation: seeded noise, not private."
    narrow = width < WIDE
    kept = [i for i, name in enumerate(names) if name != "ε" and not (narrow and name.startswith(("largest", "comm")))]
    if any(names[index].startswith("largest") for index in kept):
        caption += " Largest ε: as accounted/as proven."
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index in kept:
        table.add_column(escape(_heading(names[index])), justify="left" if index < 2 else "right", no_wrap=True)
    for index, row in enumerate(found):
        texts = dict(enumerate(cells(row, names)))
        texts[1] = row.method
        for place, name in enumerate(names):
            texts[place] = escape(texts[place].replace(" / ", "/"))
            if narrow:
                texts[place] = (
                    texts[place].split(" ± ")[0] if name == "log-likelihood" else texts[place].replace(" ", "")
                )
            if name.startswith("largest") and row.over:
                texts[place] = f"[red]{texts[place]}[/red]"
        last = index + 1 == len(found) or found[index + 1].partition != row.partition
        table.add_row(*(texts[place] for place in kept), end_section=last)
    return table


def _heading(name: str) -> str:
    """Return the name of a column as short as a terminal needs it."""
    short = {
        "data": "",
        "accuracy [%]": "acc [%]",
        "log-likelihood": "log-lik",
        "difference": "diff",
        "communications": "updates",
    }
    return "largest ε" if name.startswith("largest") else short.get(name, name)
