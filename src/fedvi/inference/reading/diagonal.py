"""Private answers with the diagonal of the curvature: predictions on wide tables, where a matrix would drown in noise.

First a few questions about moments, which say how to centre and scale the columns (`scales`). All others ask for slopes
at a diagonal q over the weights w of z. Answer k has slope g_k, taken at the mean w_k of its question. Read are

    G = sum_k omega_k g_k        W = sum_k omega_k w_k        V = sum_k omega_k^2 (variance of the noise in g_k)
    H = h n E[z_j^2]                                           diagonal curvature of n rows
    target = G + H W + (1 - sum_k omega_k) H w_0               H times what the slopes point to; w_0: the prior's mean
    shrink = H / (H + V)                                       what noise has left of it: sampling has the variance H
    precision = P0 + H shrink        mean = precision^-1 (P0 w_0 + shrink target)

a linear function of the answers. The weights omega are public: each answer's slope goes into a moving average that
counts later answers more (MEMORY), and what is read follows that average with damping: columns one by one overshoot
where they are correlated. V is the exact variance of what is read.

**Curvature.** h is the mean of s a over rows. A curvature falls as weights grow: it is FALLEN of what it is at
weights of 0. A released h was no better: where columns are correlated, q overshoots at first, the small curvature that
is found there makes it overshoot further, and the release costs some of the slopes' privacy. A linear model's curvature
does not depend on q, and how much rows count is needed to learn its noise: there h is released, as a sum over columns.
FALLEN, MEMORY, DAMPING and REACH were chosen on held-out rows of Adult (with and without splines, eps .1 and .5) and on
breast cancer, digits, diabetes, `fair` with levels, and simulated tables of 60 and 150 columns with correlations of .3
to .9 (eps 1): one setting for all, which none of them would like much different.

**Trust region.** Where many columns are correlated, a step D that a diagonal allows may change predictors beyond all
sense, to where slopes vanish. How much z'D varies is not known; but its covariance with the residuals behind answer k
is D'g_k per row, and these are within the largest slope b. So z'D has a root mean square of D'g_k / b at least, for any
k. A step is cut to where that is TRUST, and is not made against the last slope if that is clearly above its noise.

**Late sites.** All is per row of those who have answered a question; n is the largest number of rows behind any.

**Arrived.** The slopes of the last third of the answers, averaged, should be what the prior holds against them:
r = g - (P0 / shrink) (w - w_0), up to noise and to what is unknown of w. T = mean of r^2 / (V' + H^2 / precision).

Intervals of coefficients are those of uncorrelated columns: too narrow where columns are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.inference.question import Question
from fedvi.inference.reading.base import Gaussian, Plan, Reading, believed, symmetric
from fedvi.inference.reading.evidence import LOG_SPREAD
from fedvi.inference.reading.scales import Moments, Scales, diagonal_question, found_scales, question_about_columns
from fedvi.models.linear_predictor import LinearPredictorModel

MEMORY, DAMPING, FALLEN = 1.5, 0.5, 0.42
"""How much more later answers count; how fast what is read follows their average; curvature over that at weights 0."""

TRUST = 2.0
"""Most that a step may change predictors, by what is known of it."""

REACH = 0.8
"""Of a question, over the length of a typical row's slope at weights of 0."""

CURVATURE_SHARE, EXTRA_SHARE = 0.02, 0.05
"""Of the squared length of a typical row's vector."""

REASON = "the diagonal of the curvature is read only: intervals are too narrow where columns are correlated"


def read_diagonal(
    plan: Plan, model: LinearPredictorModel, prior: GaussianFamily, questions: Sequence[Question], messages: Messages
) -> Reading:
    """Return the posterior of all answers so far, and the next question."""
    first, assumed = believed(prior), model.assumed_noise_variance or 1.0
    columns = len(first.mean)
    limit = 1 + 2 * math.sqrt(2 / columns)
    nothing = Reading(first.family(), None, math.inf, limit, np.zeros(columns), assumed, False, "no answers yet")
    sums, noise, rows = (np.asarray(each, np.float64) for each in (messages.sums, messages.noise, messages.rows))
    seen = [(question, *each) for question, *each in zip(questions, sums, noise, rows, strict=False) if each[-1] > 0]
    moments = [Moments.of(*each) for each in seen if each[0].moments > 0]
    slopes = [Slope.of(*each) for each in seen if each[0].moments == 0]
    if len(questions) < plan.moments or not moments:
        return replace(nothing, question=question_about_columns(plan, columns, moments))
    if len(questions) > plan.moments:
        asked = questions[plan.moments]
        scales = Scales.of(asked.centre, asked.whitening, plan.intercept)
    else:
        scales = found_scales(plan, moments)
    to_x, to_z = scales.to_x(plan.intercept), scales.to_z(plan.intercept)
    start = Gaussian.at(to_z @ first.mean, symmetric(to_x.T @ first.precision @ to_x))
    if not slopes:
        spread = np.minimum(np.diag(start.covariance), 1 / scales.share.sum())
        return replace(nothing, question=next_question(model, scales, start.mean, spread, assumed))
    found = Found.of(model, start, scales, slopes)
    q = Gaussian.at(to_x @ found.mean, symmetric(to_z.T @ found.precision @ to_z))
    following = None
    if len(questions) < plan.questions:
        following = next_question(model, scales, found.mean, 1 / np.diag(found.precision), found.noise_variance)
    arrived = found.distance(start, slopes)
    return Reading(q.family(), following, arrived, limit, found.shrink, found.noise_variance, False, REASON)


def next_question(
    model: LinearPredictorModel, scales: Scales, mean: np.ndarray, variance: np.ndarray, noise_variance: float
) -> Question:
    """Return the question about slopes at a diagonal Gaussian over the weights of z."""
    null = null_outlook(model, noise_variance)
    length = math.sqrt(float(scales.share.sum()))
    reach = REACH * null.largest * length
    quartic = math.sqrt(3 * float((scales.share**2).sum()))
    weights = (1.0, 0.0, 0.0)
    if model.assumed_noise_variance is not None:
        weights = (1.0, math.sqrt(CURVATURE_SHARE) * reach / (null.curvature * quartic), math.sqrt(EXTRA_SHARE) * reach)
    return diagonal_question(scales.centre, scales.scale, mean, variance, reach, weights, noise_variance=noise_variance)


@dataclass(frozen=True)
class Null:
    """Curvature and largest slope of a row about which nothing is known but that its predictor is 0."""

    curvature: float
    largest: float


def null_outlook(model: LinearPredictorModel, noise_variance: float) -> Null:
    """Return what a model says where all weights are 0."""
    outlook = model.outlook(np.zeros(1), np.zeros(1), noise_variance)
    return Null(float(outlook.curvature[0]), float(outlook.largest[0]))


@dataclass(frozen=True)
class Slope:
    """What was answered to one question about slopes, per row of those who answered.

    slope: of the log-likelihood by the weights of z, at the mean `centre` of q. variance: of the noise in it.
    curvature, extra: sum of the released diagonal, the model's own number; 0 if not asked for.
    spread: variances of q. noise_variance: that the question was asked with.
    """

    rows: float
    centre: np.ndarray
    spread: np.ndarray
    slope: np.ndarray
    variance: float
    curvature: float
    extra: float
    extra_variance: float
    noise_variance: float

    @classmethod
    def of(cls, question: Question, sums: np.ndarray, noise: float, rows: float) -> Slope:
        """Return the answer to a question, as released."""
        precision = np.asarray(question.q.precision, np.float64)
        columns, noise_variance = len(precision), float(question.noise_variance)
        unit = float(question.reach) / rows
        weights = [float(each) for each in (question.slope_weight, question.curvature_weight, question.extra_weight)]
        slope_unit, curvature_unit, extra_unit = (unit / each if each > 0 else 0.0 for each in weights)
        slope_unit /= math.sqrt(noise_variance)
        return cls(
            rows=rows,
            centre=np.asarray(question.q.natural_mean, np.float64) / precision,
            spread=1 / precision,
            slope=slope_unit * sums[:columns],
            variance=slope_unit**2 * noise,
            curvature=curvature_unit * float(sums[columns:-1].sum()),
            extra=extra_unit * float(sums[-1]),
            extra_variance=extra_unit**2 * noise,
            noise_variance=noise_variance,
        )


def weights_of(answers: int) -> np.ndarray:
    """Return omega: what each of so many answers, in the order of their questions, counts in what is read."""
    averaged, read = np.zeros(answers), np.zeros(answers)
    for number in range(answers):
        latest = MEMORY / (number + MEMORY)
        averaged *= 1 - latest
        averaged[number] = latest
        read += DAMPING * (averaged - read)
    return read


@dataclass(frozen=True)
class Found:
    """Posterior over the weights of z (mean, precision matrix), and what it was made of: `curvature` is H."""

    mean: np.ndarray
    precision: np.ndarray
    curvature: np.ndarray
    shrink: np.ndarray
    noise_variance: float

    @classmethod
    def of(cls, model: LinearPredictorModel, start: Gaussian, scales: Scales, slopes: Sequence[Slope]) -> Found:
        """Return what all answers about slopes say."""
        omega, rows = weights_of(len(slopes)), max(each.rows for each in slopes)
        null = null_outlook(model, slopes[-1].noise_variance)
        counted, noise_variance = FALLEN, 1.0
        if model.assumed_noise_variance is not None:
            released = omega @ [each.curvature for each in slopes] / (omega.sum() * scales.share.sum())
            counted = float(np.clip(released / null.curvature, FALLEN, 1))
            noise_variance = learned_noise(model, model.assumed_noise_variance, scales, slopes, omega, counted)
        curvature = counted * null.curvature * rows * scales.share / noise_variance
        slope = rows * np.sum([weight * each.slope for weight, each in zip(omega, slopes, strict=True)], axis=0)
        centre = np.sum([weight * each.centre for weight, each in zip(omega, slopes, strict=True)], axis=0)
        noise = rows**2 * float(omega**2 @ [each.variance for each in slopes])
        target = slope + curvature * (centre + (1 - omega.sum()) * start.mean)
        shrink = curvature / (curvature + noise)
        precision = start.precision + np.diag(curvature * shrink)
        mean = np.linalg.solve(precision, start.natural_mean + shrink * target)
        step = mean - slopes[-1].centre
        step = step * trusted_share(step, slopes, null.largest)
        return cls(slopes[-1].centre + step, precision, curvature, shrink, noise_variance)

    def distance(self, start: Gaussian, slopes: Sequence[Slope]) -> float:
        """Return T of the last third of the answers."""
        last, rows = slopes[-max(1, len(slopes) // 3) :], max(each.rows for each in slopes)
        slope = rows * np.mean([each.slope for each in last], axis=0)
        noise = rows**2 * float(np.mean([each.variance for each in last])) / len(last)
        held = (start.precision @ self.mean - start.natural_mean) / self.shrink
        unknown = self.curvature**2 / np.diag(self.precision)
        return float(np.mean((slope - held) ** 2 / (noise + unknown)))


def trusted_share(step: np.ndarray, slopes: Sequence[Slope], largest: float) -> float:
    """Return how much of a step to make. largest: size of a slope, in units of the noise of a linear model."""
    along = np.array([float(step @ each.slope) for each in slopes])
    sd = np.sqrt([each.variance * float(step @ step) for each in slopes])
    if along[-1] + 2 * sd[-1] < 0:
        return 0.0
    units = np.sqrt([each.noise_variance for each in slopes])
    size = float(np.max((along - sd) * units)) / largest
    return min(1.0, TRUST / max(size, 1e-300))


def learned_noise(
    model: LinearPredictorModel,
    assumed: float,
    scales: Scales,
    slopes: Sequence[Slope],
    omega: np.ndarray,
    counted: float,
) -> float:
    """Return the noise variance of a linear model: the one under which its extra numbers are as expected.

    counted: what rows count on average. The logarithm of the standard deviation has a normal prior.
    """
    share = omega / omega.sum()
    spreads = np.array([float(scales.share @ each.spread) for each in slopes])
    noises = np.array([each.noise_variance for each in slopes])
    asked = model.outlook(np.zeros(len(slopes)), spreads, noises)
    seen = float(share @ [each.extra for each in slopes]) / counted
    errors = float(share**2 @ [each.extra_variance for each in slopes]) / counted**2 + 0.1 / slopes[-1].rows
    prior = math.log(assumed) / 2

    def loss(move: float) -> float:
        now = model.outlook(np.zeros(len(slopes)), spreads, math.exp(2 * (prior + move)))
        expected = float(share @ model.expected_extra(asked, now)[0])
        return (seen - expected) ** 2 / errors + (move / LOG_SPREAD) ** 2

    low, high = -4.0, 4.0
    for _ in range(40):
        third = (high - low) / 3
        low, high = (low, high - third) if loss(low + third) < loss(high - third) else (low + third, high)
    return math.exp(2 * (prior + (low + high) / 2))
