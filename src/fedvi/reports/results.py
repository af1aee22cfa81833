"""A run directory as reports see it: one row per partition and method, in the order of the tables.

Tables, figures, summary and page all show these rows. Nothing is computed here but choices: which partitions are named
and which are cells of a grid, which epsilons belong to the main table, what was measured, which name a reader is shown.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvi.reports.curves import Curve, Group, curve, split
from fedvi.reports.measures import ACCURACY, LOG_LIKELIHOOD, TAKEN, Comparison, Measure, finite, mean_and_std
from fedvi.web import style

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results


@dataclass(frozen=True)
class Row:
    """One method on one partition.

    base: the method without its budget and its swept settings. name: of the base, for readers. entry: of results.json.
    accounted, proven: the largest epsilon of any client in any run. communications: mean over runs.
    """

    partition: str
    method: str
    base: str
    name: str
    look: style.Look
    budget: float | None
    entry: dict[str, Any]
    compared: tuple[Comparison, ...]
    accounted: float | None
    proven: float | None
    communications: float | None

    def measured(self, measure: Measure) -> Comparison:
        """Return what was measured, ours and published."""
        return next(one for one in self.compared if one.measure == measure)

    @property
    def swept(self) -> str:
        """The swept settings, as they stand in the method's name."""
        settings = self.method.partition("[")[2]
        return settings.strip("[]") if settings.endswith("]") else ""

    @property
    def variant(self) -> str:
        """What distinguishes the method from others of the same base: epsilon, swept settings, or nothing."""
        return _joined("" if self.budget is None else f"ε = {self.budget:g}", self.swept)

    @property
    def label(self) -> str:
        """The name with the swept settings but without the epsilon: that has its own column."""
        return _joined(self.name, self.swept)

    @property
    def full_label(self) -> str:
        """The name with the epsilon and the swept settings."""
        return _joined(self.name, self.variant)

    @property
    def most_spent(self) -> float:
        """The largest epsilon of any client, by the run's own accounting or by what is proven; 0 if none is known."""
        return max(self.accounted or 0.0, self.proven or 0.0)

    @property
    def over(self) -> bool:
        """Whether a client spent more than its budget."""
        return self.budget is not None and exceeds(self.most_spent, self.budget)

    @property
    def budget_ends(self) -> tuple[float, float] | None:
        """When the first and the last client made their last update, means over seeds; None without privacy."""
        private = [run.get("last_update") or {} for run in self.entry.get("runs") or [] if run.get("epsilon")]
        moments = [[value for value in map(finite, run.values()) if value is not None] for run in private]
        first, last = ([end(run) for run in moments if run] for end in (min, max))
        return (float(np.mean(first)), float(np.mean(last))) if first else None


@dataclass(frozen=True)
class Report:
    """A run directory in the order and the words of its tables. outcome: what was read from it."""

    outcome: Results

    @property
    def title(self) -> str:
        """What the run is called."""
        return str(self.outcome.config.get("title") or self.outcome.path.name)

    @cached_property
    def cells(self) -> dict[str, dict[str, float]]:
        """The partitions that are cells of a map, swept over two settings that are numbers, and these settings."""
        return {name: place for name in self.outcome.results if len(place := coordinates(name)) == 2}

    @cached_property
    def partitions(self) -> list[str]:
        """The partitions of data, without the cells of a map."""
        return [name for name in self.outcome.results if name not in self.cells]

    @cached_property
    def rows(self) -> list[Row]:
        """All rows, partition by partition: known methods first, then others as they come, each by budget."""
        found, names = [], dict[str, str]()
        for partition, methods in self.outcome.results.items():
            for method, entry in methods.items():
                base = base_of(method, entry)
                known = style.KNOWN[base].name if base in style.KNOWN else base
                names.setdefault(base, str(entry.get("label") or known))
                found.append((partition, method, base, entry))
        bases, partitions = sorted(names, key=style.order), list(self.outcome.results)
        looks = style.looks(bases)
        rows = [self._row(p, method, base, names[base], looks[base], entry) for p, method, base, entry in found]
        return sorted(rows, key=lambda r: (partitions.index(r.partition), bases.index(r.base), r.budget or 0.0))

    def _row(self, partition: str, method: str, base: str, name: str, look: style.Look, entry: dict[str, Any]) -> Row:
        runs, published = entry.get("runs") or [], self.published.get(partition, {}).get(method)
        compared = [Comparison(m, *mean_and_std(entry, m), *mean_and_std(published, m)) for m in self.measures]
        if len(runs) == 1:  # one run has no spread
            compared = [replace(one, std=None) for one in compared]
        counts = [run["communications"] for run in runs if run.get("communications") is not None]
        communications = sum(counts) / len(counts) if counts else None
        spent = (_largest(runs, "epsilon"), _largest(runs, "epsilon_proven"))
        numbers = (finite(entry.get("epsilon")), entry, tuple(compared), *spent, communications)
        return Row(partition, method, base, name, look, *numbers)

    @cached_property
    def bases(self) -> dict[str, Row]:
        """A row of every base method, known ones first."""
        return {row.base: row for row in sorted(self.rows, key=lambda row: style.order(row.base))}

    def on(self, partition: str, *, table: bool = False) -> list[Row]:
        """Return the rows of one partition. table: only those of the main table."""
        return [row for row in (self.table if table else self.rows) if row.partition == partition]

    @cached_property
    def table(self) -> list[Row]:
        """The rows of the main table: all, or those with a published budget or none, if numbers were published."""
        return [row for row in self.rows if row.partition not in self.cells and row.budget in self._table_budgets]

    @cached_property
    def other_budgets(self) -> list[Row]:
        """The rows for epsilons without published numbers, which the main table leaves out."""
        return [row for row in self.rows if row.partition not in self.cells and row.budget not in self._table_budgets]

    @cached_property
    def published(self) -> dict[str, dict[str, Any]]:
        """The numbers to compare with, of every partition and method that has some."""
        given = self.outcome.config.get("reference") or {}
        return {name: methods for name, methods in given.items() if isinstance(methods, dict)}

    @cached_property
    def _table_budgets(self) -> set[float | None]:
        budgets, published = {row.budget for row in self.rows}, list[float]()
        for name in [name for methods in self.published.values() for name in methods if "@" in name]:
            with contextlib.suppress(ValueError):
                published.append(float(name.rsplit("@", 1)[1]))
        known = {budget for budget in budgets if budget and any(math.isclose(budget, other) for other in published)}
        return {None, *known} if self.has_published else budgets

    @cached_property
    def has_published(self) -> bool:
        """Whether there is any published number for the partitions that were run."""
        return any(self.published.get(partition) for partition in self.partitions)

    @cached_property
    def measures(self) -> list[Measure]:
        """What was measured at the end: accuracy and log-likelihood, or what a model without classes has instead."""
        entries = [entry for methods in self.outcome.results.values() for entry in methods.values()]
        others = dict.fromkeys(name for entry in entries for name in entry.get("metrics") or {} if name not in TAKEN)

        def measured(measure: Measure) -> bool:
            return any(mean_and_std(entry, measure)[0] is not None for entry in entries)

        first = [ACCURACY, *(Measure(name, name, name.replace("_", " "), 4) for name in others)]
        return [*list(filter(measured, first))[:1], *filter(measured, [LOG_LIKELIHOOD])]

    @cached_property
    def history(self) -> dict[tuple[str, str], Group]:
        """The measurements on the way, of every partition and method."""
        return split(self.outcome.history)

    @cached_property
    def spending(self) -> dict[tuple[str, str], Group]:
        """What clients had spent when, of every partition and method."""
        return split(self.outcome.spending)

    def curve(self, row: Row, measure: Measure, points: int = 200) -> Curve | None:
        """Return how a row's measure went over communications, None when it was not measured on the way."""
        return curve(self.history.get((row.partition, row.method)), measure.column, points)

    def curves(self, partition: str, measure: Measure, points: int = 200) -> list[tuple[Row, Curve]]:
        """Return the rows of the main table that were measured on the way, each with its curve."""
        found = [(row, self.curve(row, measure, points)) for row in self.on(partition, table=True)]
        return [(row, one) for row, one in found if one is not None and one.x[-1] >= 1]

    def spenders(self, partition: str) -> list[tuple[Row, Group]]:
        """Return one private row per base, that of its smallest budget in the table, and what its clients spent."""
        groups = [(row, self.spending.get((partition, row.method))) for row in self.on(partition, table=True)]
        private = [(row, group) for row, group in groups if row.budget is not None and group is not None]
        return list({row.base: (row, group) for row, group in reversed(private)}.values())[::-1]

    @cached_property
    def dashes(self) -> dict[str, tuple[float, ...]]:
        """A line style for every variant of the methods in the main table."""
        ranked = sorted(self.table, key=lambda row: row.budget or 0.0)
        return style.dashes(list(dict.fromkeys(row.variant for row in ranked if row.variant)))


def base_of(method: str, entry: dict[str, Any]) -> str:
    """Return a method without its budget and its swept settings."""
    return str(entry.get("base") or method.split("@")[0].split("[")[0])


def coordinates(name: str) -> dict[str, float]:
    """Return the settings in the name of a partition that comes from a sweep, nothing unless all are numbers.

    >>> coordinates("grid[rho=0.5,kappa=-3.0]")
    {'rho': 0.5, 'kappa': -3.0}
    >>> coordinates("grid[kind=iid]")
    {}
    """
    pairs = [part.partition("=") for part in name.partition("[")[2].rstrip("]").split(",")]
    try:
        return {key.strip(): float(value) for key, _, value in pairs}
    except ValueError:
        return {}


def exceeds(epsilon: float, budget: float) -> bool:
    """Return whether an epsilon is over a budget, by more than rounding."""
    return epsilon > budget * (1 + 1e-9)


def _largest(runs: list[dict[str, Any]], name: str) -> float | None:
    values = [float(value) for run in runs for value in (run.get(name) or {}).values() if value is not None]
    return max(values, default=None)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
