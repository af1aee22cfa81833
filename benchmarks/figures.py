"""Figures of the bench: bars of every contender over the floor, and growth curves with their slopes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from benchmarks.render import digits
from fedvi.web.style import KNOWN, RC

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OWN, OTHERS, FLOOR = KNOWN["fedvi"].colour, "#9AA5B1", "#4A4A4A"
COSTS = {
    "seconds": ("time per communication or step, seconds", KNOWN["fedvi"]),
    "setup_s": ("set-up, seconds", KNOWN["dp-pvi-strict"]),
    "memory_mb": ("memory, GB", KNOWN["dp-pvi"]),
}
"""Label and look of every kind of cost."""

APART = 2.5
"""Slopes are written this far apart, as a factor on the logarithmic axis."""


def write_figures(results: dict[str, Any], directory: Path) -> list[Path]:
    """Write bench.png, and growth.png if growth was measured; return their paths."""
    written = []
    with mpl.rc_context(RC):
        for name, figure in _figures(results).items():
            written.append(directory / f"{name}.png")
            figure.savefig(written[-1], dpi=150, metadata={"Software": None})
    return written


def _figures(results: dict[str, Any]) -> dict[str, Figure]:
    figures = {"bench": draw_steps(results)}
    return {**figures, "growth": draw_growth(results["growth"])} if "growth" in results else figures


def draw_steps(results: dict[str, Any]) -> Figure:
    """Draw a bar for every contender, in units of the floor, fastest first."""
    from matplotlib.figure import Figure

    rows = sorted(results["steps"].items(), key=lambda item: item[1]["over_blas"])
    figure = Figure(figsize=(8, 0.7 + 0.42 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    names, ratios = [name for name, _ in rows], [row["over_blas"] for _, row in rows]
    colours = [
        OWN if name.startswith("fedvi") else FLOOR if ratio == 1 else OTHERS
        for name, ratio in zip(names, ratios, strict=True)
    ]
    places = np.arange(len(rows))[::-1]
    axes.barh(places, ratios, left=0.0, color=colours, height=0.66)
    for place, ratio, (_, row) in zip(places, ratios, rows, strict=True):
        axes.annotate(
            f"{digits(ratio)}x   {digits(row['us'])} µs",
            (ratio, place),
            (5, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set(xscale="log", xlim=(0.8, 6 * max(ratios)), yticks=places, yticklabels=names)
    axes.set_xlabel("times the four bare products of a step with 79 rows and 108 features; logarithmic")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    return figure


def draw_growth(growth: dict[str, Any]) -> Figure:
    """Draw one panel per axis: time, set-up and memory against size, each with the slope of its upper half."""
    from matplotlib.figure import Figure

    panels = growth["axes"]
    figure = Figure(figsize=(2.4 * len(panels), 3.4), layout="constrained")
    every = figure.subplots(1, len(panels), sharey=True)
    for axes, (name, curve) in zip(every, panels.items(), strict=True):
        _panel(axes, name, curve)
    every[0].set_ylabel("seconds, or GB")
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _panel(axes: Axes, name: str, curve: dict[str, Any]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    sizes = np.array([point["size"] for point in curve["points"]], float)
    ends = []
    for cost, (label, look) in COSTS.items():
        if cost not in curve["exponents"] and cost == "setup_s":
            continue  # where nothing is set up but the program itself
        unit = 1e-3 if cost == "memory_mb" else 1.0
        values = unit * np.array([point[cost] for point in curve["points"]])
        axes.plot(sizes, values, color=look.colour, marker=look.marker, markersize=5, label=label)
        if cost in curve["exponents"]:
            ends.append((values[-1], f" ^{curve['exponents'][cost]:.2f}", look.colour))
    height = 0.0
    for value, slope, colour in sorted(ends):
        height = max(value, APART * height)
        axes.annotate(slope, (sizes[-1], height), (4, 0), textcoords="offset points", va="center", color=colour)
    axes.set(xscale="log", yscale="log", title=name, xlim=(sizes[0] / 2, sizes[-1] * (sizes[-1] / sizes[0]) ** 0.45))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: _short(value))
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(LogLocator(numticks=5))


def _short(value: float) -> str:
    """Return a power of ten in few letters.

    >>> [_short(value) for value in (0.001, 10, 1e4, 1e7)]
    ['0.001', '10', '10k', '10M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
