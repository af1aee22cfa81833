"""The cells of a swept grid: "grid[rho=0.5,kappa=-3.0]" read back into coordinates, and what they are compared in."""

from __future__ import annotations

from dataclasses import dataclass

from fedvi.reports.cells import coordinates
from fedvi.reports.measures import Measure, mean_and_std
from fedvi.reports.view import View


@dataclass(frozen=True)
class Grid:
    """x, y: names of the two swept settings and their values, ascending. cells: of coordinates. skipped: invalid ones.

    methods: a cell shows the first minus the second, or the first alone when there is only one.
    """

    x: str
    y: str
    xs: list[float]
    ys: list[float]
    cells: dict[tuple[float, float], str]
    skipped: dict[tuple[float, float], str]
    methods: tuple[str, ...]

    def values(self, view: View, measure: Measure) -> dict[tuple[float, float], float]:
        """Return the value of every cell that has one."""
        found = {}
        for place, name in self.cells.items():
            entries = [view.outcome.results[name].get(method) for method in self.methods]
            means = [mean_and_std(entry, measure.key)[0] for entry in entries]
            numbers = [mean for mean in means if mean is not None]
            if len(numbers) == len(self.methods):
                found[place] = numbers[0] - numbers[1] if len(numbers) == 2 else numbers[0]
        return found


def grid(view: View) -> Grid | None:
    """Return the grid with two swept settings, None when there is none.

    PVI is compared with global VI if both are there, otherwise the first method with the second.
    """
    run = {name: place for name in view.cells if (place := coordinates(name)) is not None and len(place) == 2}
    if not run:
        return None
    x, y = next(iter(run.values()))
    left_out = {name: coordinates(name) for name in view.outcome.skipped if "[" in name}
    cells = {(place[x], place[y]): name for name, place in run.items() if set(place) == {x, y}}
    skipped = {(place[x], place[y]): name for name, place in left_out.items() if place and set(place) == {x, y}}
    methods = list(dict.fromkeys(method for name in cells.values() for method in view.methods(name)))
    pair = ("pvi", "global-vi") if {"pvi", "global-vi"} <= set(methods) else tuple(methods[:2])
    places = [*cells, *skipped]
    return Grid(x, y, sorted({px for px, _ in places}), sorted({py for _, py in places}), cells, skipped, pair)


def representative(values: dict[tuple[float, float], float]) -> list[tuple[float, float]]:
    """Return the cells with the smallest, the median and the largest value, fewer when there are fewer."""
    ranked = sorted(values, key=lambda place: (values[place], place))
    if not ranked:
        return []
    return list(dict.fromkeys([ranked[0], ranked[len(ranked) // 2], ranked[-1]]))
