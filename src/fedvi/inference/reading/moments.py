"""Second moments of the rows, as private answers tell them, and rows that are simulated from them.

A question about moments asks for `sum s zz'`, z = x scaled by public numbers, s = min(1, reach / |z|^2) (without an
intercept also for `sum s sqrt(2) z`, which stands for the products with a constant). Divided by the number of rows it
is a noisy matrix T; its noise has variance U on the diagonal, U / 2 off it. The constant's own entry is public.

**Shrinking.** Noise of a symmetric matrix with d columns spreads eigenvalues over +-2 sqrt(d U / 2) around where they
are. Those further from the median (by a tenth) are kept, less what noise adds to them on average; the others are shrunk
to their mean, by as much of their spread as noise explains; the mean is drawn to the public scale of 1. What is left of
the noise in an entry, in the basis of eigenvectors, is the noise times the slope of the estimate in what was seen.

**Simulated rows.** Normal rows, cut at the schema's bounds, whose clipped moments are those that were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedvi.inference.question import Question
from fedvi.inference.reading.base import Answer, Gaussian, Plan, question_at, symmetric

CLIP = 0.7
"""Reach of a question about moments, over the number of columns."""

PAIRS, PASSES = 1500, 5
"""Simulated rows are made in pairs of opposite signs; their moments are put right so many times."""


def moments_needed(rows: float, noise: float, columns: int, questions: int, covariance: str = "full") -> int:
    """Return how many questions should ask for moments, from public numbers.

    rows: of all sites. noise: sum over sites of the squared noise multiplier of an answer. columns: of x.
    covariance: that is to be read; means and squares for a diagonal one are well known from a tenth of the answers.
    """
    if covariance == "diagonal":
        return max(1, min(questions - 1, round(0.1 * questions)))
    rate = rows * questions / (max(noise, 1e-300) * columns)
    share = 0.15 + 0.25 * 2.25 / (rate + 2.25)
    return max(1, min(questions - 1, round(share * questions)))


def scales(plan: Plan, columns: int) -> np.ndarray:
    """Return public scales under which second moments of columns are about 1: levels of a category share one row."""
    found = np.ones(columns)
    for group in plan.exclusive:
        found[list(group)] = math.sqrt(len(group) + 1)
    return found


def question_about_moments(plan: Plan, prior: Gaussian, noise_variance: float) -> Question:
    """Return the question about moments, which is the same each time."""
    columns = len(prior.mean)
    size = columns + (0 if plan.intercept else 1)
    weights = (0.0 if plan.intercept else math.sqrt(2), 1.0, 0.0)
    whitening = np.diag(scales(plan, columns))
    return question_at(prior, whitening, CLIP * size, weights, moments=True, noise_variance=noise_variance)


@dataclass(frozen=True)
class Moments:
    """What is known of the rows.

    rows: simulated, with the columns of x. left: variance of what is still unknown in entries of E[xx'] in the basis
    `basis`, whose columns are in units of x. hidden: whether the smallest eigenvalue is below the noise in it.
    """

    rows: np.ndarray
    basis: np.ndarray
    left: np.ndarray
    hidden: bool


def found_moments(plan: Plan, answers: Sequence[Answer]) -> Moments:
    """Return the moments and simulated rows of all answers about moments; weights are by noise and rows: public."""
    share = np.array([each.rows / each.noise if each.noise > 0 else 1e12 for each in answers])
    counted = share @ np.array([each.rows for each in answers])
    weights = share / counted
    second = sum(weight * each.curvature for weight, each in zip(weights, answers, strict=True))
    noise = sum(weight**2 * each.variance("curvature") for weight, each in zip(weights, answers, strict=True))
    first = answers[0]
    scale = np.diagonal(first.whitening)
    if not plan.intercept:  # as if there were one; the square root of 2 is that of an off-diagonal entry
        slope = sum(weight * each.slope for weight, each in zip(weights, answers, strict=True))
        second = np.block([[np.ones((1, 1)), slope[None]], [slope[:, None], second]])
    level = clipped_level(first, len(second), plan.intercept)
    for group in plan.exclusive:  # products of different levels are known to be zero
        inside = np.ix_(*2 * [np.array(group, int) + (0 if plan.intercept else 1)])
        second[inside] = np.diag(np.diag(second[inside]))
    estimate, basis, left, least = shrunk(second, max(float(noise), 1e-18), level)
    bounds = plan.bound * (scale[1:] if plan.intercept else scale)
    rows = simulated(estimate, level, bounds, first, plan.intercept)
    kept = slice(0 if plan.intercept else 1, None)
    hidden = least < math.sqrt(float(noise))
    return Moments(rows[:, kept] / scale, basis[kept, kept] / scale[:, None], left[kept, kept], hidden)


def clip_weights(answer: Answer, rows: np.ndarray, intercept: bool) -> np.ndarray:
    """Return what rows with a leading 1 count in an answer about moments."""
    mapped = rows if intercept else rows[:, 1:]
    return answer.weights(mapped, 1.0, 1.0)


def clipped_level(answer: Answer, size: int, intercept: bool) -> float:
    """Return what a second moment of 1 looks like after the clip, for normal rows."""
    rows = np.random.default_rng(98).standard_normal((2000, size))
    rows[:, 0] = 1
    weights = clip_weights(answer, rows, intercept)
    return float(np.mean(weights * (rows[:, 1:] ** 2).mean(axis=1))) if size > 1 else 1.0


def shrunk(second: np.ndarray, noise: float, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return an estimate of noisy second moments (first row: the constant), a basis, and the variance left in it.

    Last, the smallest eigenvalue, before it was raised to what simulated rows need at least.

    noise: variance on the diagonal. level: what a second moment of 1 looks like.
    """
    columns = len(second) - 1
    half, scale = noise / 2, 0.25 * level**2  # second moments are about 1 +- .5
    seen, vectors = np.linalg.eigh(symmetric(second[1:, 1:]))
    middle, edge = np.median(seen), 2 * math.sqrt(half * columns)
    distance = np.abs(seen - middle)
    spikes = distance > 1.1 * edge
    if spikes.sum() > columns / 2:
        spikes[:] = False
    bulk = seen[~spikes]
    centre, count = bulk.mean(), len(bulk)
    pull = noise / count / (noise / count + scale)
    target = (1 - pull) * centre + pull * level
    least = min(0.05, 0.3 * level / edge)
    keep = float(np.clip(1 - half * count * (count + 1) / max(np.sum((bulk - centre) ** 2), 1e-300), least, 1))
    values = target + keep * (seen - centre)
    further = (distance + np.sqrt(np.maximum(distance**2 - edge**2, 0))) / 2
    kept = middle + np.sign(seen - middle) * (distance - 2 * half * columns / np.maximum(further, 1e-300))
    values = np.where(spikes, kept, values)
    least = float(values.min())
    values = np.maximum(values, 0.1 * level * min(1, max(target / level, 0.1)))
    means = second[0, 1:]
    size = min(max(np.mean(means**2) - half, 0) + half * math.sqrt(2 / columns), level**2)  # no more than about 1
    keep_means = size / (size + half)
    estimate = np.zeros_like(second)
    estimate[1:, 1:] = (vectors * values) @ vectors.T
    estimate[0, 1:] = estimate[1:, 0] = keep_means * means
    apart = seen[:, None] - seen[None, :]
    near = np.abs(apart) < 1e-9
    slope = np.where(near, keep, (values[:, None] - values[None, :]) / np.where(near, 1, apart))
    left = np.zeros_like(second)
    left[1:, 1:] = half * np.clip(slope, 0.05, 1)
    inside = np.arange(1, columns + 1)
    left[inside, inside] = noise * np.where(spikes, 1, keep) + (1 - pull) * noise / count
    left[0, 1:] = left[1:, 0] = half * keep_means
    basis = np.eye(columns + 1)
    basis[1:, 1:] = vectors
    return estimate, basis, left / level**2, least


def root(matrix: np.ndarray, least: float = 1e-9) -> tuple[np.ndarray, np.ndarray]:
    """Return the symmetric root of a matrix and its inverse; eigenvalues are at least `least`."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    roots = np.sqrt(np.maximum(values, least))
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T


def simulated(second: np.ndarray, level: float, bounds: np.ndarray, answer: Answer, intercept: bool) -> np.ndarray:
    """Return rows with a leading 1 whose clipped second moments are these; others are normal, cut at their bounds."""
    normals = np.random.default_rng(99).standard_normal((PAIRS, len(second) - 1))
    normals = np.concatenate([normals, -normals])
    normals = normals @ root(normals.T @ normals / len(normals))[1]
    mean, inner = second[0, 1:] / level, second[1:, 1:] / level
    for again in range(PASSES + 1):
        spread = root(inner - np.outer(mean, mean), 0.02)[0]
        rows = np.column_stack([np.ones(len(normals)), np.clip(mean + normals @ spread, -bounds, bounds)])
        if again == PASSES:
            break
        weights = clip_weights(answer, rows, intercept)
        got = (rows.T * weights) @ rows / len(rows)
        mean = mean + (second[0, 1:] - got[0, 1:]) / got[0, 0]
        back = root(got[1:, 1:], 1e-4)[1]
        values, vectors = np.linalg.eigh(symmetric(back @ second[1:, 1:] @ back))
        half = root(inner)[0]
        inner = symmetric(half @ ((vectors * np.clip(values, 0.6, 1.6)) @ vectors.T) @ half)
    return rows
