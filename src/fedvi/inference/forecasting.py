"""A forecast before a budget is spent: how wide intervals will be, from public numbers alone.

    schema, rows and budgets of all sites -> plan and noise -> the answers that typical rows would give -> the reading

Typical rows are normal, with the squares that the schema says (`fedvi.tables.typical`), and effects are drawn from the
prior. Each answer is what they give on average, by the model's own expectations, and the noise of all sites is known.
So the reading says of a fit that nobody has made how wide its intervals are and how much evidence noise leaves:

    precision = P0 + S (S + V)^-1 S        S = n a E[xx'], V: noise of all answers about slopes

is what it comes to where rows are far from being clipped and the curvature is known. Nothing is spent: no row is read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from fedvi.checks import in_range, whole
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.families.messages import Messages
from fedvi.inference.question import Question, numbers_of, packed
from fedvi.inference.reading.base import PRIOR_DECIDES, Plan
from fedvi.inference.reading.choice import read
from fedvi.inference.spec import Priors, Spec, default_spec
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.models.predictive import reach_of
from fedvi.privacy.budget import AUTO, Budget, least_noise
from fedvi.privacy.events import gaussian
from fedvi.pytree import tree_map
from fedvi.tables.schema import INTERCEPT, Schema
from fedvi.tables.typical import Typical

ROWS = 2000
"""Typical rows; made in pairs of opposite signs."""

DRAWS = 5
"""Times that effects and noise are drawn; of each feature the median counts."""

SIZES = 500
"""Times that effects are drawn to see how large they typically are together."""

LEVEL = 0.9


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a fit will be able to say. sd: of coefficients, in units of the schema's scales, by feature.

    kept: share of the evidence that noise leaves. prior: standard deviations of the prior.
    covariance: what is read, `full` or `diagonal`. reason: why its intervals would not be trusted; empty if they would.
    """

    features: tuple[str, ...]
    sd: np.ndarray
    kept: np.ndarray
    prior: np.ndarray
    rows: tuple[int, ...]
    epsilons: tuple[float, ...]
    covariance: str
    questions: int
    reason: str

    def __repr__(self) -> str:
        return f"Forecast({len(self.features)} features, typical 90 % interval +-{self.typical():.3g}; see table())"

    def half_widths(self, level: float = LEVEL) -> np.ndarray:
        """Return half of the width of each coefficient's interval."""
        in_range("level", level, 0.001, 0.999)
        return reach_of(level) * self.sd

    def typical(self, level: float = LEVEL) -> float:
        """Return half of the width of the median interval, the intercept left out."""
        own = [name != INTERCEPT for name in self.features]
        return float(np.median(self.half_widths(level)[own])) if any(own) else float(self.half_widths(level)[0])

    def in_words(self, effect: str = "", level: float = LEVEL) -> str:
        """Return it in one sentence. effect: what exp(coefficient) is, such as an odds ratio."""
        half = self.typical(level)
        ratio = f", a factor of {math.exp(min(half, 700)):.3g} for an {effect}" if effect else ""
        left = f"noise leaves {self.evidence:.0%} of the evidence"
        return f"a typical {level:.0%} interval will reach {half:.3g} up and down{ratio}; {left}."

    @property
    def evidence(self) -> float:
        """The median share of the evidence that noise leaves."""
        return float(np.median(self.kept))

    def table(self, level: float = LEVEL) -> list[dict[str, Any]]:
        """Return a line for each feature, for `pandas.DataFrame(...)` and the like.

        ratio: by which factor the interval of an odds ratio reaches up and down. prior_decides: whether it is more than
        half as wide as the prior's.
        """
        columns = zip(self.features, self.sd, self.half_widths(level), self.kept, self.prior, strict=True)
        return [
            {
                "feature": name,
                "sd": float(sd),
                "half_width": float(half),
                "ratio": math.exp(min(float(half), 700.0)),
                "evidence_kept": float(kept),
                "prior_decides": bool(sd > PRIOR_DECIDES * prior),
            }
            for name, sd, half, kept, prior in columns
        ]


def forecast(
    schema: Schema,
    rows: Sequence[int],
    epsilon: float | Sequence[float] | None = 1.0,
    *,
    delta: float | str = AUTO,
    typical: Typical | None = None,
    questions: int = 0,
    covariance: str = "auto",
    prior_sd: float | None = None,
    priors: Priors | None = None,
    effects: float | None = None,
    model: Any = None,
    draws: int = DRAWS,
) -> Forecast:
    """Return what a federation will be able to say about the schema's features, before any budget is spent.

    rows: that every site declares. epsilon: of every site, one for all or one each; None for no privacy.
    typical: what rows are like; None for what the schema says. effects: the size of typical coefficients, as a standard
        deviation; None for the prior's. Large ones leave less to be learned from a row with two classes.
    questions, covariance, prior_sd, priors, model: as in `fedvi.fit`. draws: of effects and noise, an odd number; more
        take longer, and their median is steadier.
    """
    rows = list(rows)
    if not rows:
        raise InputError("Expected the number of rows of at least one site, got none.")
    whole("draws", draws, 1)
    if effects is not None:
        in_range("effects", effects, 0)
    for count in rows:
        whole("rows", count, 2)
    given = _of_each(epsilon, len(rows))
    budgets = None if None in given else [Budget(e, delta).fixed(n) for e, n in zip(given, rows, strict=True)]
    spec = default_spec(schema, rows, budgets, questions, model, prior_sd, covariance, priors=priors)
    noise = 0.0 if budgets is None else noise_of(spec.algorithm.plan, schema.dim, budgets)
    known = typical or schema.typical or Typical.guess(schema)
    x = known.rows(ROWS, schema.bound, intercept=schema.intercept)
    rng, plan = np.random.default_rng(6), spec.algorithm.plan
    found = [_read(spec, x, sum(rows), noise, _effects(spec, x, known.event, effects, rng), rng) for _ in range(draws)]
    sd, kept = (np.median([each[part] for each in found], axis=0) for part in (0, 1))
    reasons = sorted(each[2] for each in found)
    prior, epsilons = np.asarray(spec.prior.std, np.float64), tuple(e for e in given if e is not None)
    return Forecast(
        schema.features,
        sd,
        kept,
        prior,
        tuple(rows),
        epsilons,
        plan.covariance,
        plan.questions,
        reasons[len(reasons) // 2],
    )


def _of_each(epsilon: float | Sequence[float] | None, sites: int) -> list[Any]:
    """Return the budget of every site, from one for all or one each."""
    found = np.atleast_1d(np.asarray(epsilon, object)).tolist()
    if len(found) not in (1, sites):
        raise InputError(f"Expected one epsilon, or one for each of {sites} sites, got {len(found)}.")
    return found * sites if len(found) == 1 else found


def noise_of(plan: Plan, columns: int, budgets: Sequence[Budget]) -> float:
    """Return the variance of the noise in each number of an answer, summed over sites."""
    event = gaussian(1.0, 1, numbers_of(columns, full=plan.covariance == "full"))
    return sum(least_noise(event, plan.questions, budget) ** 2 for budget in budgets)


def _effects(
    spec: Spec, x: np.ndarray, event: float | None, effects: float | None, rng: np.random.Generator
) -> np.ndarray:
    """Return weights drawn from the prior, or of this size; the intercept gives the event its share, or is zero.

    Only their direction is drawn. Together they move rows as much as they typically do: so few draws are enough.
    """
    spread = np.asarray(spec.prior.std, np.float64) if effects is None else np.full(x.shape[1], float(effects))
    weights = spread * rng.standard_normal((1 + SIZES, x.shape[1]))
    if spec.schema.intercept:
        weights[:, 0] = 0.0
    moved = ((x - x.mean(0)) @ weights.T).std(0)
    drawn: np.ndarray = np.asarray(spec.prior.mean, np.float64) + weights[0] * np.median(moved) / max(moved[0], 1e-300)
    if spec.schema.intercept:
        drawn[0] = _level(x @ drawn, 0.5 if event is None else event) if len(spec.model.all_outcomes) == 2 else 0.0
    return drawn


def _level(eta: np.ndarray, share: float) -> float:
    """Return the intercept under which an event has this share of rows, or nearly so if no or all rows have it."""
    share, far = min(max(share, 1e-3), 1 - 1e-3), float(np.abs(eta).max()) + 50
    return float(brentq(lambda level: np.mean(expit(eta + level)) - share, -far, far))


def _read(
    spec: Spec, x: np.ndarray, rows: int, noise: float, weights: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return standard deviations, evidence kept, and why intervals are not to be trusted, of what is read."""
    model: Any = spec.model  # the algorithm has checked that it can be asked
    plan, prior = spec.algorithm.plan, tree_map(np.asarray, spec.prior)
    if not plan.moments:
        return _without_noise(model, prior, x, rows, weights), np.ones(x.shape[1]), ""
    numbers = numbers_of(x.shape[1], full=plan.covariance == "full")
    sums, asked = np.zeros((plan.questions, numbers)), list[Question]()
    filled = np.arange(plan.questions)

    def answers(count: int) -> Messages:
        made: Any = Messages  # of NumPy's arrays
        there = filled < count
        return made(sums, np.where(there, noise, 0.0), np.where(there, float(rows), 0.0))

    for number in range(plan.questions):
        question = read(plan, model, prior, asked, answers(number)).question
        assert question is not None, "there are as many questions as planned"
        asked.append(tree_map(lambda leaf: np.asarray(leaf, np.float64), question))
        sums[number] = expected_answer(model, asked[-1], x, weights) * rows / len(x)
        sums[number] += math.sqrt(noise) * rng.standard_normal(numbers)
    reading = read(plan, model, prior, asked, answers(plan.questions))
    return np.asarray(reading.posterior.std, np.float64), np.asarray(reading.evidence_kept), reading.reason


def _without_noise(
    model: LinearPredictorModel, prior: GaussianFamily, x: np.ndarray, rows: int, weights: np.ndarray
) -> np.ndarray:
    """Return the standard deviations of the posterior of so many rows without noise."""
    information = model.outlook(x @ weights, 0.0, 1.0).information
    before = np.diag(1 / np.asarray(prior.std, np.float64) ** 2)
    found: np.ndarray = np.sqrt(np.diag(np.linalg.inv(before + rows / len(x) * (x.T * information) @ x)))
    return found


def expected_answer(model: LinearPredictorModel, question: Question, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sum over rows that an answer is on average (`fedvi.inference.questions`), if these are the weights."""
    here: Any = question  # of NumPy's arrays
    mapped = here.mapped(x)
    squares = mapped**2
    centre, spread = here.q.project(mapped)
    asked = model.outlook(centre, np.maximum(spread, 0), float(question.noise_variance))
    now = model.outlook(x @ weights, np.zeros(len(x)), 1.0)
    slope, curvature, largest = model.expected(asked, now).slope, asked.curvature, asked.largest
    extra = model.expected_extra(asked, now)[0]
    if float(question.moments) > 0:
        slope, curvature, largest, extra = np.ones(len(x)), np.ones(len(x)), np.ones(len(x)), np.zeros(len(x))
    sizes = squares.sum(1) if question.full else np.sqrt((squares**2).sum(1))
    of_slope, of_curvature, of_extra = (
        float(each) for each in (question.slope_weight, question.curvature_weight, question.extra_weight)
    )
    norms = np.sqrt((of_slope * largest) ** 2 * squares.sum(1) + (of_curvature * curvature * sizes) ** 2 + of_extra**2)
    counted = np.minimum(1, float(question.reach) / np.maximum(norms, 1e-300)) / float(question.reach)
    weighted = counted * curvature
    products = packed((mapped.T * weighted) @ mapped) if question.full else weighted @ squares
    return np.concatenate(
        [of_slope * (counted * slope) @ mapped, of_curvature * products, [of_extra * float(counted @ extra)]]
    )
