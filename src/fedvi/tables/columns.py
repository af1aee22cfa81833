"""The kinds of columns that a schema knows, and what each of them must be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from fedvi.checks import one_of
from fedvi.errors import InputError
from fedvi.tables.words import plain

OTHER = "other"
LARGEST_RANGE = 1e6
"""Scales between the bounds of a number, at most: so that what is encoded is always a sensible number."""


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    missing: what to do where nothing was measured: "centre" puts the centre there, "indicator" does too and says so in
    a second feature, "error" refuses the table.
    """

    name: str
    low: float
    high: float
    centre: float
    scale: float
    missing: str = "centre"

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_numbers(self)
        one_of(f"missing of column {self.name!r}", self.missing, ("centre", "indicator", "error"))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name, f"{self.name} is missing") if self.missing == "indicator" else (self.name,)


@dataclass(frozen=True)
class Category:
    """A column with a few known values.

    unknown, missing: what to do with another value, and where there is none: "other" counts it as other, "error"
    refuses the table.
    """

    name: str
    values: tuple[str, ...]
    unknown: str = OTHER
    missing: str = OTHER

    def __post_init__(self) -> None:
        _check_name(self.name)
        where = f"column {self.name!r}"
        one_of(f"unknown of {where}", self.unknown, (OTHER, "error"))
        one_of(f"missing of {where}", self.missing, (OTHER, "error"))
        object.__setattr__(self, "values", _check_values(self.values, where))
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
        """Names of its features."""
        return tuple(f"{self.name}={value}" for value in (*self.values, *((OTHER,) if self.has_other else ())))


@dataclass(frozen=True)
class BinaryTarget:
    """A target of two classes; the second one is the one whose probability is predicted."""

    name: str
    values: tuple[str, str]

    def __post_init__(self) -> None:
        _check_name(self.name)
        values = _check_values(self.values, f"target {self.name!r}")
        if len(values) != 2:
            raise InputError(f"Expected two values of target {self.name!r}, got {len(values)}: {shown(values)}.")
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class NumberTarget:
    """A target that is a number; `scale` is its standard deviation around the line, in its own units."""

    name: str
    low: float
    high: float
    centre: float
    scale: float

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_numbers(self)


Column = Number | Category
Target = BinaryTarget | NumberTarget


def shown(values: Iterable[str]) -> str:
    """Return names in one line, for errors."""
    return ", ".join(map(str, values)) or "nothing"


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or name != name.strip():
        raise InputError(f"Expected the name of a column without blanks around it, got {name!r}.")


def _check_numbers(part: Number | NumberTarget) -> None:
    for field in ("low", "high", "centre", "scale"):
        value = getattr(part, field)
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise InputError(f"Expected {field} of column {part.name!r} to be a finite number, got {value!r}.")
        object.__setattr__(part, field, float(value) + 0.0)  # and -0.0 becomes 0.0
    if part.low >= part.high:
        raise InputError(f"Expected low < high for column {part.name!r}, got {part.low} and {part.high}.")
    if not part.low <= part.centre <= part.high:
        bounds = f"[{part.low}, {part.high}]"
        raise InputError(f"Expected the centre of column {part.name!r} within {bounds}, got {part.centre}.")
    if part.scale <= 0:
        raise InputError(f"Expected scale > 0 for column {part.name!r}, got {part.scale}.")
    if part.high - part.low > LARGEST_RANGE * part.scale:
        bounds = f"{part.low} and {part.high}"
        raise InputError(
            f"Expected at most {LARGEST_RANGE:g} scales between low and high of column {part.name!r}, {bounds}, got a "
            f"scale of {part.scale}. Narrow the bounds: values beyond them are clipped."
        )


def _check_values(values: Any, where: str) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"Expected a list of values of {where}, got {values!r}.")
    values = tuple(values)
    seen: dict[str, str] = {}
    for value in values:
        if not isinstance(value, str):
            raise InputError(f"Expected the values of {where} to be texts, got {value!r}.")
        if not value or value != value.strip():
            raise InputError(f"Expected values of {where} without blanks around them and not empty, got {value!r}.")
        if plain(value) in seen:
            raise InputError(f"Expected every value of {where} once, got {seen[plain(value)]!r} and {value!r}.")
        seen[plain(value)] = value
    return values
