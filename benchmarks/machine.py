"""What is measured on: the machine, the memory that a process took, and one thread on one core for everything."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

LIMITS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PJRT_NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


@contextlib.contextmanager
def one_thread() -> Iterator[list[str]]:
    """Hold this process and those it starts to one thread and one core; yield notes about what could not be held.

    Libraries of linear algebra read their number of threads from the environment when they are loaded: enter before
    NumPy or JAX are. Later, only processes that this one starts are held to it, and a note says so.
    """
    flags = dict.fromkeys([*os.environ.get("XLA_FLAGS", "").split(), LIMITS["XLA_FLAGS"]])
    wanted = {**LIMITS, "XLA_FLAGS": " ".join(flags)}
    late = [name for name in ("numpy", "jax") if name in sys.modules]
    notes = []
    if late and not wanted.items() <= os.environ.items():
        settings = " ".join(f"{name}={value}" for name, value in LIMITS.items())
        notes.append(
            f"{' and '.join(late)} loaded before the bench: threads may not be limited to one. Use the command "
            f"python -m benchmarks, or start Python with {settings}."
        )
    with patch.dict(os.environ, wanted), contextlib.ExitStack() as afterwards:
        try:
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {max(cores)})  # interrupts prefer the last core least
            afterwards.callback(os.sched_setaffinity, 0, cores)
        except (AttributeError, OSError):
            notes.append("This system cannot pin a process to one core: times may scatter more.")
        yield notes


def describe_machine() -> dict[str, Any]:
    """Return processor, memory and versions."""
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": _kernel("cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "jax": importlib.metadata.version("jax"),
        "blas": f"{blas['name']} {blas['version']}",
        "os": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def peak_memory_mb() -> float:
    """Return the most memory that this process has held so far, in units of 10^6 bytes.

    From the kernel's own mark where there is one: `getrusage` counts what the parent held when it started the process.
    """
    if mark := _kernel("self/status", "VmHWM"):
        return int(mark.split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def available_bytes() -> float:
    """Return how much memory can still be taken; infinite where the system does not say."""
    mark = _kernel("meminfo", "MemAvailable")
    return int(mark.split()[0]) * 1024 if mark else math.inf


def _kernel(file: str, key: str) -> str:
    """Return the value of a line `key: value` in a file of the kernel, nothing where there is no such line."""
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{key}\s*:\s*(.*)", Path("/proc", file).read_text(), re.MULTILINE):
            return found[1]
    return ""
