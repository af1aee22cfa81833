"""Simulation and durable federation are one algorithm: the same randomness and order give the same posterior."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import Budget, simulate
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.site import Site
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.privacy.sampling import UPDATE, Seeded
from fedvi.simulation import Result, RoundRobin
from small_federation import description, open_coordinator, open_site, rows_of

DESCRIPTION = description(("north", "south"), 6)
SEED = 11


def simulated(seed: int = SEED) -> Result:
    recipe = DESCRIPTION.spec
    return simulate(
        {name: rows_of(number) for number, name in enumerate(DESCRIPTION.sites)},
        recipe.model,
        seed=seed,
        prior=recipe.prior,
        algorithm=recipe.algorithm,
        schedule=RoundRobin(),
        max_updates=DESCRIPTION.updates,
        feature_bound=DESCRIPTION.schema.feature_bound,
        privacy=Budget(1.0),
    )


class Durable:
    """Real sites and a real coordinator, whose sites draw from the simulation's streams."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.coordinator = folder, open_coordinator(folder, DESCRIPTION)
        self.drawing, self.made = 0, [0] * len(DESCRIPTION.sites)
        monkeypatch.setattr("fedvi.inference.private_client.System", self.source)

    def source(self) -> Seeded:
        self.made[self.drawing] += 1
        return Seeded(SEED, UPDATE, self.drawing, self.made[self.drawing])

    def exchange(self, site: Site, number: int) -> str:
        self.drawing = number
        data = site.request()
        assert data is not None
        site.receive(self.coordinator.handle(DESCRIPTION.sites[number], data))
        return wire.decode(data, wire.Request, 1 << 20).kind


def finish(durable: Durable, sites: Sequence[Site]) -> None:
    """Tell all sites that it is over."""
    for _ in range(3):
        for number, site in enumerate(sites):
            if durable.coordinator.site(DESCRIPTION.sites[number]).state not in (wire.FINISHED, wire.LEFT):
                durable.exchange(site, number)
    assert durable.coordinator.over


def difference(coordinator: Coordinator, result: Result) -> float:
    """Return the largest difference of natural parameters, relative to their size."""
    pairs = zip(wire.arrays_of(coordinator.posterior).values(), wire.arrays_of(result.posterior).values(), strict=True)
    return max(float(np.max(np.abs(one - other) / np.maximum(np.abs(other), 1))) for one, other in pairs)


def check_the_same(durable: Durable, result: Result, folder: Path) -> None:
    """To rounding, mostly to the bit: the simulation pads batches and compiles site and coordinator into one loop."""
    assert difference(durable.coordinator, result) < 1e-6
    assert durable.coordinator.version == 12
    assert durable.coordinator.verify() < 1e-6
    for name in DESCRIPTION.sites:
        spent = ledgers.read(folder / f"{name}.ledger").spent
        assert spent.epsilon == pytest.approx(result.privacy[name].epsilon, rel=1e-9)
        assert spent.delta == result.privacy[name].delta
        assert spent.epsilon <= 1.0


def test_sites_that_take_turns_reach_the_posterior_of_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every site is started anew for each of its answers, and so asks for its question first."""
    result, durable = simulated(), Durable(tmp_path, monkeypatch)
    for number in range(2):
        with open_site(tmp_path, DESCRIPTION, number) as site:
            durable.exchange(site, number)  # both are there before the first answer
    for _, number in itertools.product(range(6), range(2)):
        with open_site(tmp_path, DESCRIPTION, number) as site:
            assert durable.exchange(site, number) == wire.POLL
            assert durable.exchange(site, number) == wire.FACTOR
    mean = np.asarray(durable.coordinator.posterior.mean)
    with open_site(tmp_path, DESCRIPTION, 0) as north, open_site(tmp_path, DESCRIPTION, 1) as south:
        for number, site in enumerate((north, south)):
            durable.exchange(site, number)
            durable.exchange(site, number)  # says that it has spent its budget
        finish(durable, (north, south))
    assert (np.asarray(durable.coordinator.posterior.mean) == mean).all()
    check_the_same(durable, result, tmp_path)
    assert difference(durable.coordinator, simulated(SEED + 1)) > 1e-2  # other noise, other posterior
    durable.coordinator.close()


def test_the_order_in_which_sites_answer_a_question_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, durable = simulated(), Durable(tmp_path, monkeypatch)
    with open_site(tmp_path, DESCRIPTION, 0) as north, open_site(tmp_path, DESCRIPTION, 1) as south:
        sites: list[Any] = [north, south]
        for number, site in enumerate(sites):
            assert durable.exchange(site, number) == wire.POLL
        for first in (0, 1, 1, 0, 1, 0):
            for number in (first, 1 - first):
                if sites[number].waiting:
                    assert durable.exchange(sites[number], number) == wire.POLL
                assert durable.exchange(sites[number], number) == wire.FACTOR
        for number, site in enumerate(sites):
            durable.exchange(site, number)
        finish(durable, sites)
    check_the_same(durable, result, tmp_path)
    durable.coordinator.close()
