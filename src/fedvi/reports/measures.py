"""What was measured: names, digits and units of the numbers that reports show; ours beside the published."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

TOLERANCES = {"acc": 0.6, "ll": 0.012}
"""Differences from published numbers that count as agreement, unless the seeds alone differ by more."""

TAKEN = {"acc", "accuracy", "ll", "log_likelihood", "change", "repairs"}
"""Metrics that are shown under other names, or that say nothing about quality."""


@dataclass(frozen=True)
class Measure:
    """key: in results. column: in the history. axis: title with unit, for readers. digits: after the point."""

    key: str
    column: str
    axis: str
    digits: int


ACCURACY = Measure("acc", "accuracy", "accuracy [%]", 2)
LOG_LIKELIHOOD = Measure("ll", "log_likelihood", "log-likelihood", 4)


@dataclass(frozen=True)
class Comparison:
    """One measure: ours and published, mean and standard deviation over seeds; None for what is missing."""

    measure: Measure
    mean: float | None
    std: float | None
    published: float | None = None
    published_std: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        return None if self.mean is None or self.published is None else self.mean - self.published

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is within the tolerance, or within two standard deviations of a difference."""
        if self.difference is None:
            return None
        noise = 2 * math.hypot(self.std or 0.0, self.published_std or 0.0)
        return abs(self.difference) <= max(TOLERANCES.get(self.measure.key, 0.0), noise)


def finite(value: Any) -> float | None:
    """Return the value as a float, or None when it is missing, NaN or infinite."""
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return None
    return float(value)


def mean_and_std(entry: Any, measure: Measure) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation that an entry gives for a measure; None for what is missing."""
    entry = entry if isinstance(entry, dict) else {}
    given = entry.get(measure.key) or (entry.get("metrics") or {}).get(measure.key)
    pair = given if isinstance(given, list | tuple) else [given]
    return finite(pair[0]) if pair else None, finite(pair[1]) if len(pair) > 1 else None
