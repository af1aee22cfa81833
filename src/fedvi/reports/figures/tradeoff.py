"""The figure of what privacy costs: accuracy and log-likelihood against epsilon, with the published numbers."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from fedvi.reports.measures import Measure, mean_and_std
from fedvi.reports.view import View
from fedvi.web.style import legible

Points = dict[str, list[tuple[float, float, float]]]
"""Of every base method: epsilon, mean, standard deviation."""


def private_points(view: View, partition: str, measure: Measure, *, published: bool = False) -> Points:
    """Return ours, or the published, of every private method, by epsilon."""
    found: Points = {}
    for method in view.methods(partition):
        epsilon = view.epsilon(method)
        entry = view.reference(partition, method) if published else view.entry(partition, method)
        mean, std = mean_and_std(entry, measure.key)
        if epsilon is not None and mean is not None:
            found.setdefault(view.base(method), []).append((epsilon, mean, std or 0.0))
    return {base: sorted(points) for base, points in found.items()}


def has_tradeoff(view: View, partition: str) -> bool:
    """Return whether some method was run with more than one budget."""
    return any(
        len({epsilon for epsilon, *_ in points}) > 1
        for measure in view.measures
        for points in private_points(view, partition, measure).values()
    )


def draw_tradeoff(view: View) -> Figure | None:
    """Return the figure with a column per partition, None when no method was run with several budgets."""
    partitions = [partition for partition in view.partitions if has_tradeoff(view, partition)]
    if not partitions:
        return None
    height = 1.2 + 2.4 * len(view.measures)
    figure = Figure(
        figsize=(max(6.0, (3.4 if len(partitions) < 4 else 2.8) * len(partitions)), height), layout="constrained"
    )
    axes = figure.subplots(len(view.measures), len(partitions), squeeze=False, sharex=True)
    epsilons = sorted({value for p in partitions for m in view.methods(p) if (value := view.epsilon(m)) is not None})
    for column, partition in enumerate(partitions):
        for line, measure in enumerate(view.measures):
            panel: Axes = axes[line, column]
            _draw(panel, view, partition, measure)
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(FixedLocator(epsilons))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_major_formatter(FixedFormatter(_spaced(epsilons)))
            panel.set_xlim(epsilons[0] / 1.25, epsilons[-1] * 1.25)
        axes[0, column].set_title(f"partition {partition}")
        axes[-1, column].set_xlabel("ε of every client (log scale)")
    for line, measure in enumerate(view.measures):
        axes[line, 0].set_ylabel(measure.axis)
    _legend(figure, view, partitions)
    figure.suptitle("What privacy costs", fontsize=12, fontweight="bold")
    return figure


def _draw(panel: Axes, view: View, partition: str, measure: Measure) -> None:
    ours = private_points(view, partition, measure)
    theirs = private_points(view, partition, measure, published=True)
    for index, (base, points) in enumerate(ours.items()):
        look, shift = view.looks[base], 1.025 ** (index - (len(ours) - 1) / 2)  # so that error bars stand side by side
        x, mean, std = np.array(points).T
        panel.errorbar(x * shift, mean, std, color=look.colour, marker=look.marker, ms=5, lw=1.4, capsize=2, zorder=3)
        if base in theirs:
            x, mean, _ = np.array(theirs[base]).T
            panel.plot(x, mean, ls="none", marker=look.marker, ms=9, mfc="none", mec=look.colour, mew=1.3, zorder=4)
    private = np.array([[m - s, m + s] for points in ours.values() for _, m, s in points])
    low, high = float(private.min()), float(private.max())
    span = max(high - low, 1e-3 * abs(high), 1e-9)
    outside = []
    for method in view.methods(partition):
        value = mean_and_std(view.entry(partition, method), measure.key)[0]
        if view.epsilon(method) is not None or value is None:
            continue
        if low - span <= value <= high + 2.5 * span:
            panel.axhline(value, color=view.looks[view.base(method)].colour, lw=1.3, ls=(0, (6, 2)), zorder=2)
            low, high = min(low, value), max(high, value)
        else:
            outside.append(f"{view.label(method)}: {value:.{measure.digits}f} {'↓' if value < low else '↑'}")
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


def _legend(figure: Figure, view: View, partitions: list[str]) -> None:
    handles = []
    methods = {method: None for partition in partitions for method in view.methods(partition)}
    private = dict.fromkeys(view.base(method) for method in methods if view.epsilon(method) is not None)
    for base in view.bases:
        look = view.looks[base]
        if base in private:
            handles.append(
                Line2D([], [], color=look.colour, marker=look.marker, ms=5, label=legible(view.labels[base]))
            )
        elif any(view.base(method) == base for method in methods):
            label = view.labels[base]
            label = label if "not private" in label else f"{label}, not private"
            handles.append(Line2D([], [], color=look.colour, ls=(0, (6, 2)), label=legible(label)))
    if any(private_points(view, partition, m, published=True) for partition in partitions for m in view.measures):
        handles.append(Line2D([], [], color="#444444", ls="none", marker="s", ms=9, mfc="none", label="published"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)), fontsize=9)
