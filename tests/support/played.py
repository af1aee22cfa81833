"""A coordinator, and sites that answer its questions from their rows: in NumPy, without ledgers, with little noise.

Answers are written from their definition (`answering`), so that what is tested does not answer itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import answering
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.description import Description
from fedvi.privacy.events import gaussian, to_json
from fedvi.pytree import take
from fedvi.tables import NumberTarget
from small_federation import answer, description

SIZES = {"big": 4000, "north": 1000, "south": 1000, "east": 1000}
OTHERS = ("north", "south", "east")


def federation_of(sites: Sequence[str] = tuple(SIZES), linear: bool = False, **settings: object) -> Description:
    """Return the description of a federation of 7,000 rows with 9 questions, of which 3 are kept."""
    values: dict[str, object] = {"updates": 9, "moments": 2, "reserve": 3, "rows": 7000, **settings}
    found = description(tuple(sites), **values)  # type: ignore[arg-type]
    if linear:
        target = NumberTarget("y", -8, 8, 0, 1)
        return dataclasses.replace(found, schema=dataclasses.replace(found.schema, target=target))
    return found


def rows_of(name: str, linear: bool = False) -> answering.Site:
    """Return rows of a site. Those of `big` lie elsewhere, and have other weights."""
    rng, size = np.random.default_rng(len(name) * ord(name[0])), SIZES.get(name, 1000)
    x = np.column_stack([np.ones(size), np.clip(rng.normal(size=(size, 2)) + (name == "big"), -4, 4)])
    predictor = x @ ([1, -1.5, 1] if name == "big" else [0, 1, -1])
    if linear:
        return x, np.clip(predictor + rng.normal(0, 0.5, size), -8, 8)
    return x, (rng.random(size) < 1 / (1 + np.exp(-predictor))).astype(float)


class Played:
    """The coordinator of a federation in a folder, and its sites. sd: of the noise in an answer."""

    def __init__(self, folder: Path, chosen: Description, sd: float = 0.01, seed: int = 0, linear: bool = False):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.chosen, self.sd, self.seed, self.linear = chosen, sd, seed, linear
        self.coordinator = Coordinator.create(folder / "coordinator.db", chosen)
        self._unit = chosen.spec.algorithm.first_factor(chosen.spec.prior)
        self._given: dict[str, list[np.ndarray]] = {}

    def run(self, *names: str) -> None:
        """Let these sites, or all that were not withdrawn, answer until there is no question for them."""
        while sum(map(self._step, names or self.coordinator.names)) or self.coordinator.read_if_due():
            pass

    def withdraw(self, name: str, refresh: int = 0) -> None:
        """Withdraw a site; the others answer what is asked then."""
        self.coordinator.withdraw([name], refresh, 1.0)
        self.run()

    def close(self) -> None:
        self.coordinator.close()

    def _step(self, name: str) -> bool:
        """Let a site answer its next question; tell whether there was one."""
        number = self.coordinator.site(name).sequence
        asked = self.coordinator.asked
        if number >= int(asked.count) or name in self.coordinator.withdrawn:
            return False
        rows = rows_of(name.partition(".")[0], self.linear)
        model = answering.linear if self.linear else answering.logistic
        clean = answering.answer(take(asked.questions, number), rows, model)
        rng = np.random.default_rng([self.seed, *map(ord, name), number])
        nothing = [np.zeros(part.shape, np.float32) for part in (self._unit.sums, self._unit.noise, self._unit.rows)]
        given = self._given.setdefault(name, nothing)
        given[0][number] = clean + self.sd * rng.standard_normal(len(clean))
        given[1][number], given[2][number] = self.sd**2, len(rows[1])
        return self._send(name, number + 1, len(rows[1])).kind != wire.REFUSED

    def _send(self, name: str, number: int, rows: int) -> wire.Answer:
        chosen = self.chosen
        event = to_json(gaussian(30.0, 1, 10)) | {"count": number}
        declared = wire.Declared(rows, 0.25, 1.0, 1e-5, (event,))
        arrays = {str(place): array for place, array in enumerate(self._given[name])}
        ids = chosen.digest, chosen.schema.digest
        told = answer(
            self.coordinator.handle(
                name, wire.encode(wire.Request(*ids, wire.FACTOR, number, wire.WORKING, declared, arrays))
            )
        )
        assert told.kind != wire.REFUSED, told
        return told
