"""Answers without noise: Gaussian variational inference by Newton steps.

The last answer has, summed over all rows, the expected slope g and curvature H of the log-likelihood at the q = N(m, S)
of its question. The posterior that they point to is

    precision = P0 + H        mean = m + precision^-1 (g + P0 (m0 - m))

Where it no longer moves, q is the Gaussian that maximises the evidence lower bound: the gradient by the mean is
zero, and the precision is the expected curvature of the log posterior. For a linear model one step is exact.

**Trust region.** A step changes the predictor of a row by at most 2 in the root mean square. It is measured by H over
the sum of curvatures, which is H's own entry if there is an intercept.

**Noise of a linear model.** The extra number is the square of a residual over the noise variance as believed. Rows were
used to fit the mean, so that residuals are too small by the share tr(S H) / n. The variance is that of the residuals,
and nothing else: what was assumed is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.inference.question import Question
from fedvi.inference.reading.base import (
    NEWTON_LIMIT,
    WIDEST_PREDICTOR,
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
RIDGE = 0.02


def read_exact(
    plan: Plan, model: LinearPredictorModel, prior: GaussianFamily, questions: Sequence[Question], messages: Messages
) -> Reading:
    """Return the Newton step from the last answer."""
    first = believed(prior)
    columns = len(first.mean)
    seen = answers(questions, messages, bounded=False)
    if not seen:
        assumed = model.assumed_noise_variance or 1.0
        begin = first.narrowed(float(np.trace(first.covariance)), WIDEST_PREDICTOR)
        question = question_at(begin, np.eye(columns), noise_variance=assumed)
        return Reading(first.family(), question, math.inf, NEWTON_LIMIT, np.ones(columns), assumed)
    last = seen[-1]
    noise = last.number("noise_variance")
    slope = last.back.T @ last.slope / math.sqrt(noise)
    curvature = upright(symmetric(last.back.T @ last.curvature @ last.back) / noise, first.precision)
    centre = last.centre.mean
    pull = first.natural_mean - first.precision @ centre
    step = np.linalg.solve(first.precision + curvature, slope + pull)
    believed_noise = noise
    if model.assumed_noise_variance is not None:
        used = np.trace(np.linalg.solve(first.precision + curvature, curvature))
        squares = noise * (last.extra - 2 * step @ slope + step @ curvature @ step)  # of residuals where the step leads
        believed_noise = residual_variance(model.assumed_noise_variance, squares, last.rows - used)
        slope, curvature = slope * noise / believed_noise, curvature * noise / believed_noise
    precision = first.precision + curvature
    step = np.linalg.solve(precision, slope + pull)
    decrement = math.sqrt(max(float(step @ precision @ step), 0.0) / columns)
    weight = float(curvature[0, 0]) if plan.intercept else 0.5 * float(model.curvature_bound) * last.rows
    size = math.sqrt(max(float(step @ curvature @ step), 0.0) / max(weight, 1e-300))
    linear = model.assumed_noise_variance is not None
    q = Gaussian.at(centre + step * (1.0 if linear else min(1.0, TRUST / max(size, 1e-300))), precision)
    following = None
    if len(questions) < plan.questions:
        scaled = curvature * believed_noise / last.rows
        values, vectors = np.linalg.eigh(scaled)
        values = np.abs(values) + RIDGE * np.mean(np.abs(values))
        following = question_at(q, (vectors / np.sqrt(values)) @ vectors.T, noise_variance=believed_noise)
    return Reading(q.family(), following, decrement, NEWTON_LIMIT, np.ones(columns), believed_noise)


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
