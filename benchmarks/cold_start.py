"""What a new process costs: help, imports, and compiling a first simulation. Best of a few fresh processes each.

`import fedvi` loads names when they are used, so that `from fedvi import simulate`, which loads all, is measured too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

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
    seconds = {name: _best(times, name, command).seconds for name, command in commands.items()}
    return {**seconds, "first_compile_s": min(float(output(["-c", FIRST_SIMULATION])) for _ in range(times))}


COMMANDS = (
    "--help",
    "budget --eps 0.5 --delta 1e-4 --noise-multiplier 5",
    "fit schema.toml patients.csv --site-column hospital --out model --force",
    "predict model new_patients.csv",
    "inspect model",
)
INFER = "schema infer patients.csv --target readmitted --ignore hospital --out schema.toml"


class Cost(NamedTuple):
    """What one command took: by the clock, and of the processors."""

    command: str
    seconds: float
    cpu_seconds: float


def measure_commands(times: int, examples: Path) -> list[Cost]:
    """Return what each command takes from its start to its end, the best of so many, beside Python's own start."""
    commands = {f"fedvi {words.split()[0]}": ["-m", "fedvi", *words.split()] for words in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for table in examples.glob("*patients.csv"):
            shutil.copy(table, folder)
        output(["-m", "fedvi", *INFER.split()], folder)
        python = {"python -c pass": ["-c", "pass"]}
        return [_best(times, name, words, folder, cache=True) for name, words in (python | commands).items()]


def _best(times: int, name: str, arguments: list[str], folder: str | None = None, *, cache: bool = False) -> Cost:
    """Return the cost of the fastest of so many processes."""
    costs = []
    for _ in range(times):
        before, began = os.times(), perf_counter()
        output(arguments, folder, cache=cache)
        seconds, after = perf_counter() - began, os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        costs.append(Cost(name, round(seconds, 4), round(used, 2)))
    return min(costs, key=lambda cost: cost.seconds)


def in_new_process(module: str, **order: object) -> Any:
    """Return what `python -m module` measures and prints as JSON. order: what it is to measure."""
    return json.loads(output(["-m", module, json.dumps(order)]))


def output(arguments: list[str], folder: str | None = None, *, cache: bool = False) -> str:
    """Run this Python with arguments, in a folder, and return what it prints. cache: compiled code is found again."""
    environment = os.environ | ({} if cache else {"JAX_ENABLE_COMPILATION_CACHE": "false"})
    ran = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, env=environment)
    if ran.returncode != 0:
        raise FedviError(f"A process of the bench ended with code {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return ran.stdout
