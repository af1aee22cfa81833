"""The clients of a simulated federation: their rows, checked, and laid out once for all runs that share them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from fedvi.checks import instance, registered
from fedvi.data import Clients, Table, check_tables, lay_out
from fedvi.federation.describe import digest
from fedvi.local import Algorithm
from fedvi.models import Model


@dataclasses.dataclass(frozen=True, eq=False)
class Sites:
    """Clients by name, their numbers of rows, and all rows in one buffer."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    data: Clients

    @functools.cached_property
    def digest(self) -> str:
        """A digest of all rows."""
        return digest(*(np.asarray(rows)[: sum(self.sizes)] for rows in (self.data.x, self.data.y)))


def lay_out_sites(
    clients: Mapping[str, Table] | Sequence[Table], model: Model, algorithms: Sequence[Algorithm]
) -> list[Sites]:
    """Return the sites that each algorithm runs with; algorithms that take the clients as they are share them."""
    for name, value, kind in (("model", model, Model), *(("algorithm", each, Algorithm) for each in algorithms)):
        instance(name, value, kind)
        registered(name, value)
    tables = check_tables(clients, model)
    distinct = {id(algorithm): algorithm for algorithm in algorithms}
    for algorithm in distinct.values():
        for name, (x, _) in tables.items():
            algorithm.solver.check(model, x, f"client {name!r}")
    arranged = {key: algorithm.arrange(tables) for key, algorithm in distinct.items()}
    laid_out = {id(each): _laid_out(each) for each in {id(each): each for each in arranged.values()}.values()}
    return [laid_out[id(arranged[id(algorithm)])] for algorithm in algorithms]


def _laid_out(tables: dict[str, tuple[np.ndarray, np.ndarray]]) -> Sites:
    data = lay_out(tables)
    return Sites(tuple(tables), tuple(data.size.tolist()), data)
