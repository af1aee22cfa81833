"""The rows of the tables as plain data: what every method reached, what was published, what the clients spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedvi.reports.measures import Measure, mean_and_std
from fedvi.reports.view import View

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results

TOLERANCES = {"acc": 0.6, "ll": 0.012}
"""Differences from published numbers that count as agreement, unless the seeds alone differ by more."""


@dataclass(frozen=True)
class Comparison:
    """One measure: ours and published, mean and standard deviation over seeds; None for what is missing."""

    measure: Measure
    mean: float | None
    std: float | None
    published: float | None = None
    published_std: float | None = None

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
    """One method on one partition. accounted, proven: the largest epsilon of any client in any run."""

    partition: str
    method: str
    label: str
    budget: float | None
    compared: tuple[Comparison, ...]
    accounted: float | None
    proven: float | None
    communications: float | None

    @property
    def over(self) -> bool:
        """Whether a client spent more than its budget, by the run's own accounting or by what is proven."""
        spent = [value for value in (self.accounted, self.proven) if value is not None]
        return self.budget is not None and any(value > self.budget * (1 + 1e-9) for value in spent)


def rows(outcome: Results) -> list[Row]:
    """Return the rows of the main table, partition by partition."""
    view = View(outcome)
    return [_row(view, partition, method) for partition in view.partitions for method in view.table_methods(partition)]


def tradeoff_rows(outcome: Results) -> list[Row]:
    """Return the rows for epsilons without published numbers, which the main table leaves out."""
    view = View(outcome)
    return [_row(view, p, m) for p in view.partitions for m in view.methods(p) if not view.in_table(m)]


def _row(view: View, partition: str, method: str) -> Row:
    entry, published = view.entry(partition, method), view.reference(partition, method)
    runs = entry.get("runs") or []
    ours = {m.key: mean_and_std(entry, m.key) for m in view.measures}
    if len(runs) == 1:  # one run has no spread
        ours = {key: (mean, None) for key, (mean, _) in ours.items()}
    counts = [run["communications"] for run in runs if run.get("communications") is not None]
    return Row(
        partition,
        method,
        _label(view, method),
        view.epsilon(method),
        tuple(
            Comparison(measure, *ours[measure.key], *mean_and_std(published, measure.key)) for measure in view.measures
        ),
        _largest(runs, "epsilon"),
        _largest(runs, "epsilon_proven"),
        sum(counts) / len(counts) if counts else None,
    )


def _label(view: View, method: str) -> str:
    """Return the method's name with its swept settings but without its epsilon: that has its own column."""
    epsilon, variant = view.epsilon(method), view.variant(method)
    rest = variant.removeprefix(f"ε = {epsilon:g}").removeprefix(", ") if epsilon is not None else variant
    return ", ".join(part for part in (view.labels[view.base(method)], rest) if part)


def _largest(runs: list[dict[str, Any]], name: str) -> float | None:
    values = [float(value) for run in runs for value in (run.get(name) or {}).values() if value is not None]
    return max(values) if values else None
