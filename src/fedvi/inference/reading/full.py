"""Private answers with all of the curvature, read with honest intervals.

The server knows what slope to expect of every answer for ANY weights w, from simulated rows (`moments`):

    h(w) = C sum_k alpha_k n_k mean[s_k E psi_k(w'x) x]        g = sum_k alpha_k g_k, as released

with answers k of n_k rows and weights alpha_k by noise, rows and number (public: weights that look at what was seen
bias the mean). C corrects the rows by their released curvature: it is released over simulated, after shrinking. It
multiplies: a correction by D (w - c) grows without end, where slopes do not. Errors of g - h(w) are

    B = K + V + N(S + uu')

K: sampling of outcomes. V: privacy noise. N(A) = cov(E t) for E[tt'] = A: E, what is still unknown of the curvature,
is one matrix for all answers and is charged once, at the distance u to the mean centre. q = N(m, S) then solves

    S^-1 = P0 + E_q[h' B^-1 h']        m = m0 + P0^-1 E_q[h' B^-1 (g - h)]

first with the expectations of h and h' (statistical linearisation), then, where h bends (`model.curved`), over fixed
draws of q: slope and curvature fall together as w grows, and without their covariance the mean is too small.

**Late sites.** Sites answer questions in order. So the rows behind a question contain those behind every later one,
and K is the sum over groups of rows that have answered equally many of them.

**Arrived.** T = g_k'(J S J + V)^-1 g_k / d for the last answer k, where S is what was believed before it: about 1, if
the slope that is left is no more than noise and what was still unknown. If T of the later half of the answers is high
on average, simulated rows are too unlike the rows: the reading is not to be trusted. Nor is that of a
rare outcome: it depends on the tails of columns. With 5 % positives, intervals held on two real tables, and were too
narrow on one whose columns are skewed; with real rows in place of simulated ones they held there too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.inference.question import Question
from fedvi.inference.reading.base import (
    WIDEST_PREDICTOR,
    Answer,
    Gaussian,
    Plan,
    Reading,
    answers,
    believed,
    forms,
    question_at,
    symmetric,
)
from fedvi.inference.reading.evidence import Evidence
from fedvi.inference.reading.moments import found_moments, question_about_moments
from fedvi.inference.reading.unknown import widened
from fedvi.models.linear_predictor import LinearPredictorModel

TRUST = 2.0
"""Most that a step may change the predictor of rows, in the root mean square."""

RIDGE = 0.02
CURVATURE_SHARE, EXTRA_SHARE = 0.15, 0.05
"""Of the squared length of a typical row's vector."""

WIDEST_DOUBT = 4.0
"""Of a question to a linear model: variance of predictors over that of the noise. The window of residuals grows with
it: under a wide prior a row's slope could be so large that rows would have to count next to nothing."""

RARE = 0.125
"""Share of simulated rows: an outcome that is rarer sits in the tails of columns, where rows may be far from normal."""

LINEAR_PASSES, DRAWN_PASSES, LAST_PASSES, DRAWS = 5, 2, 6, 8


def read_full(
    plan: Plan, model: LinearPredictorModel, prior: GaussianFamily, questions: Sequence[Question], messages: Messages
) -> Reading:
    """Return the posterior of all answers so far, and the next question."""
    first, assumed = believed(prior), model.assumed_noise_variance or 1.0
    columns = len(first.mean)
    limit = 1 + 2 * math.sqrt(2 / columns)
    seen = answers(questions, messages)
    about_moments = [each for each in seen if each.number("moments") > 0]
    slopes = [each for each in seen if each.number("moments") == 0]
    if len(questions) < plan.moments or not about_moments:
        question = question_about_moments(plan, first, assumed)
        return Reading(first.family(), question, math.inf, limit, np.zeros(columns), assumed, False, "no answers yet")
    moments = found_moments(plan, about_moments)
    rate = seen[0].rows * plan.questions / (max(seen[0].noise, 1e-300) * columns)
    if slopes:
        evidence = Evidence.of(model, slopes, moments, rate)
        last = len(slopes) >= plan.questions - plan.reserve - plan.moments
        start, so_far = slopes[-1].centre, slopes[-1].number("noise_variance")
        q, noise_variance, vague = posterior(model, first, evidence, start, so_far, last)
        kept = evidence_kept(model, first, evidence, q, noise_variance)
        late = range(len(slopes) // 2, len(slopes))
        distances = [distance(slopes[number], evidence, number) for number in late]
        arrived = distances[-1]
        surprised = bool(np.mean(distances) > 1 + 3 * math.sqrt(2 / (columns * len(distances))))
    else:
        q, noise_variance, arrived, kept, surprised, vague = first, assumed, math.inf, np.zeros(columns), False, False
    following = None
    if len(questions) < plan.questions:
        following = next_question(model, moments.rows, q, rate, noise_variance)
    reason = "answers were often further from what was expected than noise explains" if surprised else ""
    if vague or (moments.hidden and not model.curved):
        reason = "noise hides how much rows vary along some combination of columns (are any nearly collinear?)"
    if slopes and len(model.all_outcomes) == 2:
        share = float(model.outlook(moments.rows @ q.mean, forms(moments.rows, q.covariance), 1.0).response.mean())
        if (share := min(share, 1 - share)) < RARE:
            reason = f"the rarer outcome ({share:.0%} of rows) depends on the tails of columns, which noise hides"
    if model.linearised:
        reason = "expected answers are a guess by a constant curvature"
    return Reading(q.family(), following, arrived, limit, kept, noise_variance, not reason, reason)


def next_question(
    model: LinearPredictorModel, rows: np.ndarray, q: Gaussian, rate: float, noise_variance: float
) -> Question:
    """Return the question at q, about rows that are whitened by their expected curvature."""
    columns = rows.shape[1]
    doubt = float(forms(rows, q.covariance).mean())
    learned = model.assumed_noise_variance is not None
    q = q.narrowed(doubt, WIDEST_DOUBT * noise_variance if learned else WIDEST_PREDICTOR)
    outlook = model.outlook(rows @ q.mean, forms(rows, q.covariance), noise_variance)
    curvature = (rows.T * outlook.curvature) @ rows / len(rows)
    values, vectors = np.linalg.eigh(curvature + RIDGE * np.trace(curvature) / columns * np.eye(columns))
    reach = 1.3 * (1 + rate / 20) ** 0.25 * math.sqrt(columns)
    curvature_weight = math.sqrt(CURVATURE_SHARE / (1 - CURVATURE_SHARE)) * 1.5 / math.sqrt(columns)
    extra_weight = math.sqrt(EXTRA_SHARE) * reach if learned else 0.0
    whitening = (vectors / np.sqrt(values)) @ vectors.T
    return question_at(q, whitening, reach, (1.0, curvature_weight, extra_weight), noise_variance=noise_variance)


def posterior(
    model: LinearPredictorModel, prior: Gaussian, evidence: Evidence, start: Gaussian, noise_variance: float, last: bool
) -> tuple[Gaussian, float, bool]:
    """Return q, the noise variance of a linear model, and whether the curvature of a direction is hardly known.

    start: where to begin. last: whether to take more trouble.
    """
    x = evidence.x
    mean, covariance, noise = start.mean, start.covariance, noise_variance
    for _ in range(LINEAR_PASSES):
        now = model.outlook(x @ mean, forms(x, covariance), noise)
        if model.assumed_noise_variance is not None:
            noise = evidence.noise_variance(model, now, model.assumed_noise_variance)
            now = model.outlook(x @ mean, forms(x, covariance), noise)
        here = evidence.around(model.expected(evidence.asked, now))
        known, gain, total = here.known, here.gain, here.total
        covariance = np.linalg.inv(prior.precision + gain.T @ np.linalg.solve(known, gain))
        for _ in range(8):  # the smallest covariance that agrees with itself, from below
            errors = known + evidence.curvature_noise(covariance + np.outer(here.way, here.way))
            through = np.linalg.solve(errors, gain).T
            covariance = symmetric(np.linalg.inv(prior.precision + through @ gain))
        step = covariance @ (through @ here.residual + prior.natural_mean - prior.precision @ mean)
        mean = mean + step * shortened(step, gain, total)
    for _ in range((LAST_PASSES if last else DRAWN_PASSES) if model.curved else 0):
        inverse = np.linalg.inv(errors)
        lower = np.linalg.cholesky(covariance)
        pull, middle, gained = np.zeros_like(mean), np.zeros_like(mean), np.zeros_like(covariance)
        draws = mean + _normals(len(mean)) @ lower.T
        for draw in draws:
            expected = model.expected(evidence.asked, model.outlook(x @ draw, 0.0, noise))
            bent, slope = evidence.correction @ evidence.gain_of(expected)[0], evidence.slope_of(expected)
            through = bent.T @ inverse
            pull += through @ (evidence.slope - evidence.correction @ slope) / len(draws)
            middle += slope / len(draws)
            gained += through @ bent / len(draws)
        covariance = symmetric(np.linalg.inv(prior.precision + gained))
        step = covariance @ (pull + prior.natural_mean - prior.precision @ mean)
        mean = mean + step * shortened(step, gain, total)
        way = evidence.way(middle)
        errors = known + evidence.curvature_noise(covariance + np.outer(way, way))
    q, vague = Gaussian.at(mean, symmetric(np.linalg.inv(covariance))), False
    if last and not model.curved:
        now = model.outlook(x @ mean, forms(x, covariance), noise)
        q, vague = widened(prior, evidence, evidence.around(model.expected(evidence.asked, now)), q)
    return q, noise, vague


def _normals(columns: int) -> np.ndarray:
    """Return fixed draws, in pairs of opposite signs."""
    normals = np.random.default_rng(5).standard_normal((DRAWS, columns))
    return np.concatenate([normals, -normals])


def shortened(step: np.ndarray, gain: np.ndarray, total: float) -> float:
    """Return the share of a step that stays within the trust region."""
    size = math.sqrt(max(step @ gain @ step, 0) / max(total, 1e-300))
    return min(1.0, TRUST / max(size, 1e-300))


def distance(answer: Answer, evidence: Evidence, number: int) -> float:
    """Return T of an answer, in units of its mapped rows. number: its place in the evidence."""
    mapped, weights = answer.map(evidence.x), evidence.weights[number] * evidence.asked.curvature[number]
    unit = 1 / math.sqrt(answer.number("noise_variance"))
    gain = answer.rows * unit * (mapped.T * weights) @ mapped / len(mapped)
    spread = answer.back @ answer.centre.covariance @ answer.back.T
    noise = gain @ spread @ gain + answer.variance("slope") * np.eye(len(gain))
    return float(answer.slope @ np.linalg.solve(noise, answer.slope)) / len(gain)


def evidence_kept(
    model: LinearPredictorModel, prior: Gaussian, evidence: Evidence, q: Gaussian, noise_variance: float
) -> np.ndarray:
    """Return, per coefficient, the precision gained over that which the same rows would give without noise."""
    x = evidence.x
    information = model.outlook(x @ q.mean, forms(x, q.covariance), noise_variance).information
    alone = np.linalg.inv(prior.precision + evidence.rows / len(x) * (x.T * information) @ x)
    before = 1 / np.diag(prior.covariance)
    gained, most = 1 / np.diag(q.covariance) - before, 1 / np.diag(alone) - before
    found: np.ndarray = np.clip(gained / np.maximum(most, 1e-300), 0, 1)
    return found
