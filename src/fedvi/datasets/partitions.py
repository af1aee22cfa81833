"""Partitions: which row belongs to which client, for simulations with data in one place.

A partition goes from labels (and columns) to row numbers by client name: no row twice, no client without rows.
`distribute` makes tables for `fedvi.simulate` of it. All partitions here use every row:

    Iid              equal sizes, rows dealt at random
    DirichletLabels  each class divided by shares of its own, shares ~ Dirichlet(concentration, ..., concentration)
    QuantitySkew     sizes by such shares, labels as they come
    ByColumn         one client per value of a column

The paper's own is in `paper_partition`. To write another, write `split`: see `Iid`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedvi.checks import in_range, whole
from fedvi.errors import InputError
from fedvi.inference.rows import Table

Columns = Mapping[str, ArrayLike | None]
"""Columns by name, one value per row; what clients may be told apart by."""


class Partition(Protocol):
    """A rule that says which row belongs to which client."""

    def split(self, y: ArrayLike, columns: Columns | None = None) -> dict[str, np.ndarray]:
        """Return the row numbers of every client; no row twice, no client without rows."""


def distribute(partition: Partition, x: ArrayLike, y: ArrayLike, columns: Columns | None = None) -> dict[str, Table]:
    """Return each client's features and targets, ready for `fedvi.simulate`.

    >>> x, y = np.arange(10.0).reshape(5, 2), np.array([1, -1, 1, 1, -1])
    >>> tables = distribute(ByColumn("town"), x, y, columns={"town": ["York", "Bath", "York", "Bath", "Bath"]})
    >>> {name: labels.tolist() for name, (_, labels) in tables.items()}
    {'Bath': [-1, 1, -1], 'York': [1, 1]}
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        raise InputError(f"Expected x with rows and columns and one y per row, got shapes {x.shape} and {y.shape}.")
    return {name: (x[rows], y[rows]) for name, rows in partition.split(y, columns).items()}


@dataclass(frozen=True)
class Iid:
    """Clients of equal size, up to one row, with rows dealt at random.

    >>> {name: len(rows) for name, rows in Iid(clients=3).split(np.zeros(10)).items()}
    {'client 1': 4, 'client 2': 3, 'client 3': 3}
    """

    clients: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        whole("clients", self.clients, 1)
        whole("seed", self.seed, 0)

    def split(self, y: ArrayLike, columns: Columns | None = None) -> dict[str, np.ndarray]:
        """Return 'client 1', 'client 2', ..."""
        order = np.random.default_rng(self.seed).permutation(enough_rows(y, self.clients))
        return _named(np.array_split(order, self.clients))


@dataclass(frozen=True)
class _Skew:
    """Shares drawn from a symmetric Dirichlet distribution: the smaller `concentration`, the more uneven.

    minimum: rows that every client has at least.
    """

    clients: int = 10
    concentration: float = 0.5
    minimum: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        whole("clients", self.clients, 1)
        in_range("concentration", self.concentration, 0, 1e9, open_low=True)  # beyond, draws overflow
        whole("minimum", self.minimum, 1)
        whole("seed", self.seed, 0)

    def _cuts(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        """Return where to cut so many rows into shares."""
        shares = rng.dirichlet(np.full(self.clients, self.concentration))
        return np.floor(np.cumsum(shares)[:-1] * rows).astype(int)


@dataclass(frozen=True)
class DirichletLabels(_Skew):
    """Label skew: each class is divided over the clients by Dirichlet shares of its own.

    A client short of `minimum` rows takes some from the largest, at random.
    """

    def split(self, y: ArrayLike, columns: Columns | None = None) -> dict[str, np.ndarray]:
        """Return 'client 1', 'client 2', ..."""
        labels, codes = classes(y, self.clients, self.minimum)
        rng = np.random.default_rng(self.seed)
        pieces = []
        for label in range(len(labels)):
            rows = rng.permutation(np.flatnonzero(codes == label))
            pieces.append(np.split(rows, self._cuts(len(rows), rng)))
        parts = [rng.permutation(np.concatenate(mine)) for mine in zip(*pieces, strict=True)]
        for m in range(self.clients):
            while len(parts[m]) < self.minimum:
                giver = max(range(self.clients), key=lambda other: len(parts[other]))
                parts[m], parts[giver] = np.append(parts[m], parts[giver][-1]), parts[giver][:-1]
        return _named(parts)


@dataclass(frozen=True)
class QuantitySkew(_Skew):
    """Sizes by Dirichlet shares of the rows beyond `minimum` per client; labels as they come."""

    def split(self, y: ArrayLike, columns: Columns | None = None) -> dict[str, np.ndarray]:
        """Return 'client 1', 'client 2', ..."""
        rows = enough_rows(y, self.clients, self.minimum)
        rng = np.random.default_rng(self.seed)
        cuts = self._cuts(rows - self.clients * self.minimum, rng) + self.minimum * np.arange(1, self.clients)
        return _named(np.split(rng.permutation(rows), cuts))


@dataclass(frozen=True)
class ByColumn:
    """One client per value of a column, by its name; nothing is random.

    Values with fewer than `minimum` rows become one client 'other', joined by the next smallest if still too few.
    """

    column: str
    minimum: int = 1

    def __post_init__(self) -> None:
        whole("minimum", self.minimum, 1)

    def split(self, y: ArrayLike, columns: Columns | None = None) -> dict[str, np.ndarray]:
        """Return the values' row numbers, values in sorted order, 'other' last."""
        rows = enough_rows(y, 1, self.minimum)
        if columns is None or self.column not in columns:
            known = "no columns" if not columns else "columns " + ", ".join(columns)
            raise InputError(f"Expected column {self.column!r} to tell clients apart, got {known}.")
        column = np.asarray(columns[self.column])
        if column.shape != (rows,):
            raise InputError(f"Expected {rows} values in column {self.column!r}, one per row, got {column.shape}.")
        values, codes, counts = np.unique(
            column.astype(str) if column.dtype.kind == "O" else column, return_inverse=True, return_counts=True
        )
        by_size = np.argsort(counts, kind="stable")
        small = int(np.sum(counts < self.minimum))
        if small:  # at least those, and as many more as it takes to reach the minimum
            small = max(small, 1 + int(np.searchsorted(np.cumsum(counts[by_size]), self.minimum)))
        merged = np.isin(codes, by_size[:small])
        parts = {str(values[code]): np.flatnonzero(codes == code) for code in np.sort(by_size[small:])}
        if small:
            parts["other"] = np.union1d(parts.pop("other", np.array([], int)), np.flatnonzero(merged))
        return parts


def enough_rows(y: ArrayLike, clients: int, minimum: int = 1) -> int:
    """Return the number of rows, or raise if they are too few."""
    rows = len(np.atleast_1d(np.asarray(y)))
    if rows < clients * minimum:
        raise InputError(
            f"Expected at least {clients * minimum} rows for clients={clients} with minimum={minimum}, got {rows}. "
            "Take fewer clients or a smaller minimum."
        )
    return rows


def classes(y: ArrayLike, clients: int, minimum: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels and each row's index among them."""
    rows = enough_rows(y, clients, minimum)
    if np.shape(y) != (rows,):
        raise InputError(f"Expected one label per row, got y of shape {np.shape(y)}.")
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    return labels, codes


def _named(parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"client {m + 1}": rows for m, rows in enumerate(parts)}
