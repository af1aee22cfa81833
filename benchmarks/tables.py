"""How fast a CSV becomes a design matrix, and in how much memory, beside pandas.read_csv.

The table has 4 numbers, 3 categories and a binary target. Every measurement is a process of its own: seconds are those
of reading alone, without imports; memory is the most that the process held, imports included. Contenders take turns,
and the fastest of the rounds counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from benchmarks.timing import in_new_process, peak_memory_mb
from fedvi.tables import BinaryTarget, Category, Number, Schema
from fedvi.tables.encode import encode_chunks

CHUNK = 250_000
CATEGORIES = {
    "sex": ("F", "M"),
    "region": tuple(f"region {number}" for number in range(12)),
    "smoker": ("never", "former", "current"),
}
OUTCOMES = ("no", "yes")
SCHEMA = Schema(
    (
        Number("age", 0, 100, 56, 22),
        Number("weight", 0, 200, 75, 12),
        Number("pressure", 50, 250, 130, 20),
        Number("income", 0, 1e6, 36_000, 47_000),
        *(Category(name, values) for name, values in CATEGORIES.items()),
    ),
    BinaryTarget("died", OUTCOMES),
)
CONTENDERS: dict[str, Callable[[str], int]] = {
    "pandas": lambda path: len(pd.read_csv(path)),
    "fedvi": lambda path: sum(len(chunk.x) for chunk in encode_chunks(SCHEMA, path)),
}
"""Each reads the whole table and returns the number of its rows."""


def measure_tables(sizes: Sequence[int], rounds: int) -> dict[int, dict[str, Any]]:
    """Return the fastest round of each contender by number of rows, with the largest peak of memory."""
    results = {}
    for rows in sizes:
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/table.csv"
            _write(path, rows)
            turns = [
                {name: in_new_process(measure_here, contender=name, path=path) for name in CONTENDERS}
                for _ in range(rounds)
            ]
        results[rows] = {name: _best([turn[name] for turn in turns]) for name in CONTENDERS}
    return results


def _best(found: list[dict[str, Any]]) -> dict[str, Any]:
    fastest = min(found, key=lambda one: one["seconds"])
    return {**fastest, "peak_bytes": max(one["peak_bytes"] for one in found)}


def measure_here(contender: str, path: str) -> dict[str, Any]:
    """Measure one contender in this process, which has loaded the modules of both."""
    start, used = time.perf_counter(), time.process_time()
    rows = CONTENDERS[contender](path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": round(1e6 * peak_memory_mb())}


def _write(path: str, rows: int) -> None:
    """Write a CSV of so many rows."""
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        for start in range(0, rows, CHUNK):
            size = min(CHUNK, rows - start)
            columns = {
                "age": rng.integers(18, 95, size),
                "weight": rng.normal(75, 12, size).round(1),
                "pressure": rng.normal(130, 20, size).round(2),
                "income": rng.lognormal(10, 1, size).round(2),
            }
            for name, values in {**CATEGORIES, "died": OUTCOMES}.items():
                columns[name] = pa.array(values).take(pa.array(rng.integers(0, len(values), size, np.int32)))
            options = csv.WriteOptions(include_header=start == 0, quoting_style="none")
            csv.write_csv(pa.table(columns), file, options)
