"""Columns of a schema: how the values of one become features of x. A new kind of column is one class here.

number      (clip(value, low, high) - centre) / scale       one feature; 0, the centre, if missing
category    one 0/1 feature per value                       and one for "other", if something may fall there
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from fedvi.checks import one_of
from fedvi.config import near
from fedvi.errors import InputError
from fedvi.tables.parts import Counts, Listed, Part, Scaled
from fedvi.tables.read import Chunk

OTHER = "other"
INDICATOR_SQUARE = 0.1
"""Typical square of a feature that says where a number is missing."""


class Column(Part):
    """A column: some features of x."""

    kinds: ClassVar[dict[str, type[Any]]] = {}

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """Names of its features."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest that a feature can be, whatever its sign."""

    @property
    def refuses(self) -> bool:
        """Whether a value can make a site refuse its table."""
        return self.missing == "error"

    @abstractmethod
    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return the features of all rows, and count what was clipped, missing and unknown."""

    @abstractmethod
    def typical(self, power: int) -> Float[np.ndarray, " k"]:
        """Return the typical power, 2 or 4, of every feature: public constants."""

    def in_units(self, weights: Float[np.ndarray, " k"]) -> tuple[Float[np.ndarray, " k"], float]:
        """Return weights per unit of the table's values, and what that adds to the intercept."""
        return weights, 0.0


@dataclass(frozen=True)
class Number(Scaled, Column, kind="number"):
    """A column of numbers.

    missing: what to do where nothing was measured: "centre" puts the centre there, "indicator" does too and says so in
    a second feature, "error" refuses the table.
    """

    missing: str = "centre"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(f"missing of column {self.name!r}", self.missing, ("centre", "indicator", "error"))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name, f"{self.name} is missing")[: 2 if self.missing == "indicator" else 1]

    @property
    def bound(self) -> float:
        """The distance of the farther end from the centre, in scales."""
        return max(abs(end - self.centre) / self.scale for end in (self.low, self.high))

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return the scaled numbers, and where they are missing if the schema asks for that."""
        values, missing = self.scaled(chunk, counts)
        if missing is not None and self.missing == "error":
            raise _missing_error(chunk, int(np.argmax(missing)), self.name, '"centre" or "indicator"')
        if self.missing != "indicator":
            return values[:, None]
        return np.column_stack([values, np.zeros(len(values)) if missing is None else missing])

    def typical(self, power: int) -> Float[np.ndarray, " k"]:
        """Return the moment of a standard normal: the scale is a standard deviation."""
        return np.array([float(math.prod(range(power - 1, 0, -2))), INDICATOR_SQUARE])[: len(self.features)]

    def in_units(self, weights: Float[np.ndarray, " k"]) -> tuple[Float[np.ndarray, " k"], float]:
        """Return the weight per unit; an indicator keeps its own."""
        slope = weights[0] / self.scale
        return np.array([slope, *weights[1:]]), -float(slope * self.centre)


@dataclass(frozen=True)
class Category(Listed, Column, kind="category"):
    """A column with a few known values.

    unknown, missing: what to do with another value, and where there is none: "other" counts it as other, "error"
    refuses the table.
    """

    unknown: str = OTHER
    missing: str = OTHER

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}"
        one_of(f"unknown of {where}", self.unknown, (OTHER, "error"))
        one_of(f"missing of {where}", self.missing, (OTHER, "error"))
        if not self.values:
            raise InputError(f"Expected at least one of the values of {where}, got none.")
        if self.has_other and OTHER in self.values:
            raise InputError(
                f"Expected no value {OTHER!r} of {where}: it names the feature for unknown or missing values. "
                "Leave it out, and such rows are counted there."
            )

    @property
    def has_other(self) -> bool:
        """Whether something may be counted as other."""
        return OTHER in (self.unknown, self.missing)

    @property
    def refuses(self) -> bool:
        """Whether a value can make a site refuse its table."""
        return "error" in (self.unknown, self.missing)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return tuple(f"{self.name}={value}" for value in (*self.values, *((OTHER,) if self.has_other else ())))

    @property
    def bound(self) -> float:
        """One."""
        return 1.0

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return a 1 for every row, in the feature of its value."""
        others = {OTHER: len(self.values)} if self.unknown == OTHER else {}
        codes, missing, unknown = self.codes(chunk, **others)
        if missing is None or unknown is None:
            counts.add(missing={self.name: 0}, unknown={self.name: 0})
        else:
            counts.add(missing={self.name: int(missing.sum())}, unknown={self.name: int(unknown.sum())})
            if missing.any() and self.missing == "error":
                raise _missing_error(chunk, int(np.argmax(missing)), self.name, f'"{OTHER}"')
            if unknown.any() and self.unknown == "error":
                row = int(np.argmax(unknown))
                value = chunk.texts[self.name].word(row)
                some = ", ".join(map(repr, self.values[:10])) + (", ..." if len(self.values) > 10 else "")
                raise InputError(
                    f"Expected one of {some} in {chunk.place(row, self.name)}, got {value!r}.{near(value, self.values)}"
                    f' Add it to values in the schema, or set unknown = "{OTHER}".'
                )
        return np.eye(len(self.features), dtype=np.float32).take(codes, axis=0)

    def typical(self, power: int) -> Float[np.ndarray, " k"]:  # noqa: ARG002 - ones stay ones
        """Return 1 / k: of k features, one is 1."""
        return np.full(len(self.features), 1 / len(self.features))


def _missing_error(chunk: Chunk, row: int, name: str, others: str) -> InputError:
    """Return the error for a missing value; others: what the schema could say instead."""
    return InputError(
        f"Expected a value in {chunk.place(row, name)}, got none. "
        f"Fill it in, leave the row out, or set missing = {others} in the schema."
    )
