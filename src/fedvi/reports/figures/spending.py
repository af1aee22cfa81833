"""The figure of spending: the epsilon of every client over communications, and the budget as a line.

One run (the first seed) with the smallest budget of the table. The upper row shows all of it, the lower row the
neighbourhood of the budget: a rule that stops after the budget was passed is seen to pass it.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedvi.reports.curves import Spent, spent
from fedvi.reports.figures.shared import entry, finish
from fedvi.reports.results import Report, exceeds
from fedvi.web.style import LARGE_CLIENTS, OVER, SMALL_CLIENTS

GROUPS = {"small": (SMALL_CLIENTS, "-"), "large": (LARGE_CLIENTS, "--"), "all": (LARGE_CLIENTS, "-")}
BUDGET: dict[str, Any] = {"color": "black", "ls": (0, (4, 2))}


def draw_spending(report: Report, partition: str) -> Figure | None:
    """Return the figure of one partition, None when no method spends anything."""
    shown = [(row, row.budget or 0.0, spent(group)) for row, group in report.spenders(partition)]
    if not shown:
        return None
    figure = Figure(figsize=(max(5.5, (3.35 if len(shown) < 4 else 2.6) * len(shown)), 5.0), layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False, sharex="col", height_ratios=[1.5, 1])
    budgets = [budget for _, budget, _ in shown]
    most = max(float(one.epsilon[-1]) for _, _, clients in shown for one in clients)
    ratio = max(most / min(budgets) - 1, 0.01) * 1.35
    someone_over = False
    for (full, near), (row, budget, clients) in zip(axes.T, shown, strict=True):
        for panel in (full, near):
            _curves(panel, clients, budget)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        largest = max(float(one.epsilon[-1]) for one in clients)
        over = exceeds(largest, budget)
        someone_over |= over
        verdict = f"largest ε: {largest:.4f}, {'over' if over else 'within'} {budget:g}"
        title = {"color": OVER, "fontweight": "bold"} if over else {"color": "black"}
        full.set_title(f"{row.name}\n{verdict}", **title)
        full.set_ylim(0, max(most, *budgets) * 1.12)
        near.set_ylim(budget * (1 - ratio), budget * (1 + ratio))
        near.axhspan(budget, budget * (1 + ratio), color=OVER, alpha=0.06, lw=0)
        near.set_xlabel("communications")
    axes[0, 0].set_ylabel("ε spent")
    axes[1, 0].set_ylabel("ε near the budget")
    entries = _legend(shown[0][2], someone_over)
    return finish(figure, f"Who spends what: partition {partition}, one run", entries, columns=4)


def _curves(panel: Axes, clients: list[Spent], budget: float) -> None:
    longest = max(float(one.x[-1]) for one in clients)
    for one in clients:
        colour, style = GROUPS[one.group]
        last = float(one.epsilon[-1])
        panel.plot([*one.x, longest], [*one.epsilon, last], color=colour, ls=style, lw=1.1, alpha=0.9)
        panel.plot(one.x[-1], last, "o", ms=5, color=OVER if exceeds(last, budget) else colour, zorder=4)
    panel.axhline(budget, **BUDGET, lw=1.4, zorder=3)


def _legend(clients: list[Spent], someone_over: bool) -> list[Line2D]:
    entries = []
    for name, (colour, style) in GROUPS.items():
        if rows := sorted(one.rows for one in clients if one.group == name):
            between = f"{rows[0]:,}" if rows[0] == rows[-1] else f"{rows[0]:,} to {rows[-1]:,}"
            entries.append(entry(f"{name} clients ({between} rows)".removeprefix("all "), color=colour, ls=style))
    entries.append(entry("budget", **BUDGET))
    if someone_over:
        entries.append(entry("client over its budget", color=OVER, marker="o", ls="none", ms=5))
    return entries
