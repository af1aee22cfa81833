"""Runs methods over cells, table by table, and keeps what is done in a JSON file: Ctrl-C loses nothing.

{"format": 1, "methods": {method: {"made": ..., "cells": {cell: columns}}}}
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.methods import Method
from benchmarks.honesty.scores import add, tables_in
from benchmarks.honesty.tables import draw
from fedvi import console
from fedvi.files import write

FORMAT = 1
SECONDS = 20.0
"""Between two writes of the file."""

Results = dict[str, Any]


def read_results(path: Path) -> Results:
    """Return what a file holds, or nothing if there is none."""
    if not path.exists():
        return {"format": FORMAT, "methods": {}}
    results: Results = json.loads(path.read_text())
    if results.get("format") != FORMAT:
        raise ValueError(f"Expected results of format {FORMAT} in '{path}', got {results.get('format')!r}.")
    return results


def measure(
    name: str,
    method: Method,
    cells: Mapping[str, Cell],
    tables: Mapping[str, int],
    path: Path,
    *,
    wanted: bool | None = None,
) -> Results:
    """Run a method over cells until each has so many tables, and return all results of the file.

    wanted: whether a progress bar is shown; None for one in a terminal only.
    """
    results = read_results(path)
    kept = results["methods"].setdefault(name, {"cells": {}})["cells"]
    total, done = sum(tables.values()), 0
    written = time.monotonic()
    try:
        with console.progress(name, total, "tables", wanted=wanted) as show:
            for cell_name, cell in cells.items():
                columns = kept.setdefault(cell_name, {})
                done += min(tables_in(columns), tables[cell_name])
                for number in range(tables_in(columns), tables[cell_name]):
                    drawn = draw(cell, number)
                    began = time.process_time()
                    estimate = method(cell, drawn, number)
                    add(columns, estimate, drawn)
                    columns["seconds"] = round(columns.get("seconds", 0.0) + time.process_time() - began, 3)
                    done += 1
                    show(done, cell_name)
                    if time.monotonic() - written > SECONDS:
                        save(results, path)
                        written = time.monotonic()
    finally:  # Ctrl-C too
        save(results, path)
    return results


def save(results: Results, path: Path) -> None:
    """Write the file: one line per cell and name, so that changes can be read."""
    write(path, to_text(results))


def to_text(results: Results) -> str:
    """Return results as JSON, with one line for every column of a cell."""
    lines = [json.dumps({key: value for key, value in results.items() if key != "methods"})[:-1] + ', "methods": {']
    methods = []
    for name, found in results["methods"].items():
        head = json.dumps({key: value for key, value in found.items() if key != "cells"})[1:-1]
        cells = [
            f"{json.dumps(cell)}: {{\n"
            + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in columns.items())
            + "}"
            for cell, columns in found["cells"].items()
            if columns
        ]
        text = f'{json.dumps(name)}: {{{head}{", " if head else ""}"cells": {{\n' + ",\n".join(cells) + "}}"
        methods.append(text)
    return "\n".join([*lines, ",\n".join(methods)]) + "}}\n"
