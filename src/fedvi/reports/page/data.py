"""The data that the page embeds: curves, points and cells, thinned so that the page stays small."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvi.reports.curves import Curve, budget_ends, curve, main_range, size_groups, spent, split
from fedvi.reports.figures.grid import grid
from fedvi.reports.figures.spending import shown_methods
from fedvi.reports.figures.tradeoff import has_tradeoff, private_points
from fedvi.reports.figures.write import file_names
from fedvi.reports.measures import mean_and_std
from fedvi.reports.view import View

POINTS = 200
MOST_POINTS = 100_000
"""Of one page: curves are thinned further when there are very many."""


def page_data(view: View) -> dict[str, Any]:
    """Return everything that the page's charts draw, as plain lists and numbers."""
    history, spending = split(view.outcome.history), split(view.outcome.spending)
    files = file_names(view.partitions)
    curves = sum(len(view.table_methods(p)) for p in view.partitions) * len(view.measures)
    points = max(20, min(POINTS, MOST_POINTS // max(curves, 1)))
    methods = {m: None for p in view.partitions for m in view.methods(p)}
    return {
        "measures": [{"key": m.key, "axis": m.axis, "digits": m.digits} for m in view.measures],
        "methods": {method: _method(view, method) for method in methods},
        "bases": {b: {"label": view.labels[b], "colour": view.looks[b].colour} for b in view.bases},
        "partitions": [
            {
                "name": partition,
                "file": files[partition],
                "progress": _progress(view, partition, history, points),
                "ends": {m: budget_ends(view.entry(partition, m)) for m in view.table_methods(partition)},
                "tradeoff": _tradeoff(view, partition),
                "spending": [
                    _spending(view, method, spending[partition, method])
                    for method in shown_methods(view, partition, spending)
                ],
            }
            for partition in view.partitions
        ],
        "grid": _grid(view),
    }


def _numbers(values: np.ndarray, digits: int = 5) -> list[float]:
    return [round(float(value), digits) for value in values]


def _method(view: View, method: str) -> dict[str, Any]:
    look = view.looks[view.base(method)]
    return {
        "label": view.label(method),
        "base": view.base(method),
        "colour": look.colour,
        "dash": list(view.dashes.get(view.variant(method), ())),
    }


def _progress(view: View, partition: str, history: Any, points: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for measure in view.measures:
        curves: dict[str, Curve] = {}
        for method in view.table_methods(partition):
            one = curve(history.get((partition, method)), measure.column, points)
            if one is not None and one.x[-1] >= 1:
                curves[method] = one
        if curves:
            low, high, broken = main_range(list(curves.values()))
            found[measure.key] = {
                "range": [low, high],
                "broken": broken,
                "curves": {
                    method: [_numbers(part[one.x >= 1]) for part in (one.x, one.mean, one.low, one.high)]
                    for method, one in curves.items()
                },
            }
    return found


def _tradeoff(view: View, partition: str) -> dict[str, Any]:
    if not has_tradeoff(view, partition):
        return {}
    found = {}
    for measure in view.measures:
        flat = []
        for method in view.methods(partition):
            value = mean_and_std(view.entry(partition, method), measure.key)[0]
            if view.epsilon(method) is None and value is not None:
                flat.append([method, value])
        ours = private_points(view, partition, measure)
        if ours:
            theirs = private_points(view, partition, measure, published=True)
            found[measure.key] = {"ours": ours, "published": theirs, "flat": flat}
    return found


def _spending(view: View, method: str, group: dict[str, np.ndarray]) -> dict[str, Any]:
    count = len(np.unique(group["client"]))
    clients = spent(group, points=max(10, min(POINTS, 4000 // max(count, 1))))
    sizes = size_groups(clients)
    return {
        "method": method,
        "budget": view.epsilon(method),
        "clients": [
            {
                "name": c.client,
                "rows": c.rows,
                "group": sizes[c.client],
                "x": _numbers(c.x, 0),
                "y": _numbers(c.epsilon),
            }
            for c in clients
        ],
    }


def _grid(view: View) -> dict[str, Any] | None:
    found = grid(view)
    if found is None:
        return None
    labels = [view.label(method) for method in found.methods]
    return {
        "x": found.x,
        "y": found.y,
        "xs": found.xs,
        "ys": found.ys,
        "compared": len(labels) == 2,
        "title": " minus ".join(labels),
        "maps": {
            m.key: [[x, y, round(value, 5)] for (x, y), value in found.values(view, m).items()] for m in view.measures
        },
        "skipped": [[x, y, str(view.outcome.skipped[name])] for (x, y), name in found.skipped.items()],
    }
