"""From a run directory to its report, and from several run directories to one that compares them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvi.errors import InputError
from fedvi.files import write
from fedvi.reports.results import Report, base_of

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results


def write_report(outcome: Results) -> Path:
    """Write `figures/` and `report.html` into the run directory and return the page's path.

    Every file appears whole or not at all; an older report stays until the new one is complete.
    """
    from fedvi.reports.figures.write import write_figures  # matplotlib takes a second: only this waits for it
    from fedvi.reports.page.page import page

    report, target = Report(outcome), outcome.path / "report.html"
    write(target, page(report, write_figures(report)))
    return target


def merge(outcomes: Sequence[Results], path: str | os.PathLike[str]) -> Results:
    """Return one outcome that holds all of them; methods are named "directory: method".

    path: the directory that a report of the comparison is written to.
    """
    if not outcomes:
        raise InputError("Expected at least one run directory to compare, got none.")
    named = dict(zip(_names([outcome.path for outcome in outcomes]), outcomes, strict=True))
    results: dict[str, dict[str, Any]] = {}
    published: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    for name, outcome in named.items():
        for partition, methods in outcome.results.items():
            for method, entry in methods.items():
                base = base_of(method, entry)
                labels = {"base": f"{name}: {base}", "label": f"{name}: {entry.get('label') or base}"}
                results.setdefault(partition, {})[f"{name}: {method}"] = entry | labels
        for partition, methods in Report(outcome).published.items():
            numbers = {f"{name}: {method}": pair for method, pair in methods.items()}
            published.setdefault(partition, {}).update(numbers)
        skipped = outcome.skipped | skipped
    config = {
        "title": "Comparison: " + ", ".join(named),
        "command": "fedvi report " + " ".join(named),
        "reference": published,
        "runs": {name: outcome.config for name, outcome in named.items()},
    }
    return dataclasses.replace(
        outcomes[0],
        path=Path(path),
        config=config,
        results=results,
        history=_stacked({name: outcome.history for name, outcome in named.items()}),
        spending=_stacked({name: outcome.spending for name, outcome in named.items()}),
        skipped={place: reason for place, reason in skipped.items() if place not in results},
    )


def _names(paths: list[Path]) -> list[str]:
    """Return the directories' names, with enough of their parents to distinguish them."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError(f"Expected different run directories, got {', '.join(map(str, paths))}.")


def _stacked(named: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the rows of all tables one after another; columns that a table lacks are NaN there."""
    tables = [
        table | {"method": np.asarray([f"{name}: {method}" for method in table["method"]])}
        for name, table in named.items()
        if len(table.get("method", ()))
    ]
    columns = dict.fromkeys(column for table in tables for column in table)
    return {
        column: np.concatenate([table.get(column, np.full(len(table["method"]), np.nan)) for table in tables])
        for column in columns
    }
