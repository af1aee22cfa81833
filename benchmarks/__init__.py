"""How fast fedvi is: one private step beside bare matrix products and other libraries, and how cost grows.

Names ending in `_over_blas` are ratios to the bare products, measured in turns (`benchmarks.timing`); `_us`, `_ms`,
`_s` and `_mb` are units. `steps` holds every row of the table, `notes` what a reader should know.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable
from typing import Any

from benchmarks.timing import kernel, one_thread


def run_bench(
    *, growth: bool = False, quick: bool = False, seed: int = 0, show: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    """Measure everything in this process, on one thread of one core, and return the numbers.

    growth: also how cost grows, which takes minutes. quick: few rounds, to see that all works.
    show: told what is being measured.

    Best called before NumPy or JAX are imported; see `benchmarks.timing.one_thread`.
    """
    with one_thread() as notes:
        from benchmarks import costs, steps
        from benchmarks.growth import measure_growth

        rounds = 3 if quick else 40
        show("Compiling and timing the steps ...")
        results = steps.measure_steps(seed, rounds, notes)
        show("Timing the accountant ...")
        results |= costs.measure_accountant(rounds)
        show("Starting new processes ...")
        results |= costs.measure_cold_start(1 if quick else 3)
        if growth:
            results |= measure_growth(seed, notes, quick=quick, show=show)
        settings = {"rows": steps.ROWS, "features": steps.FEATURES, "batch": steps.BATCH, "steps": steps.STEPS}
        settings |= {"seeds": steps.SEEDS, "rounds": rounds, "seed": seed, "quick": quick}
        return {**results, "machine": describe_machine(), "settings": settings, "notes": notes}


def describe_machine() -> dict[str, Any]:
    """Return processor, memory and versions."""
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": kernel("cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": importlib.metadata.version("jax"),
        "blas": f"{blas['name']} {blas['version']}",
        "os": f"{platform.system()} {platform.release().partition('-')[0]}",
    }
