"""Figures over communications: how methods learn, and what every client spends. And what all figures share.

Learning: methods that end far below the others, and the first steps of all, are in a compressed panel below the main
one: the axis is broken, nothing is hidden.
Spending: one run (the first seed) with the smallest budget of the table. The upper row shows all of it, the lower row
the neighbourhood of the budget: a rule that stops after the budget was passed is seen to pass it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from fedvi.reports.charts import Curve, Spent, curves, main_range, spenders, spent
from fedvi.reports.results import Report, Row, exceeds
from fedvi.web.pages import LARGE_CLIENTS, OVER, SMALL_CLIENTS

GREY = "#444444"
GROUPS = {"small": (SMALL_CLIENTS, "-"), "large": (LARGE_CLIENTS, "--"), "all": (LARGE_CLIENTS, "-")}
BUDGET: dict[str, Any] = {"color": "black", "ls": (0, (4, 2))}


def log_communications(axes: Axes) -> None:
    """Make the horizontal axis a log scale of communications."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def draw_curve(axes: Axes, one: Curve, color: str, **line: Any) -> None:
    """Draw the mean over seeds as a line, and the range over seeds as a band."""
    axes.fill_between(one.x, one.low, one.high, color=color, alpha=0.15, lw=0)
    axes.plot(one.x, one.mean, color=color, **line)


def entry(label: str, **line: Any) -> Line2D:
    """Return an entry of a legend; matplotlib leaves out labels that begin with an underscore."""
    return Line2D([], [], label=f" {label}" if label.startswith("_") else label, **line)


def method_entry(row: Row) -> Line2D:
    """Return the entry of a base method: its colour, marker and name."""
    return entry(row.name, color=row.look.colour, marker=row.look.marker, ms=5)


def finish(figure: Figure, title: str, entries: list[Line2D], columns: int) -> Figure:
    """Add a legend below and a title, and return the figure."""
    figure.legend(handles=entries, loc="outside lower center", ncols=min(columns, len(entries)))
    figure.suptitle(title)
    return figure


def draw_progress(report: Report, partition: str) -> Figure | None:
    """Return the figure of one partition, None when nothing was measured on the way."""
    rows = report.on(partition, table=True)
    panels = {measure.axis: found for measure in report.measures if (found := curves(report, rows, measure))}
    if not panels:
        return None
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    figure.get_layout_engine().set(hspace=0.0, h_pad=0.03)  # type: ignore[call-arg, union-attr]
    grid = figure.add_gridspec(2, len(panels), height_ratios=[3, 1])
    for index, (title, found) in enumerate(panels.items()):
        bottom, top, broken = main_range([one for _, one in found])
        main = figure.add_subplot(grid[0, index] if broken else grid[:, index])
        _lines(main, report, found)
        main.set(ylim=(bottom, top), title=title)
        lowest = main
        if broken:
            lowest = figure.add_subplot(grid[1, index], sharex=main)
            _lines(lowest, report, found, below=bottom)
            floor = min(float(one.low.min()) for _, one in found)
            lowest.set_ylim(floor - 0.08 * (bottom - floor), bottom)
            lowest.yaxis.set_major_locator(MaxNLocator(3, prune="upper"))
            main.spines.bottom.set_visible(False)
            main.tick_params(axis="x", which="both", bottom=False, labelbottom=False)
            lowest.spines.top.set(visible=True, linestyle=(0, (2, 3)), color="#888888")
        lowest.set_xlabel("communications (log scale)" + ("; lower panel: y compressed" if broken else ""))
    drawn = [(row, one) for found in panels.values() for row, one in found]
    first, last = min(float(one.x[0]) for _, one in drawn), max(float(one.x[-1]) for _, one in drawn)
    for axes in figure.axes:
        log_communications(axes)
        axes.set_xlim(first / 1.05, last * 1.15)
    entries = _learning_legend(report, [row for row in rows if row.method in {row.method for row, _ in drawn}])
    return finish(figure, f"{report.title}: partition {partition}", entries, columns=5)


def _lines(axes: Axes, report: Report, found: list[tuple[Row, Curve]], below: float = np.inf) -> None:
    for index, (row, one) in enumerate(found):
        colour = row.look.colour
        draw_curve(axes, one, colour, dashes=report.dashes.get(row.variant, ()), lw=1.5, zorder=3)
        marks = _spread(one.x, 5, index / len(found))
        marks = marks[one.mean[marks] <= below]
        axes.plot(one.x[marks], one.mean[marks], ls="none", marker=row.look.marker, ms=4, color=colour, zorder=3)
        for moment, marker, fill in zip(row.budget_ends or (), "vo", ("white", colour), strict=False):
            if one.at(moment) <= below:  # otherwise it is in the panel above
                axes.plot(moment, one.at(moment), marker, ms=7, mfc=fill, mec=colour, mew=1.4, zorder=5)


def _spread(x: np.ndarray, count: int, shift: float) -> np.ndarray:
    """Return indices of some moments, evenly on a log axis, shifted so that methods do not mark the same ones."""
    marks = np.linspace(np.log(x[0]), np.log(x[-1]), count + 1)[:-1]
    marks = marks + shift * (np.log(x[-1]) - np.log(x[0])) / count
    return np.unique(np.clip(np.searchsorted(np.log(x), marks), 0, len(x) - 1))


def _learning_legend(report: Report, rows: list[Row]) -> list[Line2D]:
    entries = [method_entry(row) for row in {row.base: row for row in rows}.values()]
    shown = {row.variant for row in rows}
    entries += [
        entry(name, color=GREY, dashes=style or (1, 0)) for name, style in report.dashes.items() if name in shown
    ]
    if any(row.budget_ends for row in rows):
        for which, marker, fill in (("first", "v", "white"), ("last", "o", GREY)):
            look = {"marker": marker, "mfc": fill, "mec": GREY, "mew": 1.4, "ls": "none", "ms": 7}
            entries.append(entry(f"{which} budget ran out", color=GREY, **look))
    return entries


def draw_spending(report: Report, partition: str) -> Figure | None:
    """Return the figure of one partition, None when no method spends anything."""
    shown = [(row, row.budget or 0.0, spent(group)) for row, group in spenders(report, partition)]
    if not shown:
        return None
    figure = Figure(figsize=(max(5.5, (3.35 if len(shown) < 4 else 2.6) * len(shown)), 5.0), layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False, sharex="col", height_ratios=[1.5, 1])
    budgets = [budget for _, budget, _ in shown]
    most = max(float(one.epsilon[-1]) for _, _, clients in shown for one in clients)
    ratio = max(most / min(budgets) - 1, 0.01) * 1.35
    someone_over = False
    for (full, near), (row, budget, clients) in zip(axes.T, shown, strict=True):
        for panel in (full, near):
            _draw_clients(panel, clients, budget)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        largest = max(float(one.epsilon[-1]) for one in clients)
        over = exceeds(largest, budget)
        someone_over |= over
        verdict = f"largest ε: {largest:.4f}, {'over' if over else 'within'} {budget:g}"
        title = {"color": OVER, "fontweight": "bold"} if over else {"color": "black"}
        full.set_title(f"{row.name}\n{verdict}", **title)
        full.set_ylim(0, max(most, *budgets) * 1.12)
        near.set_ylim(budget * (1 - ratio), budget * (1 + ratio))
        near.axhspan(budget, budget * (1 + ratio), color=OVER, alpha=0.06, lw=0)
        near.set_xlabel("communications")
    axes[0, 0].set_ylabel("ε spent")
    axes[1, 0].set_ylabel("ε near the budget")
    entries = _spending_legend(shown[0][2], someone_over)
    return finish(figure, f"Who spends what: partition {partition}, one run", entries, columns=4)


def _draw_clients(panel: Axes, clients: list[Spent], budget: float) -> None:
    longest = max(float(one.x[-1]) for one in clients)
    for one in clients:
        colour, style = GROUPS[one.group]
        last = float(one.epsilon[-1])
        panel.plot([*one.x, longest], [*one.epsilon, last], color=colour, ls=style, lw=1.1, alpha=0.9)
        panel.plot(one.x[-1], last, "o", ms=5, color=OVER if exceeds(last, budget) else colour, zorder=4)
    panel.axhline(budget, **BUDGET, lw=1.4, zorder=3)


def _spending_legend(clients: list[Spent], someone_over: bool) -> list[Line2D]:
    entries = []
    for name, (colour, style) in GROUPS.items():
        if rows := sorted(one.rows for one in clients if one.group == name):
            between = f"{rows[0]:,}" if rows[0] == rows[-1] else f"{rows[0]:,} to {rows[-1]:,}"
            entries.append(entry(f"{name} clients ({between} rows)".removeprefix("all "), color=colour, ls=style))
    entries.append(entry("budget", **BUDGET))
    if someone_over:
        entries.append(entry("client over its budget", color=OVER, marker="o", ls="none", ms=5))
    return entries
