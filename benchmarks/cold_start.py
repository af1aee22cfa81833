"""What a new process costs: help, imports, and compiling a first simulation. Best of a few fresh processes each.

`import fedvi` loads names when they are used, so that `from fedvi import simulate`, which loads all, is measured too.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from fedvi.errors import FedviError

FIRST_SIMULATION = """
import time
import numpy as np
from fedvi import PVI, LogisticRegression, simulate
from fedvi.inference import GradientSteps
from fedvi.privacy import PoissonGaussian

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 5))
clients = [(x[:100], np.sign(x[:100, 0])), (x[100:], np.sign(x[100:, 0]))]
algorithm = PVI(GradientSteps(25, 0.5, PoissonGaussian()))
times = [time.perf_counter()]
for _ in range(2):
    simulate(clients, LogisticRegression(), seed=1, algorithm=algorithm, communications=4, progress=False)
    times.append(time.perf_counter())
print(times[1] - times[0] - (times[2] - times[1]))
"""


def measure_cold_start(times: int) -> dict[str, float]:
    """Return seconds for help, imports and the first compilation, each the best of so many processes."""
    commands = {
        "help_s": ["-m", "fedvi", "--help"],
        "import_s": ["-c", "import fedvi"],
        "import_simulate_s": ["-c", "from fedvi import simulate"],
        "import_jax_s": ["-c", "import jax"],
    }
    seconds = {name: min(_seconds(command) for _ in range(times)) for name, command in commands.items()}
    return {**seconds, "first_compile_s": min(float(output(["-c", FIRST_SIMULATION])) for _ in range(times))}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one command took: by the clock, and of the processors."""

    command: str
    seconds: float
    cpu_seconds: float


def measure_commands(times: int, examples: Path) -> list[Cost]:
    """Return what each command takes from its start to its end, the best of so many, beside Python's own start."""
    fit = [
        "fit",
        "schema.toml",
        str(examples / "patients.csv"),
        "--site-column",
        "hospital",
        "--out",
        "model",
        "--force",
    ]
    commands = {
        "python -c pass": ["-c", "pass"],
        "fedvi --help": ["-m", "fedvi", "--help"],
        "fedvi budget": ["-m", "fedvi", "budget", "--eps", "0.5", "--delta", "1e-4", "--noise-multiplier", "5"],
        "fedvi fit": ["-m", "fedvi", *fit],
        "fedvi predict": ["-m", "fedvi", "predict", "model", str(examples / "new_patients.csv")],
        "fedvi inspect": ["-m", "fedvi", "inspect", "model"],
    }
    infer = ["schema", "infer", str(examples / "patients.csv"), "--target", "readmitted", "--ignore", "hospital"]
    with tempfile.TemporaryDirectory() as folder:
        _run([sys.executable, "-m", "fedvi", *infer, "--out", "schema.toml"], folder)
        return [
            min((_cost(name, arguments, folder) for _ in range(times)), key=lambda cost: cost.seconds)
            for name, arguments in commands.items()
        ]


def _cost(name: str, arguments: list[str], folder: str) -> Cost:
    before, began = os.times(), perf_counter()
    _run([sys.executable, *arguments], folder)
    after, ended = os.times(), perf_counter()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(name, round(ended - began, 3), round(used, 3))


def _run(command: list[str], folder: str) -> None:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ran.returncode != 0:
        raise FedviError(f"{' '.join(command)} ended with code {ran.returncode}: {ran.stderr.strip()[-500:]}")


def _seconds(arguments: list[str]) -> float:
    began = perf_counter()
    output(arguments)
    return perf_counter() - began


def output(arguments: list[str]) -> str:
    """Run this Python with arguments and return what it prints; nothing that was compiled before is found again."""
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
    if ran.returncode != 0:
        raise FedviError(f"A process of the bench ended with code {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return ran.stdout
