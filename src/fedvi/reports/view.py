"""A run directory as reports see it: which methods there are, in which order, and what was measured.

Nothing is computed here but choices: which partitions are named and which are cells of a grid, which
epsilons belong to the main table, which columns were measured, which name a reader is shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedvi.reports.cells import is_cell
from fedvi.reports.measures import ACCURACY, LOG_LIKELIHOOD, Measure, finite, mean_and_std
from fedvi.web import style

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results


@dataclass(frozen=True)
class View:
    """outcome: what was read from the run directory."""

    outcome: Results

    @property
    def title(self) -> str:
        """What the run is called."""
        return str(self.outcome.config.get("title") or self.outcome.path.name)

    @cached_property
    def partitions(self) -> list[str]:
        """The partitions of data, without the cells of a grid."""
        return [name for name in self.outcome.results if not is_cell(name)]

    @cached_property
    def cells(self) -> list[str]:
        """The cells of a swept grid that were run."""
        return [name for name in self.outcome.results if is_cell(name)]

    def entry(self, partition: str, method: str) -> dict[str, Any]:
        """Return what results.json says of one method on one partition."""
        found: dict[str, Any] = self.outcome.results[partition][method]
        return found

    @cached_property
    def _bases(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for methods in self.outcome.results.values():
            for method, entry in methods.items():
                names.setdefault(method, str(entry.get("base") or method.split("@")[0].split("[")[0]))
        return names

    def base(self, method: str) -> str:
        """Return the method without its epsilon and its swept settings."""
        return self._bases[method]

    @cached_property
    def _epsilons(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for methods in self.outcome.results.values():
            for method, entry in methods.items():
                epsilon = finite(entry.get("epsilon"))
                if epsilon is not None:
                    found.setdefault(method, epsilon)
        return found

    def epsilon(self, method: str) -> float | None:
        """Return the method's budget, None when it has none."""
        return self._epsilons.get(method)

    def variant(self, method: str) -> str:
        """Return what distinguishes the method from others of the same base: epsilon, swept settings, or nothing."""
        swept = method[method.index("[") :].strip("[]") if "[" in method and method.endswith("]") else ""
        epsilon = self.epsilon(method)
        return ", ".join(part for part in ("" if epsilon is None else f"ε = {epsilon:g}", swept) if part)

    def methods(self, partition: str) -> list[str]:
        """Return the methods that were run on a partition: known ones first, then by budget."""
        names = list(self.outcome.results[partition])

        def rank(name: str) -> tuple[int, int, float, int]:
            known = style.order(self.base(name))
            return known, self._first[self.base(name)], self.epsilon(name) or 0.0, names.index(name)

        return sorted(names, key=rank)

    @cached_property
    def _first(self) -> dict[str, int]:
        bases = list(dict.fromkeys(self._bases.values()))
        return {base: index for index, base in enumerate(bases)}

    @cached_property
    def bases(self) -> list[str]:
        """All base methods, known ones first."""
        return sorted(self._first, key=lambda base: (style.order(base), self._first[base]))

    @cached_property
    def looks(self) -> dict[str, style.Look]:
        """A colour and a marker for every base method."""
        return style.looks(self.bases)

    @cached_property
    def labels(self) -> dict[str, str]:
        """A name for readers for every base method."""
        given: dict[str, str] = {}
        for methods in self.outcome.results.values():
            for method, entry in methods.items():
                base = self.base(method)
                given.setdefault(base, str(entry.get("label") or style.LABELS.get(base, base)))
        return given

    def label(self, method: str) -> str:
        """Return the method's name for readers, with its epsilon and swept settings."""
        name, variant = self.labels[self.base(method)], self.variant(method)
        return f"{name}, {variant}" if variant else name

    def reference(self, partition: str, method: str) -> dict[str, Any] | None:
        """Return the published numbers to compare with, if there are."""
        published = self._references.get(partition, {}).get(method)
        return published if isinstance(published, dict) else None

    @cached_property
    def _references(self) -> dict[str, dict[str, Any]]:
        given = self.outcome.config.get("reference") or {}
        return {name: methods for name, methods in given.items() if isinstance(methods, dict)}

    @cached_property
    def has_reference(self) -> bool:
        """Whether there is any published number for the partitions that were run."""
        return any(self._references.get(partition) for partition in self.partitions)

    @cached_property
    def table_epsilons(self) -> list[float]:
        """The budgets that the main table shows: those with published numbers, or all when nothing was published."""
        every = {value for p in self.partitions for m in self.methods(p) if (value := self.epsilon(m)) is not None}
        if self.has_reference:
            names = {name for methods in self._references.values() for name in methods if "@" in name}
            published = {float(text) for name in names if _is_number(text := name.rsplit("@", 1)[1])}
            every = {value for value in every if any(math.isclose(value, other) for other in published)}
        return sorted(every)

    def in_table(self, method: str) -> bool:
        """Return whether the main table has a row for the method."""
        epsilon = self.epsilon(method)
        return epsilon is None or epsilon in self.table_epsilons

    def table_methods(self, partition: str) -> list[str]:
        """Return the methods of the main table, in its order."""
        return [method for method in self.methods(partition) if self.in_table(method)]

    @cached_property
    def dashes(self) -> dict[str, tuple[float, ...]]:
        """A line style for every variant of the methods in the main table."""
        names = {m: self.epsilon(m) or 0.0 for p in self.partitions for m in self.table_methods(p)}
        variants = {self.variant(m): None for m in sorted(names, key=lambda m: names[m]) if self.variant(m)}
        return {"": (), **style.dashes(list(variants))}

    @cached_property
    def measures(self) -> list[Measure]:
        """What was measured at the end: accuracy and log-likelihood, or what a model without classes has instead."""
        entries = [entry for methods in self.outcome.results.values() for entry in methods.values()]
        found = [
            m for m in (ACCURACY, LOG_LIKELIHOOD) if any(mean_and_std(entry, m.key)[0] is not None for entry in entries)
        ]
        if ACCURACY not in found:
            taken = {"acc", "accuracy", "ll", "log_likelihood", "change", "repairs"}
            names = {name: None for entry in entries for name in entry.get("metrics") or {} if name not in taken}
            others = [name for name in names if any(mean_and_std(entry, name)[0] is not None for entry in entries)]
            found = [Measure(name, name, name.replace("_", " "), 4) for name in others[:1]] + found
        return found


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
