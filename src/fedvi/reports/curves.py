"""Curves over communications, as figures and page draw them: mean and range over seeds, and what clients spent.

Seeds are measured at different moments, so every seed is interpolated to the union of all moments. After its last
communication a posterior no longer changes: its last value stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

Group = dict[str, np.ndarray]


@dataclass(frozen=True)
class Curve:
    """x: communications. mean, low, high: over seeds; low and high are the extremes."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def from_first(self) -> Curve:
        """Return the curve from the first communication on: a log axis has no place for zero."""
        kept = self.x >= 1
        return Curve(self.x[kept], self.mean[kept], self.low[kept], self.high[kept])

    def at(self, x: float) -> float:
        """Return the mean at one moment."""
        return float(np.interp(x, self.x, self.mean))


@dataclass(frozen=True)
class Spent:
    """What one client of one run had spent, at the moments when it changed.

    group: "small" or "large", split at the widest gap between the clients' numbers of rows; "all" when they are alike.
    """

    client: str
    rows: int
    group: str
    x: np.ndarray
    epsilon: np.ndarray


def split(columns: Mapping[str, Any]) -> dict[tuple[str, str], Group]:
    """Return the rows of every partition and method; columns may be empty or missing."""
    rows: dict[tuple[str, str], list[int]] = {}
    keys = zip(columns.get("partition", ()), columns.get("method", ()), strict=True)
    for row, (partition, method) in enumerate(keys):
        rows.setdefault((str(partition), str(method)), []).append(row)
    return {key: {name: np.asarray(column)[own] for name, column in columns.items()} for key, own in rows.items()}


def curve(group: Group | None, column: str, points: int = 200) -> Curve | None:
    """Return mean and range over seeds of one column with at most so many points, None when it was not measured."""
    if group is None or column not in group:
        return None
    x, y = group["communications"].astype(float), group[column].astype(float)
    good = np.isfinite(y)
    seeds = [(x[rows], y[rows]) for seed in np.unique(group["seed"]) if (rows := good & (group["seed"] == seed)).any()]
    if not seeds:
        return None
    moments = np.unique(np.concatenate([own for own, _ in seeds]))
    moments = moments[thin(moments, points)]
    values = np.stack([np.interp(moments, *_ascending(own, value)) for own, value in seeds])
    return Curve(moments, values.mean(0), values.min(0), values.max(0))


def _ascending(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def thin(x: np.ndarray, points: int) -> np.ndarray:
    """Return indices of at most so many moments: the first, the last, and some that suit linear and log axes both."""
    if len(x) <= points:
        return np.arange(len(x))
    by_rank = np.linspace(0, len(x) - 1, points // 2)
    marks = np.geomspace(max(float(x[0]), 1.0), float(x[-1]), points // 2 - 2)
    by_log = np.clip(np.searchsorted(x, marks), 0, len(x) - 1)
    return np.unique(np.concatenate([by_rank.round().astype(int), by_log]))


def spent(group: Group, points: int = 200) -> list[Spent]:
    """Return what every client of the first seed spent."""
    group = {column: values[group["seed"] == group["seed"].min()] for column, values in group.items()}
    clients = group["client"].astype(str)
    sizes = {str(name): int(rows) for name, rows in zip(clients[::-1], group["rows"][::-1], strict=True)}
    largest_small = _widest_gap(sorted(set(sizes.values())))
    found = []
    for client in dict.fromkeys(clients.tolist()):
        rows = clients == client
        x, epsilon = _ascending(group["communications"][rows].astype(float), group["epsilon"][rows].astype(float))
        kept = np.flatnonzero(np.diff(epsilon, prepend=-1.0) != 0)  # moments when nothing changed draw nothing
        kept = kept[thin(x[kept], points)]
        x, epsilon = x[kept], epsilon[kept]
        if len(x) > 1 and epsilon[0] == 0:  # nothing is spent before the first update
            x, epsilon = np.insert(x, 1, x[1]), np.insert(epsilon, 1, 0.0)
        size = "all" if largest_small is None else "small" if sizes[client] <= largest_small else "large"
        found.append(Spent(client, sizes[client], size, x, epsilon))
    return found


def _widest_gap(sizes: list[int]) -> int | None:
    """Return the size below the widest gap between ascending sizes, None when they are alike."""
    gaps = [(large / max(small, 1), small) for small, large in pairwise(sizes)]
    ratio, below = max(gaps, default=(1.0, 0), key=itemgetter(0))
    return below if ratio >= 1.5 else None


def main_range(curves: list[Curve]) -> tuple[float, float, bool]:
    """Return the range that shows the methods that end well, and whether anything lies below it.

    Methods are taken from the best downwards until a gap is three times as wide as all that was taken, and as the
    distance from the best to the median: the rest is out. The range leaves room below for the last part of the rise;
    lower values go into a separate panel.
    """
    ends = np.array([one.mean[-1] for one in curves])
    ranked = np.sort(ends)[::-1]
    best = last = float(ranked[0])
    usual = max(float(best - np.median(ends)), 1e-3 * abs(best), 1e-9)
    for end in ranked:
        if last - end > 3 * max(best - last, usual):
            break
        last = float(end)
    well = [one for one in curves if one.mean[-1] >= last]
    top, lowest_end = max(float(one.high.max()) for one in well), min(float(one.low[-1]) for one in well)
    span = top - lowest_end or usual
    bottom = lowest_end - 0.6 * span
    lowest = min(float(one.low.min()) for one in curves)
    if lowest >= bottom - 0.5 * span:
        return lowest - 0.05 * span, top + 0.08 * span, False
    return bottom, top + 0.08 * span, True
