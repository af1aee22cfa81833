"""Predictive distributions: what a posterior says about the y of new rows, and how good that is.

Each is a pytree over rows with `log_prob`, `summary` (named columns with intervals), `scores`, and `mixture`, which
averages a first axis of draws from the posterior. Labels of `Bernoulli` are -1 and +1, of `Categorical` 0, ..., K-1.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.numerics import Array, namespace, special
from fedvi.pytree import pytree

CHUNK = 16
"""Rows that are scored at a time: few, so that what is made of them stays in a core's cache."""


class Predictive(Protocol):
    """A distribution of y for each of n rows."""

    def log_prob(self, y: Float[Array, "n ..."]) -> Float[Array, " n"]:
        """Return the log probability (density) of each row's y."""


class Predicts(Protocol):
    """What can be scored: a model."""

    def predictive(self, q: Any, x: Any) -> Predictive:
        """Return the distribution of y for every row."""


@pytree
class Bernoulli:
    """Labels -1 and +1; `log_odds` of +1, so that confident predictions keep their log probability."""

    log_odds: Float[Array, "... n"]

    @property
    def probability(self) -> Float[Array, "... n"]:
        """Probability of +1."""
        return sigmoid(self.log_odds)

    def log_prob(self, y: Float[Array, " n"] | float) -> Float[Array, "... n"]:
        """Return the log probability of each label; NaN for a label other than -1 and +1."""
        xp = namespace(self.log_odds)
        return xp.where(abs(y) == 1, -xp.logaddexp(0.0, -y * self.log_odds), xp.nan)

    def summary(self, level: float) -> dict[str, Array]:  # a model that knows more gives an interval
        """Return the probability of +1; its interval is not known from this distribution alone."""
        unknown = namespace(self.log_odds).full_like(self.log_odds, math.nan)
        return {"mean": self.probability, "low": unknown, "high": unknown}

    def scores(self, y: np.ndarray) -> dict[str, float]:
        """Return accuracy, Brier score and calibration error."""
        _check_labels(y, (y == 1) | (y == -1), "-1 and +1")
        positive = sigmoid(np.asarray(self.log_odds))
        by_class = np.stack([1 - positive, positive])  # sums over classes are quick if each class is in one piece
        return _class_scores(by_class.T, (y > 0).astype(int))

    def mixture(self) -> Bernoulli:
        """Average over the first axis: the mixture of Bernoullis is a Bernoulli."""
        return Bernoulli(_log_mean(self.log_prob(1.0)) - _log_mean(self.log_prob(-1.0)))


@pytree
class Categorical:
    """Labels 0, 1, ..., K-1; `logits` along the last axis, which need not be normalised."""

    logits: Float[Array, "... n k"]

    @property
    def log_probabilities(self) -> Float[Array, "... n k"]:
        """Logarithm of each class's probability."""
        xp = namespace(self.logits)
        shifted = self.logits - self.logits.max(axis=-1, keepdims=True)
        return shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))

    def log_prob(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the log probability of each label; NaN for a label that is not a class."""
        xp = namespace(self.logits)
        is_class = (y == xp.round(y)) & (y >= 0) & (y < self.logits.shape[-1])
        labels = xp.where(is_class, y, 0).astype(xp.int32)[..., None]
        return xp.where(is_class, xp.take_along_axis(self.log_probabilities, labels, axis=-1)[..., 0], xp.nan)

    def summary(self, level: float) -> dict[str, Array]:
        """Return the probability of every class."""
        probabilities = namespace(self.logits).exp(self.log_probabilities)
        return {f"probability {k}": probabilities[..., k] for k in range(self.logits.shape[-1])}

    def scores(self, y: np.ndarray) -> dict[str, float]:
        """Return accuracy, Brier score and calibration error."""
        classes = self.logits.shape[-1]
        _check_labels(y, (y == np.round(y)) & (y >= 0) & (y < classes), f"0 to {classes - 1}")
        return _class_scores(special(np.asarray(y)).softmax(np.asarray(self.logits), axis=-1), y.astype(int))

    def mixture(self) -> Categorical:
        """Average over the first axis: the mixture of categoricals is a categorical."""
        return Categorical(_log_mean(self.log_probabilities))


@pytree
class Normal:
    """Real y with a mean and a variance per row."""

    mean: Float[Array, "... n"]
    variance: Float[Array, "... n"]

    def log_prob(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the log density of each y."""
        quadratic = (y - self.mean) ** 2 / self.variance
        return -0.5 * (namespace(self.variance).log(2 * math.pi * self.variance) + quadratic)

    def interval(self, level: float = 0.9) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the ends of the central interval that holds y with probability `level`."""
        half_width = reach_of(level) * namespace(self.variance).sqrt(self.variance)
        return self.mean - half_width, self.mean + half_width

    def summary(self, level: float) -> dict[str, Array]:
        """Return the mean and the interval of y itself."""
        low, high = self.interval(level)
        return {"mean": self.mean, "low": low, "high": high}

    def scores(self, y: np.ndarray) -> dict[str, float]:
        """Return the error, and how many y lie in their intervals."""
        error = np.asarray(self.mean) - y
        return {"rmse": float(np.sqrt(np.mean(error**2))), "coverage_90": interval_coverage(self, y, 0.9)}

    def mixture(self) -> Normal:
        """Return the normal with the mean and variance of the mixture over the first axis."""
        return Normal(self.mean.mean(axis=0), self.variance.mean(axis=0) + self.mean.var(axis=0))


def reach_of(level: float) -> float:
    """Return how many standard deviations of a normal the central interval of this level reaches."""
    return NormalDist().inv_cdf(0.5 + level / 2)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return special(x).expit(x)


def _log_mean(log_values: Any) -> Array:
    xp, largest = namespace(log_values), log_values.max(axis=0)
    return largest + xp.log(xp.exp(log_values - largest[None]).mean(axis=0))


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
    return float(np.mean((low <= y) & (y <= high)))


def score(model: Predicts, q: GaussianFamily, x: Float[Array, "n ..."], y: Float[Array, "n ..."]) -> dict[str, float]:
    """Return the scores of the model's predictions for rows that have been checked: what applies to them.

    The names are the same everywhere. Rows are predicted in chunks, so memory does not grow with their number.
    """
    predict = jax.jit(_predict, static_argnames="chunk")
    log_prob, predicted = jax.tree.map(np.asarray, predict(model, q, x, y, min(CHUNK, len(x))))
    scores = {} if predicted is None else predicted.scores(np.asarray(y))
    return {"log_likelihood": float(np.mean(log_prob)), **scores}


def _predict(model: Predicts, q: Any, x: Array, y: Array, chunk: int) -> tuple[Array, Predictive | None]:
    """Return the log probability of every row's y, and the predictive distribution if scores are known for it."""

    def of_rows(rows: Array, targets: Array) -> tuple[Array, Predictive | None]:
        predictive = model.predictive(q, rows)
        kept = predictive if hasattr(predictive, "scores") else None  # others know log probabilities only
        return predictive.log_prob(targets), kept

    def of_chunk(k: Array) -> tuple[Array, Predictive | None]:
        return of_rows(*(jax.lax.dynamic_slice_in_dim(array, k * chunk, chunk) for array in (x, y)))

    full, rest = divmod(len(x), chunk)
    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), jax.lax.map(of_chunk, jnp.arange(full)))
    if rest == 0:
        return parts
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), parts, of_rows(x[-rest:], y[-rest:]))
