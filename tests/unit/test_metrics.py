"""Metrics, against definitions written out by hand and simulated truths."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from fedvi import CustomModel, FullGaussian, Gaussian, LinearRegression, LogisticRegression
from fedvi.errors import InputError
from fedvi.inference import evaluate
from fedvi.models import Bernoulli, Categorical, Normal, predictive


def random_predictions(classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(classes), 500)
    return probabilities, rng.integers(0, classes, 500)


@pytest.mark.parametrize("classes", [2, 4])
def test_scores_equal_their_definitions(classes: int) -> None:
    p, labels = random_predictions(classes)
    right = [int(max(range(classes), key=lambda k: row[k]) == label) for row, label in zip(p, labels, strict=True)]
    assert predictive.accuracy(p, labels) == pytest.approx(np.mean(right))

    brier = 0.0
    for row, label in zip(p, labels, strict=True):
        brier += sum((row[k] - (k == label)) ** 2 for k in range(classes)) / (2 if classes == 2 else 1)
    assert predictive.brier_score(p, labels) == pytest.approx(brier / len(p))

    error, bins = 0.0, 10
    for b in range(bins):
        inside = [i for i in range(len(p)) if b / bins <= max(p[i]) < (b + 1) / bins or (b == 9 and max(p[i]) == 1)]
        if inside:
            confidence = np.mean([max(p[i]) for i in inside])
            error += len(inside) / len(p) * abs(np.mean([right[i] for i in inside]) - confidence)
    assert predictive.expected_calibration_error(p, labels, bins) == pytest.approx(error)


def test_calibration_error_tells_honest_from_overconfident() -> None:
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0, 2, 20_000)
    labels = (rng.random(20_000) < expit(log_odds)).astype(int)

    def error(scale: float) -> float:
        positive = expit(scale * log_odds)
        return predictive.expected_calibration_error(np.stack([1 - positive, positive], -1), labels)

    assert error(1.0) < 0.015
    assert error(3.0) > 0.08


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_is_nominal_for_the_right_model_and_not_for_a_wrong_one(level: float) -> None:
    y = np.random.default_rng(0).normal(2.0, 3.0, 20_000)
    ones = jnp.ones(20_000)
    assert abs(predictive.interval_coverage(Normal(2 * ones, 9 * ones), y, level) - level) < 0.015
    assert predictive.interval_coverage(Normal(2 * ones, 2 * ones), y, level) < level - 0.1


def test_evaluation_in_chunks_equals_evaluation_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, q = jnp.asarray(rng.normal(size=(100, 3)), float), Gaussian.from_moments([1.0, -1.0, 0.0], [0.1, 0.2, 0.3])
    labels = jnp.asarray(rng.choice([-1.0, 1.0], 100), float)
    whole = evaluate(LogisticRegression(), q, x, labels)
    monkeypatch.setattr(predictive, "CHUNK", 33)
    assert evaluate(LogisticRegression(), q, x, labels) == pytest.approx(whole)


def test_logistic_scores_of_known_predictions() -> None:
    q = Gaussian.from_moments([1.0], [1e-12])
    x, y = jnp.array([[2.0], [-1.0], [3.0]]), jnp.array([1.0, 1.0, 1.0])
    scores = evaluate(LogisticRegression(), q, x, y)
    p = expit([2.0, -1.0, 3.0])
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert scores["log_likelihood"] == pytest.approx(np.log(p).mean(), rel=1e-5)
    assert scores["brier"] == pytest.approx(((1 - p) ** 2).mean(), rel=1e-5)


def test_linear_scores_of_known_predictions() -> None:
    q = FullGaussian.from_moments([1.0], [[0.5]])
    scores = evaluate(LinearRegression(0.5), q, jnp.array([[1.0], [2.0]]), jnp.array([1.0, 9.0]))
    assert scores["rmse"] == pytest.approx(np.sqrt(49 / 2))
    assert scores["coverage_90"] == 0.5
    ends = [1 + 1.5, 1 + 1.7]  # in and out of 1 +- 1.645, but in or out of both 80 % and 95 %
    both = [evaluate(LinearRegression(0.5), q, np.ones((1, 1)), [end])["coverage_90"] for end in ends]
    assert both == [1.0, 0.0]


def test_labels_are_checked_against_the_predictions() -> None:
    x, q = np.ones((2, 1)), Gaussian.standard(1)
    with pytest.raises(InputError, match=r"labels 0 and 1, or -1 and \+1, got 2"):
        evaluate(LogisticRegression(), q, x, [0, 2])
    assert evaluate(LogisticRegression(), q, x, [0, 1]) == evaluate(LogisticRegression(), q, x, [-1, 1])
    by_hand = CustomModel(lambda w, x, y: y * (x @ w), predict=lambda w, x: Bernoulli(x @ w))
    with pytest.raises(InputError, match=r"Expected labels -1 and \+1 for these predictions, got 0 in row 0"):
        evaluate(by_hand, q, x, [0, 1])
    classes = CustomModel(lambda w, x, y: y * (x @ w), predict=lambda w, x: Categorical(jnp.stack([x @ w, x @ w])))
    with pytest.raises(InputError, match="Expected labels 0 to 1 for these predictions, got 2 in row 1"):
        evaluate(classes, q, x, [0, 2])
    with pytest.raises(InputError, match=r"to have one number per row, got shape \(2, 1\)"):
        evaluate(LinearRegression(), q, x, [[0.0], [1.0]])
