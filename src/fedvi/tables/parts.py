"""What columns and targets of a schema have in common: a kind, what they read, and numbers or lists of values.

`Counts` say what was clipped, missing and unknown at a site. They are for the people there: nothing sends them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.read import NUMBER, TEXT, Chunk, Kind
from fedvi.tables.words import MISSING, number_or_nan, plain

LARGEST_RANGE = 1e6
"""Scales between the bounds of a number, at most: so that what is encoded is always a sensible number."""

_UNKNOWN, _MISSING = -1, -2


@dataclass
class Counts:
    """What happened to values, by column. For the site alone: it tells about rows."""

    rows: int = 0
    clipped: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        total = Counts(self.rows + other.rows, dict(self.clipped), dict(self.missing), dict(self.unknown))
        for what in ("clipped", "missing", "unknown"):
            total.add(**{what: getattr(other, what)})
        return total

    def add(self, **found: dict[str, int]) -> None:
        """Count values that were clipped, missing or unknown, by column."""
        for what, numbers in found.items():
            counts = getattr(self, what)
            for name, number in numbers.items():
                counts[name] = counts.get(name, 0) + number


class Part(ABC):
    """A column or the target: a table in the schema's file.

    kind: the name of its class there. kinds: classes by their kind. missing: what happens without a value.
    """

    name: str
    missing: str
    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, kind: str = "", **options: Any):
        super().__init_subclass__(**options)
        if kind:
            cls.kind = kind
            cls.kinds[kind] = cls

    @property
    @abstractmethod
    def reads(self) -> dict[str, Kind]:
        """Which columns of a table it needs, and how."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """What it expects, for people."""


@dataclass(frozen=True)
class Scaled:
    """Numbers with public bounds, a centre and a scale."""

    name: str
    low: float
    high: float
    centre: float
    scale: float

    def __post_init__(self) -> None:
        _check_name(self.name)
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

    def scaled(self, chunk: Chunk, counts: Counts) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the clipped and scaled numbers, 0 where missing, and where that is, if anywhere."""
        values = self._values(chunk, counts)
        if self.low <= values.min() and values.max() <= self.high:  # so none is missing: NaN is not below anything
            counts.add(clipped={self.name: 0}, missing={self.name: 0})
            return (values - self.centre) / self.scale, None
        infinite = np.isinf(values)
        if not chunk.strict:
            values = np.where(infinite, np.nan, values)
        elif infinite.any():
            row = int(np.argmax(infinite))
            raise InputError(
                f"Expected a finite number in {chunk.place(row, self.name)}, got {values[row]}. "
                "Correct it, or leave it empty."
            )
        missing = np.isnan(values)
        gaps = int(np.count_nonzero(missing))
        within = np.clip(values, self.low, self.high)
        changed = int(np.count_nonzero(within != values))  # and NaN is not equal to itself
        counts.add(clipped={self.name: changed - gaps}, missing={self.name: gaps})
        within -= self.centre
        within /= self.scale
        if not gaps:
            return within, None
        within[missing] = 0
        return within, missing

    def _values(self, chunk: Chunk, counts: Counts) -> np.ndarray:
        """Return the numbers, NaN where there is none."""
        if self.name in chunk.numbers:
            return chunk.numbers[self.name]
        text = chunk.texts[self.name]
        table = np.array([*map(number_or_nan, text.values), np.nan])
        foreign = np.array([*(np.isnan(table[:-1]) & ~np.isin(text.values, list(MISSING))), False])
        counts.add(unknown={self.name: int(np.count_nonzero(foreign[text.codes]))})
        return table[text.codes]


@dataclass(frozen=True)
class Listed:
    """Text with a few known values."""

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "values", _check_values(self.values, f"column {self.name!r}"))

    @property
    def reads(self) -> dict[str, Kind]:
        """The column with text in it."""
        return {self.name: TEXT}

    @property
    def shown(self) -> str:
        """The first values."""
        return ", ".join(self.values[:8]) + (", ..." if len(self.values) > 8 else "")

    def codes(self, chunk: Chunk, **others: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Return the code of each row's value; where it is missing and where unknown, None if neither is anywhere.

        others: codes of values that the schema does not list. Where missing or unknown, the code is that of no value.
        """
        known = others | {plain(value): code for code, value in enumerate(self.values)}
        known |= {value: code for code, value in enumerate(self.values)}  # exact spellings win
        text = chunk.texts[self.name]
        table = np.empty(len(text.values) + 1, np.int64)
        table[-1] = _MISSING  # code -1
        for code, value in enumerate(text.values):
            found = known.get(value)
            table[code] = (
                known.get(plain(value), _MISSING if value in MISSING else _UNKNOWN) if found is None else found
            )
        codes = table.take(text.codes, mode="wrap")  # code -1 is the last
        if codes.min(initial=0) >= 0:
            return codes, None, None
        missing, unknown = codes == _MISSING, codes == _UNKNOWN
        codes[codes < 0] = len(self.values)
        return codes, missing, unknown


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or name != name.strip():
        raise InputError(f"Expected the name of a column without blanks around it, got {name!r}.")


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
