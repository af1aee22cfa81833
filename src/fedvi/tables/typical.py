"""What rows are typically like, for forecasts: public numbers, from a sample or from general knowledge.

    square    of a feature, on average; of a level of a category, the share of rows that have it
    own       the share of a feature's variance that other features do not tell: 1 / its variance inflation factor

Rows that are as typical as that are drawn from a normal distribution with one common factor: it has the correlations
that these shares ask for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvi.checks import in_range
from fedvi.errors import InputError
from fedvi.tables.layout import HAT, INTERCEPT, LEVEL

if TYPE_CHECKING:
    from fedvi.tables.schema import Schema

CORRELATION = 0.3
"""Of features, where nobody has said anything."""

HAT_SQUARE, FLAG_SQUARE = 0.15, 0.1
"""Of hats, and of what says that a value is missing or beyond a limit."""

LEAST_OWN = 1e-3
MOST_FEATURES = 2000
"""Of more features it is not computed what they tell of each other."""


@dataclasses.dataclass(frozen=True)
class Typical:
    """Means and squares of features, and their own shares, in the order of x. event: share of rows with the event."""

    means: tuple[float, ...]
    squares: tuple[float, ...]
    own: tuple[float, ...]
    event: float | None = None

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray | None, schema: Schema) -> Typical:
        """Return what rows of a sample are like."""
        x = np.asarray(x, np.float64)
        own = np.ones(x.shape[1])
        at = int(schema.intercept)
        if 1 < x.shape[1] - at <= MOST_FEATURES and len(x) > 2:
            away = x[:, at:] - (x[:, at:].mean(0) if schema.intercept else 0)
            covariance = away.T @ away / len(x)
            covariance += 1e-6 * np.diag(np.maximum(np.diag(covariance), 1e-6))
            own[at:] = 1 / np.maximum(np.diag(covariance) * np.diag(np.linalg.inv(covariance)), 1)
        event = None if y is None or not schema.target.class_counts(y) else float(np.mean(np.asarray(y) > 0))
        means, squares, own_share = (
            tuple(float(f"{v:.3g}") for v in each) for each in (x.mean(0), (x**2).mean(0), own)
        )
        return cls(means, squares, own_share, None if event is None else float(f"{event:.3g}"))

    @classmethod
    def guess(cls, schema: Schema, correlation: float = CORRELATION) -> Typical:
        """Return what nobody has said: numbers have squares of 1, all levels of a category are equally frequent."""
        in_range("correlation", correlation, 0, 0.999)
        squares, means = np.ones(schema.dim), np.zeros(schema.dim)
        kinds = np.array(schema.layout.kinds)
        means[kinds == INTERCEPT] = 1
        squares[kinds == HAT], means[kinds == HAT] = HAT_SQUARE, HAT_SQUARE
        squares[kinds == LEVEL], means[kinds == LEVEL] = FLAG_SQUARE, FLAG_SQUARE
        for group in schema.exclusive:
            squares[list(group)] = means[list(group)] = 1 / (len(group) + 1)
        features = schema.dim - int(schema.intercept)
        inflation = 1.0
        if features > 1:  # of an equal correlation between all pairs
            inflation = (1 + (features - 2) * correlation) / ((1 - correlation) * (1 + (features - 1) * correlation))
        own = np.full(schema.dim, 1 / inflation)
        return cls(tuple(means.tolist()), tuple(squares.tolist()), tuple(own.tolist()), None)

    def rows(self, count: int, bound: float, *, intercept: bool) -> np.ndarray:
        """Return so many typical rows, in pairs of opposite signs, within the bounds of features."""
        means, squares = np.array(self.means), np.array(self.squares)
        at = int(intercept)
        spread = np.sqrt(np.maximum(squares - means**2, 1e-6))[at:]
        loading = loadings(np.array(self.own)[at:])
        rng = np.random.default_rng(7)
        common, own = rng.standard_normal((count // 2, 1)), rng.standard_normal((count // 2, len(loading)))
        normals = common * loading + own * np.sqrt(1 - loading**2)
        x = means[at:] + spread * np.concatenate([normals, -normals])
        x = np.clip(x, -bound, bound)
        return np.column_stack([np.ones(len(x)), x]) if intercept else x

    def to_plain(self, schema: Schema) -> dict[str, Any]:
        """Return it as a table by features, for a schema's file."""
        columns = zip(schema.features, self.means, self.squares, self.own, strict=True)
        table: dict[str, Any] = {} if self.event is None else {"event": self.event}
        return {**table, "features": {name: numbers for name, *numbers in columns}}

    @classmethod
    def from_plain(cls, table: Mapping[str, Any], schema: Schema) -> Typical:
        """Return what a schema's file says, or raise `InputError`."""
        given = table.get("features")
        if set(table) - {"event", "features"} or not isinstance(given, Mapping):
            raise InputError("Expected typical to have event and features, each with mean, square and own share.")
        numbers = [given.get(name, (math.nan,) * 3) for name in schema.features]
        found = np.array(numbers, np.float64) if all(np.shape(each) == (3,) for each in numbers) else np.zeros(0)
        if found.shape != (schema.dim, 3) or not np.isfinite(found).all() or set(given) - set(schema.features):
            raise InputError(
                "Expected mean, square and own share of each feature in typical.features. Leave [typical] out, or "
                "infer the schema again."
            )
        means, squares, own = (tuple(column) for column in found.T.tolist())
        if min(squares) < 0 or not all(0 < share <= 1 for share in own):
            raise InputError("Expected squares of at least 0 and own shares above 0 and at most 1 in typical.features.")
        event = table.get("event")
        if event is not None:
            in_range("typical.event", event, 0, 1)
        return cls(means, squares, own, event)


def loadings(own: np.ndarray) -> np.ndarray:
    """Return how much of each feature one common factor tells, so that each has its own share.

    own_j = (1 - l_j^2) / (1 - l_j^2 / (1 - l_j^2) / (1 + c)) with c = sum l^2 / (1 - l^2); it is solved step by step.
    """
    own = np.clip(own, LEAST_OWN, 1.0)
    if len(own) < 2:
        return np.zeros(len(own))
    squared = 1 - own
    for _ in range(200):
        ratio = squared / np.maximum(1 - squared, 1e-9)
        rest = np.clip(1 - ratio / (1 + ratio.sum()), 1e-6, 1)
        squared = 0.5 * squared + 0.5 * np.clip(1 - own * rest, 0, 1 - 1e-6)
    found: np.ndarray = np.sqrt(squared)
    return found
