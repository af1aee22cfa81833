"""Figures over settings: what privacy costs by epsilon, with the published numbers; heat maps of a swept grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from fedvi.reports.charts import Curve, Grid, Place, curves, grid, has_tradeoff, private_points
from fedvi.reports.figures.communications import GREY, draw_curve, entry, finish, log_communications, method_entry
from fedvi.reports.results import Measure, Report, Row
from fedvi.reports.table import signed
from fedvi.web.pages import DASHES


def draw_tradeoff(report: Report) -> Figure | None:
    """Return the figure with a column per partition, None when no method was run with several budgets."""
    partitions = [partition for partition in report.partitions if has_tradeoff(report, partition)]
    if not partitions:
        return None
    width = max(6.0, (3.4 if len(partitions) < 4 else 2.8) * len(partitions))
    figure = Figure(figsize=(width, 1.2 + 2.4 * len(report.measures)), layout="constrained")
    axes = figure.subplots(len(report.measures), len(partitions), squeeze=False, sharex=True)
    budgets = [row.budget for partition in partitions for row in report.on(partition)]
    epsilons = sorted({budget for budget in budgets if budget is not None})
    for line, measure in enumerate(report.measures):
        for panel, partition in zip(axes[line], partitions, strict=True):
            _draw_points(panel, report, partition, measure)
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(FixedLocator(epsilons))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_major_formatter(FixedFormatter(_spaced(epsilons)))
            panel.set_xlim(epsilons[0] / 1.25, epsilons[-1] * 1.25)
        axes[line, 0].set_ylabel(measure.axis)
    for column, partition in enumerate(partitions):
        axes[0, column].set_title(f"partition {partition}")
        axes[-1, column].set_xlabel("ε of every client (log scale)")
    return finish(figure, "What privacy costs", _legend(report, partitions), columns=3)


def _draw_points(panel: Axes, report: Report, partition: str, measure: Measure) -> None:
    ours = private_points(report, partition, measure)
    theirs = private_points(report, partition, measure, published=True)
    for index, (base, points) in enumerate(ours.items()):
        colour, marker = report.bases[base].look.colour, report.bases[base].look.marker
        shift = 1.025 ** (index - (len(ours) - 1) / 2)  # so that error bars stand side by side
        x, mean, std = np.array(points).T
        panel.errorbar(x * shift, mean, std, color=colour, marker=marker, ms=5, lw=1.4, capsize=2, zorder=3)
        if base in theirs:
            x, mean, _ = np.array(theirs[base]).T
            panel.plot(x, mean, ls="none", marker=marker, ms=9, mfc="none", mec=colour, mew=1.3, zorder=4)
    private = np.array([[m - s, m + s] for points in ours.values() for _, m, s in points])
    low, high = float(private.min()), float(private.max())
    span = max(high - low, 1e-3 * abs(high), 1e-9)
    outside = []
    for row in report.on(partition):
        value = row.measured(measure).mean
        if row.budget is not None or value is None:
            continue
        if low - span <= value <= high + 2.5 * span:
            panel.axhline(value, color=row.look.colour, lw=1.3, ls=(0, (6, 2)), zorder=2)
            low, high = min(low, value), max(high, value)
        else:
            outside.append(f"{row.full_label}: {value:.{measure.digits}f} {'↓' if value < low else '↑'}")
    panel.set_ylim(low - (0.22 if outside else 0.1) * (high - low), high + 0.1 * (high - low))
    if outside:
        panel.text(0.98, 0.02, "outside: " + "\n".join(outside), transform=panel.transAxes, ha="right", va="bottom",
                   fontsize=8, color="#555555")  # fmt: skip


def _spaced(epsilons: list[float]) -> list[str]:
    """Return labels for the ticks, none where it would touch the one before."""
    labels: list[str] = []
    last = 0.0
    for epsilon in epsilons:
        fits = last == 0 or epsilon / last >= (epsilons[-1] / epsilons[0]) ** 0.13
        labels.append(f"{epsilon:g}" if fits else "")
        last = epsilon if fits else last
    return labels


def _legend(report: Report, partitions: list[str]) -> list[Line2D]:
    rows = [row for partition in partitions for row in report.on(partition)]
    private, every = {row.base for row in rows if row.budget is not None}, {row.base for row in rows}
    entries = []
    for base, row in report.bases.items():
        if base in private:
            entries.append(method_entry(row))
        elif base in every:
            label = row.name if "not private" in row.name else f"{row.name}, not private"
            entries.append(entry(label, color=row.look.colour, ls=(0, (6, 2))))
    if any(one.published is not None for row in rows if row.budget is not None for one in row.compared):
        entries.append(entry("published", color=GREY, ls="none", marker="s", ms=9, mfc="none"))
    return entries


def draw_heatmap(report: Report) -> Figure | None:
    """Return the figure, None when no grid was swept. Curves: of the cells with least, median and largest value."""
    found = grid(report)
    maps = [(measure, values) for measure in report.measures if found and (values := found.values(measure))]
    if found is None or not maps:
        return None
    measure, values = maps[0]
    ranked = sorted(values, key=lambda place: (values[place], place))
    drawn: dict[Place, list[tuple[Row, Curve]]] = {}
    for place in (ranked[0], ranked[len(ranked) // 2], ranked[-1]):
        if lines := curves(report, [found.cells[place][method] for method in found.methods], measure):
            drawn[place] = lines
    tall = max(2.4, 0.8 + 0.42 * len(found.ys))
    figure = Figure(figsize=(10, tall + 0.5 + (2.9 if drawn else 0)), layout="constrained")
    parts = figure.subfigures(2 if drawn else 1, 1, height_ratios=[tall, 2.9] if drawn else [1], squeeze=False)
    panels = parts[0, 0].subplots(1, len(maps), squeeze=False)[0]
    for panel, (shown, numbers) in zip(panels, maps, strict=True):
        image = _draw_map(panel, found, shown, numbers, list(drawn))
        parts[0, 0].colorbar(image, ax=panel, shrink=0.9, pad=0.02)
    if drawn:
        _draw_curves(parts[1, 0], found, measure, drawn)
    figure.suptitle(f"{found.title}, over the grid")
    return figure


def _draw_map(
    panel: Axes, found: Grid, measure: Measure, values: dict[Place, float], marked: list[Place]
) -> ScalarMappable:
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


def _draw_curves(figure: SubFigure, found: Grid, measure: Measure, drawn: dict[Place, list[tuple[Row, Curve]]]) -> None:
    panels = figure.subplots(1, len(drawn), squeeze=False, sharey=True)[0]
    lines = {}
    for letter, panel, (place, cell) in zip("abc", panels, drawn.items(), strict=False):
        for row, one in cell:
            style: dict[str, Any] = {"color": row.look.colour, "dashes": DASHES[found.methods.index(row.method)]}
            draw_curve(panel, one, **style)
            lines[row.method] = entry(row.full_label, **style)
        log_communications(panel)
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel("communications (log scale)")
        panel.set_title(f"{letter}: {found.x} = {place[0]:g}, {found.y} = {place[1]:g}")
    panels[0].set_ylabel(measure.axis)
    figure.legend(handles=list(lines.values()), loc="outside lower center", ncols=len(lines))
