"""How good predictions are: accuracy, log-likelihood, Brier score, calibration, coverage.

`evaluate` takes a posterior and labelled rows and returns what applies to the model's predictive distribution, under
the same names everywhere. Rows are predicted in chunks, so memory does not grow with the test set.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import expit, softmax

from fedvi.arrays import Array
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.inference.rows import check_table
from fedvi.models.base import Model
from fedvi.models.predictive import Bernoulli, Categorical, Normal, Predictive

CHUNK = 16
"""Rows that are predicted at a time: few, so that what is made of them stays in a core's cache."""


def evaluate(model: Model, q: GaussianFamily, x: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Return the scores of the model's predictions for rows x with known y.

    >>> from fedvi import Gaussian, LogisticRegression
    >>> q = Gaussian.from_moments([2.0], [0.1])
    >>> evaluate(LogisticRegression(), q, [[1.0], [-1.0]], [1, -1])["accuracy"]
    1.0
    """
    checked_x, checked_y = check_table((x, y), model, "the rows to evaluate")
    return score(model, q, jnp.asarray(checked_x), jnp.asarray(checked_y))


def score(model: Model, q: GaussianFamily, x: Float[Array, "n ..."], y: Float[Array, "n ..."]) -> dict[str, float]:
    """Do what `evaluate` does, with rows that have been checked."""
    log_prob, predicted = jax.tree.map(np.asarray, _predict(model, q, x, y, min(CHUNK, len(x))))
    return {"log_likelihood": float(np.mean(log_prob)), **_scores(predicted, np.asarray(y))}


@functools.partial(jax.jit, static_argnames="chunk")
def _predict(model: Model, q: Any, x: Array, y: Array, chunk: int) -> tuple[Array, Predictive | None]:
    """Return the log probability of every row's y, and the predictive distribution if scores are known for it."""

    def of_rows(rows: Array, targets: Array) -> tuple[Array, Predictive | None]:
        predictive = model.predictive(q, rows)
        kept = predictive if isinstance(predictive, Bernoulli | Categorical | Normal) else None
        return predictive.log_prob(targets), kept

    def of_chunk(k: Array) -> tuple[Array, Predictive | None]:
        return of_rows(*(jax.lax.dynamic_slice_in_dim(array, k * chunk, chunk) for array in (x, y)))

    full, rest = divmod(len(x), chunk)
    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), jax.lax.map(of_chunk, jnp.arange(full)))
    if rest == 0:
        return parts
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), parts, of_rows(x[-rest:], y[-rest:]))


def _scores(predictive: Predictive | None, y: np.ndarray) -> dict[str, float]:
    match predictive:
        case Bernoulli():
            _check_labels(y, (y == 1) | (y == -1), "-1 and +1")
            positive = expit(predictive.log_odds)
            by_class = np.stack([1 - positive, positive])  # sums over classes are quick if each class is in one piece
            return _class_scores(by_class.T, (y > 0).astype(int))
        case Categorical():
            classes = predictive.logits.shape[-1]
            _check_labels(y, (y == np.round(y)) & (y >= 0) & (y < classes), f"0 to {classes - 1}")
            return _class_scores(softmax(predictive.logits, axis=-1), y.astype(int))
        case Normal():
            mean = np.asarray(predictive.mean)
            return {
                "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
                "coverage_90": interval_coverage(predictive, y, 0.9),
            }
    return {}


def _check_labels(y: np.ndarray, right: np.ndarray, expected: str) -> None:
    wrong = np.flatnonzero(~right)
    if wrong.size:
        raise InputError(f"Expected labels {expected} for these predictions, got {y[wrong[0]]:g} in row {wrong[0]}.")


def _class_scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    return {
        "accuracy": accuracy(probabilities, labels),
        "brier": brier_score(probabilities, labels),
        "ece": expected_calibration_error(probabilities, labels),
    }


def accuracy(probabilities: Float[np.ndarray, "n k"], labels: np.ndarray) -> float:
    """Return the fraction of rows whose most probable class is the right one; a tie counts as class 0."""
    return float(np.mean(_most_probable(probabilities) == labels))


def _most_probable(probabilities: Float[np.ndarray, "n k"]) -> np.ndarray:
    """Return argmax by rows; for two classes, as nearly always, without its slow search along a short axis."""
    if probabilities.shape[-1] == 2:
        return (probabilities[:, 1] > probabilities[:, 0]).astype(int)
    return np.argmax(probabilities, axis=-1)


def brier_score(probabilities: Float[np.ndarray, "n k"], labels: np.ndarray) -> float:
    """Return the mean squared distance between the probabilities and the truth: 0 is perfect.

    Counted once for two classes, `(p - [y = 1])^2`, and summed over classes for more.

    >>> brier_score(np.array([[0.2, 0.8], [1.0, 0.0]]), np.array([1, 1])).__round__(3)
    0.52
    """
    truth = (np.arange(probabilities.shape[-1])[:, None] == labels).T
    total = np.mean(np.sum((probabilities - truth) ** 2, axis=-1))
    return float(total / 2 if probabilities.shape[-1] == 2 else total)


def expected_calibration_error(probabilities: Float[np.ndarray, "n k"], labels: np.ndarray, bins: int = 15) -> float:
    """Return the mean distance between confidence and accuracy, over `bins` equal bins of confidence.

    Confidence is the probability of the most probable class.

    >>> sure = np.array([[0.1, 0.9]] * 10)
    >>> expected_calibration_error(sure, np.array([1] * 9 + [0])).__round__(6)
    0.0
    >>> expected_calibration_error(sure, np.array([1] * 4 + [0] * 6)).__round__(6)
    0.5
    """
    confidence = np.max(probabilities, axis=-1).astype(float)
    right = _most_probable(probabilities) == labels
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(index, weights=right - confidence, minlength=bins)
    return float(np.sum(np.abs(gap)) / len(labels))


def interval_coverage(predictive: Normal, y: np.ndarray, level: float) -> float:
    """Return the fraction of y inside their central credible intervals; `level` if the model is right."""
    low, high = predictive.interval(level)
    return float(jnp.mean((low <= y) & (y <= high)))
