"""Tables whose weights are known: features drawn or real, outcomes drawn from the model.

features     normal, all pairs correlated by so much, cut at +-3; or the rows of a real table (benchmarks.honesty.real)
weights      N(0, 1); of a real table with a number as target N(0, 10), which is the prior of `fit` there
outcomes     logistic: P(y = 1) = sigma(x'w). Linear: y = x'w + noise, log of its variance ~ N(0, 0.5^2)
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.real import Columns, real_columns

NEW_ROWS = 200
"""Rows whose predictions are judged, at most."""

INTERCEPT = "(intercept)"


@dataclasses.dataclass(frozen=True)
class Drawn:
    """One table with the truth behind it.

    x: with a constant first. y: 0 and 1, or numbers. new: rows to predict. groups: of every feature, its kind.
    picked: of a real table, which of its rows these are.
    """

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    noise_variance: float
    new: np.ndarray
    features: tuple[str, ...]
    groups: tuple[str, ...]
    columns: Columns | None
    picked: np.ndarray

    def parts(self, sites: int) -> list[np.ndarray]:
        """Return the numbers of the rows of every site."""
        return np.array_split(np.arange(len(self.y)), sites)


def draw(cell: Cell, number: int) -> Drawn:
    """Return the table of this number; the same whatever epsilon and sites are."""
    rng = np.random.default_rng(cell.entropy(number))
    columns = None if cell.drawn else real_columns(cell.kind)
    if columns is None:
        share = cell.correlation
        common = rng.standard_normal((cell.rows + NEW_ROWS, 1))
        own = rng.standard_normal((cell.rows + NEW_ROWS, cell.features))
        values = np.clip(np.sqrt(share) * common + np.sqrt(1 - share) * own, -3, 3)
        picked = np.arange(len(values))
        names = tuple(f"x{j}" for j in range(cell.features))
        groups = ("numbers",) * cell.features
    else:
        picked = rng.permutation(len(columns.x))[: cell.rows + NEW_ROWS]
        values, names, groups = columns.x[picked], columns.features, columns.groups
    x = np.column_stack([np.ones(len(values)), values])
    weights = np.sqrt(10.0 if cell.linear and not cell.drawn else 1.0) * rng.standard_normal(x.shape[1])
    rows, new = x[: cell.rows], x[cell.rows :]
    if cell.positives is not None:
        eta = rows[:, 1:] @ weights[1:]
        weights[0] = brentq(lambda level: expit(level + eta).mean() - cell.positives, -200, 200)
    variance = float(np.exp(0.5 * rng.standard_normal())) if cell.linear else 1.0
    eta = rows @ weights
    noise = np.sqrt(variance) * rng.standard_normal(len(eta))
    y = eta + noise if cell.linear else (rng.random(len(eta)) < expit(eta)).astype(float)
    kinds = ("intercept", *groups)
    return Drawn(rows, y, weights, variance, new, (INTERCEPT, *names), kinds, columns, picked[: cell.rows])
