"""Every private algorithm on every schedule, every model and family, within its budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from federations import logistic_tables
from fedvi import PVI, Budget, CustomModel, FullGaussian, LinearRegression, LogisticRegression
from fedvi.inference import CentralisedVI, Committee, GlobalVI, GradientSteps
from fedvi.privacy import ClientLevel, FullBatchGaussian, PoissonGaussian
from fedvi.simulation import Asynchronous, EventDriven, Paced, RoundRobin, Synchronous
from private_runs import DIM, DP_PVI, TABLES, run


@pytest.mark.parametrize("schedule", [Asynchronous(), RoundRobin(), Synchronous(), Paced(), EventDriven()])
@pytest.mark.parametrize(
    "algorithm",
    [
        DP_PVI,
        PVI(GradientSteps(5, 0.2, FullBatchGaussian(60.0, 1.0))),
        GlobalVI(GradientSteps(1, 0.05, PoissonGaussian(8.0, 1.0, minimum=10)), repair=True),
        CentralisedVI(GradientSteps(5, 0.2, PoissonGaussian(8.0, 1.0))),
        Committee(GradientSteps(5, 0.2, FullBatchGaussian(60.0, 1.0))),
        PVI(GradientSteps(5, 0.2), client_level=ClientLevel(10.0, 1.0)),
    ],
    ids=["poisson", "full batch", "global", "centralised", "committee", "client level"],
)
def test_every_private_algorithm_runs_on_every_schedule_within_its_budget(algorithm: Any, schedule: Any) -> None:
    result = run(algorithm=algorithm, schedule=schedule, privacy=Budget(0.6, 1e-3), communications=40)
    assert result.history.records[-1]["communications"] > 0
    assert all(spent.epsilon <= 0.6 for spent in result.privacy.values())
    assert np.all(np.isfinite(np.asarray(result.posterior.mean)))


@pytest.mark.parametrize("prior", [None, FullGaussian.standard(DIM)], ids=["mean-field", "full"])
@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), LinearRegression(), CustomModel(lambda w, x, y: -0.5 * (y - x @ w) ** 2, samples=2)],
    ids=["logistic", "linear", "custom"],
)
def test_every_model_and_family_can_be_private(model: Any, prior: Any) -> None:
    result = run(model=model, prior=prior, communications=6)
    assert result.posterior.dim == DIM
    assert {spent.updates for spent in result.privacy.values()} == {2}


def test_private_learning_learns() -> None:
    """With a generous budget DP-PVI comes near to what plain PVI finds; with a small one it still beats the prior."""
    tables = logistic_tables([2000, 3000], DIM, seed=3)
    test = logistic_tables([2000], DIM, seed=3)["site 0"]
    plain = run(clients=tables, algorithm=PVI(), privacy=None, communications=60, test=test)
    private = run(
        clients=tables, algorithm=PVI(GradientSteps(25, 0.1, PoissonGaussian(5.0, 1.0))), privacy=Budget(1.0), test=test
    )
    likelihood = [history["log_likelihood"] for history in (plain.history, private.history)]
    assert likelihood[0][-1] >= likelihood[1][-1] - 0.01
    assert likelihood[1][-1] > likelihood[0][-1] - 0.05 > likelihood[0][0]


def test_padding_of_other_clients_changes_nothing() -> None:
    """A client's updates do not depend on how large the others' batches are."""
    alone = run(clients={"site 1": TABLES["site 1"]}, communications=3)
    first = logistic_tables([90, 3000], DIM)
    both = run(clients={"site 1": TABLES["site 1"], "other": first["site 1"]}, schedule=OnlyFirst(), communications=3)
    assert np.allclose(alone.posterior.mean, both.posterior.mean, atol=1e-6)


class OnlyFirst(RoundRobin):
    """Only the first client ever communicates."""

    def turns(self, rows: Any, max_updates: Any, rng: Any) -> Any:
        return (turn for turn in super().turns(rows[:1], max_updates[:1], rng))
