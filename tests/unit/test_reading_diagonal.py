"""Reading of private answers with the diagonal of the curvature, against oracles that share no code with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import root
from scipy.special import expit

from answering import Site, answer, answered, linear, logistic, nothing
from fedvi.families import FullGaussian, Gaussian
from fedvi.families.messages import Messages
from fedvi.inference.asking import NoiseAwarePVI
from fedvi.inference.questions import Question
from fedvi.inference.reading import Plan, Reading, choose_covariance, read
from fedvi.models import LinearRegression, LogisticRegression
from fedvi.privacy import Budget

MODELS: dict[str, tuple[Any, Any]] = {
    "logistic": (LogisticRegression(), logistic),
    "linear": (LinearRegression(), linear),
}
MEMORY, DAMPING, FALLEN = 1.5, 0.5, 0.42


def table(kind: str, seed: int, rows: int, columns: int, common: float = 0.3, sd: float = 1.0) -> tuple[Site, Any]:
    """Return rows with a constant, correlated numbers of different means and scales, and a category of three levels."""
    rng = np.random.default_rng([seed, rows, columns])
    numbers = rng.standard_normal((rows, columns)) + common * rng.standard_normal((rows, 1))
    numbers = np.clip(numbers * np.linspace(0.5, 1.2, columns) + np.linspace(-1, 1, columns), -3, 3)
    levels = np.eye(4)[rng.choice(4, rows, p=[0.5, 0.3, 0.15, 0.05])][:, 1:]
    x = np.column_stack([np.ones(rows), numbers, levels])
    w = 0.5 * rng.standard_normal(x.shape[1])
    eta = x @ w
    y = (rng.random(rows) < expit(eta)).astype(float) if kind == "logistic" else eta + sd * rng.standard_normal(rows)
    return (x, y), w


def plan_for(columns: int, questions: int = 30, moments: int = 3) -> Plan:
    return Plan(questions, moments, "diagonal", True, 4.0, (tuple(range(columns - 3, columns)),))


def fit(
    kind: str,
    sites: list[Site],
    noise: float,
    plan: Plan,
    prior: Any = None,
    seed: int = 0,
    present: Callable[[int, int], bool] = lambda site, question: True,  # noqa: ARG005
) -> tuple[Reading, list[Question], Messages]:
    """Ask all questions; `present(site, question)` says who answers."""
    model, side = MODELS[kind]
    columns = sites[0][0].shape[1]
    prior = Gaussian(np.zeros(columns), np.ones(columns)) if prior is None else prior  # type: ignore[arg-type]
    messages, rng = nothing(plan.questions, columns, full=False), np.random.default_rng(seed)
    questions = list[Question]()
    reading = read(plan, model, prior, questions, messages)
    for number in range(plan.questions):
        assert reading.question is not None
        assert not reading.question.full
        questions.append(reading.question)
        here = [site for index, site in enumerate(sites) if present(index, number)]
        messages = answered(messages, number, questions[-1], here, side, [noise] * len(here), rng)
        reading = read(plan, model, prior, questions, messages)
    assert reading.question is None
    return reading, questions, messages


def moments_of(reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    covariance = np.linalg.inv(np.asarray(reading.posterior.precision, np.float64))
    return covariance @ np.asarray(reading.posterior.natural_mean, np.float64), covariance


def map_of(question: Question) -> np.ndarray:
    """Return the matrix from weights of z to weights of x."""
    centre, scale = (np.asarray(each, np.float64) for each in (question.centre, question.whitening))
    matrix = np.diag(scale)
    matrix[0] -= centre * scale
    return matrix


def test_columns_are_centred_and_scaled_by_their_moments() -> None:
    (x, y), _ = table("logistic", 1, 4000, 6)
    plan = plan_for(x.shape[1])
    _, questions, _ = fit("logistic", [(x, y)], 1e-3, plan)
    assert [float(each.moments) for each in questions] == [1] * 3 + [0] * 27
    lengths = np.sqrt((x**2).sum(axis=1) + 0.49 * (x**4).sum(axis=1))
    first, later = (np.minimum(1, float(each.reach) / lengths) for each in questions[1:3])
    weights = first / float(questions[1].reach) ** 2 + later / float(questions[2].reach) ** 2
    weights += np.minimum(1, float(questions[0].reach) / lengths) / float(questions[0].reach) ** 2
    mean = weights @ x / weights.sum()
    variance = weights @ x**2 / weights.sum() - mean**2
    asked = questions[3]
    np.testing.assert_allclose(asked.centre, np.append(0, mean[1:]), atol=1e-5)
    np.testing.assert_allclose(asked.whitening, np.append(1, 1 / np.sqrt(variance[1:] + 0.1)), rtol=1e-4)
    for each in questions[4:]:
        np.testing.assert_array_equal(each.whitening, asked.whitening)


def test_almost_without_noise_the_mean_is_where_slopes_equal_the_pull_of_the_prior() -> None:
    (x, y), _ = table("logistic", 2, 3000, 8)
    columns = x.shape[1]
    precision = np.append(0.01, np.linspace(1, 4, columns - 1))
    prior = Gaussian(0.3 * precision, precision)  # type: ignore[arg-type]
    reading, questions, _ = fit(
        "logistic", [(x[:1000], y[:1000]), (x[1000:], y[1000:])], 1e-4, plan_for(columns, 80), prior
    )
    mean, covariance = moments_of(reading)
    last = questions[-1]
    to_x = map_of(last)
    spread = 1 / np.asarray(last.q.precision, np.float64)
    z = (x - np.asarray(last.centre, np.float64)) * np.asarray(last.whitening, np.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)

    def slope(w: np.ndarray) -> np.ndarray:
        p = expit((z @ w)[:, None] + np.sqrt(z**2 @ spread)[:, None] * nodes) @ (weights / weights.sum())
        counts = np.minimum(1, float(last.reach) / (np.maximum(p, 1 - p) * np.linalg.norm(z, axis=1)))
        return np.asarray(z.T @ (counts * (y - p)) - to_x.T @ (precision * (to_x @ w - 0.3)))

    found = to_x @ root(slope, np.linalg.solve(to_x, mean)).x
    assert np.abs(slope(np.zeros(columns))).max() > 100  # there was a way to go
    np.testing.assert_allclose(mean, found, atol=0.15 * np.sqrt(np.diag(covariance).min()))
    assert reading.arrived < reading.limit
    assert not reading.trusted


def recursion(asked: list[Question], messages: Messages, share: np.ndarray, rows: float, prior: Any) -> tuple[Any, ...]:
    """Return mean and precision over weights of z as the averaged, damped recursion has them, answer by answer."""
    columns = len(share)
    average, centre, target = (np.zeros(columns) for _ in range(3))
    latest, followed, variances = np.zeros(len(asked)), np.zeros(len(asked)), np.zeros(len(asked))
    curvature = FALLEN * 0.25 * rows * share
    for k, question in enumerate(asked):
        reach, r = float(question.reach), MEMORY / (k + MEMORY)
        mean = np.asarray(question.q.natural_mean, np.float64) / np.asarray(question.q.precision, np.float64)
        average = (1 - r) * average + r * reach * np.asarray(messages.sums)[3 + k, :columns]
        centre = (1 - r) * centre + r * mean
        target = target + DAMPING * (average + curvature * centre - target)
        latest, latest[k] = (1 - r) * latest, r
        followed = followed + DAMPING * (latest - followed)
        variances[k] = reach**2 * np.asarray(messages.noise)[3 + k]
        noise = float(followed**2 @ variances)
        shrink = curvature / (curvature + noise)
    precision = prior + np.diag(curvature * shrink)
    return np.linalg.solve(precision, shrink * target), precision, shrink, noise


def test_a_reading_is_the_damped_recursion_of_averaged_slopes() -> None:
    (x, y), _ = table("logistic", 3, 2000, 6)
    reading, questions, messages = fit("logistic", [(x, y)], 20.0, plan_for(x.shape[1]))
    to_x, asked = map_of(questions[3]), questions[3:]
    share = 1 - 0.1 * np.asarray(asked[0].whitening, np.float64) ** 2
    share[0] = 1
    mean, precision, shrink, _ = recursion(asked, messages, share, 2000, to_x.T @ to_x)
    found, covariance = moments_of(reading)
    np.testing.assert_allclose(found, to_x @ mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(covariance, to_x @ np.linalg.inv(precision) @ to_x.T, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(reading.evidence_kept, shrink, rtol=1e-4)


def test_the_noise_that_is_known_is_the_noise_of_what_is_read() -> None:
    (x, y), _ = table("logistic", 4, 2000, 6)
    columns, sigma = x.shape[1], 30.0
    plan, prior = plan_for(columns), Gaussian(np.zeros(columns), np.ones(columns))  # type: ignore[arg-type]
    reading, questions, messages = fit("logistic", [(x, y)], sigma, plan)
    clean = np.stack([answer(each, (x, y), logistic) for each in questions])
    rng = np.random.default_rng(9)
    to_x = map_of(questions[3])
    found = []
    for _ in range(1500):  # the questions stay: what is left is linear in the answers
        sums = clean + sigma * rng.standard_normal(clean.shape)
        mean, _ = moments_of(
            read(plan, MODELS["logistic"][0], prior, questions, Messages(sums, messages.noise, messages.rows))  # type: ignore[arg-type]
        )
        found.append(np.linalg.solve(to_x, mean))
    share = 1 - 0.1 * np.asarray(questions[3].whitening, np.float64) ** 2
    share[0] = 1
    curvature = FALLEN * 0.25 * 2000 * share
    noise = curvature * (1 / reading.evidence_kept - 1)  # V, as the reading claims it
    inverse = np.linalg.inv(to_x.T @ to_x + np.diag(curvature * reading.evidence_kept))
    claimed = inverse @ np.diag(reading.evidence_kept**2 * noise) @ inverse
    ratio = np.var(found, axis=0) / np.diag(claimed)
    assert ratio == pytest.approx(np.ones(columns), abs=0.16)  # four standard errors of a variance
    assert ratio.mean() == pytest.approx(1, abs=0.05)


def test_a_site_that_is_late_counts_by_the_rows_that_have_answered() -> None:
    (x, y), _ = table("logistic", 5, 1500, 6)
    plan = plan_for(x.shape[1])
    both, _, whole = fit("logistic", [(x, y), (x, y)], 1e-4, plan)
    late, _, part = fit("logistic", [(x, y), (x, y)], 1e-4, plan, present=lambda site, number: site == 0 or number < 9)
    assert np.asarray(part.rows)[[8, 9]].tolist() == [3000, 1500]
    np.testing.assert_allclose(moments_of(late)[0], moments_of(both)[0], atol=1e-3)
    np.testing.assert_allclose(moments_of(late)[1], moments_of(both)[1], rtol=1e-3)
    alone, _, _ = fit("logistic", [(x, y)], 1e-4, plan)
    assert np.diag(moments_of(alone)[1])[1:].min() > 1.2 * np.diag(moments_of(both)[1])[1:].min()
    assert np.asarray(whole.rows).tolist() == [3000] * 30


def test_a_linear_model_learns_its_noise() -> None:
    (x, y), _ = table("linear", 6, 20000, 8, sd=0.4)
    reading, _, _ = fit("linear", [(x, y)], 10.0, plan_for(x.shape[1], 60))
    assert math.sqrt(reading.noise_variance) == pytest.approx(0.4, rel=0.1)
    least_squares = np.linalg.lstsq(x, y, rcond=None)[0]
    away = x @ (moments_of(reading)[0] - least_squares)
    assert math.sqrt(np.mean(away**2)) < 0.05  # of predictors with a standard deviation of 1.3


def test_predictions_survive_noise_because_it_is_known() -> None:
    (x, y), w = table("logistic", 7, 8000, 60)
    new, _ = table("logistic", 8, 2000, 60)
    truth = expit(new[0] @ w)

    def loss(reading: Reading) -> float:
        mean, covariance = moments_of(reading)
        spread = np.einsum("ij,jk,ik->i", new[0], covariance, new[0])
        p = np.clip(expit(new[0] @ mean / np.sqrt(1 + math.pi / 8 * spread)), 1e-9, 1 - 1e-9)
        return float(-(truth * np.log(p) + (1 - truth) * np.log(1 - p)).mean())

    plan = plan_for(x.shape[1])
    prior = Gaussian(np.zeros(x.shape[1]), np.full(x.shape[1], 4.0))  # type: ignore[arg-type]
    reading, questions, messages = fit("logistic", [(x, y)], 200.0, plan, prior)
    unaware = Messages(messages.sums, np.full(30, 1e-6), messages.rows)  # type: ignore[arg-type]
    naive = read(plan, MODELS["logistic"][0], prior, questions, unaware)
    assert loss(reading) < 0.8 * math.log(2)
    assert loss(reading) < loss(naive) - 0.03


@pytest.mark.parametrize(("common", "questions", "arrives"), [(0.3, 30, True), (5.0, 6, False)])
def test_a_fit_that_has_not_arrived_says_so(common: float, questions: int, arrives: bool) -> None:
    (x, y), _ = table("logistic", 9, 4000, 30, common=common)
    reading, _, _ = fit("logistic", [(x, y)], 5.0, plan_for(x.shape[1], questions))
    assert (reading.arrived <= reading.limit) == arrives
    assert reading.limit == pytest.approx(1 + 2 * math.sqrt(2 / x.shape[1]))


def test_strong_correlations_do_not_throw_it_off() -> None:
    rng = np.random.default_rng(12)
    x = np.clip(0.55 * rng.standard_normal((5000, 40)) + 0.84 * rng.standard_normal((5000, 1)), -3, 3)
    x = np.column_stack([np.ones(5000), x])
    w = np.append(0.5, np.full(40, 0.08))  # all along the direction that columns have in common
    y = (rng.random(5000) < expit(x @ w)).astype(float)
    reading, questions, _ = fit("logistic", [(x, y)], 20.0, Plan(30, 3, "diagonal"))
    furthest = 0.0
    for each in questions[3:]:
        mean = np.asarray(each.q.natural_mean, np.float64) / np.asarray(each.q.precision, np.float64)
        furthest = max(furthest, float(np.std(x @ (map_of(each) @ mean))))
    assert furthest < 3 * np.std(x @ w)
    assert np.corrcoef(x @ moments_of(reading)[0], x @ w)[0, 1] > 0.99
    assert np.std(x @ moments_of(reading)[0]) == pytest.approx(np.std(x @ w), rel=0.15)
    assert reading.arrived < reading.limit


def test_without_an_intercept_nothing_is_centred() -> None:
    (x, y), _ = table("logistic", 10, 3000, 6)
    plan = Plan(30, 3, "diagonal", False, 4.0, (tuple(range(6, 9)),))
    reading, questions, _ = fit("logistic", [(x[:, 1:], y)], 2.0, plan)
    assert not np.any(questions[3].centre)
    exact, _, _ = fit_without_noise(x[:, 1:], y)
    np.testing.assert_allclose(x[:, 1:] @ moments_of(reading)[0], x[:, 1:] @ exact, atol=0.25)


def fit_without_noise(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the posterior mode and its curvature, by Newton's method."""
    w = np.zeros(x.shape[1])
    for _ in range(20):
        p = expit(x @ w)
        precision = (x.T * (p * (1 - p))) @ x + np.eye(len(w))
        w = w + np.linalg.solve(precision, x.T @ (y - p) - w)
    return w, precision, 20


def test_any_prior_will_do_and_nothing_answered_is_the_prior() -> None:
    (x, y), _ = table("logistic", 11, 1000, 4)
    columns = x.shape[1]
    precision = 2 * np.eye(columns) + 0.3
    prior = FullGaussian(precision @ np.full(columns, 0.5), precision)  # type: ignore[arg-type]
    plan, model = plan_for(columns), MODELS["logistic"][0]
    first = read(plan, model, prior, [], nothing(30, columns, full=False))
    np.testing.assert_allclose(moments_of(first)[0], 0.5)
    assert not first.evidence_kept.any()
    drowned, questions, _ = fit("logistic", [(x, y)], 1e6, plan, prior)
    np.testing.assert_allclose(moments_of(drowned)[0], 0.5, atol=0.05)
    np.testing.assert_allclose(moments_of(drowned)[1], np.linalg.inv(precision), rtol=0.05, atol=0.01)
    assert all(np.isfinite(each.reach) for each in questions)


@pytest.mark.parametrize(
    ("rows", "columns", "epsilon", "sites", "expected"),
    [
        (39_074, 109, 0.5, 10, "diagonal"),  # Adult
        (569, 31, 1.0, 1, "diagonal"),  # breast cancer
        (569, 31, 4.0, 1, "full"),
        (300, 11, 0.5, 1, "full"),
        (3000, 31, 0.5, 1, "full"),
        (30_000, 31, 0.1, 1, "full"),
        (30_000, 31, 0.1, 100, "diagonal"),
    ],
)
def test_covariance_is_chosen_from_public_numbers(
    rows: int, columns: int, epsilon: float, sites: int, expected: str
) -> None:
    budget = Budget(epsilon, delta=1e-5)
    chosen = NoiseAwarePVI().planned(columns, [rows // sites] * sites, [budget] * sites)
    assert chosen.covariance == expected
    assert chosen.questions == {"full": 14, "diagonal": 30}[expected]
    own = NoiseAwarePVI(covariance="full").planned(columns, [rows], [budget])
    assert own.covariance == "full"
    noise = 14 * sites * 3.0**2
    assert choose_covariance(rows, columns, noise, 14) == choose_covariance(rows, columns, 2 * noise, 28)
