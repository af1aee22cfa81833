"""What all readings share: the plan, the result, and answers in the units of x."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedvi.checks import one_of, positive, whole
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.families.full import FullGaussian
from fedvi.families.messages import Messages
from fedvi.inference.question import Question


@dataclass(frozen=True)
class Plan:
    """What is fixed before anything is released. All of it is public.

    questions: how many there are. moments: how many of them, the first ones, ask for moments; 0 without privacy.
    covariance: `full` or `diagonal`, of what is asked for.
    intercept: whether the first column of x is 1. bound: features are within +-bound.
    exclusive: groups of columns, each the levels of a category, of which a row has at most one that is not 0.
    reserve: how many of the last questions are only asked if a site is withdrawn.
    """

    questions: int
    moments: int
    covariance: str = "full"
    intercept: bool = True
    bound: float = 4.0
    exclusive: tuple[tuple[int, ...], ...] = ()
    reserve: int = 0

    def __post_init__(self) -> None:
        whole("questions", self.questions, 1)
        whole("moments", self.moments, 0)
        one_of("covariance", self.covariance, ("full", "diagonal"))
        positive("bound", self.bound)
        if self.moments >= self.questions:
            raise InputError(f"Expected fewer than {self.questions} questions about moments, got {self.moments}.")
        whole("reserve", self.reserve, 0, self.questions - self.moments)


NEWTON_LIMIT = 0.3
"""Standard deviations: a fit without privacy whose next Newton step is longer has not arrived."""


PRIOR_DECIDES = 0.5
"""Of the prior's standard deviation: a posterior that is wider is mostly the prior's."""

WIDEST_PREDICTOR = 1e3
"""Variance of predictors under the q of a question, at most: beyond it no outcome has any curvature to be seen."""

ALWAYS_FULL, MOST_FULL = 12, 40
"""Columns up to which the covariance is read in full whatever the noise is, and at all."""

MOST_NOISE = 0.15


def choose_covariance(rows: float, columns: int, noise: float, questions: int) -> str:
    """Return `full` or `diagonal`, from public numbers.

    rows: of all sites. noise: sum over sites of the squared noise multiplier of an answer. columns: of x.

    `full` has intervals that hold; `diagonal` predicts better where noise hides the matrix of second moments. If all
    privacy went to it, an entry would have noise of `columns sqrt(noise / questions) / rows`, relative to squares of 1.
    Log-likelihood of held-out rows, full less diagonal, one site, 3 to 4 seeds:

    | table            | columns | that noise: difference                                                    |
    |------------------|---------|---------------------------------------------------------------------------|
    | breast cancer    | 31      | 1.2: -.22     .33: -.10     .19: -.06     .06: +.07                       |
    | digits           | 55      | 1.0: -.07     .24: -.07     .13: -.04     .04: +.004                      |
    | `fair`, levels   | 39      | .20: -.011    .05: -.003    .03: +.001    .008: +.010                     |
    | simulated, 5,000 | 21      | .10: -.008    .02: .000     .01: .000     .004: .000                      |
    | diabetes         | 11      | .6: -.28      .15: +.004    .09: +.005    .03: +.001                      |
    | `fair`, randhie  | 9, 10   | .05: -.001    .01: +.002    .006: +.002   .002: +.002                     |

    Few columns are read in full all the same: people look at their intervals. More than MOST_FULL are not: predictions
    gain nothing by it up to 71 columns and 20,000 rows (+.003 at best), and cost grows with the cube.
    """
    if columns <= ALWAYS_FULL:
        return "full"
    hidden = columns * math.sqrt(noise / questions) > MOST_NOISE * rows
    return "diagonal" if hidden or columns > MOST_FULL else "full"


@dataclass(frozen=True)
class Reading:
    """What answers say.

    posterior: in units of x. question: the next one; None after the last.
    arrived: how far the last answer was from what had been believed; at most `limit` if the fit has arrived.
    evidence_kept: share of the precision gained per coefficient that noise has left.
    noise_variance: of a linear model, as it is believed now; 1 for others.
    trusted: whether intervals can be expected to cover what they say; if not, `reason` says why.
    """

    posterior: FullGaussian
    question: Question | None
    arrived: float
    limit: float
    evidence_kept: np.ndarray
    noise_variance: float
    trusted: bool = True
    reason: str = ""


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian in double precision: natural mean, precision matrix; mean and covariance."""

    natural_mean: np.ndarray
    precision: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, natural_mean: Any, precision: Any) -> Gaussian:
        """Return the Gaussian with these natural parameters; a vector of precisions means a diagonal matrix."""
        h, matrix = np.asarray(natural_mean, np.float64), np.asarray(precision, np.float64)
        matrix = symmetric(np.diag(matrix) if matrix.ndim == 1 else matrix)
        covariance = symmetric(np.linalg.inv(matrix))
        return cls(h, matrix, covariance @ h, covariance)

    @classmethod
    def at(cls, mean: np.ndarray, precision: np.ndarray) -> Gaussian:
        """Return the Gaussian with this mean and precision matrix."""
        return cls(precision @ mean, precision, mean, symmetric(np.linalg.inv(precision)))

    def narrowed(self, doubt: float, most: float) -> Gaussian:
        """Return the Gaussian with so much less variance that `doubt`, a mean variance under it, is at most `most`."""
        return self if doubt <= most else Gaussian.at(self.mean, self.precision * (doubt / most))

    def family(self) -> FullGaussian:
        """Return the same as a member of the family."""
        return FullGaussian(self.natural_mean, self.precision)  # type: ignore[arg-type]


def in_words(arrived: float, limit: float, *, noisy: bool) -> str:
    """Return whether a fit has arrived, in plain words. noisy: whether the number is T of noisy answers."""
    verdict, side = ("Arrived", "within") if arrived <= limit else ("Not arrived", "beyond")
    if noisy:
        found = f"the slope that is left is {arrived:.2f} times what noise explains"
    else:
        found = f"one more step would move weights by {arrived:.2g} standard deviations"
    return f"{verdict}: {found}, {side} the limit of {limit:.3g}."


def symmetric(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part of a matrix."""
    return (matrix + matrix.T) / 2


def forms(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return x'Mx for every row, at least 0."""
    found: np.ndarray = np.maximum(((rows @ matrix) * rows).sum(axis=1), 0)
    return found


def unpacked(triangle: np.ndarray, columns: int) -> np.ndarray:
    """Return the symmetric matrix of an upper triangle, row by row, whose off-diagonals have been multiplied by sqrt 2.

    Noise of variance V in every number is noise of variance V on the diagonal, V / 2 off it.
    """
    matrix = np.zeros((columns, columns))
    rows, others = np.triu_indices(columns)
    matrix[rows, others] = triangle / np.where(rows == others, 1.0, math.sqrt(2))
    return matrix + np.triu(matrix, 1).T


@dataclass(frozen=True)
class Answer:
    """The sum of all sites' answers to one question, in units of its mapped rows z = x W.

    slope, curvature, extra: sums over rows of s psi z, s a zz', s e; their noise has the variances `noise` times
    reach^2 over the square of the weight of each. centre: the q of the question, in units of x. back: inverse of W.
    """

    question: Question
    rows: float
    noise: float
    slope: np.ndarray
    curvature: np.ndarray
    extra: float
    whitening: np.ndarray
    back: np.ndarray
    centre: Gaussian

    def number(self, name: str) -> float:
        """Return a public number of the question."""
        return float(getattr(self.question, name))

    def variance(self, part: str) -> float:
        """Return the variance of the noise in each number of the `slope`, the `curvature` or the `extra` part."""
        return self.noise * (self.number("reach") / self.number(f"{part}_weight")) ** 2

    def map(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows z as the question maps them."""
        return rows @ self.whitening

    def weights(self, mapped: np.ndarray, curvature: Any, largest: Any) -> np.ndarray:
        """Return what each row counts: less than 1 beyond the question's reach."""
        squares = (mapped**2).sum(axis=1)
        length = (self.number("slope_weight") * largest) ** 2 * squares
        length = length + (self.number("curvature_weight") * curvature * squares) ** 2
        return np.minimum(1, self.number("reach") / np.sqrt(length + self.number("extra_weight") ** 2 + 1e-300))


def answers(questions: Sequence[Question], messages: Messages, bounded: bool = True) -> list[Answer]:
    """Return the answers to those questions that somebody has answered. bounded: whether sums are over reach."""
    sums, noise, rows = (np.asarray(each, np.float64) for each in (messages.sums, messages.noise, messages.rows))
    found = []
    for number, question in enumerate(questions):
        if rows[number] <= 0:
            continue
        whitening = np.asarray(question.whitening, np.float64)
        columns = len(whitening)
        back = np.linalg.inv(whitening)
        inside = Gaussian.of(question.q.natural_mean, question.q.precision)
        reach = float(question.reach) if bounded else 1.0
        slope, curvature, extra = (
            reach / weight if bounded and (weight := float(each)) > 0 else 1.0
            for each in (question.slope_weight, question.curvature_weight, question.extra_weight)
        )
        found.append(
            Answer(
                question=question,
                rows=rows[number],
                noise=noise[number],
                slope=slope * sums[number, :columns],
                curvature=curvature * unpacked(sums[number, columns:-1], columns),
                extra=extra * sums[number, -1],
                whitening=whitening,
                back=back,
                centre=Gaussian.of(back.T @ inside.natural_mean, symmetric(back.T @ inside.precision @ back)),
            )
        )
    return found


def question_at(
    q: Gaussian,
    whitening: np.ndarray,
    reach: float = 1.0,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    moments: bool = False,
    noise_variance: float = 1.0,
) -> Question:
    """Return the question at q (in units of x) about rows x W, in single precision, as it is broadcast."""
    single = np.asarray(whitening, np.float32)
    exactly = single.astype(np.float64)
    inside = (exactly.T @ q.natural_mean, symmetric(exactly.T @ q.precision @ exactly))
    numbers = [np.asarray(each, np.float32) for each in (reach, *weights, float(moments), noise_variance)]
    family = FullGaussian(*(np.asarray(each, np.float32) for each in inside))  # type: ignore[arg-type]
    return Question(np.zeros(len(single), np.float32), single, family, *numbers)  # type: ignore[arg-type]


def believed(prior: GaussianFamily) -> Gaussian:
    """Return the prior, in double precision."""
    return Gaussian.of(prior.natural_mean, prior.precision)
