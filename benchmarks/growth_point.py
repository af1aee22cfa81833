"""One point of a growth curve, in a process of its own, so that its peak of memory is its own too.

    python -m benchmarks.growth_point '{"axis": "clients", "size": 1000, "seed": 0, "rounds": 8}'

prints what it measured as JSON. Axes `clients` and `rows` run `simulate`; `features`, `batch` and `seeds` time local
steps beside the four bare products of the same size. Sizes are chosen so that only the axis grows: batches have a
fixed size, whatever the number of rows.

Points are minutes apart, and cannot take turns. So the clock is the processor's time of this process, which does not
run while others have the core, and the best round counts.
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

from benchmarks.machine import peak_memory_mb

CLIENT_ROWS, FEW_FEATURES, SITES, LOCAL_STEPS = 100, 20, 10, 25
ROUND = 256
"""Communications between two measurements."""

LARGE_SITE = 40_000
"""Rows of the site for the axis `batch`: ten times the largest batch."""


def measure_point(axis: str, size: int, seed: int, rounds: int, features: int | None = None) -> dict[str, Any]:
    """Return seconds per communication or step, set-up seconds and memory at one size of one axis.

    rounds: how often to measure, apart from set-up and compilation. features: of axis `rows`.
    """
    from fedvi.simulation.simulate import simulate  # noqa: F401 - loaded before memory is looked at

    before = peak_memory_mb()
    if axis in ("clients", "rows"):
        measured = _federation(axis, size, seed, rounds, features or FEW_FEATURES)
    else:
        measured = _steps(axis, size, seed, rounds)
    memory = peak_memory_mb() - before
    return {"axis": axis, "size": size, **measured, "peak_memory_mb": before + memory, "memory_mb": memory}


def _federation(axis: str, size: int, seed: int, rounds: int, features: int) -> dict[str, Any]:
    """Time `simulate` from one measurement to the next; what comes before the first and after the last is set-up."""
    from benchmarks.problem import table
    from fedvi.inference.algorithms import PVI
    from fedvi.inference.gradient_steps import GradientSteps
    from fedvi.models.logistic import LogisticRegression
    from fedvi.privacy.mechanism import PoissonGaussian
    from fedvi.simulation.simulate import simulate

    clients, rows = (size, CLIENT_ROWS) if axis == "clients" else (SITES, size // SITES)
    x, y = table(clients * rows, features, seed)
    tables = [(x[k * rows : (k + 1) * rows], y[k * rows : (k + 1) * rows]) for k in range(clients)]
    # small steps: the noise of thousands of clients with few rows adds up
    algorithm = PVI(GradientSteps(LOCAL_STEPS, 0.05, PoissonGaussian(fraction=0.0, minimum=20)), damping=0.01)

    def run(communications: int) -> list[float]:
        marks = [process_time()]

        def watch(_: Any) -> dict[str, float]:
            marks.append(process_time())
            return {}

        settings: Any = {"communications": communications, "evaluate_every": ROUND, "progress": False}
        simulate(tables, LogisticRegression(), seed=seed, algorithm=algorithm, measure=watch, **settings)
        return [*marks, process_time()]

    began, *_, ended = run(1)
    gc.collect()  # JAX may keep the memory of the first run until then, and the peak would be that of two
    began_again, prepared, *marks, last, ended_again = run((1 + rounds) * ROUND)
    lengths = [later - sooner for sooner, later in itertools.pairwise([*marks, last])]
    set_up = prepared - began_again + ended_again - last
    return {
        "seconds": min(lengths) / ROUND,
        "setup_s": set_up,
        "compile_s": ended - began - set_up,
        "data_bytes": x.nbytes + y.nbytes,
    }


def _steps(axis: str, size: int, seed: int, rounds: int) -> dict[str, Any]:
    """Time local steps of one site in turns with the bare products."""
    from benchmarks.contenders import bare_products, updates
    from benchmarks.problem import BATCH, FEATURES, ROWS, one_site
    from benchmarks.timing import take_turns
    from fedvi.inference.algorithms import PVI
    from fedvi.inference.gradient_steps import GradientSteps
    from fedvi.privacy.mechanism import PoissonGaussian

    batch = size if axis == "batch" else BATCH
    features = size if axis == "features" else FEATURES
    rows = {"features": 10 * BATCH, "batch": LARGE_SITE}.get(axis, ROWS)
    steps = 5 if axis == "features" else LOCAL_STEPS  # noise of all steps is drawn before: less of it at 10^5 features
    began = process_time()
    problem = one_site(seed, rows, features)
    algorithm = PVI(GradientSteps(steps, 0.5, PoissonGaussian(fraction=0.0, minimum=batch)))
    seeds = size if axis == "seeds" else 1
    contender = updates(problem, algorithm, seed, seeds, 1)
    set_up = process_time() - began
    first, again = (_seconds(contender.call) for _ in range(2))
    samples = take_turns({"floor": bare_products(batch, features, seed), "steps": contender}, rounds)
    return {
        "seconds": seeds * samples.best("steps"),
        "over_blas": samples.ratio("steps", "floor"),
        "setup_s": set_up,
        "compile_s": first - again,
        "data_bytes": sum(part.nbytes for part in problem.table),
    }


def _seconds(call: Callable[[], object]) -> float:
    began = process_time()
    call()
    return process_time() - began


if __name__ == "__main__":
    print(json.dumps(measure_point(**json.loads(sys.argv[1]))))
