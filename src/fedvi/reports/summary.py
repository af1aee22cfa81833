"""The page's summary: what was run and what was found, computed from the rows of the tables."""

from __future__ import annotations

from fedvi.reports.measures import ACCURACY
from fedvi.reports.results import Report, Row


def paragraph(report: Report) -> str:
    """Return the summary in plain words."""
    entries = [row.entry for row in report.rows]
    seeds = max((len(entry.get("runs") or []) for entry in entries), default=0)
    where = [f"{_count(len(report.partitions), 'partition')} of rows over clients"] if report.partitions else []
    where += [f"a grid of {_count(len(report.cells), 'partition')}"] if report.cells else []
    compares = f"This report compares {_count(len(report.bases), 'method')} on {' and '.join(where) or 'nothing'}"
    parts = [f"{compares}, with {_count(seeds, 'seed')} each."]
    if agree := _agreements(report):
        parts.append(f"{sum(agree)} of {len(agree)} published numbers were reproduced within tolerance.")
    if failed := sum(len(entry.get("failed") or []) for entry in entries):
        parts.append(f"{_count(failed, 'run')} failed and {'is' if failed == 1 else 'are'} not in the numbers.")
    return " ".join([*parts, *_budgets(report), *_price(report)])


def headlines(report: Report) -> list[tuple[str, str]]:
    """Return the numbers that a reader should see first, each with what it means."""
    cards = []
    if agree := _agreements(report):
        cards.append((f"{sum(agree)} / {len(agree)}", "published numbers reproduced within tolerance"))
    kept = [(accuracy, row) for accuracy, row in _accuracies(report) if not row.over]
    for kind, private in (("within a privacy budget", True), ("without privacy", False)):
        if pairs := [(accuracy, row) for accuracy, row in kept if (row.budget is not None) == private]:
            accuracy, row = max(pairs, key=lambda pair: pair[0])
            what = row.label if row.budget is None else f"{row.label}, ε = {row.budget:g}"
            cards.append((f"{accuracy:.2f}\u00a0%", f"best accuracy {kind}: {what}, partition {row.partition}"))
    if over := [row for row in report.table if row.over and row.budget]:
        worst = max(over, key=_share_spent)
        meaning = f"largest ε of a client with a budget of {worst.budget:g}: {worst.label}, partition {worst.partition}"
        proven = worst.proven is not None and worst.proven > (worst.accounted or 0.0)
        cards.append((f"{worst.most_spent:.3g}", meaning + (" (proven)" if proven else "")))
    elif any(row.budget is not None and row.accounted is not None for row in report.table):
        cards.append(("0", "clients over their budget"))
    return cards


def _agreements(report: Report) -> list[bool]:
    """Return whether ours agrees, for every published number."""
    return [one.agrees for row in report.table for one in row.compared if one.agrees is not None]


def _accuracies(report: Report) -> list[tuple[float, Row]]:
    """Return the rows of the main table that have an accuracy."""
    found = [(one.mean, row) for row in report.table for one in row.compared if one.measure == ACCURACY]
    return [(mean, row) for mean, row in found if mean is not None]


def _share_spent(row: Row) -> float:
    return row.most_spent / (row.budget or 1.0)


def _budgets(report: Report) -> list[str]:
    """Say which methods exceeded their budgets, and which did not."""
    spenders: dict[str, list[Row]] = {}
    for row in report.table:
        if row.budget is not None and (row.accounted is not None or row.proven is not None):
            spenders.setdefault(row.base, []).append(row)
    said, kept = [], []
    for rows in spenders.values():
        if not (over := [row for row in rows if row.over]):
            kept.append(f"“{rows[0].name}”")
            continue
        worst = max(over, key=_share_spent)
        spent = ((worst.accounted, "by its own rule"), (worst.proven, "proven"))
        amounts = ", ".join(f"{epsilon:.3f} {how}" for epsilon, how in spent if epsilon is not None)
        said.append(f"“{worst.name}” exceeded its budgets: with ε = {worst.budget:g} a client spent {amounts}.")
    if kept:
        names = " and ".join(part for part in (", ".join(kept[:-1]), kept[-1]) if part)
        said.append(f"No client exceeded its budget under {names}.")
    return said


def _price(report: Report) -> list[str]:
    """Say how the private methods compare at the smallest budget of the table."""
    smallest = min((row.budget for row in report.table if row.budget is not None), default=None)
    parts = []
    for base, first in report.bases.items():
        means = [mean for mean, row in _accuracies(report) if row.base == base and row.budget == smallest]
        if means:
            parts.append(f"{first.name} {sum(means) / len(means):.2f}\u00a0%")
    over = " on average over the partitions" if len(report.partitions) > 1 else ""
    return [f"Accuracy with ε = {smallest:g}{over}: {'; '.join(parts)}."] if parts and smallest is not None else []


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
