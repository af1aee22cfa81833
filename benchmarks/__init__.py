"""How fast fedvi is: one private step beside bare matrix products and other libraries, and how cost grows.

Names ending in `_over_blas` are ratios to the bare products, measured in turns (`benchmarks.timing`); `_us`, `_ms`,
`_s` and `_mb` are units. `steps` holds every row of the table, `notes` what a reader should know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.machine import describe_machine, one_thread


def run_bench(
    *, growth: bool = False, quick: bool = False, seed: int = 0, show: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    """Measure everything in this process, on one thread of one core, and return the numbers.

    growth: also how cost grows, which takes minutes. quick: few rounds, to see that all works.
    show: told what is being measured.

    Best called before NumPy or JAX are imported; see `benchmarks.machine.one_thread`.
    """
    with one_thread() as notes:
        from benchmarks import problem, steps
        from benchmarks.accountant import measure_accountant
        from benchmarks.cold_start import measure_cold_start
        from benchmarks.growth import measure_growth
        from benchmarks.timing import ROUNDS

        rounds = 3 if quick else ROUNDS
        if not steps.peers_installed():
            notes.append(steps.MISSING)
        show("Compiling and timing the steps ...")
        results = steps.measure_steps(seed, rounds)
        show("Timing the accountant ...")
        results |= measure_accountant(rounds)
        show("Starting new processes ...")
        results |= measure_cold_start(1 if quick else 3)
        if growth:
            results["growth"] = measure_growth(seed, quick=quick, show=show)
            notes.extend(f"Left out: {reason}" for reason in results["growth"]["left_out"])
            results |= results["growth"]["keys"]
        settings = {"rows": problem.ROWS, "features": problem.FEATURES, "batch": problem.BATCH, "steps": problem.STEPS}
        settings |= {"seeds": problem.SEEDS, "rounds": rounds, "seed": seed, "quick": quick}
        return {**results, "machine": describe_machine(), "settings": settings, "notes": notes}
