"""A column and a target that fedvi does not know: a schema names them as `own_columns:Steps` and `own_columns:Log`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvi.tables import Counts, Number, NumberTarget, Predictions
from fedvi.tables.reading.chunk import Chunk


@dataclass(frozen=True)
class Steps(Number):
    """Two features: whether a number is above `low`, and whether it is above `high`."""

    @property
    def features(self) -> tuple[str, ...]:
        return (f"{self.name} above {self.low:g}", f"{self.name} above {self.high:g}")

    @property
    def bound(self) -> float:
        return 1.0

    def encode(self, chunk: Chunk, counts: Counts) -> np.ndarray:
        above = [chunk.numbers(self.name)[0] > end for end in (self.low, self.high)]
        return np.column_stack(above).astype(np.float32)


@dataclass(frozen=True)
class Log(NumberTarget):
    """A positive number, whose logarithm is predicted."""

    def encode(self, chunk: Chunk, counts: Counts) -> np.ndarray:
        return np.log(chunk.numbers(self.name)[0]).astype(np.float32)

    def decode(self, mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> Predictions:
        return Predictions(np.exp(mean), np.exp(low), np.exp(high))
