"""How fast a CSV becomes a design matrix, and in how much memory, beside pandas.read_csv.

    python scripts/bench_tables.py                 10 and 1 million rows, a Markdown table
    python scripts/bench_tables.py --rows 1000000 --json

The table has 4 numbers, 3 categories and a binary target. Every measurement is a process of its own: seconds are those
of reading alone, without imports; memory is the most that the process held, imports included. Contenders take turns,
and the fastest of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.tables import BinaryTarget, Category, Number, Schema, plain_rows
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


def with_arrow(path: Path) -> int:
    """Encode the whole table as fedvi does where it was installed without a compiler."""
    plain_rows.parse = None
    return with_fedvi(path)


CONTENDERS = {"pandas": with_pandas, "fedvi": with_fedvi, "arrow": with_arrow}


def measure_here(contender: str, path: Path) -> dict[str, Any]:
    """Measure one contender in this process."""
    import pandas  # noqa: F401  both contenders have the same modules loaded
    import pyarrow.csv  # noqa: F401

    start, used = time.perf_counter(), time.process_time()
    rows = CONTENDERS[contender](path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak}


def measure(path: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Return the fastest round of each contender, each in a process of its own, with the largest peak of memory."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, results in found.items():
            command = [sys.executable, __file__, "--measure", name, str(path)]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
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
        "peak, pandas | peak, fedvi | memory | fedvi, not compiled |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
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
            f"{found['arrow']['seconds']:.2f} s",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the long table; the short one has a tenth")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=2, metavar=("CONTENDER", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if plain_rows.parse is None:
        parser.exit(1, "Expected fedvi's compiled code, got none: install a C compiler, then fedvi again.\n")
    if options.measure:
        print(json.dumps(measure_here(options.measure[0], Path(options.measure[1]))))
        return
    results = {}
    for rows in (options.rows // 10, options.rows):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "table.csv"
            make(path, rows)
            results[rows] = measure(path, options.rounds)
    print(json.dumps(results) if options.json else markdown(results))


if __name__ == "__main__":
    main()
