"""What charts show, in figures and on the page: curves over communications, spending, trade-offs, a swept grid.

Seeds are measured at different moments, so every seed is interpolated to the union of all moments. After its last
communication a posterior no longer changes: its last value stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np

from fedvi.reports.results import Group, Measure, Report, Row, coordinates

Place = tuple[float, float]
"""Of a cell in a grid."""

Points = dict[str, list[tuple[float, float, float]]]
"""Of every base method: epsilon, mean, standard deviation."""


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


def curves(report: Report, rows: Iterable[Row], measure: Measure, points: int = 200) -> list[tuple[Row, Curve]]:
    """Return the rows that were measured on the way, each with its curve from the first communication on."""
    found = [(row, curve(report.history.get((row.partition, row.method)), measure.column, points)) for row in rows]
    return [(row, one.from_first()) for row, one in found if one is not None and one.x[-1] >= 1]


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


def spenders(report: Report, partition: str) -> list[tuple[Row, Group]]:
    """Return one private row per base, that of its smallest budget in the table, and what its clients spent."""
    groups = [(row, report.spending.get((partition, row.method))) for row in report.on(partition, table=True)]
    private = [(row, group) for row, group in groups if row.budget is not None and group is not None]
    return list({row.base: (row, group) for row, group in reversed(private)}.values())[::-1]


def spent(group: Group) -> list[Spent]:
    """Return what every client of the first seed spent; fewer points for many clients."""
    group = {column: values[group["seed"] == group["seed"].min()] for column, values in group.items()}
    clients = group["client"].astype(str)
    points = max(10, min(200, 4000 // len(np.unique(clients))))
    sizes = {str(name): int(rows) for name, rows in zip(clients[::-1], group["rows"][::-1], strict=True)}
    gaps = [(large / max(small, 1), small) for small, large in pairwise(sorted(set(sizes.values())))]
    widest, largest_small = max(gaps, default=(1.0, 0), key=itemgetter(0))
    found = []
    for client in dict.fromkeys(clients.tolist()):
        rows = clients == client
        x, epsilon = _ascending(group["communications"][rows].astype(float), group["epsilon"][rows].astype(float))
        kept = np.flatnonzero(np.diff(epsilon, prepend=-1.0) != 0)  # moments when nothing changed draw nothing
        kept = kept[thin(x[kept], points)]
        x, epsilon = x[kept], epsilon[kept]
        if len(x) > 1 and epsilon[0] == 0:  # nothing is spent before the first update
            x, epsilon = np.insert(x, 1, x[1]), np.insert(epsilon, 1, 0.0)
        size = "all" if widest < 1.5 else "small" if sizes[client] <= largest_small else "large"
        found.append(Spent(client, sizes[client], size, x, epsilon))
    return found


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


@dataclass(frozen=True)
class Grid:
    """x, y: names of the two swept settings and their values, ascending. cells: rows of each method. skipped: why.

    methods: a cell shows the first minus the second, or the first alone when there is only one.
    """

    x: str
    y: str
    xs: list[float]
    ys: list[float]
    cells: dict[Place, dict[str, Row]]
    skipped: dict[Place, str]
    methods: tuple[str, ...]

    @property
    def title(self) -> str:
        """What a cell shows, for readers."""
        rows = [next(cell[method] for cell in self.cells.values() if method in cell) for method in self.methods]
        return " minus ".join(row.full_label for row in rows)

    def values(self, measure: Measure) -> dict[Place, float]:
        """Return the value of every cell that has one."""
        found = {}
        for place, cell in self.cells.items():
            found_in = [cell[method].measured(measure).mean for method in self.methods if method in cell]
            means = [mean for mean in found_in if mean is not None]
            if len(means) == len(self.methods):
                found[place] = means[0] - means[1] if len(means) == 2 else means[0]
        return found


def grid(report: Report) -> Grid | None:
    """Return the grid with two swept settings, None when there is none.

    PVI is compared with global VI if both are there, otherwise the first method with the second.
    """
    if not report.cells:
        return None
    x, y = next(iter(report.cells.values()))
    settings = report.cells | {name: coordinates(name) for name in report.outcome.skipped}
    places = {name: (place[x], place[y]) for name, place in settings.items() if set(place) == {x, y}}
    cells = {places[name]: {row.method: row for row in report.on(name)} for name in report.cells if name in places}
    skipped = {places[name]: str(reason) for name, reason in report.outcome.skipped.items() if name in places}
    methods = tuple(dict.fromkeys(method for cell in cells.values() for method in cell))
    pair = ("pvi", "global-vi") if {"pvi", "global-vi"} <= set(methods) else methods[:2]
    every = [*cells, *skipped]
    return Grid(x, y, sorted({px for px, _ in every}), sorted({py for _, py in every}), cells, skipped, pair)
