"""How things are measured: contenders in turns, new processes, memory, all on one thread of one core.

Contenders take turns, because the speed of a machine drifts (docs/speed.md):

    ratio(a, b) = median over rounds of (seconds of a / seconds of b, both from the same round)

Their clock is the processor's time of this process: work that waits, for a disk or a network, needs another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from timeit import Timer
from typing import Any
from unittest.mock import patch

from fedvi.errors import FedviError

BLOCK_SECONDS = 0.01
LIMITS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PJRT_NPROC"), "1")
LIMITS["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
IN_NEW_PROCESS = """
import importlib, json, sys
module, name, settings = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(settings))))
"""


@dataclass(frozen=True)
class Contender:
    """call: does the work and waits until it is done. units: how many steps one call makes."""

    call: Callable[[], object]
    units: int = 1


@dataclass(frozen=True)
class Samples:
    """Seconds per unit of every contender, one number per round."""

    seconds: Mapping[str, Sequence[float]]

    def typical(self, name: str) -> float:
        """Return the median over rounds, in seconds per unit."""
        return median(self.seconds[name])

    def best(self, name: str) -> float:
        """Return the least over rounds, in seconds per unit."""
        return min(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Return the median over rounds of the quotient of two contenders in the same round."""
        return median(a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True))

    def ratio_of_best(self, name: str, to: str) -> float:
        """Return the quotient of the two least times."""
        return self.best(name) / self.best(to)


def take_turns(contenders: Mapping[str, Contender], rounds: int, clock: Callable[[], float] = process_time) -> Samples:
    """Measure all contenders in turns; everything is called twice before, to compile and to size the blocks."""
    timers = {name: Timer(contender.call, timer=clock) for name, contender in contenders.items()}
    calls = {name: _calls(timer) for name, timer in timers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            seconds[name].append(timers[name].timeit(calls[name]) / (calls[name] * contenders[name].units))
    return Samples(seconds)


def _calls(timer: Timer) -> int:
    """Return how many calls a block has."""
    timer.timeit(1)
    calls = 1
    while (took := timer.timeit(calls)) < BLOCK_SECONDS / 2:
        calls *= 4
    return max(1, round(calls * BLOCK_SECONDS / took))


@contextlib.contextmanager
def one_thread() -> Iterator[list[str]]:
    """Hold this process and those it starts to one thread and one core; yield notes about what could not be held.

    Compiled code is not kept, nor found. Libraries of linear algebra read their number of threads from the environment
    when they are loaded: enter before NumPy or JAX are. Later, only processes that this one starts are held to it, and
    a note says so.
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
    with patch.dict(os.environ, wanted, JAX_ENABLE_COMPILATION_CACHE="false"), contextlib.ExitStack() as afterwards:
        try:
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {max(cores)})  # interrupts prefer the last core least
            afterwards.callback(os.sched_setaffinity, 0, cores)
        except (AttributeError, OSError):
            notes.append("This system cannot pin a process to one core: times may scatter more.")
        yield notes


def in_new_process(measure: Callable[..., Any], **settings: object) -> Any:
    """Return what a function of a module measures in a process of its own; settings and result are plain values."""
    return json.loads(output(["-c", IN_NEW_PROCESS, measure.__module__, measure.__name__, json.dumps(settings)]))


def output(arguments: list[str], folder: str | None = None) -> str:
    """Run this Python with arguments, in a folder, and return what it prints."""
    ran = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)
    if ran.returncode != 0:
        raise FedviError(f"A process of the bench ended with code {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return ran.stdout


def peak_memory_mb() -> float:
    """Return the most memory that this process has held so far, in units of 10^6 bytes.

    From the kernel's own mark where there is one: `getrusage` counts what the parent held when it started the process.
    """
    if mark := kernel("self/status", "VmHWM"):
        return int(mark.split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def kernel(file: str, key: str) -> str:
    """Return the value of a line `key: value` in a file of the kernel, nothing where there is no such line."""
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{key}\s*:\s*(.*)", Path("/proc", file).read_text(), re.MULTILINE):
            return found[1]
    return ""
