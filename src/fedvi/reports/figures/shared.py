"""What figures have in common: an axis of communications, a curve with its band, the entries and place of a legend."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from fedvi.reports.curves import Curve
from fedvi.reports.results import Row

GREY = "#444444"


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
