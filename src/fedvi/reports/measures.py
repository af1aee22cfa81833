"""What was measured: names, digits and units of the numbers that reports show, and how to read them from results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """key: in results. column: in the history. title: for readers. digits: after the point."""

    key: str
    column: str
    title: str
    digits: int
    unit: str = ""

    @property
    def axis(self) -> str:
        """The title with its unit."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


ACCURACY = Measure("acc", "accuracy", "accuracy", 2, "%")
LOG_LIKELIHOOD = Measure("ll", "log_likelihood", "log-likelihood", 4)


def finite(value: Any) -> float | None:
    """Return the value as a float, or None when it is missing, NaN or infinite."""
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return None
    return float(value)


def mean_and_std(entry: dict[str, Any] | None, key: str) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation that an entry gives for a measure; None for what is missing."""
    pair = None if entry is None else entry.get(key) or (entry.get("metrics") or {}).get(key)
    if pair is None:
        return None, None
    if not isinstance(pair, list | tuple):
        return finite(pair), None
    return finite(pair[0]) if pair else None, finite(pair[1]) if len(pair) > 1 else None
