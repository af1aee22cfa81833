"""Partitions: which row belongs to which client, for simulations with data in one place.

A partition goes from labels (and columns) to row numbers by client name: no row twice, no client without rows.
`distribute` makes tables for `fedvi.simulate` of it. To write another partition, write `split`: see `Iid`.

    Iid              equal sizes, rows dealt at random
    DirichletLabels  each class divided by shares of its own, shares ~ Dirichlet(concentration, ..., concentration)
    QuantitySkew     sizes by such shares, labels as they come
    ByColumn         one client per value of a column
    PaperPartition   the paper's: two classes over small and large clients. For N rows, M clients, and lambda the
                     fraction of the majority class:
        sizes                       N_small = floor(N/M (1 - rho)),  N_large = floor(N/M (1 + rho)),  M/2 of each
        majority in small clients   floor(N_small * (lambda + (1 - lambda) kappa))

All but the paper's use every row. There, small clients are filled from the front of each class. What is left is
shuffled and cut into large clients; the few rows that the floors leave over go unused. Small clients hold half of the
rows at most, so the majority class never runs out; the minority class does if kappa is far below 0 and small clients
are not small enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isfinite
from numbers import Real
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
        order = np.random.default_rng(self.seed).permutation(_enough_rows(y, self.clients))
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
        labels, codes = _classes(y, self.clients, self.minimum)
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
        rows = _enough_rows(y, self.clients, self.minimum)
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
        rows = _enough_rows(y, 1, self.minimum)
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


@dataclass(frozen=True)
class PaperPartition:
    """Half of the clients small, half large (`rho`); small ones with more (`kappa` > 0) or less of the majority class.

    >>> parts = PaperPartition(rho=0.5, kappa=0, clients=4).split([1, 0, 0, 0] * 8)
    >>> {name: len(rows) for name, rows in parts.items()}
    {'small 1': 4, 'small 2': 4, 'large 1': 12, 'large 2': 12}
    """

    rho: float
    kappa: float
    clients: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rho", "kappa"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not isfinite(value):
                raise InputError(f"Expected a finite number for {name}, got {value!r}.")
        in_range("rho", self.rho, 0)
        if self.rho >= 1:
            raise InputError(f"Expected 0 <= rho < 1, got {self.rho}: small clients would have no rows.")
        whole("clients", self.clients, 2)
        if self.clients % 2:
            raise InputError(f"Expected an even number of clients, half small and half large, got {self.clients}.")
        whole("seed", self.seed, 0, 2**32 - 1)

    def split(self, y: ArrayLike, columns: Columns | None = None) -> dict[str, np.ndarray]:
        """Return 'small 1', ..., 'large 1', ...; raise `InputError` if the data cannot give what rho and kappa ask."""
        labels, codes = _classes(y, self.clients)
        if len(labels) != 2:
            raise InputError(f"Expected labels of two classes, got {len(labels)}. Use DirichletLabels.")
        majority = int(np.argmax(np.bincount(codes)))
        most, least = np.flatnonzero(codes == majority), np.flatnonzero(codes != majority)
        small, large = self._client_sizes(len(codes))
        of_most = floor(small * self._majority_in_small(len(most), len(least)))
        of_least = small - of_most
        half = self.clients // 2
        if half * of_least > len(least):
            enough = Fraction(small - len(least) // half, small)  # of the majority, so that the minority lasts
            kappa = 1 - (1 - enough) * len(codes) / len(least)
            raise InputError(
                f"Expected at least {half * of_least} rows of class {labels[1 - majority]} for {half} small clients "
                f"with {of_least} each, got {len(least)}: rho={self.rho} with kappa={self.kappa} asks for more than "
                f"there are. Take kappa >= {ceil(100 * kappa) / 100:g} or a larger rho."
            )
        front_most, front_least = most[: half * of_most].reshape(half, -1), least[: half * of_least].reshape(half, -1)
        front = np.concatenate([front_most, front_least], axis=1)
        rest = np.concatenate([most[half * of_most :], least[half * of_least :]])
        np.random.RandomState(self.seed).shuffle(rest)  # NumPy's legacy generator, as the paper
        parts = {f"small {m}": rows for m, rows in enumerate(front, 1)}
        return parts | {f"large {m}": rows for m, rows in enumerate(rest[: half * large].reshape(half, large), 1)}

    def _client_sizes(self, rows: int) -> tuple[int, int]:
        """Return the rows of a small and of a large client."""
        mean, rho = Fraction(rows, self.clients), _as_written(self.rho)
        small = floor(mean * (1 - rho))
        if small == 0:
            raise InputError(
                f"Expected at least one row for each small client, got none: rho={self.rho} with {rows} rows for "
                f"{self.clients} clients. Take a smaller rho or fewer clients."
            )
        return small, floor(mean * (1 + rho))

    def _majority_in_small(self, most: int, least: int) -> Fraction:
        """Return the fraction of the majority class that small clients are to have."""
        everywhere = Fraction(most, most + least)
        target = everywhere + (1 - everywhere) * _as_written(self.kappa)
        if not 0 <= target <= 1:
            raise InputError(
                f"Expected {ceil(-1000 * most / least) / 1000:g} <= kappa <= 1, got {self.kappa}: the majority class "
                f"is {float(everywhere):.1%} of all rows and would be {float(target):.1%} of a small client's."
            )
        return target


PARTITIONS = {
    "A": PaperPartition(0, 0),
    "B": PaperPartition(0.9, 0.95),
    "C": PaperPartition(0.7, -3),
    "D": PaperPartition(0.6, -1.5),
}
"""The paper's. A: all alike. Small clients have almost only negatives in B, almost only positives in C, 60 % in D."""


def _enough_rows(y: ArrayLike, clients: int, minimum: int = 1) -> int:
    """Return the number of rows, or raise if they are too few."""
    rows = len(np.atleast_1d(np.asarray(y)))
    if rows < clients * minimum:
        raise InputError(
            f"Expected at least {clients * minimum} rows for clients={clients} with minimum={minimum}, got {rows}. "
            "Take fewer clients or a smaller minimum."
        )
    return rows


def _classes(y: ArrayLike, clients: int, minimum: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels and each row's index among them."""
    rows = _enough_rows(y, clients, minimum)
    if np.shape(y) != (rows,):
        raise InputError(f"Expected one label per row, got y of shape {np.shape(y)}.")
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    return labels, codes


def _named(parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"client {m + 1}": rows for m, rows in enumerate(parts)}


def _as_written(value: float) -> Fraction:
    """Return 9/10 for 0.9, since floors of rounded numbers can be one too low: 10 * (1 - 0.9) < 1."""
    return Fraction(str(float(value)))
