"""Private federations in `simulate`: budgets stop clients, spending is in the history, everything says 'simulation'."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import PVI, Budget, Gaussian
from fedvi.errors import FewUnits, InputError, ValuesClipped
from fedvi.inference import GradientSteps
from fedvi.privacy import ClientLevel, Minibatch
from fedvi.privacy.published import FixedSizeGaussian, PublishedRule
from private_runs import BUDGET, DIM, DP_PVI, TABLES, run


def test_every_client_stops_at_its_own_budget() -> None:
    budgets = {"site 0": Budget(0.3, 1e-3), "site 1": Budget(0.5, "paper"), "site 2": Budget(0.9, 1e-4, "rdp")}
    result = run(privacy=budgets)
    for name, spent in result.privacy.items():
        budget, rows = budgets[name], len(TABLES[name][0])
        event = DP_PVI.event(Gaussian.standard(DIM), rows)
        assert spent.updates == int(result.clients[name].sequence) == budget.fixed(rows).most_updates(event) > 0
        assert spent.epsilon <= budget.epsilon < budget.fixed(rows).spent({event: spent.updates + 1})
        assert (spent.epsilon_max, spent.accountant, spent.unit) == (budget.epsilon, budget.accountant, "row")
        assert spent.epsilon_substitute > spent.epsilon
    assert result.privacy["site 1"].delta == 1e-2


def test_spending_is_in_the_history() -> None:
    result = run(evaluate_every=15)
    history = result.history
    for name in TABLES:
        spent = history.epsilon(name)
        assert spent[0] == 0
        assert np.all(np.diff(spent) >= 0)
        assert spent[-1] == result.privacy[name].epsilon
    assert np.array_equal(history["epsilon"], np.max([history.epsilon(name) for name in TABLES], axis=0))
    assert 0.4 < history["epsilon"][-1] <= 0.5
    with pytest.raises(KeyError, match="nothing in this run was private"):
        run(algorithm=PVI(), privacy=None, communications=3).history.epsilon("site 0")


def test_interrupted_and_resumed_private_runs_are_the_same() -> None:
    whole, part = run(), run(communications=7)
    resumed = run(resume=part.checkpoint)
    assert np.array_equal(whole.posterior.mean, resumed.posterior.mean)
    assert whole.privacy == resumed.privacy
    with pytest.raises(Exception, match="privacy"):
        run(resume=part.checkpoint, privacy=Budget(0.45, 1e-3))


def test_without_a_budget_spending_is_reported_and_nothing_stops() -> None:
    result = run(privacy=None, communications=30)
    assert {spent.epsilon_max for spent in result.privacy.values()} == {None}
    assert all(0 < spent.epsilon < math.inf for spent in result.privacy.values())
    assert {spent.delta for spent in result.privacy.values()} == {1e-5}


def test_where_clients_are_the_unit_delta_follows_from_their_number() -> None:
    for delta, expected in (("auto", 1e-5), ("paper", 0.1)):
        settings: dict[str, Any] = {"algorithm": PVI(client_level=ClientLevel(20.0)), "privacy": Budget(1.0, delta)}
        with pytest.warns(FewUnits, match="Only 3 clients"):
            result = run(**settings, communications=3)
        assert {(spent.delta, spent.unit) for spent in result.privacy.values()} == {(expected, "client")}


def test_few_rows_and_clipped_features_are_told() -> None:
    with pytest.warns(FewUnits, match="Only 90 rows of a client"):
        run(communications=3)
    tables = {name: (np.where(np.abs(x) > 1.5, 70 * x, x), y) for name, (x, y) in TABLES.items()}
    beyond = sum(int(np.count_nonzero(np.abs(x) > 64)) for x, _ in tables.values())
    with pytest.warns(ValuesClipped, match=f"{beyond} features beyond 64 were clipped to it"):
        run(clients=tables, privacy=None, communications=3)
    clipped = {name: (np.clip(x, -64, 64), y) for name, (x, y) in tables.items()}
    with pytest.warns(ValuesClipped):
        one = run(clients=tables, privacy=None, communications=3)
    other = run(clients=clipped, privacy=None, communications=3)
    assert np.array_equal(one.posterior.mean, other.posterior.mean)


def test_rates_scales_and_events_follow_from_declared_rows() -> None:
    """Clients that declare the same are accounted for alike, whatever they have."""
    declared = {"site 0": 190, "site 1": 95, "site 2": 400}
    result = run(privacy=None, communications=6, public_rows=declared)
    event = {name: DP_PVI.event(Gaussian.standard(DIM), rows) for name, rows in declared.items()}
    for name, spent in result.privacy.items():
        budget = Budget(1.0).fixed(declared[name])
        assert spent.epsilon == budget.spent({event[name]: 2})
    fewer = {**TABLES, "site 0": tuple(part[:185] for part in TABLES["site 0"])}
    again = run(clients=fewer, privacy=None, communications=6, public_rows=declared)
    assert {name: spent.epsilon for name, spent in again.privacy.items()} == {
        name: spent.epsilon for name, spent in result.privacy.items()
    }
    assert not np.array_equal(again.posterior.mean, result.posterior.mean)


def test_every_artefact_says_that_it_is_a_simulation(tmp_path: Path) -> None:
    result = run(communications=3)
    result.checkpoint.save(tmp_path / "run.npz")
    header = str(np.load(tmp_path / "run.npz")["header"])
    assert json.loads(header)["label"] == "simulation: seeded noise, not private"
    statement = result.statement
    assert statement.startswith("simulation: seeded noise, not private")
    assert "Privacy of client 'site 2'" in statement
    assert "Never more than epsilon 0.5" in statement
    assert (
        run(algorithm=PVI(), privacy=None, communications=3).statement == "simulation: nothing accounted, not private"
    )


def test_the_published_rule_exceeds_its_epsilon_and_says_so() -> None:
    algorithm = PVI(GradientSteps(5, 0.2, FixedSizeGaussian(8.0, 10.0)))
    result = run(algorithm=algorithm, privacy=PublishedRule(0.5, 1e-3))
    for spent in result.privacy.values():
        assert spent.epsilon > 0.5
        assert len(spent.caveats) == 2
    assert result.statement.count("NOT A GUARANTEE") == 2 * len(TABLES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": PVI()}, "Expected a private mechanism for a budget"),
        ({"algorithm": PVI(GradientSteps(5, 0.2, Minibatch()))}, "Expected a private mechanism for a budget"),
        ({"privacy": {"site 0": BUDGET}}, "Expected one budget for every client by name, .* site 1, site 2"),
        ({"privacy": [BUDGET]}, "Expected one budget or 3, one per client, got 1"),
        ({"privacy": 0.5}, "Expected privacy to be a Budget, got 0.5"),
        ({"privacy": Budget}, r"write Budget\(...\)"),
        ({"privacy": Budget(1e-3, 1e-6)}, "Update 1 of client 'site 0' would spend epsilon .* Use more noise"),
        ({"public_rows": [200, 90]}, "Expected public_rows for the clients site 0, site 1, site 2"),
        ({"public_rows": [200, 90, 300]}, "330, a tenth more, is enough for client 'site 2', which has 400"),
        ({"feature_bound": 60.0}, "Expected feature_bound to be a power of two, got 60"),
    ],
)
def test_private_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(**changes)
