"""How cost grows with clients, rows, features, batch size and seeds: one process per point, exponents per axis.

    cost ~ size^exponent        least squares of log cost on log size, over the upper half of the points

The upper half, because at small sizes a constant dominates and would hide what grows. Each point has a process of its
own, so that its peak of memory is its own too. Points cannot take turns: the best round counts. What the axes are, and
what set-up is: docs/speed.md.
"""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable, Sequence
from statistics import linear_regression
from time import process_time
from timeit import Timer
from typing import Any

from benchmarks.steps import BATCH, FEATURES, ROWS, STEPS, OneSite, algorithm_with, bare_products, make_table, updates
from benchmarks.timing import in_new_process, kernel, peak_memory_mb, take_turns
from fedvi.inference.algorithms import PVI
from fedvi.inference.local_problem import GradientSteps
from fedvi.models.logistic import LogisticRegression
from fedvi.privacy.mechanism import PoissonGaussian
from fedvi.simulation.simulate import simulate

AXES: dict[str, tuple[int, ...]] = {
    "clients": (10, 100, 1_000, 10_000),
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
    "features": (100, 1_000, 10_000, 100_000),
    "batch": (16, 128, 1024, 4096),
    "seeds": (1, 4, 16),
}
ROUNDS, TURNS = 6, 256  # measurements of a point, beside its set-up; communications between two of `simulate`
LEAST_MEMORY = 10  # megabytes beyond the smallest point, below which memory is not said to grow
CLIENT_ROWS, FEW_FEATURES, SITES = 100, 20, 10
LARGE_SITE = 40_000  # rows of the site for the axis `batch`: ten times the largest batch
WIDE_ROWS, WIDE_FEATURES = 10_000_000, 108
COPIES = 3  # a table is run only if so many of it fit into the memory that is available


def measure_growth(seed: int, notes: list[str], *, quick: bool, show: Callable[[str], object]) -> dict[str, Any]:
    """Return the points and exponents of every axis, and single numbers by name; note what memory did not suffice for.

    quick: only the two smallest sizes of every axis, to see that all works.
    """

    def point(axis: str, size: int, features: int = FEW_FEATURES) -> Any:
        show(f"Growth: {size:,} {axis} ...")
        settings = {"seed": seed, "rounds": 2 if quick else ROUNDS, "features": features}
        return in_new_process(measure_point, axis=axis, size=size, **settings)

    curves = {axis: [point(axis, size) for size in sizes[: 2 if quick else None]] for axis, sizes in AXES.items()}
    growth = {"axes": {axis: {"points": points, "exponents": exponents(points)} for axis, points in curves.items()}}
    if quick:
        return {"growth": growth}
    needed, available = COPIES * 4 * WIDE_ROWS * (WIDE_FEATURES + 1), kernel("meminfo", "MemAvailable").split()
    if available and 1024 * int(available[0]) < needed:
        table = f"{WIDE_ROWS:,} rows of {WIDE_FEATURES} features"
        notes.append(f"Left out: {table}: needs {needed / 1e9:.0f} GB of memory.")
    else:
        growth["wide"] = point("rows", WIDE_ROWS, WIDE_FEATURES)
    return {"growth": growth, "features_1e5_over_blas": curves["features"][-1]["over_blas"]}


def exponents(points: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the exponents of time, of set-up of a federation, and of memory if it grows beyond the program's own."""
    sizes = [point["size"] for point in points]
    names = ["seconds"] if "over_blas" in points[0] else ["seconds", "setup_s"]
    costs = {name: [point[name] for point in points] for name in names}
    memory = [point["memory_mb"] - points[0]["memory_mb"] for point in points]
    if min(memory[len(points) // 2 :]) > LEAST_MEMORY:
        costs["memory_mb"] = [max(grown, LEAST_MEMORY) for grown in memory]
    return {name: exponent(sizes, values) for name, values in costs.items()}


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of log cost against log size over the upper half of the points."""
    upper = len(sizes) - max(2, (len(sizes) + 1) // 2)
    return linear_regression(*([math.log(value) for value in values[upper:]] for values in (sizes, costs))).slope


def measure_point(axis: str, size: int, seed: int, rounds: int, features: int = FEW_FEATURES) -> dict[str, Any]:
    """Return seconds per communication or step, set-up seconds and memory at one size of one axis.

    rounds: how often to measure, apart from set-up and compilation. features: of axes `clients` and `rows`.
    """
    before = peak_memory_mb()
    if axis in ("clients", "rows"):
        measured = _federation(axis, size, seed, rounds, features)
    else:
        measured = _steps(axis, size, seed, rounds)
    peak = peak_memory_mb()
    return {"axis": axis, "size": size, **measured, "peak_memory_mb": peak, "memory_mb": peak - before}


def _federation(axis: str, size: int, seed: int, rounds: int, features: int) -> dict[str, Any]:
    """Time `simulate` from one measurement to the next; what comes before the first and after the last is set-up."""
    clients, rows = (size, CLIENT_ROWS) if axis == "clients" else (SITES, size // SITES)
    x, y = make_table(clients * rows, features, seed)
    tables = [(x[k * rows : (k + 1) * rows], y[k * rows : (k + 1) * rows]) for k in range(clients)]
    # small steps: the noise of thousands of clients with few rows adds up
    algorithm = PVI(GradientSteps(STEPS, 0.05, PoissonGaussian(fraction=0.0, minimum=20)), damping=0.01)

    def run(communications: int) -> list[float]:
        marks = [process_time()]

        def watch(_: Any) -> dict[str, float]:
            marks.append(process_time())
            return {}

        settings: Any = {"communications": communications, "evaluate_every": TURNS, "progress": False}
        simulate(tables, LogisticRegression(), seed=seed, algorithm=algorithm, measure=watch, **settings)
        return [*marks, process_time()]

    began, *_, ended = run(1)
    gc.collect()  # JAX may keep the memory of the first run until then, and the peak would be that of two
    began_again, prepared, *marks, last, ended_again = run((1 + rounds) * TURNS)
    lengths = [later - sooner for sooner, later in itertools.pairwise([*marks, last])]
    set_up = prepared - began_again + ended_again - last
    return {
        "seconds": min(lengths) / TURNS,
        "setup_s": set_up,
        "compile_s": ended - began - set_up,
        "data_bytes": x.nbytes + y.nbytes,
    }


def _steps(axis: str, size: int, seed: int, rounds: int) -> dict[str, Any]:
    """Time local steps of one site in turns with the bare products."""
    chosen = {"batch": BATCH, "features": FEATURES, "seeds": 1, axis: size}
    batch, features, seeds = chosen["batch"], chosen["features"], chosen["seeds"]
    rows = {"features": 10 * BATCH, "batch": LARGE_SITE}.get(axis, ROWS)
    steps = 5 if axis == "features" else STEPS  # noise of all steps is drawn before: less of it at 10^5 features
    began = process_time()
    problem = OneSite(seed, rows, features)
    algorithm = algorithm_with(PoissonGaussian(fraction=0.0, minimum=batch), steps)
    contender = updates(problem, algorithm, seed, seeds, 1)
    set_up = process_time() - began
    first, again = Timer(contender.call, timer=process_time).repeat(2, 1)
    samples = take_turns({"floor": bare_products(batch, features, seed), "steps": contender}, rounds)
    return {
        "seconds": seeds * samples.best("steps"),
        "over_blas": samples.ratio("steps", "floor"),
        "setup_s": set_up,
        "compile_s": first - again,
        "data_bytes": sum(part.nbytes for part in problem.table),
    }
