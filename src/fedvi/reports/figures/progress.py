"""The figure of learning: accuracy and log-likelihood against communications, and when budgets ran out.

Methods that end far below the others, and the first steps of all, are in a compressed panel below the main one: the
axis is broken, nothing is hidden.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedvi.reports.curves import Curve, main_range
from fedvi.reports.figures.shared import GREY, draw_curve, entry, finish, log_communications, method_entry
from fedvi.reports.results import Report, Row


def draw_progress(report: Report, partition: str) -> Figure | None:
    """Return the figure of one partition, None when nothing was measured on the way."""
    panels = {}
    for measure in report.measures:
        if found := [(row, one.from_first()) for row, one in report.curves(partition, measure)]:
            panels[measure.axis] = found
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
    shown = {row.method for row, _ in drawn}
    rows = [row for row in report.on(partition, table=True) if row.method in shown]
    return finish(figure, f"{report.title}: partition {partition}", _legend(report, rows), columns=5)


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


def _legend(report: Report, rows: list[Row]) -> list[Line2D]:
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
