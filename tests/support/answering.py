"""Answers to questions in NumPy, written from their definition: what tests and studies of readings feed them with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from fedvi.families.messages import Messages

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()

Site = tuple[np.ndarray, np.ndarray]


def logistic(eta: np.ndarray, v: np.ndarray, y: np.ndarray, noise: float, free: bool) -> tuple[np.ndarray, ...]:  # noqa: ARG001
    """Return slope, largest slope, curvature and extra number of rows with labels 0 and 1."""
    p = expit(eta[:, None] + np.sqrt(v)[:, None] * NODES)
    mean, curvature = p @ WEIGHTS, (p * (1 - p)) @ WEIGHTS
    return y - mean, np.maximum(mean, 1 - mean), curvature, np.zeros(len(y))


def linear(eta: np.ndarray, v: np.ndarray, y: np.ndarray, noise: float, free: bool) -> tuple[np.ndarray, ...]:
    """Return the same for numbers."""
    residual, spread = (y - eta) / math.sqrt(noise), np.sqrt(1 + v / noise)
    if free:
        return residual, np.abs(residual), np.ones(len(y)), residual**2
    inside = np.full(len(y), norm.cdf(1.5) - norm.cdf(-1.5))
    return (
        np.clip(residual, -1.5 * spread, 1.5 * spread),
        1.5 * spread,
        inside,
        np.minimum(np.abs(residual) / 2 / spread, 1),
    )


def answer(question: Any, rows: Site, model: Any, free: bool = False) -> np.ndarray:
    """Return the sum over rows, without noise. free: nothing is bounded or divided by the reach."""
    x, y = rows
    whitening, h, precision = (
        np.asarray(each, np.float64) for each in (question.whitening, question.q.natural_mean, question.q.precision)
    )
    full = whitening.ndim == 2
    whitening, precision = (each if full else np.diag(each) for each in (whitening, precision))
    z, covariance = (x - np.asarray(question.centre, np.float64)) @ whitening, np.linalg.inv(precision)
    eta, v = z @ (covariance @ h), np.einsum("ij,jk,ik->i", z, covariance, z)
    slope, largest, curvature, extra = model(eta, v, y, float(question.noise_variance), free)
    if question.moments > 0:
        slope, largest, curvature, extra = (np.full(len(y), each) for each in (1.0, 1.0, 1.0, 0.0))
    weights = [float(each) for each in (question.slope_weight, question.curvature_weight, question.extra_weight)]
    if free:
        weights, size = [1.0, 1.0, 1.0], np.ones(len(y))
    else:
        squares, reach = (z**2).sum(axis=1), float(question.reach)
        quartic = squares**2 if full else (z**4).sum(axis=1)
        norms = np.sqrt(
            (weights[0] * largest) ** 2 * squares + (weights[1] * curvature) ** 2 * quartic + weights[2] ** 2
        )
        size = np.minimum(1, reach / np.maximum(norms, 1e-300)) / reach
    matrix = weights[1] * (z.T * (size * curvature)) @ z
    i, j = np.triu_indices(z.shape[1])
    packed = matrix[i, j] * np.where(i == j, 1, math.sqrt(2)) if full else np.diag(matrix)
    return np.concatenate([weights[0] * z.T @ (size * slope), packed, [weights[2] * size @ extra]])


def nothing(questions: int, columns: int, full: bool = True) -> Messages:
    """Return the messages of nobody."""
    numbers = columns + (columns * (columns + 1) // 2 if full else columns) + 1
    return Messages(*(np.zeros(shape) for shape in ((questions, numbers), questions, questions)))  # type: ignore[arg-type]


def answered(
    messages: Messages,
    number: int,
    question: Any,
    sites: Sequence[Site],
    model: Any,
    noise: Sequence[float],
    rng: np.random.Generator,
) -> Messages:
    """Return the messages with the answers of these sites to a question added; noise: multiplier of each."""
    sums, variances, rows = (np.array(each) for each in (messages.sums, messages.noise, messages.rows))
    for site, sigma in zip(sites, noise, strict=True):
        sums[number] += answer(question, site, model, free=sigma == 0)
        sums[number] += sigma * rng.standard_normal(sums.shape[1])
        variances[number] += sigma**2
        rows[number] += len(site[1])
    return Messages(sums, variances, rows)  # type: ignore[arg-type]
