"""Small private simulations that tests share."""

from __future__ import annotations

from typing import Any

from federations import Tables, logistic_tables
from fedvi import PVI, Budget, LogisticRegression, simulate
from fedvi.inference import GradientSteps
from fedvi.privacy import PoissonGaussian
from fedvi.simulation import RoundRobin

DIM = 3
TABLES: Tables = logistic_tables([200, 90, 400], DIM)
DP_PVI = PVI(GradientSteps(5, 0.2, PoissonGaussian(8.0, 1.0, minimum=10)))
BUDGET = Budget(0.5, 1e-3)


def run(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "clients": TABLES,
        "model": LogisticRegression(),
        "seed": 1,
        "algorithm": DP_PVI,
        "schedule": RoundRobin(),
        "privacy": BUDGET,
    }
    settings.update(changes)
    return simulate(**settings)
