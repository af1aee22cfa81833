"""The figure of what privacy costs: accuracy and log-likelihood against epsilon, with the published numbers."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from fedvi.reports.figures.shared import GREY, entry, finish, method_entry
from fedvi.reports.measures import Measure
from fedvi.reports.results import Report

Points = dict[str, list[tuple[float, float, float]]]
"""Of every base method: epsilon, mean, standard deviation."""


def private_points(report: Report, partition: str, measure: Measure, *, published: bool = False) -> Points:
    """Return ours, or the published, of every private method, by epsilon."""
    found: Points = {}
    for row in report.on(partition):
        one = row.measured(measure)
        mean, std = (one.published, one.published_std) if published else (one.mean, one.std)
        if row.budget is not None and mean is not None:
            found.setdefault(row.base, []).append((row.budget, mean, std or 0.0))
    return {base: sorted(points) for base, points in found.items()}


def has_tradeoff(report: Report, partition: str) -> bool:
    """Return whether some method was run with more than one budget."""
    found = [points for m in report.measures for points in private_points(report, partition, m).values()]
    return any(len({epsilon for epsilon, *_ in points}) > 1 for points in found)


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
            _draw(panel, report, partition, measure)
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


def _draw(panel: Axes, report: Report, partition: str, measure: Measure) -> None:
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
