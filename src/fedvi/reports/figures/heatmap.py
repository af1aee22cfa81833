"""The figure of a swept grid: where one method beats another, as heat maps, and how training goes in some cells."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from fedvi.reports.curves import Group, curve
from fedvi.reports.figures.grid import Grid, grid, representative
from fedvi.reports.measures import Measure
from fedvi.reports.table import signed
from fedvi.reports.view import View
from fedvi.web.style import DASHES, legible


def draw_heatmap(view: View, history: dict[tuple[str, str], Group]) -> Figure | None:
    """Return the figure, None when no grid was swept."""
    found = grid(view)
    if found is None:
        return None
    measures = [measure for measure in view.measures if found.values(view, measure)]
    if not measures:
        return None
    tall = max(2.4, 0.8 + 0.42 * len(found.ys))
    chosen = representative(found.values(view, measures[0]))
    curves = [place for place in chosen if any((found.cells[place], m) in history for m in found.methods)]
    figure = Figure(figsize=(10, tall + 0.5 + (2.9 if curves else 0)), layout="constrained")
    parts = figure.subfigures(2 if curves else 1, 1, height_ratios=[tall, 2.9] if curves else [1], squeeze=False)
    maps = parts[0, 0].subplots(1, len(measures), squeeze=False)[0]
    for panel, measure in zip(maps, measures, strict=True):
        _map(parts[0, 0], panel, view, found, measure, curves)
    if curves:
        _curves(parts[1, 0], view, found, measures[0], curves, history)
    labels = [view.label(method) for method in found.methods]
    title = f"{labels[0]} minus {labels[1]}" if len(labels) == 2 else labels[0]
    figure.suptitle(f"{title}, over the grid", fontsize=12, fontweight="bold")
    return figure


def _map(
    figure: SubFigure, panel: Axes, view: View, found: Grid, measure: Measure, marked: list[tuple[float, float]]
) -> None:
    values = found.values(view, measure)
    table = np.full((len(found.ys), len(found.xs)), np.nan)
    for (x, y), value in values.items():
        table[found.ys.index(y), found.xs.index(x)] = value
    compared = len(found.methods) == 2
    norm = CenteredNorm(0, halfrange=max(abs(v) for v in values.values()) or 1.0) if compared else Normalize()
    image = panel.imshow(table, origin="lower", aspect="auto", cmap="PuOr" if compared else "viridis", norm=norm)
    size = 8.5 if len(found.xs) <= 7 else 7.5 if len(found.xs) <= 9 else 6
    digits = measure.digits - 1 if len(found.xs) <= 9 else max(measure.digits - 2, 1)
    for y, line in enumerate(table):
        for x, value in enumerate(line):
            if np.isfinite(value):
                text = signed(value, digits) if compared else f"{value:.{digits}f}"
                panel.text(x, y, text, ha="center", va="center", fontsize=size, color=_ink(image, value))
            else:
                cell = Rectangle((x - 0.5, y - 0.5), 1, 1, fc="white", ec="#CCCCCC", hatch="///", lw=0)
                panel.add_patch(cell)
    for number, (px, py) in enumerate(marked):
        corner = (found.xs.index(px) - 0.5, found.ys.index(py) - 0.5)
        panel.add_patch(Rectangle(corner, 1, 1, fill=False, ec="black", lw=1.6))
        ink = _ink(image, values[px, py]) if (px, py) in values else "black"
        panel.text(
            corner[0] + 0.06, corner[1] + 0.94, "abc"[number], fontsize=8, fontweight="bold", va="top", color=ink
        )
    panel.grid(False)
    panel.set(title=f"{measure.axis}, difference" if compared else measure.axis, xlabel=found.x, ylabel=found.y)
    panel.set_xticks(range(len(found.xs)), [f"{x:g}" for x in found.xs])
    panel.set_yticks(range(len(found.ys)), [f"{y:g}" for y in found.ys])
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0)
    figure.colorbar(image, ax=panel, shrink=0.9, pad=0.02)


def _ink(image: ScalarMappable, value: float) -> str:
    red, green, blue, _ = image.to_rgba(np.array([value]))[0]
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def _curves(
    figure: SubFigure,
    view: View,
    found: Grid,
    measure: Measure,
    places: list[tuple[float, float]],
    history: dict[tuple[str, str], Group],
) -> None:
    panels = figure.subplots(1, len(places), squeeze=False, sharey=True)[0]
    for number, (panel, place) in enumerate(zip(panels, places, strict=True)):
        for index, method in enumerate(found.methods):
            one = curve(history.get((found.cells[place], method)), measure.column)
            if one is None:
                continue
            colour, kept = view.looks[view.base(method)].colour, one.x >= 1
            panel.fill_between(one.x[kept], one.low[kept], one.high[kept], color=colour, alpha=0.15, lw=0)
            panel.plot(
                one.x[kept], one.mean[kept], color=colour, dashes=DASHES[index], label=legible(view.label(method))
            )
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel("communications (log scale)")
        panel.set_title(f"{'abc'[number]}: {found.x} = {place[0]:g}, {found.y} = {place[1]:g}")
    panels[0].set_ylabel(measure.axis)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(len(labels), 1))
