"""How fast a CSV becomes a design matrix, and in how much memory, beside pandas.read_csv.

The table has 4 numbers, 3 categories and a binary target. Every measurement is a process of its own: seconds are those
of reading alone, without imports; memory is the most that the process held, imports included. Contenders take turns,
and the fastest of the rounds counts.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cold_start import output
from fedvi.tables import BinaryTarget, Category, Number, Schema
from fedvi.tables.encode import encode_chunks

CHUNK = 250_000
CATEGORIES = {
    "sex": ("F", "M"),
    "region": tuple(f"region {number}" for number in range(12)),
    "smoker": ("never", "former", "current"),
    "died": ("no", "yes"),
}
SCHEMA = Schema(
    (
        Number("age", 0, 100, 56, 22),
        Number("weight", 0, 200, 75, 12),
        Number("pressure", 50, 250, 130, 20),
        Number("income", 0, 1e6, 36_000, 47_000),
        *(Category(name, values) for name, values in CATEGORIES.items() if name != "died"),
    ),
    BinaryTarget("died", ("no", "yes")),
)


def make(path: Path, rows: int) -> None:
    """Write a CSV of so many rows."""
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, CHUNK):
        size = min(CHUNK, rows - start)
        columns: dict[str, Any] = {
            "age": rng.integers(18, 95, size),
            "weight": rng.normal(75, 12, size).round(1),
            "pressure": rng.normal(130, 20, size).round(2),
            "income": rng.lognormal(10, 1, size).round(2),
        }
        for name, values in CATEGORIES.items():
            codes = pa.array(rng.integers(0, len(values), size, np.int32))
            columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array(values)).cast(pa.string())
        table = pa.table(columns)
        writer = writer or csv.CSVWriter(path, table.schema, write_options=csv.WriteOptions(quoting_style="none"))
        writer.write(table)
    if writer is not None:
        writer.close()


def with_pandas(path: Path) -> int:
    """Read the whole table into a data frame."""
    import pandas as pd

    return len(pd.read_csv(path))


def with_fedvi(path: Path) -> int:
    """Encode the whole table, chunk by chunk."""
    return sum(len(chunk.x) for chunk in encode_chunks(SCHEMA, path))


CONTENDERS = {"pandas": with_pandas, "fedvi": with_fedvi}


def measure_here(contender: str, path: Path) -> dict[str, Any]:
    """Measure one contender in this process."""
    import pandas  # noqa: F401 - both contenders have the same modules loaded
    import pyarrow.csv  # noqa: F401

    start, used = time.perf_counter(), time.process_time()
    rows = CONTENDERS[contender](path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak}


def measure_tables(sizes: Sequence[int], rounds: int) -> dict[int, dict[str, dict[str, Any]]]:
    """Return the fastest round of each contender by number of rows, with the largest peak of memory."""
    results = {}
    for rows in sizes:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "table.csv"
            make(path, rows)
            results[rows] = _in_turns(path, rounds)
    return results


def _in_turns(path: Path, rounds: int) -> dict[str, dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, results in found.items():
            results.append(json.loads(output(["-m", "benchmarks.csv_tables", name, str(path)])))
    return {
        name: min(results, key=lambda result: result["seconds"])
        | {"peak_bytes": max(result["peak_bytes"] for result in results)}
        for name, results in found.items()
    }


def markdown(results: dict[int, dict[str, dict[str, Any]]]) -> str:
    """Return the measurements and their ratios as a table."""
    import pandas as pd

    lines = [
        f"| rows | pandas {pd.__version__} read_csv | fedvi encode_chunks | time, fedvi / pandas | "
        "peak, pandas | peak, fedvi | memory, fedvi / pandas |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for rows, found in results.items():
        ours, theirs = found["fedvi"], found["pandas"]
        cells = [
            f"{rows:,}",
            f"{theirs['seconds']:.2f} s",
            f"{ours['seconds']:.2f} s",
            f"{ours['seconds'] / theirs['seconds']:.2f}",
            f"{theirs['peak_bytes'] / 2**20:.0f} MiB",
            f"{ours['peak_bytes'] / 2**20:.0f} MiB",
            f"{ours['peak_bytes'] / theirs['peak_bytes']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1], Path(sys.argv[2]))))
