"""What `python -m benchmarks honesty` does: choose cells and tables, run a method, judge it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.honesty import before as old
from benchmarks.honesty import report
from benchmarks.honesty.cells import QUICK, QUICK_TABLES, Cell, load_cells
from benchmarks.honesty.methods import Method
from benchmarks.honesty.run import Results, measure, read_results, save
from benchmarks.honesty.scores import Columns, tables_in

METHODS = {
    "ours": "ours:ours",
    "default": "ours:default",
    "before": "before:before",
    "dp-pvi": "baselines:dp_pvi",
    "dp-sgd": "baselines:dp_sgd",
    "nuts": "baselines:nuts",
}
"""Where each method is."""

BASELINES = ("dp-pvi", "dp-sgd")
NUTS_ROWS = 6000
"""Tables with more rows are not given to NUTS, which gets one table of every shape."""


def chosen(method: str, pattern: str, tables: int | None, *, quick: bool) -> tuple[dict[str, Cell], dict[str, int]]:
    """Return the cells that a method is run on, and how many tables each."""
    cells = {name: cell for name, cell in load_cells().items() if pattern in name and (not quick or name in QUICK)}
    if method in BASELINES:
        cells = {name: cell for name, cell in cells.items() if cell.baselines}
    if method == "nuts":
        cells = _one_of_each_shape(cells)
    if not cells:
        raise ValueError(f"Expected a part of a cell's name, got {pattern!r}, which fits none of {method!r}.")
    most = 1 if method == "nuts" else tables or (QUICK_TABLES if quick else None)
    return cells, {name: min(cell.tables, most or cell.tables) for name, cell in cells.items()}


def _one_of_each_shape(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return one cell for every kind of table: NUTS knows no budgets and no sites."""
    shapes = {cell.shape: name for name, cell in reversed(list(cells.items())) if cell.rows <= NUTS_ROWS}
    return {name: cells[name] for name in reversed(list(shapes.values()))}


def run_method(
    method: str, pattern: str, tables: int | None, out: Path, *, quick: bool, fresh: bool, quiet: bool
) -> tuple[Results, list[str]]:
    """Run a method; return all results of the file, and the cells that were asked for."""
    if method not in METHODS:
        raise ValueError(f"Expected a method among {', '.join(METHODS)}, got {method!r}.")
    cells, numbers = chosen(method, pattern, tables, quick=quick)
    out.parent.mkdir(parents=True, exist_ok=True)
    if fresh and out.exists():
        results = read_results(out)
        results["methods"].pop(method, None)
        save(results, out)
    module, _, name = METHODS[method].partition(":")
    function: Method = getattr(importlib.import_module(f"benchmarks.honesty.{module}"), name)
    return measure(method, function, cells, numbers, out, wanted=False if quiet else None), list(cells)


def run_before(source: Path, pattern: str, tables: int | None) -> int:
    """Measure the product as it was, and keep its numbers with its commit; return the exit code."""
    arguments = ["--out", str(old.FILE), *(["--cells", pattern] if pattern else [])]
    code = old.run_elsewhere(source, [*arguments, *(["--tables", str(tables)] if tables else [])])
    results = read_results(old.FILE)
    results["methods"].get("before", {})["commit"] = old.commit_of(source)
    save(results, old.FILE)
    return code


def judged(results: Results, method: str, names: list[str]) -> tuple[dict[str, Any], dict[str, report.Rows], bool]:
    """Return the verdict on these cells, tables of them, and whether one is out of its limits."""
    cells = _full(results, method, names)
    before: dict[str, Columns] = old.read_before()
    nuts = by_shape(results["methods"].get("nuts", {}).get("cells", {}))
    found = report.verdict(cells, before, nuts)
    rows = report.short_rows(cells, before)
    said = {**found, "method": method, "lines": report.lines(found)}
    return said, {"cells": rows}, method == "ours" and bool(found["outside"])


def _full(results: Results, method: str, names: list[str]) -> dict[str, Columns]:
    kept = results["methods"][method]["cells"]
    return {name: kept[name] for name in names if tables_in(kept.get(name, {}))}


def by_shape(nuts: Mapping[str, Columns]) -> dict[str, Columns]:
    """Return what NUTS found for every cell that has the same tables."""
    cells = load_cells()
    found = {cells[name].shape: columns for name, columns in nuts.items() if name in cells}
    return {name: found[cell.shape] for name, cell in cells.items() if cell.shape in found}
