"""The figure of a swept grid: where one method beats another, as heat maps, and how training goes in some cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from fedvi.reports.curves import Curve
from fedvi.reports.figures.shared import draw_curve, entry, log_communications
from fedvi.reports.grid import Grid, Place, grid
from fedvi.reports.measures import Measure
from fedvi.reports.results import Report, Row
from fedvi.reports.table import signed
from fedvi.web.style import DASHES


def draw_heatmap(report: Report) -> Figure | None:
    """Return the figure, None when no grid was swept. Curves: of the cells with least, median and largest value."""
    found = grid(report)
    maps = [(measure, values) for measure in report.measures if found and (values := found.values(measure))]
    if found is None or not maps:
        return None
    measure, values = maps[0]
    ranked = sorted(values, key=lambda place: (values[place], place))
    curves: dict[Place, list[tuple[Row, Curve]]] = {}
    for place in (ranked[0], ranked[len(ranked) // 2], ranked[-1]):
        rows = [found.cells[place][method] for method in found.methods]
        if lines := [(row, one) for row in rows if (one := report.curve(row, measure)) is not None]:
            curves[place] = lines
    tall = max(2.4, 0.8 + 0.42 * len(found.ys))
    figure = Figure(figsize=(10, tall + 0.5 + (2.9 if curves else 0)), layout="constrained")
    parts = figure.subfigures(2 if curves else 1, 1, height_ratios=[tall, 2.9] if curves else [1], squeeze=False)
    panels = parts[0, 0].subplots(1, len(maps), squeeze=False)[0]
    for panel, (shown, numbers) in zip(panels, maps, strict=True):
        image = _map(panel, found, shown, numbers, list(curves))
        parts[0, 0].colorbar(image, ax=panel, shrink=0.9, pad=0.02)
    if curves:
        _curves(parts[1, 0], found, measure, curves)
    figure.suptitle(f"{' minus '.join(found.labels)}, over the grid")
    return figure


def _map(panel: Axes, found: Grid, measure: Measure, values: dict[Place, float], marked: list[Place]) -> ScalarMappable:
    table = np.full((len(found.ys), len(found.xs)), np.nan)
    for (x, y), value in values.items():
        table[found.ys.index(y), found.xs.index(x)] = value
    compared = len(found.methods) == 2
    norm = CenteredNorm(0, halfrange=max(abs(v) for v in values.values()) or 1.0) if compared else Normalize()
    image = panel.imshow(table, origin="lower", aspect="auto", cmap="PuOr" if compared else "viridis", norm=norm)
    size = 8.5 if len(found.xs) <= 7 else 7.5 if len(found.xs) <= 9 else 6
    digits = measure.digits - 1 if len(found.xs) <= 9 else max(measure.digits - 2, 1)
    for (y, x), value in np.ndenumerate(table):
        if np.isfinite(value):
            text = signed(value, digits) if compared else f"{value:.{digits}f}"
            panel.text(x, y, text, ha="center", va="center", fontsize=size, color=_ink(image, value))
        else:
            panel.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc="white", ec="#CCCCCC", hatch="///", lw=0))
    for letter, (px, py) in zip("abc", marked, strict=False):
        x, y = found.xs.index(px) - 0.5, found.ys.index(py) - 0.5
        panel.add_patch(Rectangle((x, y), 1, 1, fill=False, ec="black", lw=1.6))
        ink = _ink(image, values[px, py]) if (px, py) in values else "black"
        panel.text(x + 0.06, y + 0.94, letter, fontsize=8, fontweight="bold", va="top", color=ink)
    panel.grid(False)
    panel.set(title=f"{measure.axis}, difference" if compared else measure.axis, xlabel=found.x, ylabel=found.y)
    panel.set_xticks(range(len(found.xs)), [f"{x:g}" for x in found.xs])
    panel.set_yticks(range(len(found.ys)), [f"{y:g}" for y in found.ys])
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0)
    return image


def _ink(image: ScalarMappable, value: float) -> str:
    red, green, blue, _ = image.to_rgba(np.array([value]))[0]
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def _curves(figure: SubFigure, found: Grid, measure: Measure, curves: dict[Place, list[tuple[Row, Curve]]]) -> None:
    panels = figure.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    lines = {}
    for letter, panel, (place, drawn) in zip("abc", panels, curves.items(), strict=False):
        for row, one in drawn:
            style: dict[str, Any] = {"color": row.look.colour, "dashes": DASHES[found.methods.index(row.method)]}
            draw_curve(panel, one.from_first(), **style)
            lines[row.method] = entry(row.full_label, **style)
        log_communications(panel)
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel("communications (log scale)")
        panel.set_title(f"{letter}: {found.x} = {place[0]:g}, {found.y} = {place[1]:g}")
    panels[0].set_ylabel(measure.axis)
    figure.legend(handles=list(lines.values()), loc="outside lower center", ncols=len(lines))
