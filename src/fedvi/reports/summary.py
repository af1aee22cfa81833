"""The page's summary: what was run and what was found, computed from the rows of the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedvi.reports.results import Row, rows
from fedvi.reports.view import View

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results


@dataclass(frozen=True)
class Headline:
    """One number in large letters and what it means."""

    number: str
    meaning: str


def paragraph(outcome: Results) -> str:
    """Return the summary in plain words."""
    view, found = View(outcome), rows(outcome)
    entries = [entry for methods in outcome.results.values() for entry in methods.values()]
    seeds = max((len(entry.get("runs") or []) for entry in entries), default=0)
    methods = {view.base(method) for found_in in outcome.results.values() for method in found_in}
    where = [f"{_count(len(view.partitions), 'partition')} of rows over clients"] if view.partitions else []
    where += [f"a grid of {_count(len(view.cells), 'partition')}"] if view.cells else []
    compares = f"This report compares {_count(len(methods), 'method')} on {' and '.join(where) or 'nothing'}"
    parts = [f"{compares}, with {_count(seeds, 'seed')} each."]
    compared = [one for row in found for one in row.compared if one.agrees is not None]
    if compared:
        agree = sum(bool(one.agrees) for one in compared)
        parts.append(f"{agree} of {len(compared)} published numbers were reproduced within tolerance.")
    if failed := sum(len(entry.get("failed") or []) for entry in entries):
        parts.append(f"{_count(failed, 'run')} failed and {'is' if failed == 1 else 'are'} not in the numbers.")
    parts += _budgets(view, found)
    parts += _price(view, found)
    return " ".join(parts)


def headlines(outcome: Results) -> list[Headline]:
    """Return the numbers that a reader should see first."""
    view, found = View(outcome), rows(outcome)
    cards = []
    compared = [one for row in found for one in row.compared if one.agrees is not None]
    if compared:
        agree = sum(bool(one.agrees) for one in compared)
        cards.append(Headline(f"{agree} / {len(compared)}", "published numbers reproduced within tolerance"))
    if view.measures and view.measures[0].key == "acc":
        known = [(mean, row) for row in found if (mean := row.compared[0].mean) is not None]
        within = [(mean, row) for mean, row in known if row.budget is not None and not row.over]
        open_ = [(mean, row) for mean, row in known if row.budget is None]
        for kind, pairs in (("within a privacy budget", within), ("without privacy", open_)):
            if pairs:
                mean, row = max(pairs, key=lambda pair: pair[0])
                what = row.label if row.budget is None else f"{row.label}, ε = {row.budget:g}"
                cards.append(Headline(f"{mean:.2f}\u00a0%", f"best accuracy {kind}: {what}, partition {row.partition}"))
    over = [row for row in found if row.over and row.budget]
    if over:
        worst = max(over, key=_most_of_budget)
        meaning = f"largest ε of a client with a budget of {worst.budget:g}: {worst.label}, partition {worst.partition}"
        proven = worst.proven is not None and worst.proven > (worst.accounted or 0.0)
        cards.append(Headline(f"{_most(worst):.3g}", meaning + (" (proven)" if proven else "")))
    elif any(row.budget is not None and row.accounted is not None for row in found):
        cards.append(Headline("0", "clients over their budget"))
    return cards


def _most(row: Row) -> float:
    return max(value for value in (row.accounted, row.proven, 0.0) if value is not None)


def _most_of_budget(row: Row) -> float:
    return _most(row) / (row.budget or 1.0)


def _budgets(view: View, found: list[Row]) -> list[str]:
    private = [row for row in found if row.budget is not None and (row.accounted is not None or row.proven is not None)]
    bases = list(dict.fromkeys(view.base(row.method) for row in private))
    over = [base for base in bases if any(row.over for row in private if view.base(row.method) == base)]
    kept = [view.labels[base] for base in bases if base not in over]
    said = []
    for base in over:
        worst = max((row for row in private if view.base(row.method) == base and row.over), key=_most_of_budget)
        rule = [] if worst.accounted is None else [f"{worst.accounted:.3f} by its own rule"]
        proven = [] if worst.proven is None else [f"{worst.proven:.3f} proven"]
        amounts = ", ".join(rule + proven)
        said.append(f"“{view.labels[base]}” exceeded its budgets: with ε = {worst.budget:g} a client spent {amounts}.")
    if kept:
        said.append(f"No client exceeded its budget under {_list(kept)}.")
    return said


def _price(view: View, found: list[Row]) -> list[str]:
    """Say how the private methods compare at the smallest budget of the table."""
    if not view.table_epsilons or not view.measures or view.measures[0].key != "acc":
        return []
    smallest = view.table_epsilons[0]
    parts = []
    for base in view.bases:
        means = [
            row.compared[0].mean
            for row in found
            if view.base(row.method) == base and row.budget == smallest and row.compared[0].mean is not None
        ]
        if means:
            parts.append(f"{view.labels[base]} {sum(means) / len(means):.2f}\u00a0%")
    over = " on average over the partitions" if len(view.partitions) > 1 else ""
    return [f"Accuracy with ε = {smallest:g}{over}: {'; '.join(parts)}."] if parts else []


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _list(names: list[str]) -> str:
    quoted = [f"“{name}”" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
