"""The posterior of a linear model whose curvature is uncertain, against sums over many draws of that curvature."""

from __future__ import annotations

import math

import numpy as np
import pytest

from answering import answered, linear, nothing
from fedvi.families import FullGaussian
from fedvi.inference.questions import Question
from fedvi.inference.reading import Plan, read, unknown
from fedvi.inference.reading.base import Gaussian
from fedvi.models import LinearRegression

PRIOR = Gaussian.at(np.array([0.3, -0.2]), np.array([[0.8, 0.1], [0.1, 0.5]]))
GAIN = np.array([[1.0, 0.2], [0.2, 0.5]])
KNOWN = np.array([[0.02, 0.005], [0.005, 0.03]])
SEEN, WAY = np.array([0.9, 0.4]), np.array([0.3, -0.5])


def by_importance(left: np.ndarray, draws: int = 200_000) -> tuple[np.ndarray, np.ndarray]:
    """Draw E from its prior, and weigh each by how likely the answers are under it: no chain, no conditional of E."""
    rng = np.random.default_rng(3)
    e = np.zeros((draws, 2, 2))
    for i, j in ((0, 0), (0, 1), (1, 1)):
        e[:, i, j] = e[:, j, i] = math.sqrt(left[i, j]) * rng.standard_normal(draws)
    whole = GAIN + e
    whole, e = (each[np.linalg.eigvalsh(GAIN + e)[:, 0] > 0] for each in (whole, e))
    off = SEEN - e @ WAY - whole @ PRIOR.mean
    spread = KNOWN + whole @ PRIOR.covariance @ whole.transpose(0, 2, 1)
    solved = np.linalg.solve(spread, off[..., None])[..., 0]
    log_weights = -0.5 * (off * solved).sum(axis=1) - 0.5 * np.linalg.slogdet(spread)[1]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    through = PRIOR.covariance @ whole.transpose(0, 2, 1)
    means = PRIOR.mean + (through @ solved[..., None])[..., 0]
    covariances = PRIOR.covariance - through @ np.linalg.solve(spread, whole @ PRIOR.covariance)
    mean = weights @ means
    apart = means - mean
    return mean, np.tensordot(weights, covariances, 1) + (apart.T * weights) @ apart


@pytest.mark.parametrize("sd", [1e-6, 0.1, 0.3])
def test_draws_agree_with_importance_sampling(sd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "DRAWS", 10_000)
    left = sd**2 * np.array([[1.0, 0.6], [0.6, 1.5]])
    mean, covariance = unknown.drawn(PRIOR, GAIN, left, KNOWN, SEEN, WAY)
    wanted, spread = by_importance(left, 200_000 if sd > 0.01 else 1000)
    sds = np.sqrt(np.diag(spread))
    close = 0.1 if sd > 0.01 else 1e-4
    np.testing.assert_allclose((mean - wanted) / sds, 0, atol=close)
    np.testing.assert_allclose(covariance / np.outer(sds, sds), spread / np.outer(sds, sds), atol=2 * close)


def scored(tables: int) -> tuple[float, float]:
    """Return the mean square of error over standard deviation, and how often fits are trusted, of collinear tables."""
    found, trusted = [], []
    for seed in range(tables):
        rng = np.random.default_rng([5, seed])
        x = rng.standard_normal((400, 8))
        x[:, 7] = x[:, :7].sum(axis=1) / math.sqrt(7) + 0.1 * x[:, 7]
        x = np.column_stack([np.ones(400), np.clip(x, -3, 3)])
        w = math.sqrt(10) * rng.standard_normal(9)
        rows = (x, x @ w + rng.standard_normal(400))
        plan, model, prior = Plan(14, 2, bound=3.0), LinearRegression(), FullGaussian(np.zeros(9), np.eye(9) / 10)  # type: ignore[arg-type]
        messages, questions = nothing(14, 9), list[Question]()
        reading = read(plan, model, prior, questions, messages)
        while reading.question is not None:
            questions.append(reading.question)
            messages = answered(messages, len(questions) - 1, questions[-1], [rows], linear, [20.0], rng)
            reading = read(plan, model, prior, questions, messages)
        precision = np.asarray(reading.posterior.precision, np.float64)
        off = np.linalg.solve(precision, np.asarray(reading.posterior.natural_mean, np.float64)) - w
        found.append(off**2 / np.diag(np.linalg.inv(precision)))
        trusted.append(reading.trusted)
    return float(np.mean(found)), float(np.mean(trusted))


def test_collinear_columns_get_wider_intervals_and_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    right, trusted = scored(12)
    monkeypatch.setattr(unknown, "MUCH_WIDER", math.inf)
    without, _ = scored(12)
    assert without > 1.5 * right
    assert trusted < 0.5
