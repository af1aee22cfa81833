"""Simulation and durable federation are one algorithm: the same randomness and order give the same posterior."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import Budget, simulate
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.site import Site
from fedvi.inference import spec as recipes
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.privacy.randomness import UPDATE, Seeded
from fedvi.privacy.sums import part_of
from fedvi.pytree import pytree, static
from fedvi.simulation import Result, RoundRobin, Schedule, Turn
from small_federation import coordinator, project, rows_of, site

PROJECT = project(("north", "south"), 6)
SEED = 11


@pytree
class Listed:
    """Sites in a given order, each from the q that it got in answer to its last release: out of date."""

    order: tuple[int, ...] = static(default=())

    def turns(
        self,
        rows: Sequence[int],
        max_updates: Sequence[float],  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Iterator[Turn]:
        """Yield the turns as listed; all sites ask for q before the first."""
        readers = tuple(range(len(rows)))
        for time, client in enumerate(self.order, 1):
            yield Turn(client, float(time), readers)
            readers = (client,)


def simulated(schedule: Schedule, seed: int = SEED) -> Result:
    recipe, budget = PROJECT.spec, Budget(1.0).fixed(200)
    return simulate(
        {name: rows_of(number) for number, name in enumerate(PROJECT.sites)},
        recipe.model,
        seed=seed,
        prior=recipe.prior,
        algorithm=recipe.algorithm,
        schedule=schedule,
        max_updates=PROJECT.updates,
        feature_bound=PROJECT.schema.feature_bound,
        privacy=budget.beside({part_of(budget, recipes.WIDTH).event: 1}),
    )


class Durable:
    """Real sites and a real coordinator, whose sites draw from the simulation's streams."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.server = folder, coordinator(folder, PROJECT)
        self.drawing, self.made = 0, [0] * len(PROJECT.sites)
        monkeypatch.setattr("fedvi.inference.private_client.System", self.source)

    def source(self) -> Seeded:
        self.made[self.drawing] += 1
        return Seeded(SEED, UPDATE, self.drawing, self.made[self.drawing])

    def exchange(self, client: Site, number: int) -> str:
        self.drawing = number
        data = client.request()
        assert data is not None
        client.receive(self.server.handle(PROJECT.sites[number], data))
        return wire.decode(data, wire.Request, 1 << 20).kind


def finish(durable: Durable, sites: Sequence[Site]) -> None:
    """Let all sites say their last."""
    for _ in range(3):
        for number, client in enumerate(sites):
            if not durable.server.finished(PROJECT.sites[number]):
                durable.exchange(client, number)
    assert durable.server.over


def difference(server: Coordinator, result: Result) -> float:
    """Return the largest difference of natural parameters, relative to their size."""
    pairs = zip(wire.arrays_of(server.posterior).values(), wire.arrays_of(result.posterior).values(), strict=True)
    return max(float(np.max(np.abs(one - other) / np.maximum(np.abs(other), 1))) for one, other in pairs)


def check_the_same(durable: Durable, result: Result, folder: Path) -> None:
    """To rounding, mostly to the bit: the simulation pads batches and compiles site and coordinator into one loop."""
    assert difference(durable.server, result) < 1e-6
    assert durable.server.version == 2 * PROJECT.updates
    assert durable.server.verify() < 1e-6
    for name in PROJECT.sites:
        spent = ledgers.read(folder / f"{name}.ledger").spent
        assert spent.epsilon == pytest.approx(result.privacy[name].epsilon, rel=1e-9)
        assert spent.delta == result.privacy[name].delta
        assert spent.epsilon <= 1.0


def test_sites_that_take_turns_reach_the_posterior_of_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every site is started anew for each of its updates, and so asks for the newest q first."""
    result, durable = simulated(RoundRobin()), Durable(tmp_path, monkeypatch)
    for _, number in itertools.product(range(PROJECT.updates), range(2)):
        with site(tmp_path, PROJECT, number) as client:
            assert durable.exchange(client, number) == wire.POLL
            assert durable.exchange(client, number) == wire.FACTOR
    mean = np.asarray(durable.server.posterior.mean)
    with site(tmp_path, PROJECT, 0) as north, site(tmp_path, PROJECT, 1) as south:
        for number, client in enumerate((north, south)):
            durable.exchange(client, number)
            durable.exchange(client, number)  # says that it has spent its budget
        finish(durable, (north, south))
    assert (np.asarray(durable.server.posterior.mean) == mean).all()
    check_the_same(durable, result, tmp_path)
    assert difference(durable.server, simulated(RoundRobin(), SEED + 1)) > 1e-2  # other noise, other posterior
    durable.server.close()


@pytest.mark.parametrize("order", [(0, 1) * 6, (0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1)], ids=["in turns", "unequal pace"])
def test_sites_with_an_out_of_date_posterior_reach_that_of_the_simulation(
    order: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, durable = simulated(Listed(order)), Durable(tmp_path, monkeypatch)
    with site(tmp_path, PROJECT, 0) as north, site(tmp_path, PROJECT, 1) as south:
        sites: list[Any] = [north, south]
        for number, client in enumerate(sites):
            assert durable.exchange(client, number) == wire.POLL
        for number in order:
            assert durable.exchange(sites[number], number) == wire.FACTOR
        for number, client in enumerate(sites):
            durable.exchange(client, number)
        finish(durable, sites)
    check_the_same(durable, result, tmp_path)
    assert difference(durable.server, simulated(RoundRobin())) > 1e-3  # another order, another posterior
    durable.server.close()
