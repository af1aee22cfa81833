"""What privacy costs a site in time, beside the steps: asking its ledger, charging it, and planning.

budget_check_us   may one more update be made? asked of an open ledger before every update
ledger_charge_us  one charge, synced to disk (of the system's directory for temporary files) before it counts
pld_epsilon_ms    the epsilon of 69 updates by privacy-loss distributions, nothing remembered
plan_ms           how many updates a new budget admits, nothing remembered
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from timeit import Timer
from unittest.mock import patch

from benchmarks.problem import FEATURES, ROWS, STEPS
from benchmarks.timing import Contender, take_turns
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import Event
from fedvi.privacy.ledger.ledger import Ledger
from fedvi.privacy.mechanism import PoissonGaussian

UPDATES = 69
CHARGES = 40


def measure_accountant(rounds: int) -> dict[str, float]:
    """Return the four times."""
    budget = Budget(1.0).fixed(ROWS)
    budget.most_updates(_event(4.0))  # loads what the accountant needs
    epsilon_s = min(_seconds(partial(budget.spent, {_event(noise): UPDATES})) for noise in (5.0, 5.1, 5.2))
    plan_s = min(_seconds(partial(budget.most_updates, _event(noise))) for noise in (6.0, 6.1))
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, FEDVI_STATE_DIR=folder):
        event = _event(6.0)
        with Ledger.create(Path(folder) / "bench.ledger", budget, "0" * 64) as ledger:
            ledger.plan(event)
            check = take_turns({"check": Contender(lambda: ledger.remaining(event))}, rounds)
            charge_s = median(_seconds(partial(ledger.charge, event)) for _ in range(CHARGES))
    return {
        "budget_check_us": 1e6 * check.typical("check"),
        "ledger_charge_us": 1e6 * charge_s,
        "pld_epsilon_ms": 1e3 * epsilon_s,
        "plan_ms": 1e3 * plan_s,
    }


def _event(noise_multiplier: float) -> Event:
    """Return the event of an update; each noise is accounted for once, so that nothing is remembered of it."""
    return PoissonGaussian(noise_multiplier).event(ROWS, STEPS, 2 * FEATURES)


def _seconds(call: Callable[[], object]) -> float:
    return Timer(call).timeit(1)
