"""How wide the posterior should be, from one more private number per site.

Noise-aware factors take a model's curvature at its bound: right for steps, too sure of themselves as a posterior. And
the noise variance of a linear model is an assumption. After the last update every site releases the sum of one number
in [0, 1] per row (`fedvi.privacy.sums`), and all factors are corrected by one ratio, as post-processing:

| model    | number of a row, at eta = m'x    | ratio r                             | corrected factor          |
|----------|----------------------------------|-------------------------------------|---------------------------|
| logistic | 4 p (1 - p)                      | its mean: curvature / bound         | (h - (1-r) S m, r S, r V) |
| linear   | min(|y - eta| / std, 2) / 2      | assumed / estimated noise variance  | (r h, r S, r^2 V)         |

with (h, S, V) the natural mean, precision and noise of a factor, and m the posterior mean. The logistic one keeps the
posterior's mean and makes it wider. The estimate of the linear one is drawn towards the assumption where noise drowns
it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from fedvi.families.noisy import NoisyGaussian
from fedvi.models.base import Model
from fedvi.models.linear import LinearRegression
from fedvi.models.logistic import LogisticRegression

LARGEST = 2.0
"""Residuals count up to this many standard deviations of the noise, as assumed."""

LOG_SPREAD = 0.5
"""Standard deviation of the logarithm of the noise variance around what was assumed, before anything is seen."""

LEAST_CURVATURE = 0.02
"""Least ratio of a logistic model: as if nearly all rows were predicted with 99.5 % confidence."""


class Width(Protocol):
    """What a model needs to know about rows to get the width of its posterior right."""

    def numbers(self, eta: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return a number between 0 and 1 for every row."""

    def ratio(self, average: float, error: float) -> float:
        """Return how much more curvature the rows have than was assumed; `average` has this standard error."""

    def corrected(self, factor: Any, ratio: float, mean: Any) -> Any:
        """Return the factor with that much more curvature."""

    def model(self, ratio: float) -> Model:
        """Return the model that the corrected factors belong to."""


class _Logistic:
    def __init__(self, model: LogisticRegression):
        self._model = model

    def numbers(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:  # noqa: ARG002
        return 4 * expit(eta) * expit(-eta)

    def ratio(self, average: float, error: float) -> float:  # noqa: ARG002
        return min(max(average, LEAST_CURVATURE), 1.0)

    def corrected(self, factor: Any, ratio: float, mean: Any) -> Any:
        natural_mean = factor.natural_mean - (1 - ratio) * factor.precision * mean
        return NoisyGaussian(natural_mean, factor.precision * ratio, factor.noise * ratio)

    def model(self, ratio: float) -> Model:  # noqa: ARG002
        return self._model


class _Linear:
    def __init__(self, model: LinearRegression):
        self._model = model

    def numbers(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.minimum(np.abs(y - eta) / math.sqrt(float(self._model.noise_variance)), LARGEST) / LARGEST

    def ratio(self, average: float, error: float) -> float:
        low, high = -8.0, 4.0  # logarithm of the variance
        if average <= _expected(low) or average >= _expected(high):
            found = low if average <= _expected(low) else high
        else:
            from scipy.optimize import brentq  # takes a while to import

            found = brentq(lambda log_variance: _expected(log_variance) - average, low, high)
        slope = (_expected(found + 1e-3) - _expected(found - 1e-3)) / 2e-3
        believed = LOG_SPREAD**2 / (LOG_SPREAD**2 + (error / max(slope, 1e-9)) ** 2)
        return math.exp(-believed * found)

    def corrected(self, factor: Any, ratio: float, mean: Any) -> Any:  # noqa: ARG002
        scaled = factor**ratio
        return dataclasses.replace(scaled, noise=scaled.noise * ratio) if isinstance(scaled, NoisyGaussian) else scaled

    def model(self, ratio: float) -> Model:
        return LinearRegression(float(self._model.noise_variance) / ratio)


def _expected(log_variance: float) -> float:
    """Return `E[min(s |Z|, B)] / B` for a standard normal Z and `s^2` the variance."""
    std = math.exp(log_variance / 2)
    cut = LARGEST / std
    inside = std * math.sqrt(2 / math.pi) * -math.expm1(-(cut**2) / 2)
    return inside / LARGEST + math.erfc(cut / math.sqrt(2))


def rows_at(width: Width, mean: Float[np.ndarray, " d"]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return the function of rows (x, y) whose sum is released: their numbers at `eta = m'x`, as one column.

    **Sensitivity.** A row's number is within 0 and 1 and depends on that row alone, to the last bit: every operation is
    elementwise, and columns are added one after another. A matrix product would not do. It rounds each row's eta by the
    rows that it is computed with, and where m is huge and cancels, rounding is all that is left of eta: one row less
    would change the numbers of others.
    """

    def numbers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        eta = np.zeros(len(x))
        for column, weight in zip(x.T, np.asarray(mean, np.float64), strict=True):
            eta += column * weight
        return width.numbers(eta, y.astype(np.float64))[:, None]

    return numbers


def width_of(model: Model) -> Width:
    """Return what is known about the width of a model's posterior."""
    match model:
        case LogisticRegression():
            return _Logistic(model)
        case LinearRegression():
            return _Linear(model)
    raise TypeError(f"No width is known for {type(model).__name__}.")
