"""A made-up table of patients with columns of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np


def sample(rows: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 96, rows)
    ward = rng.choice(["A", "B", "C", "D"], rows, p=[0.4, 0.3, 0.2, 0.1])
    return {
        "id": [f"patient {row}" for row in range(rows)],
        "admitted": [f"2024-01-{1 + row % 28:02d}" for row in range(rows)],
        "age": age,
        "weight": [None if row % 50 == 0 else 60 + row % 31 + 0.123 for row in range(rows)],
        "country": ["NL"] * rows,
        "zero": [0.0] * rows,
        "empty": [None] * rows,
        "ward": ward,
        "days": (0.1 * age + 2.0 * (ward == "A") + rng.normal(0, 0.5, rows)).round(3),
        "died": np.where(rng.random(rows) < 0.3, "yes", "no"),
    }
