"""How cost grows with clients, rows, features, batch size and seeds: one process per point, exponents per axis.

    cost ~ size^exponent        least squares of log cost on log size, over the upper half of the points

The upper half, because at small sizes a constant dominates and would hide what grows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.cold_start import output
from benchmarks.machine import available_bytes

AXES: dict[str, tuple[int, ...]] = {
    "clients": (10, 100, 1_000, 10_000),
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
    "features": (100, 1_000, 10_000, 100_000),
    "batch": (16, 128, 1024, 4096),
    "seeds": (1, 4, 16),
}
ROUNDS = 6
"""How often a point is measured, beside its set-up."""

LEAST_MEMORY = 10
"""Megabytes beyond the smallest point below which memory is not said to grow."""

WIDE_ROWS, WIDE_FEATURES = 10_000_000, 108
COPIES = 3
"""A table is run only if so many of it fit into the memory that is available."""


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of log cost against log size over the upper half of the points.

    >>> round(exponent([1, 10, 100, 1000], [5, 5, 50, 500]), 6)
    1.0
    """
    upper = len(sizes) - max(2, (len(sizes) + 1) // 2)
    x, y = ([math.log(value) for value in values[upper:]] for values in (sizes, costs))
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((value - middle_x) ** 2 for value in x)
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread


def measure_growth(seed: int, *, quick: bool, show: Callable[[str], object]) -> dict[str, Any]:
    """Return the points and exponents of every axis, single numbers by name, and what memory did not suffice for.

    quick: only the two smallest sizes of every axis, to see that all works.
    """
    axes: dict[str, Any] = {}
    left_out: list[str] = []
    for axis, sizes in AXES.items():
        points = []
        for size in sizes[:2] if quick else sizes:
            show(f"Growth: {size:,} {axis} ...")
            points.append(point(axis, size, seed, 2 if quick else ROUNDS))
        axes[axis] = {"points": points, "exponents": exponents(points)}
    result: dict[str, Any] = {"axes": axes, "left_out": left_out, "keys": {}}
    if not quick:
        result["keys"]["features_1e5_over_blas"] = axes["features"]["points"][-1]["over_blas"]
        show(f"Growth: {WIDE_ROWS:,} rows of {WIDE_FEATURES} features ...")
        free, needed = available_bytes(), COPIES * 4 * WIDE_ROWS * (WIDE_FEATURES + 1)
        if free is not None and free < needed:
            left_out.append(f"{WIDE_ROWS:,} rows of {WIDE_FEATURES} features: needs {needed / 1e9:.0f} GB of memory.")
        else:
            result["wide"] = point("rows", WIDE_ROWS, seed, ROUNDS, WIDE_FEATURES)
    return result


def exponents(points: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the exponents of time, of set-up of a federation, and of memory.

    That of memory only if it grows enough to be told from the program's own.
    """
    sizes = [point["size"] for point in points]
    names = ["seconds"] if "over_blas" in points[0] else ["seconds", "setup_s"]
    costs = {name: [point[name] for point in points] for name in names}
    memory = [point["memory_mb"] - points[0]["memory_mb"] for point in points]
    if min(memory[len(points) // 2 :]) > LEAST_MEMORY:
        costs["memory_mb"] = [max(grown, LEAST_MEMORY) for grown in memory]
    return {name: exponent(sizes, values) for name, values in costs.items()}


def point(axis: str, size: int, seed: int, rounds: int, features: int | None = None) -> dict[str, Any]:
    """Measure one point in a new process."""
    order = {"axis": axis, "size": size, "seed": seed, "rounds": rounds, "features": features}
    measured: dict[str, Any] = json.loads(output(["-m", "benchmarks.growth_point", json.dumps(order)]))
    return measured
