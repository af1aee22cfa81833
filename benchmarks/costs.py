"""What there is beside the steps: what a site's ledger and its planning cost, and what a new process costs.

Of processes the best of a few counts. `benchmarks.render.OTHERS` says what every number is.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from timeit import Timer
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.steps import FEATURES, ROWS, STEPS, algorithm_with, make_table
from benchmarks.timing import Contender, in_new_process, output, take_turns
from fedvi.models.logistic import LogisticRegression
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import Event
from fedvi.privacy.ledger.ledger import Ledger
from fedvi.privacy.mechanism import PoissonGaussian
from fedvi.simulation.simulate import simulate

UPDATES, CHARGES = 69, 40
COMMANDS = (
    "--help",
    "budget --eps 0.5 --delta 1e-4 --noise-multiplier 5",
    "schema infer {examples}/patients.csv --target readmitted --ignore hospital --out schema.toml --force",
    "fit schema.toml {examples}/patients.csv --site-column hospital --out model --force",
    "predict model {examples}/new_patients.csv",
    "inspect model",
)


class Cost(NamedTuple):
    """What one command took: by the clock, and of the processors."""

    command: str
    seconds: float
    cpu_seconds: float


def measure_accountant(rounds: int) -> dict[str, float]:
    """Return the four times of accounting."""
    budget = Budget(1.0).fixed(ROWS)
    budget.most_updates(_event(4.0))  # loads what the accountant needs
    spend = [Timer(partial(budget.spent, {_event(noise): UPDATES})) for noise in (5.0, 5.1, 5.2)]
    plan = [Timer(partial(budget.most_updates, _event(noise))) for noise in (6.0, 6.1)]
    epsilon_s, plan_s = (min(timer.timeit(1) for timer in timers) for timers in (spend, plan))
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, FEDVI_STATE_DIR=folder):
        event = _event(6.0)
        with Ledger.create(Path(folder) / "bench.ledger", budget, "0" * 64) as ledger:
            ledger.plan(event)
            check = take_turns({"check": Contender(lambda: ledger.remaining(event))}, rounds)
            charge_s = median(Timer(lambda: ledger.charge(event)).repeat(CHARGES, 1))
    return {
        "budget_check_us": 1e6 * check.typical("check"),
        "ledger_charge_us": 1e6 * charge_s,
        "pld_epsilon_ms": 1e3 * epsilon_s,
        "plan_ms": 1e3 * plan_s,
    }


def _event(noise_multiplier: float) -> Event:
    """Return the event of an update; each noise is accounted for once, so that nothing is remembered of it."""
    return PoissonGaussian(noise_multiplier).event(ROWS, STEPS, 2 * FEATURES)


def measure_cold_start(times: int) -> dict[str, float]:
    """Return seconds for help, imports and the first compilation, each the best of so many processes."""
    commands = {
        "help_s": ["-m", "fedvi", "--help"],
        "import_s": ["-c", "import fedvi"],
        "import_simulate_s": ["-c", "from fedvi import simulate"],
        "import_jax_s": ["-c", "import jax"],
    }
    seconds = {name: _best(times, name, command).seconds for name, command in commands.items()}
    return {**seconds, "first_compile_s": min(in_new_process(first_compile) for _ in range(times))}


def first_compile() -> float:
    """Return what a first simulation takes beyond a second one, in this process."""
    (x, y), algorithm = make_table(200, 5, 0), algorithm_with(PoissonGaussian())
    tables = [(x[:100], y[:100]), (x[100:], y[100:])]
    settings: Any = {"seed": 1, "algorithm": algorithm, "communications": 4, "progress": False}
    first, second = Timer(lambda: simulate(tables, LogisticRegression(), **settings)).repeat(2, 1)
    return first - second


def measure_commands(times: int, examples: Path) -> list[Cost]:
    """Return what each command takes from its start to its end, the best of so many, beside Python's own start."""
    commands = {"python -c pass": ["-c", "pass"]}
    for words in COMMANDS:
        given = [word.format(examples=examples) for word in words.split()]
        commands[f"fedvi {given[0]}"] = ["-m", "fedvi", *given]
    with tempfile.TemporaryDirectory() as folder:
        return [_best(times, name, words, folder) for name, words in commands.items()]


def _best(times: int, name: str, arguments: list[str], folder: str | None = None) -> Cost:
    """Return the cost of the fastest of so many processes."""
    costs = []
    for _ in range(times):
        before, began = os.times(), perf_counter()
        output(arguments, folder)
        seconds, after = perf_counter() - began, os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        costs.append(Cost(name, round(seconds, 4), round(used, 2)))
    return min(costs, key=lambda cost: cost.seconds)
