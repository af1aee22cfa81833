"""Models, against numerical integration, automatic differentiation and each other."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit
from scipy.stats import norm

from clipped import clipped_sum
from federations import linear_tables, logistic_tables, relative_error
from fedvi import (
    PVI,
    CustomModel,
    FullGaussian,
    Gaussian,
    LinearRegression,
    LogisticRegression,
    NoiseAwarePVI,
    simulate,
)
from fedvi.errors import InputError
from fedvi.inference import GradientSteps
from fedvi.inference.local_problem import forgetful_adam
from fedvi.inference.questions import Answers
from fedvi.models import Bernoulli, Categorical, GaussHermite, Model, MonteCarlo, Normal
from fedvi.models.logistic import log_expected_sigmoid
from fedvi.privacy import FullBatch, FullBatchGaussian

DIM = 5


def family_of(full: bool) -> Any:
    rng = np.random.default_rng(3)
    root = rng.normal(size=(DIM, DIM)) / 3
    covariance = root @ root.T + 0.1 * np.eye(DIM)
    mean = rng.normal(size=DIM)
    return FullGaussian.from_moments(mean, covariance) if full else Gaussian.from_moments(mean, np.diag(covariance))


def rows(model: Model) -> tuple[Any, Any, Any]:
    tables = logistic_tables([40], DIM) if isinstance(model, LogisticRegression) else linear_tables([40], DIM)
    x, y = tables["site 0"]
    weights = np.random.default_rng(0).random(len(y))
    return jnp.asarray(x, float), jnp.asarray(y, float), jnp.asarray(weights, float)


def noise(model: Model) -> Any:
    return jnp.asarray(np.random.default_rng(1).normal(size=model.noise_shape(DIM)), float)


def integral(f: Any, mean: float, variance: float) -> float:
    """E[f(eta)] for eta ~ N(mean, variance), by adaptive quadrature."""
    spread = np.sqrt(variance)
    breaks = [mean - spread, mean, mean + spread, *([0.0] if abs(mean) < 9 * spread else [])]
    return float(
        quad(
            lambda eta: f(eta) * norm.pdf(eta, mean, spread),
            mean - 10 * spread,
            mean + 10 * spread,
            points=breaks,
            limit=500,
            epsabs=1e-12,
        )[0]
    )


@pytest.mark.parametrize("full", [False, True], ids=["mean-field", "full"])
@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), LogisticRegression(MonteCarlo(50)), LinearRegression(0.7)],
    ids=["quadrature", "monte-carlo", "linear"],
)
def test_closed_form_gradient_equals_autodiff(model: Model, full: bool, x64: bool) -> None:
    x, y, weights = rows(model)
    q = family_of(full).coordinates()
    fast = jax.jit(model.gradient)(q, x, y, weights, noise(model))
    by_autodiff = jax.jit(functools.partial(Model.gradient, model))  # of expected_log_likelihood
    slow = by_autodiff(q, x, y, weights, noise(model))
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        assert relative_error(a, np.asarray(b)) < (1e-10 if x64 else 1e-5)


@pytest.mark.parametrize("variance", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("mean", [-3.0, 0.2, 4.0])
def test_logistic_expectation_and_slopes_equal_integration(mean: float, variance: float) -> None:
    with jax.enable_x64(True):
        model, z = LogisticRegression(GaussHermite(40)), jnp.zeros(0)
        m, v, y = jnp.array([mean]), jnp.array([variance]), jnp.array([-1.0])
        value, (by_mean, by_variance) = model.value(m, v, y, z), model.slopes(m, v, y, z)
        assert abs(float(value[0]) - integral(lambda eta: log_expit(-eta), mean, variance)) < 1e-7
        assert abs(float(by_mean[0]) + integral(expit, mean, variance)) < 1e-7
        # Price's theorem: the derivative by the variance is half the expected second derivative
        curvature = integral(lambda eta: expit(eta) * expit(-eta), mean, variance)
        assert abs(float(by_variance[0]) + curvature / 2) < 1e-6


def test_monte_carlo_converges_to_quadrature() -> None:
    x, y, weights = rows(LogisticRegression())
    q = family_of(False).coordinates()
    exact = LogisticRegression().gradient(q, x, y, weights, jnp.zeros(0))
    z = jnp.asarray(np.random.default_rng(0).normal(size=200_000), float)
    sampled = LogisticRegression(MonteCarlo(200_000)).gradient(q, x, y, weights, z)
    few = LogisticRegression(MonteCarlo(20)).gradient(q, x, y, weights, z[:20])
    assert relative_error(sampled.mean, np.asarray(exact.mean)) < 0.01
    assert relative_error(few.mean, np.asarray(exact.mean)) > 0.01


@pytest.mark.parametrize("variance", [1e-6, 0.3, 0.99, 1.01, 7.0, 100.0, 1e4])
@pytest.mark.parametrize("mean", [-12.0, -1.0, 0.0, 3.0])
def test_exact_predictive_equals_integration_at_any_variance(mean: float, variance: float) -> None:
    with jax.enable_x64(True):
        got = float(jnp.exp(log_expected_sigmoid(jnp.array([mean]), jnp.array([variance])))[0])
    assert abs(got - integral(expit, mean, variance)) < 1e-7


@pytest.mark.parametrize(("mean", "variance"), [(-200.0, 0.5), (-200.0, 30.0), (-60.0, 59.0), (-40.0, 100.0)])
def test_exact_predictive_is_right_far_in_the_tail(mean: float, variance: float) -> None:
    spread = np.sqrt(variance)
    peak = min(0.0, mean + variance)  # of sigmoid(eta) times the density, below; scaled to be representable
    scale = log_expit(peak) + norm.logpdf(peak, mean, spread)
    mass, _ = quad(
        lambda eta: np.exp(log_expit(eta) + norm.logpdf(eta, mean, spread) - scale),
        peak - 12 * spread,
        peak + 12 * spread,
        points=[peak],
        limit=500,
    )
    with jax.enable_x64(True):
        got = float(log_expected_sigmoid(jnp.array([mean]), jnp.array([variance]))[0])
    assert abs(got - (np.log(mass) + scale)) < 1e-3


@pytest.mark.parametrize("variance", [0.1, 3.0, 14.0])
def test_default_quadrature_is_precise_enough_for_learning(variance: float) -> None:
    """At the start on data with 14 one-hot columns the variance is 14; there an error of a thousandth is allowed."""
    by_mean, _ = LogisticRegression().slopes(jnp.array([0.7]), jnp.array([variance]), jnp.array([1.0]), jnp.zeros(0))
    assert abs(float(by_mean[0]) - integral(lambda eta: expit(-eta), 0.7, variance)) < 1e-3


def test_probit_link_approximates_the_exact_one() -> None:
    x, _, _ = rows(LogisticRegression())
    q = family_of(False)
    probit = LogisticRegression().predictive(q, x).probability
    mean, variance = (np.asarray(part) for part in q.project(x))
    assert np.allclose(probit, expit(mean / np.sqrt(1 + np.pi * variance / 8)), atol=1e-6)
    exact = LogisticRegression(predictive_link="exact").predictive(q, x).probability
    assert 1e-5 < float(jnp.max(jnp.abs(probit - exact))) < 0.02


def test_confident_wrong_predictions_keep_a_finite_log_probability() -> None:
    q = Gaussian.from_moments([1.0], [1e-6])
    for link in ("probit", "exact"):
        predictive = LogisticRegression(predictive_link=link).predictive(q, jnp.array([[60.0], [500.0]]))
        assert np.all(np.isfinite(predictive.log_prob(jnp.array([-1.0, -1.0]))))
        assert float(predictive.log_prob(jnp.array([-1.0, -1.0]))[0]) < -50


def test_linear_predictive_has_both_kinds_of_variance() -> None:
    q = family_of(True)
    x, _, _ = rows(LinearRegression())
    predictive = LinearRegression(0.7).predictive(q, x)
    assert np.allclose(predictive.variance, q.project(x)[1] + 0.7)
    low, high = predictive.interval(0.9)
    inside = norm.cdf(high, predictive.mean, np.sqrt(predictive.variance)) - norm.cdf(
        low, predictive.mean, np.sqrt(predictive.variance)
    )
    assert np.allclose(inside, 0.9, atol=1e-5)


def logistic_by_hand(w: Any, x: Any, y: Any) -> Any:
    return -jnp.logaddexp(0.0, -y * (x @ w))


def count_by_hand(w: Any, x: Any, y: Any) -> Any:
    eta = x @ w
    return y * eta - jnp.exp(eta)


def draw_count(w: Any, x: Any, key: Any) -> Any:
    return jax.random.poisson(key, jnp.exp(x @ w))


def bernoulli_by_hand(w: Any, x: Any) -> Bernoulli:
    return Bernoulli(x @ w)


def test_user_written_likelihood_agrees_with_the_built_in_one() -> None:
    x, y, weights = rows(LogisticRegression())
    q = family_of(True)
    custom = CustomModel(logistic_by_hand, samples=50_000, predict=bernoulli_by_hand, predictive_samples=4096)
    z = jnp.asarray(np.random.default_rng(0).normal(size=custom.noise_shape(DIM)), float)
    sampled: Any = custom.gradient(q.coordinates(), x, y, weights, z)
    exact: Any = LogisticRegression().gradient(q.coordinates(), x, y, weights, jnp.zeros(0))
    assert relative_error(sampled.mean, np.asarray(exact.mean)) < 0.02
    assert relative_error(sampled.root, np.asarray(exact.root)) < 0.05
    predicted = custom.predictive(q, x)
    truth = LogisticRegression(predictive_link="exact").predictive(q, x)
    assert isinstance(predicted, Bernoulli)
    assert float(jnp.max(jnp.abs(predicted.probability - truth.probability))) < 0.003
    without_predict = CustomModel(logistic_by_hand, predictive_samples=4096).predictive(q, x)
    assert np.allclose(without_predict.log_prob(y), predicted.log_prob(y), atol=1e-4)


def test_user_model_may_have_any_number_of_parameters_and_several_classes() -> None:
    def softmax(w: Any, x: Any) -> Categorical:
        return Categorical(jax.nn.log_softmax(w.reshape(3, -1) @ x))

    model = CustomModel(lambda w, x, y: softmax(w, x).log_prob(y), params=6, predict=softmax)
    x, y = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), float), jnp.array([0.0, 1.0, 2.0, 1.0])
    assert model.dim(x) == 6
    predictive = model.predictive(Gaussian.standard(6), x)
    assert isinstance(predictive, Categorical)
    assert np.allclose(np.exp(predictive.log_probabilities).sum(-1), 1, atol=1e-5)
    assert np.allclose(np.exp(predictive.log_probabilities), 1 / 3, atol=0.05)  # symmetric prior
    assert predictive.log_prob(y).shape == (4,)


def test_log_likelihood_must_be_one_number() -> None:
    model = CustomModel(logistic_by_hand)
    model.check_form(np.ones((3, 2), np.float32), np.ones(3, np.float32), "client 'a'")
    with pytest.raises(InputError, match=r"log_likelihood to return one number for a row of client 'a'.*y \(1,\)"):
        model.check_form(np.ones((3, 2), np.float32), np.ones((3, 1), np.float32), "client 'a'")


def test_a_drawn_outcome_must_have_the_shape_of_y() -> None:
    x, y = np.ones((3, 2), np.float32), np.ones(3, np.float32)
    CustomModel(count_by_hand, draw=draw_count).check_form(x, y, "client 'a'")
    for draw in (lambda w, x, key: jax.random.normal(key, (1,)) + x @ w, lambda w, x, key: (x @ w, key)):
        with pytest.raises(InputError, match=r"draw to return one y of shape \(\) for a row of client 'a', got"):
            CustomModel(count_by_hand, draw=draw).check_form(x, y, "client 'a'")


def test_normal_mixture_has_the_mixture_moments() -> None:
    mixture = Normal(jnp.array([[0.0], [4.0]]), jnp.array([[1.0], [3.0]])).mixture()
    assert float(mixture.mean[0]) == 2
    assert float(mixture.variance[0]) == 2 + 4


def test_labels_of_two_classes_are_read_and_others_explained() -> None:
    def check(*labels: float | bool) -> list[float]:
        y = np.array(labels, float)
        return LogisticRegression().check(np.ones((len(y), 1)), y, "client 'a'").tolist()

    assert check(1.0, -1.0, 1.0) == [1, -1, 1]
    assert check(1.0, 0.0) == check(True, False) == [1, -1]
    assert check(1.0, 1.0) == [1, 1]
    with pytest.raises(InputError, match=r"labels 0 and 1, or -1 and \+1, got 2 in client 'a', row 0."):
        check(2.0, 1.0, -1.0)
    usable = LogisticRegression().usable(np.array([1.0, 0.5, -1.0, 2.0, np.nan]))
    assert usable.tolist() == [True, False, True, False, False]
    assert LinearRegression().usable(np.array([0.0, 7.5])).tolist() == [True, True]


@pytest.mark.parametrize("model", [LogisticRegression(), LinearRegression()])
def test_rows_of_a_wrong_shape_are_refused(model: Model) -> None:
    model.check_form(np.ones((3, 2)), np.ones(3), "client 'a'")
    with pytest.raises(InputError, match=r"Expected x of client 'a' to be a matrix, got shape \(3, 2, 1\)"):
        model.check_form(np.ones((3, 2, 1)), np.ones(3), "client 'a'")
    with pytest.raises(InputError, match=r"one number per row, got shape \(3, 1\). Use y.ravel\(\)"):
        model.check_form(np.ones((3, 2)), np.ones((3, 1)), "client 'a'")


def test_predictive_draws_are_unbiased_in_any_dimension() -> None:
    """A sum over many coordinates has the right variance: the draws do not move together."""
    for dim in (3, 100, 1000):
        model = CustomModel(logistic_by_hand, predict=lambda w, x: Normal(x @ w, jnp.zeros(())))
        q = Gaussian.from_moments(np.zeros(dim), np.full(dim, 1 / dim))
        x = np.abs(np.random.default_rng(0).normal(size=(50, dim)))
        predicted = model.predictive(q, jnp.asarray(x, float))
        assert isinstance(predicted, Normal)
        truth = (x**2).mean(axis=1)
        assert 0.75 < float(np.median(predicted.variance / truth)) < 1.33
    wide = CustomModel(logistic_by_hand, predictive_samples=2).predictive(
        Gaussian.standard(25_000), jnp.ones((1, 25_000))
    )
    assert np.isfinite(wide.log_prob(jnp.ones(1)))


def test_labels_outside_a_distribution_have_no_probability() -> None:
    assert np.isnan(Bernoulli(jnp.zeros(1)).log_prob(jnp.zeros(1)))
    uniform = Categorical(jnp.zeros((4, 3)))
    assert np.isnan(uniform.log_prob(jnp.array([0.0, 3.0, -1.0, 0.5]))).tolist() == [False, True, True, True]
    assert np.allclose(Categorical(jnp.array([[5.0, 5.0]])).log_prob(jnp.array([1.0])), np.log(0.5))  # unnormalised


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearRegression(0.0), "Expected 0 < noise_variance, got 0.0"),
        (
            lambda: LogisticRegression(GaussHermite(0)),
            "Expected nodes to be a whole number of at least 1, got 0",
        ),
        (lambda: LogisticRegression(MonteCarlo(-1)), "Expected samples"),
        (lambda: LogisticRegression(predictive_link="logit"), "one of probit, exact, got 'logit'"),
        (lambda: CustomModel(logistic_by_hand, samples=0), "Expected samples"),
        (lambda: CustomModel(logistic_by_hand, params=0), "Expected params"),
        (lambda: CustomModel(logistic_by_hand, predictive_samples=100), "a power of two, got 100"),
        (lambda: CustomModel(logistic_by_hand, outcomes=(0, 1), draw=draw_count), "outcomes or draw, got both"),
        (lambda: LogisticRegression(MonteCarlo), r"got the class: write MonteCarlo\(...\)"),  # type: ignore[arg-type]
        (lambda: LinearRegression(jnp.float32(-1.0)), "Expected 0 < noise_variance, got -1.0"),
    ],
)
def test_settings_are_checked(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_model_that_knows_its_outcomes_is_clipped_without_a_look_at_them() -> None:
    def log_likelihood(w: Any, x: Any, y: Any) -> Any:
        eta = x @ w
        return y * eta - jnp.logaddexp(0.0, eta)

    rng = np.random.default_rng(0)
    x = 2 * rng.normal(size=(4000, 3))
    true = np.array([0.5, 1.0, -1.0])
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-x @ true))).astype(float)
    algorithm = PVI(GradientSteps(60, 0.5, FullBatchGaussian(0.01, 0.3)), damping=1.0)
    found = {}
    for outcomes in ((), (0.0, 1.0)):
        model = CustomModel(log_likelihood, samples=20, outcomes=outcomes)
        result = simulate([(x, y)], model, seed=0, algorithm=algorithm, communications=4, progress=False)
        assert bool(result.notes) == (not outcomes)
        found[outcomes] = np.asarray(result.posterior.mean)
    exact = NoiseAwarePVI(Answers(FullBatch()))
    wanted = simulate([(x, y)], LogisticRegression(), seed=0, algorithm=exact, progress=False)
    off = {key: np.abs(mean - np.asarray(wanted.posterior.mean)).max() for key, mean in found.items()}
    assert off[(0.0, 1.0)] < 0.15 < off[()]


TRUE = np.array([0.5, 0.5, -0.5])


def counts(rows: int, rng: np.random.Generator, variance: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a Poisson regression; each with its own weights, spread around the true ones by `variance`."""
    x = np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))])
    w = TRUE + np.sqrt(variance) * rng.normal(size=(rows, 3))
    return x, rng.poisson(np.exp(np.sum(x * w, axis=1))).astype(float)


@pytest.mark.parametrize("variance", [1e-8, 0.1])
@pytest.mark.parametrize("clip", [0.1, 1.0])
def test_clipped_rows_of_a_model_that_draws_are_right_on_average(clip: float, variance: float) -> None:
    """Outcomes as q expects them: the part of the sum by the mean is zero but for chance, also where q is wide.

    Sums of 80 blocks are compared with their own spread. A Student t beyond 5.5 has a probability of 5e-7.
    """
    rng, blocks, rows = np.random.default_rng(0), 80, 256
    q = Gaussian.from_moments(TRUE, np.full(3, variance)).coordinates()
    off = {}
    for draw in (None, draw_count):
        model = CustomModel(count_by_hand, draw=draw)
        sums = []
        for _ in range(blocks):
            x, y = (jnp.asarray(part, float) for part in counts(rows, rng, variance))
            z = jnp.asarray(rng.normal(size=model.noise_shape(3)), float)
            sums.append(clipped_sum(model, q, (x, y, jnp.ones(rows)), clip, z=z)[:3])
        off[draw] = np.mean(sums, axis=0) / np.std(sums, axis=0) * np.sqrt(blocks)
    assert np.abs(off[draw_count]).max() < 5.5
    assert np.abs(off[None]).max() > 10


def test_a_private_fit_of_counts_is_where_the_exact_one_is_if_the_model_draws() -> None:
    x, y = counts(2000, np.random.default_rng(1))
    mode, precision = TRUE, np.eye(3)
    for _ in range(20):  # Newton's method
        rate = np.exp(x @ mode)
        precision = np.eye(3) + x.T @ (rate[:, None] * x)
        mode = mode + np.linalg.solve(precision, x.T @ (y - rate) - mode)
    exact = np.sqrt(np.diag(np.linalg.inv(precision)))
    algorithm = PVI(GradientSteps(50, 0.03, FullBatchGaussian(0.01, 0.5), forgetful_adam), damping=1.0)
    for draw in (None, draw_count):
        model = CustomModel(count_by_hand, draw=draw)
        prior: Any = FullGaussian.standard(3)
        with jax.numpy_dtype_promotion("standard"):  # inside optax
            result = simulate(
                [(x, y)], model, seed=0, prior=prior, algorithm=algorithm, communications=8, progress=False
            )
        assert bool(result.notes) == model.looks_at_outcomes == (draw is None)
        off = np.abs((np.asarray(result.posterior.mean) - mode) / exact).max()
        assert (off > 4) if draw is None else (off < 2)
        assert np.all(np.asarray(result.posterior.std) > exact)  # rows count less than they would without a clip
        assert np.all(np.asarray(result.posterior.std) < 5 * exact)
