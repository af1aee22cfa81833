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
it. Other models stay as they are: their number is zero, and the ratio one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from fedvi.families.base import Factor


class Width:
    """What a model needs to know about rows to get the width of its posterior right; here nothing.

    model: whose posterior it is.
    """

    def __init__(self, model: Any):
        self.model = model

    def numbers(self, eta: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:  # noqa: ARG002
        """Return a number between 0 and 1 for every row."""
        return np.zeros(len(eta))

    def ratio(self, average: float, error: float) -> float:  # noqa: ARG002
        """Return how much more curvature the rows have than was assumed; `average` has this standard error."""
        return 1.0

    def corrected(self, factor: Factor, ratio: float, mean: Any) -> Factor:  # noqa: ARG002
        """Return the factor with that much more curvature."""
        return factor

    def corrected_model(self, ratio: float) -> Any:  # noqa: ARG002
        """Return the model that the corrected factors belong to."""
        return self.model


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
