"""Real federations, processes over mutual TLS: the simulation's posterior, and three minutes of kills."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedvi import Budget, fit, simulate
from fedvi.federation.coordinator_file import CoordinatorFile
from fedvi.federation.demo.local import KINDS, LocalFederation
from fedvi.federation.demo.run import SITES, TEST, adult_description, tiny_description
from fedvi.federation.wire import arrays_of
from fedvi.inference import spec as recipes
from fedvi.privacy.sums import part_of
from fedvi.simulation import Turn
from fedvi.tables.encode import encode

pytestmark = pytest.mark.slow


class Replayed:
    """The order of a real federation: every update starts from the version of q that it was made from."""

    def __init__(self, updates: Sequence[tuple[int, int]]):
        self.updates = updates

    def turns(self, rows: Sequence[int], max_updates: Sequence[float], rng: np.random.Generator) -> Iterator[Turn]:
        """Yield a turn for every update: site, and version of q that it saw."""
        for version, (client, _) in enumerate(self.updates):
            reads = tuple(reader for reader, seen in self.updates if seen == version)
            yield Turn(client, float(version), reads)


def test_engine_and_simulation_reach_the_same_posterior(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same randomness, and the order that came about: the same q, to rounding."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "injected"))
    monkeypatch.setenv("FEDVI_INJECTED", "seeded")
    sites = ("north", "south")
    description = tiny_description(tmp_path, 25, sites)
    federation = LocalFederation(tmp_path, description, 1.0)
    with federation.running(), federation.store() as store:
        for _ in federation.until_over(store, 180):
            pass
        real, updates = arrays_of(store.posterior), order_of(store, sites)
    tables = {site: encode(description.schema, tmp_path / f"{site}.csv") for site in sites}
    budget, recipe = Budget(1.0).fixed(50), description.spec
    simulated = simulate(
        {site: (table.x, table.y) for site, table in tables.items()},
        recipe.model,
        seed=11,
        prior=recipe.prior,
        algorithm=recipe.algorithm,
        schedule=Replayed(updates),
        max_updates=25,
        privacy=budget.beside({part_of(budget, recipes.WIDTH).event: 1}),
        feature_bound=description.schema.feature_bound,
    )
    for one, other in zip(real.values(), arrays_of(simulated.posterior).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert len(updates) == 50


def order_of(store: CoordinatorFile, sites: Sequence[str]) -> list[tuple[int, int]]:
    """Return site and version seen of every update."""
    return [(sites.index(site), seen) for site, seen in ((each.site, each.based_on) for each in store.applied())]


@pytest.mark.parametrize("seconds", [60, pytest.param(180, marks=pytest.mark.long)])
def test_through_minutes_of_kills_nothing_is_lost_or_spent_twice(seconds: int, tmp_path: Path) -> None:
    """And q is as good as that of the simulation on the same partition."""
    command = [
        sys.executable,
        "-m",
        "fedvi",
        "federation",
        "demo",
        "--chaos",
        str(seconds),
        "--json",
        "--out",
        str(tmp_path / "demo"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout)
    print({key: value for key, value in outcome.items() if key != "sites"})
    assert set(outcome["kills"]) == set(KINDS)
    assert sum(outcome["kills"].values()) >= seconds / 9
    assert not any(outcome[count] for count in ("lost", "duplicated", "disordered", "unpaid", "differing"))
    assert -0.1 < outcome["max_epsilon_over_budget"] <= 0
    assert outcome["difference"] < 1e-5
    assert outcome["updates"] >= 0.9 * 4 * (150 + 16 * seconds)

    tables = tmp_path / "simulated"
    description = adult_description(tables, 1.0, 150, 0)
    fitted = fit(description.schema, {site: tables / f"{site}.csv" for site in SITES}, epsilon=1.0, seed=1)
    assert abs(outcome["accuracy"] - fitted.evaluate(tables / TEST)["accuracy"]) < 0.005
