"""What a Gaussian over the weights says about rows, and what answers to a question can be expected: the server's side.

The server has no rows. It has simulated ones (`fedvi.inference.reading`), and asks a model about them, in NumPy:

    outlook     a row whose predictor is N(mean, variance): expected response, curvature, largest slope
    expected    given the outlook at which a question was asked and the one that is believed now: mean of the slope psi
                that a site would have released, its derivative by the predictor, its variance

The slope, curvature and extra number are those of `LinearPredictorModel.response`, which is the sites' side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Rows = Any
"""NumPy array: one number per row, or one line of them per question."""


@dataclass(frozen=True)
class Outlook:
    """What q says about rows. Fields have one number per row; of several questions, one line each.

    mean, variance: of the predictor. response: expected outcome. curvature, largest: of the bounded slope.
    information: curvature of the log-likelihood itself, of which nothing is cut. noise_variance: of a linear model.
    """

    mean: Rows
    variance: Rows
    response: Rows
    curvature: Rows
    largest: Rows
    information: Rows
    noise_variance: Rows

    @classmethod
    def stacked(cls, outlooks: list[Outlook]) -> Outlook:
        """Return the outlooks of several questions as one."""
        return cls(*(np.stack(each) for each in zip(*(vars(one).values() for one in outlooks), strict=True)))

    def some(self, rows: slice) -> Outlook:
        """Return the outlook of some rows."""
        return Outlook(*(each[..., rows] for each in vars(self).values()))


@dataclass(frozen=True)
class Expected:
    """What to expect of a row's slope. gain: its derivative by the predictor. spread: its variance, given that."""

    slope: Rows
    gain: Rows
    spread: Rows
