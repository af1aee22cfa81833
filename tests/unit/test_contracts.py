"""One contract for every algorithm, schedule and model; and the laws of the federation."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from federations import Tables, linear_tables, logistic_tables
from fedvi import PVI, CustomModel, FullGaussian, Gaussian, LinearRegression, LogisticRegression, simulate
from fedvi.families import GaussianFamily
from fedvi.inference import Algorithm, CentralisedVI, Committee, GlobalVI, GradientSteps
from fedvi.models import Model, MonteCarlo
from fedvi.privacy import Minibatch
from fedvi.simulation import Asynchronous, EventDriven, Paced, Result, RoundRobin, Schedule, Synchronous
from fedvi.simulation.compiled import Carry

DIM = 3
SIZES = [30, 8, 1, 55]
STEPS = GradientSteps(5, 0.3, Minibatch(10))


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
SCHEDULES: dict[str, Schedule] = {
    "asynchronous": Asynchronous(),
    "round robin": RoundRobin(),
    "synchronous": Synchronous(),
    "paced": Paced(),
    "event-driven": EventDriven(jitter=0.3),
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


def departure_from_law(carry: Carry) -> Mapping[str, float]:
    """How far q is from prior * product of stored factors (summed in float64), relative to the size of the terms."""
    server = carry.server
    worst = 0.0
    leaves = zip(*(jax.tree.leaves(t) for t in (server.posterior, server.prior, server.factors)), strict=True)
    for posterior, prior, factors in (tuple(np.asarray(leaf, np.float64) for leaf in leaf_set) for leaf_set in leaves):
        size = np.abs(prior) + np.abs(factors).sum(axis=0)
        gap = np.abs(posterior - prior - factors.sum(axis=0)) / np.maximum(size, 1e-3)
        worst = max(worst, float(gap.max()))
    return {
        "departure": worst,
        "client factors are server factors": float(
            all(
                np.array_equal(mine, theirs)
                for mine, theirs in zip(
                    jax.tree.leaves(carry.clients.factor), jax.tree.leaves(server.factors), strict=True
                )
            )
        ),
    }


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


def test_the_law_holds_after_thousands_of_communications_in_float32() -> None:
    """Plain float32 running sums drift; the server's compensated ones must not."""
    result = simulate(
        linear_tables(SIZES, DIM),
        LinearRegression(),
        seed=0,
        algorithm=PVI(STEPS, 1.0),
        schedule=Asynchronous(),
        communications=20_000,
        measure=departure_from_law,
    )
    assert result.history["departure"][-1] < 3e-7


def bits(result: Result) -> bytes:
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((result.posterior, result.clients)))


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    def once(seed: int) -> bytes:
        tables = logistic_tables(SIZES, DIM)
        return bits(simulate(tables, LogisticRegression(), seed=seed, communications=30))

    assert once(1) == once(1)
    assert once(1) != once(2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_names_of_clients_change_nothing(schedule: str) -> None:
    tables = logistic_tables(SIZES, DIM)
    names = list(tables)
    renamed = dict(zip([names[2], names[0], names[3], names[1]], tables.values(), strict=True))

    def q(given: Tables) -> GaussianFamily:
        return simulate(given, LogisticRegression(), seed=3, schedule=SCHEDULES[schedule], communications=30).posterior

    for a, b in zip(jax.tree.leaves(q(tables)), jax.tree.leaves(q(renamed)), strict=True):
        assert np.array_equal(a, b)


def test_measuring_more_often_changes_nothing() -> None:
    tables = logistic_tables(SIZES, DIM)

    def once(every: int | None) -> bytes:
        return bits(simulate(tables, LogisticRegression(), seed=3, communications=300, evaluate_every=every))

    assert once(None) == once(1) == once(7)
