"""The federation against what is known exactly: conjugate posteriors, and optima found by another library."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from conjugate import DIM, SCHEDULES, SIZES, check_defaults, check_exact, check_mean_field, conjugate_run
from federations import Tables, exact_posterior, linear_tables, logistic_tables, pool, relative_error
from fedvi import PVI, FullGaussian, Gaussian, LinearRegression, LogisticRegression, simulate
from fedvi.inference import CentralisedVI, Committee, Exact, GlobalVI, GradientSteps
from fedvi.privacy import FullBatch
from fedvi.simulation import Asynchronous, EventDriven, Paced, Result, RoundRobin, Schedule, Synchronous


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_conjugate_posterior_is_exact(schedule: str, x64: bool) -> None:
    check_exact(10, schedule, x64)


@pytest.mark.parametrize("schedule", ["one sequential pass", "asynchronous"])
def test_mean_field_conjugate_run_converges_to_the_mean_field_optimum(schedule: str, x64: bool) -> None:
    check_mean_field(10, schedule, x64, communications=4_000)


@pytest.mark.parametrize("rounds", [1, 3, 30])
def test_damping_approaches_the_conjugate_factors_geometrically(rounds: int) -> None:
    """The target does not depend on q here, so after k updates a factor is target^(1 - (1 - damping)^k)."""
    _, precision = exact_posterior(linear_tables(SIZES[10], DIM, noise_variance=0.5), 0.5)
    expected = np.eye(DIM) + (precision - np.eye(DIM)) * (1 - 0.7**rounds)
    q = conjugate_run(10, RoundRobin(), FullGaussian, rounds, damping=0.3).posterior
    assert relative_error(q.precision, expected) < 1e-5


def test_committee_with_same_or_split_prior_is_exact_in_the_conjugate_case() -> None:
    tables = linear_tables(SIZES[10], DIM)
    mean, precision = exact_posterior(tables)
    for prior in ("same", "split"):
        q = simulate(
            tables,
            LinearRegression(),
            seed=0,
            prior=FullGaussian.standard(DIM),
            algorithm=Committee(Exact(), prior=prior),
        ).posterior
        assert relative_error(q.mean, mean) < 1e-5
        assert relative_error(q.precision, precision) < 1e-5


def test_a_client_that_holds_nearly_everything_may_come_back() -> None:
    """Its cavity, the prior, is lost in the rounding of float32 next to precisions of a hundred million."""
    tables = linear_tables([50_000], DIM, noise_variance=1e-4)
    mean, _ = exact_posterior(tables, 1e-4)
    for algorithm in (CentralisedVI(Exact()), GlobalVI(Exact()), PVI(Exact(), 1.0)):
        q = simulate(tables, LinearRegression(1e-4), seed=0, algorithm=algorithm, max_updates=3).posterior
        assert relative_error(q.mean, mean) < 1e-4


def reference_pvi(result: Result, tables: Tables, damping: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean-field PVI for linear regression with unit noise, in plain NumPy: updates start from the q they should."""
    statistics = [(x.T @ y, x.T @ x) for x, y in tables.values()]
    factors = [(np.zeros(DIM), np.zeros(DIM)) for _ in statistics]
    versions = [(np.zeros(DIM), np.ones(DIM))]
    for version, turn in enumerate(result.history.turns):
        q_mean, q_precision = versions[version - turn.staleness]
        old_mean, old_precision = factors[turn.client]
        likelihood_mean, likelihood = statistics[turn.client]
        cavity_mean, cavity = q_mean - old_mean, q_precision - old_precision
        mean = np.linalg.solve(np.diag(cavity) + likelihood, cavity_mean + likelihood_mean)
        precision = cavity + np.diag(likelihood)
        new_mean = old_mean + damping * (mean * precision - cavity_mean - old_mean)
        new_precision = old_precision + damping * (np.diag(likelihood) - old_precision)
        versions.append((versions[-1][0] + new_mean - old_mean, versions[-1][1] + new_precision - old_precision))
        factors[turn.client] = new_mean, new_precision
    return versions[-1]


ALL_SCHEDULES: list[Schedule] = [RoundRobin(), Synchronous(), Asynchronous(), Paced(), EventDriven(jitter=0.3)]


@pytest.mark.parametrize("schedule", ALL_SCHEDULES, ids=lambda s: type(s).__name__)
def test_every_update_starts_from_the_q_that_its_client_read(schedule: Schedule) -> None:
    tables = linear_tables([40, 8, 20], DIM)
    result = simulate(
        tables, LinearRegression(), seed=2, algorithm=PVI(Exact(), 0.3), schedule=schedule, communications=12
    )
    natural_mean, precision = reference_pvi(result, tables, 0.3)
    assert relative_error(result.posterior.natural_mean, natural_mean) < 1e-5
    assert relative_error(result.posterior.precision, precision) < 1e-5
    if any(turn.staleness for turn in result.history.turns):  # and the newest q would have given something else
        fresh = tuple(turn._replace(staleness=0) for turn in result.history.turns)
        other = dataclasses.replace(result, history=dataclasses.replace(result.history, turns=fresh))
        assert relative_error(reference_pvi(other, tables, 0.3)[0], natural_mean) > 1e-3
    else:
        assert not isinstance(schedule, Synchronous | EventDriven)


def test_global_vi_takes_gradient_steps_on_the_global_objective() -> None:
    """Plain gradient descent by two unequal clients in turns, against NumPy: prior in full, own rows scaled to all."""
    tables = linear_tables([30, 10], DIM)
    rate, total = 1e-4, 40
    result = simulate(
        tables,
        LinearRegression(),
        seed=0,
        algorithm=GlobalVI(GradientSteps(1, rate, FullBatch(), optax.sgd)),
        schedule=RoundRobin(),
        communications=20,
    )
    mean, log_variance = np.zeros(DIM), np.zeros(DIM)
    for turn in result.history.turns:
        x, y = list(tables.values())[turn.client]
        scale, variance = total / len(y), np.exp(log_variance)
        by_mean = mean - scale * x.T @ (y - x @ mean)
        by_log_variance = 0.5 * (variance - 1) + scale * 0.5 * variance * (x**2).sum(axis=0)
        mean, log_variance = mean - rate * by_mean, log_variance - rate * by_log_variance
    assert np.abs(mean).max() > 0.02
    assert relative_error(result.posterior.mean, mean) < 1e-4
    assert relative_error(result.posterior.variance, np.exp(log_variance)) < 1e-5


@pytest.mark.parametrize("prior", ["same", "split"])
def test_mean_field_committee_equals_its_definition(prior: str) -> None:
    tables = linear_tables([40, 8, 20], DIM)
    share = 1.0 if prior == "same" else 1 / 3
    natural_mean, precision = np.zeros(DIM), np.full(DIM, 1 - 3 * share)
    for x, y in tables.values():
        own = share + (x**2).sum(axis=0)
        natural_mean += own * np.linalg.solve(share * np.eye(DIM) + x.T @ x, x.T @ y)
        precision += own
    q = simulate(tables, LinearRegression(), seed=0, algorithm=Committee(Exact(), prior=prior)).posterior
    assert relative_error(q.natural_mean, natural_mean) < 1e-5
    assert relative_error(q.precision, precision) < 1e-5


def logistic_vi_optimum(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the mean-field VI optimum under N(0, I), by L-BFGS in float64; shares no code with fedvi."""
    nodes, weights = np.polynomial.hermite.hermgauss(40)
    nodes, weights = nodes * np.sqrt(2), weights / np.sqrt(np.pi)
    dim = x.shape[1]

    def negative_elbo(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        mean, log_variance = np.split(parameters, 2)
        variance = np.exp(log_variance)
        spread = np.sqrt(x**2 @ variance)
        eta = (x @ mean)[:, None] + spread[:, None] * nodes
        wrong = expit(-y[:, None] * eta)
        by_mean = y * (wrong @ weights)
        by_variance = y * (wrong @ (weights * nodes)) / (2 * spread)
        kl = 0.5 * np.sum(variance + mean**2 - 1 - log_variance)
        value = kl - np.sum(log_expit(y[:, None] * eta) @ weights)
        gradient = [mean - x.T @ by_mean, 0.5 * (variance - 1) - variance * (x.T**2 @ by_variance)]
        return value, np.concatenate(gradient)

    found = minimize(negative_elbo, np.zeros(2 * dim), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-8})
    mean, log_variance = np.split(found.x, 2)
    return mean, np.exp(log_variance)


def kl_between(q: Any, mean: np.ndarray, variance: np.ndarray) -> float:
    return float(q.kl(Gaussian.from_moments(mean, variance)))


def test_logistic_pvi_converges_to_the_centralised_vi_optimum() -> None:
    tables = logistic_tables([150, 60, 25, 300], 8)
    optimum = logistic_vi_optimum(*pool(tables))
    steps = GradientSteps(25, 0.5, FullBatch())
    federated = simulate(
        tables, LogisticRegression(), seed=0, algorithm=PVI(steps, 0.5), schedule=RoundRobin(), max_updates=150
    ).posterior
    centralised = simulate(
        tables, LogisticRegression(), seed=0, algorithm=CentralisedVI(steps), schedule=RoundRobin(), max_updates=100
    ).posterior
    assert kl_between(federated, *optimum) < 1e-3
    assert kl_between(centralised, *optimum) < 1e-3
    # and the test would notice: one client's posterior, and the committee's, are far from it
    alone = logistic_vi_optimum(*tables["site 3"])
    assert kl_between(Gaussian.from_moments(*alone), *optimum) > 0.1
    with jax.numpy_dtype_promotion("standard"):  # inside optax
        committee = simulate(tables, LogisticRegression(), seed=0, algorithm=Committee()).posterior
    assert 1e-3 < kl_between(committee, *optimum) < 10


def test_defaults_of_committee_and_centralised_vi_reach_the_optimum() -> None:
    check_defaults(2, CentralisedVI())
    check_defaults(2, Committee())


def test_stochastic_pvi_comes_close_to_the_optimum() -> None:
    tables = logistic_tables([400, 150, 300], 8)
    optimum = logistic_vi_optimum(*pool(tables))
    q = simulate(tables, LogisticRegression(), seed=0, communications=3000).posterior
    assert kl_between(q, *optimum) < 0.1
    assert kl_between(Gaussian.standard(8), *optimum) > 10
