"""The figure of the honesty benchmark: coverage of all cells, interval scores beside before, rank histograms."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from benchmarks.honesty.report import HIGH, LOW, Cells
from benchmarks.honesty.scores import BINS, PARTS, coverage, score_ratio
from fedvi.web.pages import KNOWN, RC

OURS, OLD = KNOWN["fedvi"].colour, "#9AA5B1"
TITLES = {"weights": "coefficients", "predictions": "predictions of new rows"}
KINDS = {
    "two classes, private": lambda name: name.startswith("logistic") and "none" not in name,
    "numbers, private": lambda name: name.startswith("linear") and "none" not in name,
    "real features, private": lambda name: not name.startswith(("logistic", "linear")) and "none" not in name,
    "not private": lambda name: "none" in name,
}
"""Cells whose ranks are shown together."""


def write_figure(cells: Cells, before: Cells, path: Path) -> None:
    """Draw all cells, and write the picture."""
    with mpl.rc_context(RC):
        draw_figure(cells, before).savefig(path, dpi=150, metadata={"Software": None})


def draw_figure(cells: Cells, before: Cells) -> Figure:
    """Draw coverage, interval scores over before, and rank histograms."""
    figure = Figure(figsize=(11, 2.2 + 0.19 * len(cells) + 2.6), layout="constrained")
    upper, lower = np.asarray(figure.subfigures(2, 1, height_ratios=[0.19 * len(cells) + 1.6, 2.6]))
    panels = upper.subplots(1, 3, sharey=True, width_ratios=[1, 1, 0.8])
    places = np.arange(len(cells))
    for axes, part in zip(panels, PARTS, strict=False):
        _coverage(axes, cells, before, part)
    ratios = [score_ratio(cells[name], before[name]) if name in before else np.nan for name in cells]
    panels[2].axvline(1, color="#4A4A4A", linewidth=0.8)
    panels[2].hlines(places, ratios, 1, color=OURS, linewidth=1)
    panels[2].plot(ratios, places, "D", color=OURS, markersize=3.5)
    panels[2].set(xscale="log", title="interval score over before\n(less is better)")
    panels[2].set_xticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
    panels[2].xaxis.set_minor_locator(NullLocator())
    panels[2].set_xlim(min(0.09, 0.9 * np.nanmin(ratios)), max(1.3, 1.1 * np.nanmax(ratios)))
    panels[2].grid(axis="y", visible=False)
    panels[0].set_yticks(places, list(cells), fontsize=7)
    panels[0].set_ylim(len(cells) - 0.4, -0.6)
    handles, labels = panels[0].get_legend_handles_labels()
    upper.legend(handles, labels, loc="outside upper left", ncols=3)
    for axes, (title, belongs) in zip(lower.subplots(1, len(KINDS), sharey=True), KINDS.items(), strict=True):
        chosen = {name: columns for name, columns in cells.items() if belongs(name)}
        _ranks(axes, chosen, {name: before[name] for name in chosen if name in before})
        axes.set_title(title)
    lower.suptitle(
        "ranks of the true coefficients under the posterior: flat if it is right (line: before)", fontsize="medium"
    )
    return figure


def _coverage(axes: Axes, cells: Cells, before: Cells, part: str) -> None:
    axes.axvspan(LOW, HIGH, color=OURS, alpha=0.12, linewidth=0, label="85 to 97 %")
    axes.axvline(0.9, color="#4A4A4A", linewidth=0.8)
    places = {name: place for place, name in enumerate(cells)}
    for of, colour, marker, label in ((before, OLD, "o", "before"), (cells, OURS, "D", "fedvi")):
        found = {name: coverage(of[name], part) for name in cells if name in of}
        means, errors = (np.array([pair[at] for pair in found.values()]) for at in (0, 1))
        where = [places[name] for name in found]
        axes.errorbar(means, where, xerr=2 * errors, fmt=marker, color=colour, markersize=3.5, linewidth=1, label=label)
    axes.set(title=f"coverage of 90 % intervals,\n{TITLES[part]}", xlim=(0, 1.01))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(axis="y", visible=False)


def _ranks(axes: Axes, cells: Cells, before: Cells) -> None:
    edges = np.linspace(0, 1, BINS + 1)
    for of, look in ((cells, {"fill": True, "color": OURS, "alpha": 0.8}), (before, {"color": "#4A4A4A"})):
        if of:
            total = np.sum(
                [np.array(columns["weights ranks"]) / sum(columns["weights ranks"]) for columns in of.values()], axis=0
            )
            axes.stairs(total / len(of) * BINS, edges, **look)
    axes.axhline(1, color="#4A4A4A", linewidth=0.8, linestyle=":")
    axes.set(xlabel="rank", xlim=(0, 1), ylim=(0, 3))
