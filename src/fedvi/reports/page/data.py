"""The data that the page embeds: curves, points and cells, thinned so that the page stays small."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvi.reports.curves import Group, main_range, spent
from fedvi.reports.figures.tradeoff import has_tradeoff, private_points
from fedvi.reports.grid import grid
from fedvi.reports.results import Report, Row

POINTS = 200
MOST_POINTS = 100_000
"""Of one page: curves are thinned further when there are very many."""


def page_data(report: Report) -> dict[str, Any]:
    """Return everything that the page's charts draw, as plain lists and numbers."""
    points = max(20, min(POINTS, MOST_POINTS // max(len(report.table) * len(report.measures), 1)))
    methods = {row.method: row for row in report.rows if row.partition not in report.cells}
    return {
        "measures": [{"key": m.key, "axis": m.axis, "digits": m.digits} for m in report.measures],
        "methods": {
            method: {"label": row.full_label, "colour": row.look.colour, "dash": report.dashes.get(row.variant, ())}
            for method, row in methods.items()
        },
        "bases": {base: {"label": row.name, "colour": row.look.colour} for base, row in report.bases.items()},
        "partitions": [
            {
                "name": partition,
                "progress": _progress(report, partition, points),
                "ends": {row.method: row.budget_ends for row in report.on(partition, table=True)},
                "tradeoff": _tradeoff(report, partition) if has_tradeoff(report, partition) else {},
                "spending": [_spending(row, group) for row, group in report.spenders(partition)],
            }
            for partition in report.partitions
        ],
        "grid": _grid(report),
    }


def _numbers(values: np.ndarray, digits: int = 5) -> list[float]:
    return [round(float(value), digits) for value in values]


def _progress(report: Report, partition: str, points: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for measure in report.measures:
        if curves := report.curves(partition, measure, points):
            low, high, broken = main_range([one for _, one in curves])
            shown = [(row.method, one.from_first()) for row, one in curves]
            parts = {method: [_numbers(part) for part in (o.x, o.mean, o.low, o.high)] for method, o in shown}
            found[measure.key] = {"range": [low, high], "broken": broken, "curves": parts}
    return found


def _tradeoff(report: Report, partition: str) -> dict[str, Any]:
    found = {}
    for measure in report.measures:
        open_ = [(row.method, row.measured(measure).mean) for row in report.on(partition) if row.budget is None]
        if ours := private_points(report, partition, measure):
            theirs = private_points(report, partition, measure, published=True)
            flat = [[method, mean] for method, mean in open_ if mean is not None]
            found[measure.key] = {"ours": ours, "published": theirs, "flat": flat}
    return found


def _spending(row: Row, group: Group) -> dict[str, Any]:
    clients = spent(group, points=max(10, min(POINTS, 4000 // len(np.unique(group["client"])))))
    charts = [
        {"name": c.client, "rows": c.rows, "group": c.group, "x": _numbers(c.x, 0), "y": _numbers(c.epsilon)}
        for c in clients
    ]
    return {"method": row.method, "budget": row.budget, "clients": charts}


def _grid(report: Report) -> dict[str, Any] | None:
    found = grid(report)
    if found is None:
        return None
    maps = {m.key: [[*place, round(value, 5)] for place, value in found.values(m).items()] for m in report.measures}
    return {
        "x": found.x,
        "y": found.y,
        "xs": found.xs,
        "ys": found.ys,
        "compared": len(found.methods) == 2,
        "title": " minus ".join(found.labels),
        "maps": maps,
        "skipped": [[*place, reason] for place, reason in found.skipped.items()],
    }
