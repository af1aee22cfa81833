"""Parts of a schema: what columns and targets share. `Scaled`: numbers with bounds; `Listed`: text with few values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from fedvi.errors import InputError
from fedvi.tables.read import MISSING, NUMBER, TEXT, Chunk, Counts, Kind, plain

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


@dataclass(frozen=True)
class Scaled:
    """Numbers with public bounds, a centre and a scale. Bounds are clipped to before anything else happens."""

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
        low, high = self.ends
        if not low <= self.centre <= high:
            bounds = f"[{low}, {high}]"
            raise InputError(f"Expected the centre of column {self.name!r} within {bounds}, got {self.centre}.")
        if self.scale <= 0:
            raise InputError(f"Expected scale > 0 for column {self.name!r}, got {self.scale}.")
        if high - low > LARGEST_RANGE * self.scale:
            raise InputError(
                f"Expected at most {LARGEST_RANGE:g} scales between low and high of column {self.name!r}, {self.low} "
                f"and {self.high}, got a scale of {self.scale}. Narrow the bounds: values beyond them are clipped."
            )

    def measured(self, values: Float[np.ndarray, " *n"]) -> Float[np.ndarray, " *n"]:
        """Return values in the units of centre and scale."""
        return values

    @property
    def ends(self) -> tuple[float, float]:
        """Both bounds in the units of centre and scale."""
        low, high = self.measured(np.array([self.low, self.high])).tolist()
        return low, high

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
        within = self.measured(within)
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
