"""How fast a CSV becomes a design matrix, and a schema, and in how much memory, beside pandas.read_csv.

The table is examples/patients.csv (4 numbers, 3 categories and a binary target), over and over again. Every measurement
is a process of its own: seconds are those of reading alone, without imports; memory is the most that the process held,
imports included. Contenders take turns, and the fastest of the rounds counts.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.timing import in_new_process, peak_memory_mb
from fedvi import infer_schema
from fedvi.tables.encode import encode_chunks

PATIENTS = Path(__file__).parents[1] / "examples" / "patients.csv"
SCHEMA = infer_schema(PATIENTS, "readmitted", site_column="hospital").schema
CONTENDERS: dict[str, Callable[[str], int]] = {
    "pandas": lambda path: len(pd.read_csv(path)),
    "fedvi": lambda path: sum(len(chunk.x) for chunk in encode_chunks(SCHEMA, path)),
    "infer": lambda path: infer_schema(path, "readmitted", site_column="hospital").rows,
}
"""Each reads the whole table and returns the number of its rows."""


def measure_tables(sizes: Sequence[int], rounds: int) -> dict[int, dict[str, Any]]:
    """Return the fastest round of each contender by number of rows, with the largest peak of memory."""
    results = {}
    head, *lines = PATIENTS.read_text().splitlines(keepends=True)
    for rows in sizes:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "table.csv")
            with path.open("w") as file:
                file.writelines(itertools.chain([head], itertools.islice(itertools.cycle(lines), rows)))
            turns = [
                {name: in_new_process(measure_here, contender=name, path=str(path)) for name in CONTENDERS}
                for _ in range(rounds)
            ]
        results[rows] = {name: min((turn[name] for turn in turns), key=itemgetter("seconds")) for name in CONTENDERS}
        for name, fastest in results[rows].items():
            fastest["peak_bytes"] = max(turn[name]["peak_bytes"] for turn in turns)
    return results


def measure_here(contender: str, path: str) -> dict[str, Any]:
    """Measure one contender in this process, which has loaded the modules of both."""
    start, used = time.perf_counter(), time.process_time()
    rows = CONTENDERS[contender](path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": round(1e6 * peak_memory_mb())}
