"""Centres and scales of columns, from private answers about their first two moments: what `diagonal` begins with.

A question about moments asks for `sum s x` and `KAPPA sum s x^2`, s = min(1, reach / norm). Divided by the answer for
the constant column, which is `sum s`, they are means m and mean squares of the columns. For levels of a category both
are the same number, seen twice. A variance v that is smaller than the standard deviation of its noise counts as that.

    z = (x - m) / sqrt(v + RIDGE)        the constant stays 1

so that columns of all sizes get about the same share of a row's length, and noise in slopes about the same size beside
them. Rare levels keep less: a column with v far below RIDGE could not be seen through the noise anyway. Without a
constant column nothing is centred: a weight for the shift would be missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedvi.families.mean_field import Gaussian as Diagonal
from fedvi.inference.question import Question
from fedvi.inference.reading.base import Plan

KAPPA = 0.7
"""Weight of squares beside the numbers themselves."""

REACH = 0.8
"""Of a question about moments, over the length of a typical row's vector."""

RIDGE = 0.1
LEAST_COUNTED = 0.2
"""Rows count at least this much on average, whatever noise says."""


@dataclass(frozen=True)
class Moments:
    """What was answered to one question about moments, per row of those who answered. variance: of noise in `first`."""

    first: np.ndarray
    second: np.ndarray
    variance: float

    @classmethod
    def of(cls, question: Question, sums: np.ndarray, noise: float, rows: float) -> Moments:
        """Return the answer to a question, as released."""
        columns, unit = len(question.centre), float(question.reach) / rows
        second = sums[columns:-1] * unit / float(question.curvature_weight)
        return cls(sums[:columns] * unit, second, noise * unit**2)


@dataclass(frozen=True)
class Scales:
    """z = (x - centre) * scale. share: expected squares of z."""

    centre: np.ndarray
    scale: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, centre: Any, scale: Any, intercept: bool) -> Scales:
        """Return centres and scales, in single precision as they are broadcast, and what follows from them."""
        centre, scale = (np.asarray(np.asarray(each, np.float32), np.float64) for each in (centre, scale))
        share = np.maximum(1 - RIDGE * scale**2, 1e-9)
        if intercept:
            share[0] = scale[0] ** 2
        return cls(centre, scale, share)

    def to_x(self, intercept: bool) -> np.ndarray:
        """Return the matrix that takes weights of z to weights of x."""
        matrix = np.diag(self.scale)
        if intercept:
            matrix[0, 1:] = -(self.centre * self.scale)[1:]
        return matrix

    def to_z(self, intercept: bool) -> np.ndarray:
        """Return the inverse of `to_x`."""
        matrix = np.diag(1 / self.scale)
        if intercept:
            matrix[0, 1:] = self.centre[1:] / self.scale[0]
        return matrix


def question_about_columns(plan: Plan, columns: int, seen: Sequence[Moments]) -> Question:
    """Return the next question about moments. Its reach follows from the answers to those before, if there are any."""
    if seen:
        first, second, _ = pooled(seen)
        squares = float(second.sum()) / counted(plan, first, second)
        length = squares * (1 + 2 * KAPPA**2)
    else:  # levels of a category are one 1 in a row; numbers have squares of 1 and fourth powers of 3
        levels = sum(len(group) for group in plan.exclusive)
        ones, numbers = len(plan.exclusive) + plan.intercept, columns - levels - plan.intercept
        length = ones * (1 + KAPPA**2) + numbers * (1 + 3 * KAPPA**2)
    reach = REACH * math.sqrt(max(length, 1 + KAPPA**2))
    return diagonal_question(
        np.zeros(columns), np.ones(columns), np.zeros(columns), np.ones(columns), reach, (1.0, KAPPA, 0.0), moments=True
    )


def diagonal_question(
    centre: np.ndarray,
    scale: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    reach: float,
    weights: tuple[float, float, float],
    moments: bool = False,
    noise_variance: float = 1.0,
) -> Question:
    """Return the question about z = (x - centre) * scale at N(mean, variance), in single precision, as broadcast."""
    family = Diagonal(*(np.asarray(each, np.float32) for each in (mean / variance, 1 / variance)))  # type: ignore[arg-type]
    numbers = (reach, *weights, float(moments), noise_variance)
    centre, scale, *single = (np.asarray(each, np.float32) for each in (centre, scale, *numbers))
    return Question(centre, scale, family, *single)  # type: ignore[arg-type]


def pooled(seen: Sequence[Moments]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the means of answers about moments, weighted by their noise, and the variance of the first."""
    weights = np.array([1 / max(each.variance, 1e-300) for each in seen])
    weights /= weights.sum()
    first = sum(weight * each.first for weight, each in zip(weights, seen, strict=True))
    second = sum(weight * each.second for weight, each in zip(weights, seen, strict=True))
    variance = sum(weight**2 * each.variance for weight, each in zip(weights, seen, strict=True))
    return np.asarray(first), np.asarray(second), float(variance)


def counted(plan: Plan, first: np.ndarray, second: np.ndarray) -> float:
    """Return how much rows count on average: the constant's own answers say it."""
    if not plan.intercept:
        return 1.0
    return max(float(first[0] + KAPPA**2 * second[0]) / (1 + KAPPA**2), LEAST_COUNTED)


def found_scales(plan: Plan, seen: Sequence[Moments]) -> Scales:
    """Return centres and scales by all answers about moments."""
    first, second, variance = pooled(seen)
    total = counted(plan, first, second)
    first, second, variance = first / total, second / total, variance / total**2
    levels = np.zeros(len(first), bool)
    levels[[column for group in plan.exclusive for column in group]] = True
    share = np.clip((first + KAPPA**2 * second) / (1 + KAPPA**2), 0, 1)
    mean = np.where(levels, share, first) if plan.intercept else np.zeros_like(first)
    square = np.where(levels, share, second)
    noise = np.where(levels, variance / (1 + KAPPA**2), variance * (1 / KAPPA**2 + 4 * mean**2))
    spread = np.maximum(square - mean**2, np.maximum(np.sqrt(noise), 1e-6))
    scale = 1 / np.sqrt(spread + RIDGE)
    if plan.intercept:
        mean[0], scale[0] = 0, 1
    return Scales.of(mean, scale, plan.intercept)
