"""The figure of learning: accuracy and log-likelihood against communications, and when budgets ran out.

Methods that end far below the others, and the first steps of all, are in a compressed panel below the main one: the
axis is broken, nothing is hidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from fedvi.reports.curves import Curve, Group, budget_ends, curve, main_range
from fedvi.reports.view import View
from fedvi.web.style import legible


def draw_progress(view: View, partition: str, history: dict[tuple[str, str], Group]) -> Figure | None:
    """Return the figure of one partition, None when nothing was measured on the way."""
    methods = view.table_methods(partition)
    panels = []
    for measure in view.measures:
        found = {m: one for m in methods if (one := curve(history.get((partition, m)), measure.column)) is not None}
        found = {m: _from_first(one) for m, one in found.items() if one.x[-1] >= 1}
        if found:
            panels.append((measure, found))
    if not panels:
        return None
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    figure.get_layout_engine().set(hspace=0.0, h_pad=0.03)  # type: ignore[call-arg, union-attr]
    grid = figure.add_gridspec(2, len(panels), height_ratios=[3, 1])
    for index, (measure, found) in enumerate(panels):
        bottom, top, broken = main_range(list(found.values()))
        main = figure.add_subplot(grid[0, index] if broken else grid[:, index])
        _lines(main, view, partition, found)
        main.set(ylim=(bottom, top), title=measure.axis)
        lowest = main
        if broken:
            lowest = figure.add_subplot(grid[1, index], sharex=main)
            _lines(lowest, view, partition, found, below=bottom)
            floor = min(float(one.low.min()) for one in found.values())
            lowest.set_ylim(floor - 0.08 * (bottom - floor), bottom)
            lowest.yaxis.set_major_locator(MaxNLocator(3, prune="upper"))
            main.spines.bottom.set_visible(False)
            main.tick_params(axis="x", which="both", bottom=False, labelbottom=False)
            lowest.spines.top.set(visible=True, linestyle=(0, (2, 3)), color="#888888")
        lowest.set_xlabel("communications (log scale)" + ("; lower panel: y compressed" if broken else ""))
    longest = max(float(one.x[-1]) for _, found in panels for one in found.values())
    shortest = min(float(one.x[0]) for _, found in panels for one in found.values())
    for axes in figure.axes:
        axes.set(xscale="log", xlim=(shortest / 1.05, longest * 1.15))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    _legend(figure, view, partition, [m for m in methods if any(m in found for _, found in panels)])
    figure.suptitle(f"{view.title}: partition {partition}", fontsize=12, fontweight="bold")
    return figure


def _from_first(one: Curve) -> Curve:
    """Return the curve from the first communication on: a log axis has no place for zero."""
    kept = one.x >= 1
    return Curve(one.x[kept], one.mean[kept], one.low[kept], one.high[kept])


def _lines(axes: Axes, view: View, partition: str, found: dict[str, Curve], below: float = np.inf) -> None:
    for index, (method, one) in enumerate(found.items()):
        look = view.looks[view.base(method)]
        style: dict[str, Any] = {"color": look.colour, "zorder": 3}
        axes.fill_between(one.x, one.low, one.high, color=look.colour, alpha=0.15, lw=0, zorder=2)
        axes.plot(one.x, one.mean, dashes=view.dashes.get(view.variant(method), ()), lw=1.5, **style)
        marks = _spread(one.x, 5, index / max(len(found), 1))
        marks = marks[one.mean[marks] <= below]
        axes.plot(one.x[marks], one.mean[marks], ls="none", marker=look.marker, ms=4, **style)
        if (ends := budget_ends(view.entry(partition, method))) is not None:
            for moment, fill in zip(ends, ("white", look.colour), strict=True):
                if one.at(moment) > below:
                    continue  # it is in the panel above
                marker = "v" if fill == "white" else "o"
                axes.plot(moment, one.at(moment), marker, ms=7, mfc=fill, mec=look.colour, mew=1.4, zorder=5)


def _spread(x: np.ndarray, count: int, shift: float) -> np.ndarray:
    """Return indices of some moments, evenly on a log axis, shifted so that methods do not mark the same ones."""
    marks = np.linspace(np.log(x[0]), np.log(x[-1]), count + 1)[:-1]
    marks = marks + shift * (np.log(x[-1]) - np.log(x[0])) / count
    return np.unique(np.clip(np.searchsorted(np.log(x), marks), 0, len(x) - 1))


def _legend(figure: Figure, view: View, partition: str, methods: list[str]) -> None:
    handles = []
    for base in dict.fromkeys(view.base(method) for method in methods):
        look = view.looks[base]
        handles.append(Line2D([], [], color=look.colour, marker=look.marker, ms=5, label=legible(view.labels[base])))
    for variant in dict.fromkeys(
        view.variant(method) for method in sorted(methods, key=lambda m: view.epsilon(m) or 0)
    ):
        if variant:
            style = view.dashes.get(variant, ())
            handles.append(Line2D([], [], color="#444444", dashes=style or (1, 0), label=legible(variant)))
    if any(budget_ends(view.entry(partition, method)) is not None for method in methods):
        grey = {"color": "#444444", "ls": "none", "ms": 7, "mec": "#444444", "mew": 1.4}
        handles.append(Line2D([], [], marker="v", mfc="white", label="first budget ran out", **grey))  # type: ignore[arg-type]
        handles.append(Line2D([], [], marker="o", mfc="#444444", label="last budget ran out", **grey))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)), fontsize=9)
