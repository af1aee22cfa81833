"""Columns of a schema: how the values of one become features of x. `Scaled` and `Listed` are for targets too.

number      (clip(value, low, high) - centre) / scale       one feature; 0, the centre, if missing
category    one 0/1 feature per value                       and one for "other", if something may fall there

A column of your own is a frozen dataclass, a subclass of `Column`; a schema names it by `kind = "module:Class"`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from fedvi.checks import near, one_of
from fedvi.errors import InputError
from fedvi.tables.read import MISSING, NUMBER, TEXT, Chunk, Counts, Kind, plain

OTHER = "other"
INDICATOR_SQUARE = 0.1
"""Typical square of a feature that says where a number is missing."""

LARGEST_RANGE = 1e6
"""Scales between the bounds of a number, at most: so that what is encoded is always a sensible number."""

_UNKNOWN, _MISSING = -1, -2


class Part(ABC):
    """A column or the target. missing: what happens without a value. comments: on keys in the schema's file."""

    name: str
    missing: str = ""
    comments: ClassVar[Mapping[str, str]] = {}

    @property
    @abstractmethod
    def reads(self) -> dict[str, Kind]:
        """Which columns of a table it needs, and how."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """What it expects, for people."""


class Column(Part):
    """A column: some features of x. unknown: what happens with a value that nobody expects."""

    unknown: str = ""

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
        return "error" in (self.missing, self.unknown)

    @abstractmethod
    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return the features of all rows, and count what was clipped, missing and unknown."""

    @abstractmethod
    def typical(self, power: int) -> Float[np.ndarray, " k"]:
        """Return the typical power, 2 or 4, of every feature: public constants."""

    def in_units(self, weights: Float[np.ndarray, " k"]) -> tuple[Float[np.ndarray, " k"], float]:
        """Return weights per unit of the table's values, and what that adds to the intercept."""
        return weights, 0.0

    def check_missing(self, missing: Bool[np.ndarray, " n"], chunk: Chunk, others: str) -> None:
        """Raise `InputError` where a value is missing, if the schema asks for it; others: what else it could say."""
        if self.missing == "error" and missing.any():
            raise InputError(
                f"Expected a value in {chunk.place(int(np.argmax(missing)), self.name)}, got none. "
                f"Fill it in, leave the row out, or set missing = {others} in the schema."
            )


@dataclass(frozen=True)
class Scaled:
    """Numbers with public bounds, a centre and a scale."""

    name: str
    low: float
    high: float
    centre: float
    scale: float

    def __post_init__(self) -> None:
        for name in ("low", "high", "centre", "scale"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise InputError(f"Expected {name} of column {self.name!r} to be a finite number, got {value!r}.")
            object.__setattr__(self, name, float(value) + 0.0)  # and -0.0 becomes 0.0
        if self.low >= self.high:
            raise InputError(f"Expected low < high for column {self.name!r}, got {self.low} and {self.high}.")
        if not self.low <= self.centre <= self.high:
            bounds = f"[{self.low}, {self.high}]"
            raise InputError(f"Expected the centre of column {self.name!r} within {bounds}, got {self.centre}.")
        if self.scale <= 0:
            raise InputError(f"Expected scale > 0 for column {self.name!r}, got {self.scale}.")
        if self.high - self.low > LARGEST_RANGE * self.scale:
            raise InputError(
                f"Expected at most {LARGEST_RANGE:g} scales between low and high of column {self.name!r}, {self.low} "
                f"and {self.high}, got a scale of {self.scale}. Narrow the bounds: values beyond them are clipped."
            )

    @property
    def reads(self) -> dict[str, Kind]:
        """The column with numbers in it."""
        return {self.name: NUMBER}

    @property
    def shown(self) -> str:
        """Bounds, centre and scale."""
        return f"{self.low:g} to {self.high:g}, centre {self.centre:g}, scale {self.scale:g}"

    def scaled(self, chunk: Chunk, counts: Counts) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Return the clipped and scaled numbers, 0 where missing, and where that is."""
        if self.name in chunk.numbers:
            values = chunk.numbers[self.name]
        else:
            values, foreign = chunk.texts[self.name].numbers()
            counts.add(self.name, unknown=int(np.count_nonzero(foreign)))
        missing = ~np.isfinite(values)
        if chunk.strict and np.isinf(values[missing]).any():
            row = int(np.argmax(np.isinf(values)))
            raise InputError(
                f"Expected a finite number in {chunk.place(row, self.name)}, got {values[row]}. "
                "Correct it, or leave it empty."
            )
        within = np.clip(values, self.low, self.high)
        gaps, changed = np.count_nonzero(missing), np.count_nonzero(within != values)  # NaN is not equal to itself
        counts.add(self.name, clipped=int(changed - gaps), missing=int(gaps))
        within -= self.centre
        within /= self.scale
        within[missing] = 0
        return within, missing


@dataclass(frozen=True)
class Listed:
    """Text with a few known values."""

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        where, found = f"column {self.name!r}", dict[str, str]()
        given: Any = self.values
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InputError(f"Expected a list of values of {where}, got {given!r}.")
        for value in given:
            word = plain(str(value)) if isinstance(value, bool | int | float) else value  # as it is in tables
            if not isinstance(word, str):
                raise InputError(f"Expected the values of {where} to be texts, got {word!r}.")
            if not word or word != word.strip():
                raise InputError(f"Expected values of {where} without blanks around them and not empty, got {word!r}.")
            if plain(word) in found:
                raise InputError(f"Expected every value of {where} once, got {found[plain(word)]!r} and {word!r}.")
            found[plain(word)] = word
        object.__setattr__(self, "values", tuple(found.values()))

    @property
    def reads(self) -> dict[str, Kind]:
        """The column with text in it."""
        return {self.name: TEXT}

    @property
    def shown(self) -> str:
        """The first values."""
        return ", ".join(self.values[:8]) + (", ..." if len(self.values) > 8 else "")

    def codes(self, chunk: Chunk, **others: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the code of each row's value; where it is missing, and where unknown: the code is then that of none.

        others: codes of values that the schema does not list.
        """
        known = others | {plain(value): code for code, value in enumerate(self.values)}
        text = chunk.texts[self.name]
        table = np.full(len(text.values) + 1, _MISSING, np.int64)  # code -1 is the last
        for code, value in enumerate(text.values):
            table[code] = known.get(plain(value), _MISSING if value in MISSING else _UNKNOWN)
        codes = table.take(text.codes, mode="wrap")
        missing, unknown = codes == _MISSING, codes == _UNKNOWN
        codes[codes < 0] = len(self.values)
        return codes, missing, unknown


@dataclass(frozen=True)
class Number(Scaled, Column):
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
        """The number, and where it is missing if the schema asks for that."""
        return (self.name, f"{self.name} is missing")[: 2 if self.missing == "indicator" else 1]

    @property
    def bound(self) -> float:
        """The distance of the farther end from the centre, in scales."""
        return max(abs(end - self.centre) / self.scale for end in (self.low, self.high))

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return the scaled numbers, and where they are missing if the schema asks for that."""
        values, missing = self.scaled(chunk, counts)
        self.check_missing(missing, chunk, '"centre" or "indicator"')
        return np.column_stack([values, missing]) if self.missing == "indicator" else values[:, None]

    def typical(self, power: int) -> Float[np.ndarray, " k"]:
        """Return the moment of a standard normal: the scale is a standard deviation."""
        return np.array([float(math.prod(range(power - 1, 0, -2))), INDICATOR_SQUARE])[: len(self.features)]

    def in_units(self, weights: Float[np.ndarray, " k"]) -> tuple[Float[np.ndarray, " k"], float]:
        """Return the weight per unit; an indicator keeps its own."""
        slope = weights[0] / self.scale
        return np.array([slope, *weights[1:]]), -float(slope * self.centre)


@dataclass(frozen=True)
class Category(Listed, Column):
    """A column with a few known values.

    unknown, missing: what to do with another value, and where there is none: "other" counts it as other, "error"
    refuses the table.
    """

    unknown: str = OTHER
    missing: str = OTHER
    bound: ClassVar = 1.0

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
    def features(self) -> tuple[str, ...]:
        """One per value."""
        return tuple(f"{self.name}={value}" for value in (*self.values, *((OTHER,) if self.has_other else ())))

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return a 1 for every row, in the feature of its value."""
        others = {OTHER: len(self.values)} if self.unknown == OTHER else {}
        codes, missing, unknown = self.codes(chunk, **others)
        counts.add(self.name, missing=int(missing.sum()), unknown=int(unknown.sum()))
        self.check_missing(missing, chunk, f'"{OTHER}"')
        if self.unknown == "error" and unknown.any():
            row = int(np.argmax(unknown))
            value = chunk.texts[self.name].word(row)
            some = ", ".join(map(repr, self.values[:10])) + (", ..." if len(self.values) > 10 else "")
            raise InputError(
                f"Expected one of {some} in {chunk.place(row, self.name)}, got {value!r}.{near(value, self.values)}"
                f' Add it to values in the schema, or set unknown = "{OTHER}".'
            )
        return np.eye(len(self.features), dtype=np.float32).take(codes, axis=0)

    def typical(self, power: int) -> Float[np.ndarray, " k"]:  # ones stay ones
        """Return 1 / k: of k features, one is 1."""
        return np.full(len(self.features), 1 / len(self.features))
