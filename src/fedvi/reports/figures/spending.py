"""The figure of spending: the epsilon of every client over communications, and the budget as a line.

One run (the first seed) with the smallest budget of the table. The upper row shows all of it, the lower row the
neighbourhood of the budget: a rule that stops after the budget was passed is seen to pass it.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedvi.reports.curves import Group, Spent, size_groups, spent
from fedvi.reports.view import View
from fedvi.web.style import LARGE_CLIENTS, OVER, SMALL_CLIENTS

GROUPS = {"small": (SMALL_CLIENTS, "-"), "large": (LARGE_CLIENTS, "--"), "all": (LARGE_CLIENTS, "-")}


def shown_methods(view: View, partition: str, groups: dict[tuple[str, str], Group]) -> list[str]:
    """Return one private method per base: the one with its smallest budget in the table."""
    private = [m for m in view.table_methods(partition) if view.epsilon(m) is not None and (partition, m) in groups]
    chosen: dict[str, str] = {}
    for method in private:  # in the order of budgets
        chosen.setdefault(view.base(method), method)
    return list(chosen.values())


def draw_spending(view: View, partition: str, groups: dict[tuple[str, str], Group]) -> Figure | None:
    """Return the figure of one partition, None when no method spends anything."""
    methods = shown_methods(view, partition, groups)
    clients = {method: spent(groups.get((partition, method))) for method in methods}
    if not methods:
        return None
    figure = Figure(figsize=(max(5.5, (3.35 if len(methods) < 4 else 2.6) * len(methods)), 5.0), layout="constrained")
    axes = figure.subplots(2, len(methods), squeeze=False, sharex="col", height_ratios=[1.5, 1])
    budgets = [budget for method in methods if (budget := view.epsilon(method)) is not None]
    most = max(float(one.epsilon[-1]) for found in clients.values() for one in found)
    ratio = max(most / min(budgets) - 1, 0.01) * 1.35
    for column, method in enumerate(methods):
        budget = view.epsilon(method) or 0.0
        full, near = axes[0, column], axes[1, column]
        for panel in (full, near):
            _curves(panel, clients[method], budget)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        largest = max(float(one.epsilon[-1]) for one in clients[method])
        over = largest > budget * (1 + 1e-9)
        verdict = f"largest ε: {largest:.4f}, {'over' if over else 'within'} {budget:g}"
        title = {"color": OVER, "fontweight": "bold"} if over else {"color": "black"}
        full.set_title(f"{view.labels[view.base(method)]}\n{verdict}", **title)
        full.set_ylim(0, max(most, *budgets) * 1.12)
        near.set_ylim(budget * (1 - ratio), budget * (1 + ratio))
        near.axhspan(budget, budget * (1 + ratio), color=OVER, alpha=0.06, lw=0)
        near.set_xlabel("communications")
    axes[0, 0].set_ylabel("ε spent")
    axes[1, 0].set_ylabel("ε near the budget")
    _legend(figure, next(iter(clients.values())), any(_over(view, clients)))
    figure.suptitle(f"Who spends what: partition {partition}, one run", fontsize=12, fontweight="bold")
    return figure


def _over(view: View, clients: dict[str, list[Spent]]) -> list[bool]:
    return [one.epsilon[-1] > (view.epsilon(method) or 0) for method, found in clients.items() for one in found]


def _curves(panel: Axes, clients: list[Spent], budget: float) -> None:
    sizes = size_groups(clients)
    longest = max(float(one.x[-1]) for one in clients)
    for one in clients:
        colour, style = GROUPS[sizes[one.client]]
        over = one.epsilon[-1] > budget * (1 + 1e-9)
        spent = [*one.epsilon, one.epsilon[-1]]
        panel.plot([*one.x, longest], spent, color=colour, ls=style, lw=1.1, alpha=0.9)
        panel.plot(one.x[-1], one.epsilon[-1], "o", ms=5, color=OVER if over else colour, zorder=4)
    panel.axhline(budget, color="black", ls=(0, (4, 2)), lw=1.4, zorder=3)


def _legend(figure: Figure, clients: list[Spent], over: bool) -> None:
    sizes = size_groups(clients)
    handles = []
    for name, (colour, style) in GROUPS.items():
        rows = sorted(one.rows for one in clients if sizes[one.client] == name)
        if rows:
            between = f"{rows[0]:,}" if rows[0] == rows[-1] else f"{rows[0]:,} to {rows[-1]:,}"
            label = f"{'' if name == 'all' else name + ' '}clients ({between} rows)"
            handles.append(Line2D([], [], color=colour, ls=style, label=label))
    handles.append(Line2D([], [], color="black", ls=(0, (4, 2)), label="budget"))
    if over:
        handles.append(Line2D([], [], color=OVER, marker="o", ls="none", ms=5, label="client over its budget"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9)
