"""Scores of normal posteriors whose truth is known, table by table, and what they come to over many tables.

    covered          |truth - mean| <= z sd                         of a 90 % interval, z = 1.645
    interval score   high - low + (2 / 0.1) * distance of the truth from the interval; lower is better
    log score        log N(truth; mean, sd^2); higher is better
    rank             Phi((truth - mean) / sd), uniform if the posterior is right (simulation-based calibration)

`weights`: of every coefficient. `predictions`: of x'w for new rows. Standard errors are over tables: intervals of one
table share their errors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from benchmarks.honesty.methods import Estimate
from benchmarks.honesty.tables import Drawn

LEVEL = 0.9
REACH = float(ndtri(0.5 + LEVEL / 2))
BINS = 20
"""Of a rank histogram."""

PARTS = ("weights", "predictions")
Columns = dict[str, Any]
"""What is kept of a cell: by name, one number per table, or sums over tables."""


@dataclasses.dataclass(frozen=True)
class Scores:
    """Of many intervals, each entry one."""

    covered: np.ndarray
    interval: np.ndarray
    log: np.ndarray
    ranks: np.ndarray


def score(mean: np.ndarray, sd: np.ndarray, truth: np.ndarray) -> Scores:
    """Return the scores of normal distributions, each with its truth."""
    z = (truth - mean) / sd
    beyond = np.maximum(np.abs(z) - REACH, 0)
    interval = 2 * REACH * sd + 2 / (1 - LEVEL) * sd * beyond
    log = -0.5 * z**2 - np.log(sd) - 0.5 * math.log(2 * math.pi)
    return Scores(beyond == 0, interval, log, ndtr(z))


def judge(estimate: Estimate, drawn: Drawn) -> tuple[Scores, Scores]:
    """Return the scores of all coefficients, and of the predictor of new rows."""
    sd = np.sqrt(np.diag(estimate.covariance))
    spread = np.sqrt(np.einsum("ij,jk,ik->i", drawn.new, estimate.covariance, drawn.new))
    predicted = score(drawn.new @ estimate.mean, spread, drawn.new @ drawn.weights)
    return score(estimate.mean, sd, drawn.weights), predicted


def add(columns: Columns, estimate: Estimate, drawn: Drawn) -> None:
    """Add one table to what is kept of a cell."""
    for part, found in zip(PARTS, judge(estimate, drawn), strict=True):
        for name, values, digits in (
            ("covered", found.covered, 4),
            ("interval", found.interval, 6),
            ("log", found.log, 4),
        ):
            columns.setdefault(f"{part} {name}", []).append(float(f"{np.mean(values):.{digits}g}"))
        counts = np.histogram(found.ranks, BINS, (0, 1))[0]
        before = columns.get(f"{part} ranks", [0] * BINS)
        columns[f"{part} ranks"] = [int(one) + int(other) for one, other in zip(before, counts, strict=True)]
        if part == "weights" and len(set(drawn.groups)) > 2:
            _add_groups(columns.setdefault("groups", {}), drawn.groups, found.covered)
    if estimate.arrived is not None:
        columns.setdefault("arrived", []).append(int(estimate.arrived))
    if estimate.distance is not None:
        columns.setdefault("distance", []).append(float(f"{estimate.distance:.3g}"))
    sds = np.sqrt(np.diag(estimate.covariance))
    columns.setdefault("sd", []).append(float(f"{np.median(sds):.4g}"))
    if "first" not in columns:
        columns["first"] = {
            name: [float(f"{value:.5g}") for value in values] for name, values in (("mean", estimate.mean), ("sd", sds))
        }


def _add_groups(kept: dict[str, list[float]], groups: Iterable[str], covered: np.ndarray) -> None:
    of = np.array(list(groups))
    for name in sorted(set(groups)):
        kept.setdefault(name, []).append(float(f"{covered[of == name].mean():.4g}"))


def tables_in(columns: Columns) -> int:
    """Return how many tables were judged."""
    return len(columns.get("weights covered", ()))


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean over tables, and its standard error."""
    found = np.array(list(values), float)
    error = found.std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return float(found.mean()), float(error)


def coverage(columns: Columns, part: str) -> tuple[float, float]:
    """Return the share of intervals that cover, and its standard error.

    The error is at least 0.3 / tables: a few tables that agree by chance prove nothing.
    """
    mean, error = mean_and_error(columns[f"{part} covered"])
    return mean, max(error, math.sqrt(LEVEL * (1 - LEVEL)) / tables_in(columns))


def score_ratio(ours: Columns, before: Columns, part: str = "weights") -> float:
    """Return the mean interval score over that of another method, on the tables that both have."""
    name = f"{part} interval"
    both = min(tables_in(ours), tables_in(before))
    return float(np.mean(ours[name][:both]) / np.mean(before[name][:both]))
