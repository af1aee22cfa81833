"""The paper's partition of two classes over small and large clients.

For N rows, M clients, and lambda the fraction of the majority class:

    sizes                       N_small = floor(N/M (1 - rho)),  N_large = floor(N/M (1 + rho)),  M/2 clients of each
    majority in small clients   floor(N_small * (lambda + (1 - lambda) kappa))

Small clients are filled from the front of each class. What is left is shuffled and cut into large clients; the few rows
that the floors leave over go unused. Small clients hold half of the rows at most, so the majority class never runs out;
the minority class does if kappa is far below 0 and small clients are not small enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isfinite
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedvi.checks import in_range, whole
from fedvi.datasets.partitions import Columns, classes
from fedvi.errors import InputError


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
            value: Any = getattr(self, name)
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
        labels, codes = classes(y, self.clients)
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


def _as_written(value: float) -> Fraction:
    """Return 9/10 for 0.9, since floors of rounded numbers can be one too low: 10 * (1 - 0.9) < 1."""
    return Fraction(str(float(value)))
