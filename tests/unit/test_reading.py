"""Reading: from answers to a posterior and the next question, against oracles that share no code with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from answering import Site, answered, linear, logistic, nothing
from fedvi.families import FullGaussian, Gaussian
from fedvi.families.messages import Messages
from fedvi.inference.questions import Question
from fedvi.inference.reading import Plan, Reading, moments_needed, read
from fedvi.inference.reading.base import answers
from fedvi.inference.reading.moments import found_moments
from fedvi.models import LinearRegression, LogisticRegression
from student_t import StudentT

MODELS: dict[str, tuple[Any, Any]] = {
    "logistic": (LogisticRegression(), logistic),
    "linear": (LinearRegression(), linear),
}


def table(kind: str, seed: int, rows: int, columns: int, sd: float = 1.0, intercept: bool = True) -> tuple[Site, Any]:
    rng = np.random.default_rng([seed, rows, columns])
    x = np.clip(rng.standard_normal((rows, columns)) + 0.5 * rng.standard_normal((rows, 1)), -3, 3)
    x = np.column_stack([np.ones(rows), x]) if intercept else x + 0.3
    w = rng.standard_normal(x.shape[1])
    eta = x @ w
    y = (rng.random(rows) < expit(eta)).astype(float) if kind == "logistic" else eta + sd * rng.standard_normal(rows)
    return (x, y), w


def standard(columns: int) -> FullGaussian:
    return FullGaussian(np.zeros(columns), np.eye(columns))  # type: ignore[arg-type]


def fit(
    kind: str,
    sites: list[Site],
    noise: float,
    plan: Plan,
    prior: Any = None,
    seed: int = 0,
    present: Callable[[int, int], bool] = lambda site, question: True,  # noqa: ARG005
    seen: Callable[[Messages], Messages] = lambda messages: messages,
) -> tuple[Reading, list[Question], Messages]:
    """Ask all questions; `present(site, question)` says who answers, `seen` what the server takes the answers for."""
    model, side = MODELS[kind]
    columns = sites[0][0].shape[1]
    prior = standard(columns) if prior is None else prior
    messages, questions, rng = nothing(plan.questions, columns), list[Question](), np.random.default_rng(seed)
    reading = read(plan, model, prior, questions, messages)
    for number in range(plan.questions):
        assert reading.question is not None
        questions.append(reading.question)
        here = [site for index, site in enumerate(sites) if present(index, number)]
        messages = answered(messages, number, questions[-1], here, side, [noise] * len(here), rng)
        reading = read(plan, model, prior, questions, seen(messages))
    assert reading.question is None
    return reading, questions, messages


def moments_of(reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    covariance = np.linalg.inv(np.asarray(reading.posterior.precision, np.float64))
    return covariance @ np.asarray(reading.posterior.natural_mean, np.float64), covariance


@pytest.mark.parametrize(("shift", "variance", "noise"), [(0.0, 0.3, 1.0), (0.7, 0.05, 0.4), (-1.2, 2.0, 2.5)])
def test_expected_answers_of_a_linear_model_are_integrals(shift: float, variance: float, noise: float) -> None:
    model, believed = LinearRegression(), 0.8
    asked = model.outlook(np.array([0.2]), np.array([0.5]), believed)
    now = model.outlook(np.array([0.2 + shift]), np.array([variance]), noise)
    found = model.expected(asked, now)
    width = math.sqrt(noise + variance)

    def mean(part: int, mean: float = 0.2 + shift, sd: float = width, power: int = 1) -> float:
        def density(y: float) -> float:
            value = linear(np.array([0.2]), np.array([0.5]), np.array([y]), believed, False)[part][0]
            return float(value**power * norm.pdf(y, mean, sd))

        edges = [0.2 + side * c * math.sqrt(0.8 + 0.5) for c in (1.5, 2.0) for side in (-1, 1)]
        return float(quad(density, mean - 12 * sd, mean + 12 * sd, points=[*edges, 0.2], limit=200)[0])

    assert found.slope[0] == pytest.approx(mean(0), abs=1e-7)
    extra, extra_spread = model.expected_extra(asked, now)
    assert extra[0] == pytest.approx(mean(3), abs=1e-7)
    assert extra_spread[0] == pytest.approx(mean(3, power=2) - mean(3) ** 2, abs=1e-7)
    assert found.spread[0] == pytest.approx(mean(0, 0.2, math.sqrt(noise), 2), abs=1e-7)
    step = 1e-4
    higher, lower = mean(0, 0.2 + shift + step), mean(0, 0.2 + shift - step)
    assert found.gain[0] == pytest.approx((higher - lower) / (2 * step), abs=1e-5)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 0.5), (-2.0, 0.1), (1.5, 1.0)])
def test_expected_answers_of_a_logistic_model_are_integrals(mean: float, variance: float) -> None:
    model = LogisticRegression()
    asked = model.outlook(np.array([0.4]), np.array([0.9]), 1.0)
    now = model.outlook(np.array([mean]), np.array([variance]), 1.0)
    found = model.expected(asked, now)

    def average(function: Any, centre: float, spread: float) -> float:
        low, high = centre - 12 * spread, centre + 12 * spread
        return float(quad(lambda eta: function(eta) * norm.pdf(eta, centre, spread), low, high)[0])

    then, later = average(expit, 0.4, math.sqrt(0.9)), average(expit, mean, math.sqrt(variance))
    curvature = average(lambda eta: expit(eta) * expit(-eta), mean, math.sqrt(variance))
    assert found.slope[0] == pytest.approx(later - then, abs=1e-6)
    assert found.gain[0] == found.spread[0] == pytest.approx(curvature, abs=1e-6)
    assert asked.largest[0] == pytest.approx(max(then, 1 - then), abs=1e-6)
    point = model.outlook(np.array([mean]), 0.0, 1.0)
    assert point.response[0] == pytest.approx(expit(mean), abs=1e-12)


def test_without_noise_a_linear_fit_is_the_conjugate_posterior() -> None:
    (x, y), _ = table("linear", 1, 400, 4, sd=0.3)
    prior = Gaussian(np.array([0.5, 0.0, 0.0, 0.0, 1.0]), np.array([0.01, 1.0, 2.0, 0.5, 1.0]))  # type: ignore[arg-type]
    reading, _, _ = fit("linear", [(x[:150], y[:150]), (x[150:], y[150:])], 0.0, Plan(4, 0), prior)
    assert math.sqrt(reading.noise_variance) == pytest.approx(0.3, rel=0.1)
    precision = np.diag(np.asarray(prior.precision)) + x.T @ x / reading.noise_variance
    mean = np.linalg.solve(precision, np.asarray(prior.natural_mean) + x.T @ y / reading.noise_variance)
    np.testing.assert_allclose(reading.posterior.precision, precision, rtol=1e-4)
    np.testing.assert_allclose(moments_of(reading)[0], mean, atol=1e-5)
    assert reading.arrived < reading.limit
    residuals = y - x @ mean
    used = np.trace(np.linalg.solve(precision, x.T @ x)) / reading.noise_variance
    unbiased = residuals @ residuals / (400 - used)
    assert reading.noise_variance == pytest.approx(unbiased, rel=0.03)  # drawn to 1 a little


@pytest.mark.parametrize("positives", [0.5, 0.05])
def test_without_noise_a_logistic_fit_is_the_optimum_of_gaussian_vi(positives: float) -> None:
    (x, _), w = table("logistic", 2, 600, 3)
    w[0] = -4.5 if positives < 0.5 else 0
    y = (np.random.default_rng(3).random(600) < expit(x @ w)).astype(float)
    prior = FullGaussian(np.zeros(4), np.diag([0.01, 1.0, 1.0, 1.0]))  # type: ignore[arg-type]
    reading, _, _ = fit("logistic", [(x, y)], 0.0, Plan(14, 0), prior)
    assert reading.arrived < 1e-3
    mean, covariance = moments_of(reading)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def elbo(mean: Any, root: Any) -> Any:
        eta = (x @ mean)[:, None] + jnp.sqrt(((x @ root) ** 2).sum(1))[:, None] * nodes[None]
        likelihood = jax.nn.log_sigmoid((2 * y - 1)[:, None] * eta) @ (weights / weights.sum())
        second = jnp.diag(root @ root.T + jnp.outer(mean, mean))
        return likelihood.sum() - 0.5 * second @ np.diag(prior.precision) + jnp.log(jnp.diag(root)).sum()

    with jax.enable_x64(True):
        root = np.linalg.cholesky(covariance)
        by_mean, by_root = jax.grad(elbo, (0, 1))(jnp.asarray(mean), jnp.asarray(root))
    sds = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(np.asarray(by_mean)) * sds) < 2e-3
    assert np.max(np.abs(np.tril(np.asarray(by_root)) @ root.T)) < 2e-2


def test_reading_is_a_pure_function_of_what_was_broadcast() -> None:
    rows, _ = table("logistic", 4, 500, 3)
    plan = Plan(6, 2, bound=3.0)
    reading, questions, messages = fit("logistic", [rows], 8.0, plan)
    for each in questions:
        assert all(np.asarray(leaf).dtype == np.float32 for leaf in (each.whitening, each.reach, each.q.precision))
    before = [np.array(leaf) for leaf in (messages.sums, messages.noise, messages.rows)]
    again = read(plan, LogisticRegression(), standard(4), questions, messages)
    np.testing.assert_array_equal(again.posterior.precision, reading.posterior.precision)
    np.testing.assert_array_equal(again.posterior.natural_mean, reading.posterior.natural_mean)
    for old, new in zip(before, (messages.sums, messages.noise, messages.rows), strict=True):
        np.testing.assert_array_equal(old, new)
    first, third = (read(plan, LogisticRegression(), standard(4), questions[:k], messages).question for k in (0, 3))
    assert first is not None
    assert third is not None
    assert first.moments == 1
    assert third.moments == 0
    np.testing.assert_array_equal(first.reach, questions[0].reach)


def z_scores(kind: str, tables: int, rows: int, noise: float, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return errors over standard deviations, and standard deviations, for tables whose weights the prior has drawn."""
    scores, sds = [], []
    for seed in range(tables):
        (x, y), w = table(kind, 100 + seed, rows, 4)
        sites = [(x[: rows // 2], y[: rows // 2]), (x[rows // 2 :], y[rows // 2 :])]
        reading, _, _ = fit(kind, sites, noise, Plan(10, 2, bound=3.0), seed=seed, **options)
        mean, covariance = moments_of(reading)
        scores.append((mean - w) / np.sqrt(np.diag(covariance)))
        sds.append(np.sqrt(np.diag(covariance)))
    return np.array(scores), np.array(sds)


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_private_intervals_cover_and_would_not_without_knowing_the_noise(kind: str) -> None:
    scores, _ = z_scores(kind, 16, 1500, 12.0)
    assert 0.82 < np.mean(np.abs(scores) < 1.645) < 0.98
    blind, _ = z_scores(
        kind, 6, 1500, 12.0, seen=lambda messages: Messages(messages.sums, messages.noise / 50, messages.rows)
    )
    assert np.mean(np.abs(blind) < 1.645) < 0.75


def test_a_site_that_has_answered_some_questions_counts_as_much_as_it_said() -> None:
    late: Any = lambda site, question: site == 0 or question < 5  # noqa: E731
    alone: Any = lambda site, question: site == 0  # noqa: ARG005, E731
    all_of_it = z_scores("logistic", 10, 1500, 8.0)
    some, few = (z_scores("logistic", 10, 1500, 8.0, present=present) for present in (late, alone))
    assert 0.8 < np.mean(np.abs(some[0]) < 1.645) < 0.98
    assert all_of_it[1].mean() < 0.97 * some[1].mean()
    assert some[1].mean() < 0.97 * few[1].mean()


def test_rows_without_a_constant_and_levels_of_a_category() -> None:
    scores = []
    for seed in range(12):
        rng = np.random.default_rng([7, seed])
        x = np.zeros((2000, 5))
        x[:, :2] = np.clip(rng.standard_normal((2000, 2)), -3, 3) + 0.5
        level = rng.choice(4, 2000, p=[0.4, 0.3, 0.2, 0.1])
        for column in (1, 2, 3):
            x[:, column + 1] = level == column
        w = rng.standard_normal(5)
        y = (rng.random(2000) < expit(x @ w)).astype(float)
        plan = Plan(10, 2, intercept=False, bound=4.0, exclusive=((2, 3, 4),))
        mean, covariance = moments_of(fit("logistic", [(x, y)], 12.0, plan, seed=seed)[0])
        scores.append((mean - w) / np.sqrt(np.diag(covariance)))
    assert 0.8 < np.mean(np.abs(scores) < 1.645) < 0.99
    assert np.sqrt(np.mean(np.square(scores))) < 1.4


def test_noise_of_a_linear_model_is_learned_and_drawn_to_what_was_assumed() -> None:
    rows, _ = table("linear", 8, 3000, 4, sd=0.4)
    known, _, _ = fit("linear", [rows], 10.0, Plan(10, 2, bound=3.0))
    drowned, _, _ = fit("linear", [rows], 3000.0, Plan(10, 2, bound=3.0))
    assert math.sqrt(known.noise_variance) == pytest.approx(0.4, rel=0.15)
    assert math.sqrt(drowned.noise_variance) == pytest.approx(1.0, rel=0.3)
    assert np.all(known.evidence_kept > drowned.evidence_kept)
    assert np.all((known.evidence_kept >= 0) & (known.evidence_kept <= 1))


def test_a_fit_that_has_not_arrived_says_so() -> None:
    (x, _), _ = table("logistic", 9, 3000, 4)
    w = np.array([0.0, 2.0, -2.0, 2.0, 0.0])
    y = (np.random.default_rng(9).random(3000) < expit(x @ w)).astype(float)
    narrow = FullGaussian(np.zeros(5), 4000 * np.eye(5))  # type: ignore[arg-type]
    far, _, _ = fit("logistic", [(x, y)], 5.0, Plan(3, 2, bound=3.0), narrow)
    assert far.arrived > far.limit
    near, _, _ = fit("logistic", [(x, y)], 5.0, Plan(12, 2, bound=3.0))
    assert near.arrived <= near.limit


def test_answers_that_are_further_off_than_noise_explains_are_not_trusted() -> None:
    rows, _ = table("logistic", 11, 2000, 4)
    plan = Plan(12, 2, bound=3.0)
    right, _, _ = fit("logistic", [rows], 10.0, plan)
    wrong, _, _ = fit(
        "logistic",
        [rows],
        10.0,
        plan,
        seen=lambda messages: Messages(messages.sums, messages.noise / 50, messages.rows),
    )
    assert right.trusted
    assert not wrong.trusted
    assert "noise explains" in wrong.reason


@pytest.mark.parametrize("kind", ["logistic", "linear"])
@pytest.mark.parametrize("number", [0, 5])
def test_an_absurd_answer_gives_a_proper_posterior_that_is_not_trusted(kind: str, number: int) -> None:
    rows, _ = table(kind, 12, 500, 4)

    def absurd(messages: Messages) -> Messages:
        sums = np.array(messages.sums)
        sums[number] = 1e9 * np.random.default_rng(1).standard_normal(sums.shape[1]) * (messages.rows[number] > 0)
        return Messages(sums, messages.noise, messages.rows)  # type: ignore[arg-type]

    reading, questions, _ = fit(kind, [rows], 10.0, Plan(8, 2, bound=3.0), seen=absurd)
    assert not reading.trusted
    assert np.linalg.eigvalsh(reading.posterior.precision).min() > 0
    assert all(np.isfinite(each.whitening).all() and np.isfinite(each.q.precision).all() for each in questions)


def test_a_rare_outcome_is_not_trusted() -> None:
    (x, _), _ = table("logistic", 13, 4000, 3)
    chance = np.random.default_rng(13).random(4000)
    wide = FullGaussian(np.zeros(4), np.diag([0.01, 1.0, 1.0, 1.0]))  # type: ignore[arg-type]
    for level, trusted in ((-0.5, True), (-4.0, False), (4.0, False)):
        y = (chance < expit(level + 0.5 * x[:, 1])).astype(float)
        reading, _, _ = fit("logistic", [(x, y)], 5.0, Plan(12, 2, bound=3.0), wide)
        assert reading.trusted == trusted
        assert ("rarer outcome" in reading.reason) != trusted


def test_simulated_rows_have_the_moments_that_were_asked_for() -> None:
    rng = np.random.default_rng(12)
    x = np.column_stack(
        [np.ones(20_000), np.clip(rng.multivariate_normal([0.4, -0.2], [[1, 0.6], [0.6, 0.8]], 20_000), -3, 3)]
    )
    plan, messages = Plan(3, 1, bound=3.0), nothing(3, 3)
    question = read(plan, LogisticRegression(), standard(3), [], messages).question
    assert question is not None
    messages = answered(messages, 0, question, [(x, np.zeros(len(x)))], logistic, [1e-3], rng)
    rows = found_moments(plan, answers([question], messages)).rows
    np.testing.assert_allclose(rows.T @ rows / len(rows), x.T @ x / len(x), atol=0.03)


def test_a_model_that_does_not_say_what_to_expect_is_not_to_be_trusted() -> None:
    (x, y), _ = table("linear", 10, 500, 3)
    plan, messages = Plan(4, 1, bound=3.0), nothing(4, 4)
    reading = read(plan, StudentT(), standard(4), [], messages)
    questions = [reading.question]
    messages = answered(messages, 0, questions[0], [(x, y)], linear, [5.0], np.random.default_rng(0))
    reading = read(plan, StudentT(), standard(4), questions, messages)  # type: ignore[arg-type]
    assert not reading.trusted
    assert "guess" in reading.reason


def test_little_privacy_needs_few_questions_about_moments() -> None:
    needed = [moments_needed(rows, 14 / 0.27**2, 11, 14) for rows in (100, 1000, 10_000, 1_000_000)]
    assert needed == sorted(needed, reverse=True)
    assert 1 <= needed[-1] < needed[0] < 14
