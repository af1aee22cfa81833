"""Answers without noise: Gaussian variational inference by Newton steps.

The last answer has, summed over all rows, the expected slope g and curvature H of the log-likelihood at the q = N(m, S)
of its question. The posterior that they point to is

    precision = P0 + H        mean = m + precision^-1 (g + P0 (m0 - m))

Where it no longer moves, q is the Gaussian that maximises the evidence lower bound: the gradient by the mean is
zero, and the precision is the expected curvature of the log posterior. For a linear model one step is exact.

**Trust region.** A step changes the predictor of a row by at most 2 in the root mean square. It is measured by H over
the sum of curvatures, which is H's own entry if there is an intercept.

**Too long a step.** Where a few rows are far from all others, a whole step may lead too far. Then the evidence lower
bound falls there, in the direction of the step, nearly as fast as it rose where the step began. The next step begins
there again and is half as long, in mean and precision. After a good step, the next one may be twice as long.

**Noise of a linear model.** The extra number is the square of a residual over the noise variance as believed. Rows were
used to fit the mean, so that residuals are too small by the share tr(S H) / n. The variance is that of the residuals,
and nothing else: what was assumed is forgotten.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.inference.question import Question
from fedvi.inference.reading.base import (
    NEWTON_LIMIT,
    Answer,
    Gaussian,
    Plan,
    Reading,
    answers,
    believed,
    question_at,
    symmetric,
)
from fedvi.models.linear_predictor import LinearPredictorModel

TRUST = 2.0
WIDEST = 25.0
"""Variance of predictors under the first q, at most: beyond it a few nodes see hardly any of a row's curvature."""
RIDGE, LEAST = 0.02, 1e-9
OVERSHOOT = 0.7
"""A bound that falls faster than that, over how it rose at the beginning of the step, says that it was too long."""


def read_exact(
    plan: Plan, model: LinearPredictorModel, prior: GaussianFamily, questions: Sequence[Question], messages: Messages
) -> Reading:
    """Return the Newton step from the last answer."""
    first = believed(prior)
    columns = len(first.mean)
    seen = answers(questions, messages, bounded=False)
    if not seen:
        assumed = model.assumed_noise_variance or 1.0
        begin = first.narrowed(float(np.trace(first.covariance)), WIDEST)
        question = question_at(begin, np.eye(columns), noise_variance=assumed)
        return Reading(first.family(), question, math.inf, NEWTON_LIMIT, np.ones(columns), assumed)
    linear = model.assumed_noise_variance is not None
    steps = [_newton(model, first, each) for each in (seen[-1:] if linear else seen)]
    best, share = steps[0], 1.0
    for found in steps[1:]:
        whole = _within_trust(plan, model, best)
        better = bool(np.all(found.rise(best, whole) > -OVERSHOOT * best.rise(best, whole)))
        best, share = (found, min(1.0, 2 * share)) if better else (best, share / 2)
    whole = 1.0 if linear else _within_trust(plan, model, best)
    precision = best.centre.precision + share * (best.precision - best.centre.precision)
    q = Gaussian.at(best.centre.mean + share * whole * best.step, precision)
    following = None
    if len(questions) < plan.questions:
        scaled = best.curvature * best.noise_variance / seen[-1].rows
        values, vectors = np.linalg.eigh(scaled)
        values = np.maximum(np.abs(values) + RIDGE * np.mean(np.abs(values)), LEAST)  # none, where rows tell nothing
        following = question_at(q, (vectors / np.sqrt(values)) @ vectors.T, noise_variance=best.noise_variance)
    return Reading(q.family(), following, best.decrement, NEWTON_LIMIT, np.ones(columns), best.noise_variance)


@dataclasses.dataclass(frozen=True)
class _Newton:
    """What one answer says: the step from its centre, the precision P0 + H where it leads, H, the noise, the rows."""

    centre: Gaussian
    step: np.ndarray
    precision: np.ndarray
    curvature: np.ndarray
    noise_variance: float
    rows: float

    @property
    def decrement(self) -> float:
        """The length of the step, in standard deviations."""
        return math.sqrt(max(float(self.step @ self.precision @ self.step), 0.0) / len(self.step))

    def rise(self, start: _Newton, whole: float) -> np.ndarray:
        """Return how fast the bound rises here in the direction in which `start` leads: by mean, and by precision."""
        covariance, turn = self.centre.covariance, start.precision - start.centre.precision
        narrower = covariance @ turn @ covariance
        gap = self.precision - self.centre.precision
        return np.array([whole * (self.precision @ self.step @ start.step), 0.5 * np.sum(gap * narrower)])


def _within_trust(plan: Plan, model: LinearPredictorModel, found: _Newton) -> float:
    """Return the share of a step that is within the trust region."""
    weight = float(found.curvature[0, 0]) if plan.intercept else 0.5 * float(model.curvature_bound) * found.rows
    size = math.sqrt(max(float(found.step @ found.curvature @ found.step), 0.0) / max(weight, 1e-300))
    return min(1.0, TRUST / max(size, 1e-300))


def _newton(model: LinearPredictorModel, first: Gaussian, answer: Answer) -> _Newton:
    noise = believed_noise = answer.number("noise_variance")
    slope = answer.back.T @ answer.slope / math.sqrt(noise)
    curvature = upright(symmetric(answer.back.T @ answer.curvature @ answer.back) / noise, first.precision)
    pull = first.natural_mean - first.precision @ answer.centre.mean
    if model.assumed_noise_variance is not None:
        step = np.linalg.solve(first.precision + curvature, slope + pull)
        used = np.trace(np.linalg.solve(first.precision + curvature, curvature))
        squares = noise * (answer.extra - 2 * step @ slope + step @ curvature @ step)  # of residuals where it leads
        believed_noise = residual_variance(model.assumed_noise_variance, squares, answer.rows - used)
        slope, curvature = slope * noise / believed_noise, curvature * noise / believed_noise
    precision = first.precision + curvature
    step = np.linalg.solve(precision, slope + pull)
    return _Newton(answer.centre, step, precision, curvature, believed_noise, answer.rows)


def upright(curvature: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return the curvature, or its absolute value if a step by it would go the wrong way.

    Far from its maximum, a likelihood that is not concave bends upwards.
    """
    if np.linalg.eigvalsh(precision + curvature)[0] > 0 and np.trace(curvature) > 0:
        return curvature
    values, vectors = np.linalg.eigh(curvature)
    return (vectors * np.abs(values)) @ vectors.T


def residual_variance(assumed: float, squares: float, count: float) -> float:
    """Return the variance of so many squared residuals; what was assumed, if there are fewer than one.

    Rows that lie on a plane say nothing about noise: it is not taken for less than a millionth of what was assumed.
    """
    return float(max(squares / count, 1e-6 * assumed)) if count >= 1 else assumed
