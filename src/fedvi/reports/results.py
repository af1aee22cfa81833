"""A run directory as reports see it: one row per partition and method, in the order of the tables.

Tables, figures, summary and page all show these rows. Nothing is computed here but choices: which partitions are named
and which are cells of a grid, which epsilons belong to the main table, what was measured, which name a reader is shown.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvi.web import pages

if TYPE_CHECKING:
    from fedvi.experiments.directory import MethodResult, Results

TOLERANCES = {"acc": 0.6, "ll": 0.012}
"""Differences from published numbers that count as agreement, unless the seeds alone differ by more."""

TAKEN = {"acc", "accuracy", "ll", "log_likelihood", "change", "repairs"}
"""Metrics that are shown under other names, or that say nothing about quality."""

Group = dict[str, np.ndarray]
"""Columns of a table, those rows of it that belong to one partition and method."""


@dataclass(frozen=True)
class Measure:
    """key: in results. column: in the history. axis: title with unit, for readers. digits: after the point."""

    key: str
    column: str
    axis: str
    digits: int


ACCURACY = Measure("acc", "accuracy", "accuracy [%]", 2)
LOG_LIKELIHOOD = Measure("ll", "log_likelihood", "log-likelihood", 4)


@dataclass(frozen=True)
class Comparison:
    """One measure: ours and published, mean and standard deviation over seeds; None for what is missing."""

    measure: Measure
    mean: float | None
    std: float | None
    published: float | None
    published_std: float | None

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        return None if self.mean is None or self.published is None else self.mean - self.published

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is within the tolerance, or within two standard deviations of a difference."""
        if self.difference is None:
            return None
        noise = 2 * math.hypot(self.std or 0.0, self.published_std or 0.0)
        return abs(self.difference) <= max(TOLERANCES.get(self.measure.key, 0.0), noise)


@dataclass(frozen=True)
class Row:
    """One method on one partition.

    base: the method without its budget and its swept settings. name: of the base, for readers.
    """

    partition: str
    method: str
    base: str
    name: str
    look: pages.Look
    budget: float | None
    result: MethodResult
    compared: tuple[Comparison, ...]

    def measured(self, measure: Measure) -> Comparison:
        """Return what was measured, ours and published."""
        return next(one for one in self.compared if one.measure == measure)

    @property
    def variant(self) -> str:
        """What distinguishes the method from others of the same base: epsilon, swept settings, or nothing."""
        epsilon = "" if self.budget is None else f"ε = {self.budget:g}"
        return ", ".join(filter(None, (epsilon, self._swept)))

    @property
    def label(self) -> str:
        """The name with the swept settings but without the epsilon: that has its own column."""
        return ", ".join(filter(None, (self.name, self._swept)))

    @property
    def full_label(self) -> str:
        """The name with the epsilon and the swept settings."""
        return ", ".join(filter(None, (self.name, self.variant)))

    @property
    def _swept(self) -> str:
        settings = self.method.partition("[")[2]
        return settings.strip("[]") if settings.endswith("]") else ""

    @property
    def communications(self) -> float | None:
        """The mean over runs."""
        return sum(run.communications for run in self.result.runs) / len(self.result.runs) if self.result.runs else None

    @property
    def spent(self) -> tuple[float, float] | None:
        """The largest epsilon of any client in any run, as accounted and as proven; None without privacy."""
        accounted = [epsilon for run in self.result.runs for epsilon in run.epsilon.values()]
        proven = [epsilon for run in self.result.runs for epsilon in run.epsilon_proven.values()]
        return (max(accounted), max(proven or accounted)) if accounted else None

    @property
    def share_spent(self) -> float:
        """The larger of both, as a share of the budget."""
        return max(self.spent) / self.budget if self.spent and self.budget else 0.0

    @property
    def over(self) -> bool:
        """Whether a client spent more than its budget."""
        return exceeds(self.share_spent, 1.0)

    @property
    def budget_ends(self) -> tuple[float, float] | None:
        """When the first and the last client made their last update, means over seeds; None without privacy."""
        ends = [list(run.last_update.values()) for run in self.result.runs if run.epsilon and run.last_update]
        return (
            (float(np.mean([min(run) for run in ends])), float(np.mean([max(run) for run in ends]))) if ends else None
        )


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
        results = [(p, method, result) for p, own in self.outcome.results.items() for method, result in own.items()]
        names = {result.base: result.label or result.base for _, _, result in reversed(results)}
        bases = sorted(dict.fromkeys(result.base for _, _, result in results), key=pages.order)
        partitions = list(self.outcome.results)
        looks, rows = pages.looks(bases), []
        for partition, method, result in results:
            published = self.published.get(partition, {}).get(method)
            compared = tuple(_compared(measure, result, published) for measure in self.measures)
            base = result.base
            rows.append(Row(partition, method, base, names[base], looks[base], result.epsilon, result, compared))
        return sorted(rows, key=lambda r: (partitions.index(r.partition), bases.index(r.base), r.budget or 0.0))

    @cached_property
    def bases(self) -> dict[str, Row]:
        """A row of every base method, known ones first."""
        return {row.base: row for row in sorted(self.rows, key=lambda row: pages.order(row.base))}

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
        results = [result for methods in self.outcome.results.values() for result in methods.values()]
        others = dict.fromkeys(name for result in results for name in result.metrics if name not in TAKEN)

        def measured(measure: Measure) -> bool:
            return any(_ours(measure, result)[0] is not None for result in results)

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

    @cached_property
    def dashes(self) -> dict[str, tuple[float, ...]]:
        """A line style for every variant of the methods in the main table."""
        ranked = sorted(self.table, key=lambda row: row.budget or 0.0)
        return pages.dashes(list(dict.fromkeys(row.variant for row in ranked if row.variant)))


def split(columns: Group) -> dict[tuple[str, str], Group]:
    """Return the rows of every partition and method; columns may be empty or missing."""
    rows: dict[tuple[str, str], list[int]] = {}
    keys = zip(columns.get("partition", ()), columns.get("method", ()), strict=True)
    for row, (partition, method) in enumerate(keys):
        rows.setdefault((str(partition), str(method)), []).append(row)
    return {key: {name: column[own] for name, column in columns.items()} for key, own in rows.items()}


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


def _compared(measure: Measure, result: MethodResult, published: Any) -> Comparison:
    mean, std = _ours(measure, result)
    given = published.get(measure.key) if isinstance(published, dict) else None
    return Comparison(measure, mean, None if len(result.runs) == 1 else std, *_mean_and_std(given))  # one: no spread


def _ours(measure: Measure, result: MethodResult) -> tuple[float | None, float | None]:
    return _mean_and_std({"acc": result.acc, "ll": result.ll}.get(measure.key) or result.metrics.get(measure.key))


def _mean_and_std(given: Any) -> tuple[float | None, float | None]:
    """Return mean and standard deviation, None for what is missing or not finite; a file may give the mean alone."""
    pair = [*given] if isinstance(given, list | tuple) else [given]
    mean, std = [float(v) if isinstance(v, int | float) and math.isfinite(v) else None for v in [*pair, None, None][:2]]
    return mean, std
