"""What was measured on: the machine, and the memory that a process took."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Return processor, memory and versions."""
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": _cpu(),
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
    status = _lines(Path("/proc/self/status"))
    if "VmHWM" in status:
        return int(status["VmHWM"].split()[0]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def available_bytes() -> int | None:
    """Return how much memory can still be taken, or None where the system does not say."""
    memory = _lines(Path("/proc/meminfo"))
    return int(memory["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in memory else None


def _cpu() -> str:
    return _lines(Path("/proc/cpuinfo")).get("model name") or platform.processor() or platform.machine()


def _lines(path: Path) -> dict[str, str]:
    """Return the `key: value` lines of a file of the kernel; none where there is no such file."""
    try:
        pairs = (line.partition(":") for line in path.read_text().splitlines())
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in pairs}
