"""One thread on one core, for everything that is measured.

Libraries of linear algebra read their number of threads from the environment when they are loaded. So `one_thread` is
entered before NumPy or JAX are: the command does that. From Python with either loaded already, the environment comes
too late for this process (not for those it starts), and `one_thread` says so in what it returns; set the variables
yourself before Python starts.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

LIMITS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PJRT_NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


@contextlib.contextmanager
def one_thread() -> Iterator[list[str]]:
    """Hold this process and those it starts to one thread and one core; yield notes about what could not be held."""
    before = {name: os.environ.get(name) for name in LIMITS}
    wanted = {name: _limited(name, before[name]) for name in LIMITS}
    late = [name for name in ("numpy", "jax") if name in sys.modules]
    notes = []
    if late and wanted != before:
        settings = " ".join(f"{name}={value}" for name, value in LIMITS.items())
        notes.append(
            f"{' and '.join(late)} loaded before the bench: threads may not be limited to one. Use the command "
            f"python -m benchmarks, or start Python with {settings}."
        )
    os.environ.update(wanted)
    cores = _pin()
    if cores is None:
        notes.append("This system cannot pin a process to one core: times may scatter more.")
    try:
        yield notes
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if cores is not None:
            os.sched_setaffinity(0, cores)


def _limited(name: str, value: str | None) -> str:
    """Return the value of a variable that limits threads; flags for other purposes stay."""
    if name != "XLA_FLAGS" or value is None:
        return LIMITS[name]
    return value if LIMITS[name] in value.split() else f"{value} {LIMITS[name]}"


def _pin() -> set[int] | None:
    """Pin this process to the last of its cores, which interrupts prefer least; return the cores that it had."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(cores)})
    except OSError:
        return None
    return cores
