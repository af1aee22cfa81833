"""Real federations of processes: the simulation's posterior, and minutes of kills and of a network that spoils."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import Budget, fit, simulate
from fedvi.federation.demo.local import LocalFederation
from fedvi.federation.demo.proxy import FAULTS
from fedvi.federation.demo.run import SITES, TEST, adult_description, tiny_description
from fedvi.simulation import RoundRobin
from fedvi.tables.encode import encode

pytestmark = pytest.mark.slow


def test_engine_and_simulation_reach_the_same_posterior(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same randomness: the same q, to rounding, in whatever order sites have answered."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "injected"))
    monkeypatch.setenv("FEDVI_INJECTED", "seeded")
    sites = ("north", "south")
    description = tiny_description(tmp_path, 12, sites)
    federation = LocalFederation(tmp_path, description, 1.0)
    with federation.running(), federation.store() as store:
        for _ in federation.until_over(store, 180):
            pass
        real, answers = store.posterior, store.version
    tables = {site: encode(description.schema, tmp_path / f"{site}.csv") for site in sites}
    recipe = description.spec
    simulated = simulate(
        {site: (table.x, table.y) for site, table in tables.items()},
        recipe.model,
        seed=11,
        prior=recipe.prior,
        algorithm=recipe.algorithm,
        schedule=RoundRobin(),
        max_updates=12,
        privacy=Budget(1.0),
        feature_bound=description.schema.feature_bound,
    )
    for part in ("mean", "std"):
        one, other = np.asarray(getattr(real, part)), np.asarray(getattr(simulated.posterior, part))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert answers == 24


def demonstrated(folder: Path, seconds: int, *options: str) -> dict[str, Any]:
    """Return what a demonstration with kills has found, after checking that nothing was lost or spent twice."""
    command = [sys.executable, "-m", "fedvi", "federation", "demo", "--chaos", str(seconds), "--json", *options]
    done = subprocess.run([*command, "--out", str(folder)], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    print({key: value for key, value in outcome.items() if key != "sites"})
    assert not any(outcome[count] for count in ("lost", "duplicated", "disordered", "unpaid", "differing"))
    assert -0.1 < outcome["max_epsilon_over_budget"] <= 0
    assert outcome["difference"] < 1e-5
    return outcome


@pytest.mark.parametrize("seconds", [60, pytest.param(180, marks=pytest.mark.long)])
def test_through_minutes_of_kills_and_of_a_network_that_spoils_nothing_is_lost_or_spent_twice(
    seconds: int, tmp_path: Path
) -> None:
    """And q is as good as that of the simulation on the same partition."""
    outcome = demonstrated(tmp_path / "demo", seconds)
    assert set(outcome["kills"]) == {"coordinator", "site"}
    assert set(outcome["spoilt"]) == {"carried", *FAULTS}
    assert sum(outcome["kills"].values()) >= seconds / 12
    assert outcome["updates"] >= 0.9 * 4 * min(30 + 6 * seconds, 1000)

    tables = tmp_path / "simulated"
    description = adult_description(tables, 1.0, None, 0)
    fitted = fit(description.schema, {site: tables / f"{site}.csv" for site in SITES}, epsilon=1.0, seed=1)
    assert abs(outcome["accuracy"] - fitted.evaluate(tables / TEST)["accuracy"]) < 0.005


@pytest.mark.long
def test_through_a_minute_of_kills_of_flare_nothing_is_lost_or_spent_twice(tmp_path: Path) -> None:
    outcome = demonstrated(tmp_path / "demo", 60, "--transport", "flare")
    assert set(outcome["kills"]) == {"coordinator", "site", "FLARE's server", "FLARE's site"}


@pytest.mark.long
def test_through_kills_of_flower_nothing_is_lost_or_spent_twice(tmp_path: Path) -> None:
    outcome = demonstrated(tmp_path / "demo", 60, "--transport", "flower", "--sites", "2", "--updates", "6")
    assert {"ClientApp", "SuperNode"} <= set(outcome["kills"])
