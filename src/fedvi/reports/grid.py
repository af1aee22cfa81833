"""The map of a swept grid: its cells by their coordinates, and what they are compared in."""

from __future__ import annotations

from dataclasses import dataclass

from fedvi.reports.measures import Measure
from fedvi.reports.results import Report, Row, coordinates

Place = tuple[float, float]


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
    def labels(self) -> list[str]:
        """The compared methods for readers."""
        rows = [next(cell[method] for cell in self.cells.values() if method in cell) for method in self.methods]
        return [row.full_label for row in rows]

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
