"""Every schedule with every algorithm and model keeps the contract."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contracts import DIM, SCHEDULES, SIZES, STEPS, departure_from_law
from federations import Tables, linear_tables, logistic_tables
from fedvi import PVI, CustomModel, FullGaussian, Gaussian, LinearRegression, LogisticRegression, simulate
from fedvi.families import GaussianFamily
from fedvi.inference import Algorithm, CentralisedVI, Committee, GlobalVI, GradientSteps
from fedvi.models import Model, MonteCarlo
from fedvi.privacy import Minibatch
from fedvi.simulation import Result, Schedule


def poisson(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    log_rate = x @ w
    return y * log_rate - jnp.exp(log_rate)


ALGORITHMS: dict[str, Algorithm] = {
    "pvi": PVI(STEPS, 0.25),
    "pvi without repair": PVI(STEPS, 0.1, repair=False),
    "global vi": GlobalVI(GradientSteps(1, 0.05, Minibatch(10))),
    "centralised vi": CentralisedVI(STEPS),
    "committee, same prior": Committee(STEPS),
    "committee, split prior": Committee(STEPS, prior="split"),
}


MODELS: dict[str, Model] = {
    "logistic": LogisticRegression(),
    "logistic, monte carlo": LogisticRegression(MonteCarlo(20)),
    "linear": LinearRegression(),
    "custom": CustomModel(poisson),
}


def tables_for(model: Model) -> Tables:
    if isinstance(model, LogisticRegression):
        return logistic_tables(SIZES, DIM)
    tables = linear_tables(SIZES, DIM)
    if isinstance(model, CustomModel):
        return {name: (x, np.random.default_rng(0).poisson(1.0, len(y))) for name, (x, y) in tables.items()}
    return tables


def run(algorithm: Algorithm, schedule: Schedule, model: Model, family: type[GaussianFamily] = Gaussian) -> Result:
    tables = tables_for(model)
    return simulate(
        tables,
        model,
        seed=7,
        prior=family.standard(DIM),
        algorithm=algorithm,
        schedule=schedule,
        communications=24,
        evaluate_every=1,
        measure=departure_from_law,
        test=tables["site 3"],
    )


def check_contract(result: Result, clients: int, communications: int = 24) -> None:
    history = result.history
    assert history["communications"].tolist() == list(range(communications + 1))
    # the law: q = prior * product of factors, at every communication
    assert np.max(history["departure"]) < 1e-5
    assert np.all(history["client factors are server factors"] == 1)
    # everything is finite, proper and counted, and q has moved
    assert bool(result.posterior.is_proper())
    assert np.all(np.isfinite(history["log_likelihood"]))
    assert float(result.posterior.kl(type(result.posterior).standard(DIM))) > 0.01
    assert len(result.clients) == clients
    assert sum(int(state.sequence) for state in result.clients.values()) == communications
    # turns make sense: time does not run backwards, staleness is what it can be
    times = [turn.time for turn in history.turns]
    assert times == sorted(times)
    assert all(0 <= turn.staleness <= index for index, turn in enumerate(history.turns))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_combination_keeps_the_contract(schedule: str, algorithm: str, model: str) -> None:
    result = run(ALGORITHMS[algorithm], SCHEDULES[schedule], MODELS[model])
    clients = 1 if algorithm == "centralised vi" else len(SIZES)
    check_contract(result, clients, clients if algorithm.startswith("committee") else 24)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_full_covariance_keeps_the_contract(schedule: str) -> None:
    check_contract(run(PVI(STEPS, 0.25), SCHEDULES[schedule], LogisticRegression(), FullGaussian), len(SIZES))
