"""Parts of a schema: what columns and targets share. `Scaled`: numbers with bounds; `Listed`: text with few values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from fedvi.errors import InputError
from fedvi.tables.counts import Counts
from fedvi.tables.reading.chunk import NUMBER, TEXT, Chunk, Kind, Text
from fedvi.tables.reading.words import ABOVE, BELOW, MISSING, numbers_in, parse_limit, parse_number, plain, side_of

LARGEST_RANGE = 1e6
"""Scales between the bounds of a number, at most: so that what is encoded is always a sensible number."""

ERROR = "error"
"""A policy: the table is refused."""

IF_SET = {"digest": "if set"}
"""Of a field that came later: the digest of a schema that does not use it stays as it was."""

SIDES = {BELOW: -1, ABOVE: 1}
"""Of limits of detection, as numbers."""

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


def checked_missing_values(name: str, given: Any) -> tuple[str, ...]:
    """Return values that mean that nothing was measured, as they are in tables."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"Expected a list of missing_values of column {name!r}, got {given!r}.")
    return tuple(plain(str(value).strip()) for value in given)


@dataclass(frozen=True)
class Scaled(Part):
    """Numbers with public bounds, a centre and a scale. Bounds are clipped to before anything else happens.

    missing_values: what means that nothing was measured, beside the usual words, such as 999.
    limits: sides of limits of detection that are expected; a value such as <0.6 beyond another one counts as clipped.
    """

    name: str
    low: float
    high: float
    centre: float
    scale: float
    missing_values: tuple[str, ...] = field(default=(), kw_only=True, metadata=IF_SET)
    limits: ClassVar[tuple[str, ...]] = ()
    what: ClassVar[str] = "a number"

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_values", checked_missing_values(self.name, self.missing_values))
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
        numbers = (f"{value:.10g}" for value in (self.low, self.high, self.centre, self.scale))
        return "{} to {}, centre {}, scale {}".format(*numbers)

    def read(self, text: str, decimal: str) -> float:
        """Return the number that a text holds, NaN for a missing one, or raise ValueError.

        A value beyond a limit of detection, such as <0.6, counts as the limit.
        """
        try:
            number = parse_number(text, decimal)
        except ValueError:
            return math.nan if plain(text) in self.missing_values else parse_limit(text, decimal)[1]
        return math.nan if number in numbers_in(self.missing_values, decimal) else number

    def scaled(self, chunk: Chunk, counts: Counts) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Return the clipped and scaled numbers, 0 where missing, and where that is."""
        values, foreign = chunk.numbers(self.name, self.read, key=self.name)
        if self.missing_values and not isinstance(chunk.columns[self.name], Text):
            values = np.where(np.isin(values, numbers_in(self.missing_values, chunk.decimal)), np.nan, values)
        foreign = foreign | np.isinf(values)
        missing = ~np.isfinite(values)
        within = np.clip(values, self.low, self.high)
        clipped = (within != values) & ~missing  # NaN is not equal to itself
        sides = self.sides(chunk)
        clipped |= (sides != 0) & ~np.isin(sides, [SIDES[side] for side in self.limits])
        self._count(chunk, counts, missing & ~foreign, foreign, clipped)
        within = self.measured(within)
        within -= self.centre
        within /= self.scale
        within[missing] = 0
        return within, missing

    def sides(self, chunk: Chunk) -> Float[np.ndarray, " n"]:
        """Return -1 for values below a limit of detection, 1 for those above one, else 0 (`SIDES`)."""
        if not isinstance(chunk.columns[self.name], Text):
            return np.zeros(chunk.rows)

        def side(text: str, decimal: str) -> float:
            return SIDES.get(side_of(text, decimal), 0)

        return np.nan_to_num(chunk.numbers(self.name, side, key=f"{self.name}, sides")[0])

    def _count(
        self,
        chunk: Chunk,
        counts: Counts,
        missing: Bool[np.ndarray, " n"],
        foreign: Bool[np.ndarray, " n"],
        clipped: Bool[np.ndarray, " n"],
    ) -> None:
        """Count what happened to values; refuse it, if the chunk is strict."""
        first = ""
        if foreign.any():
            row = int(np.argmax(foreign))
            first = f"{chunk.word(row, self.name)!r} in row {chunk.start + row + 1}"
            if chunk.strict or self.missing == ERROR:
                raise InputError(
                    f"Expected {self.what} in {chunk.place(row, self.name)}, got {chunk.word(row, self.name)!r}. "
                    "Correct it, leave it empty, or name it in missing_values of the schema."
                )
        if chunk.strict and clipped.any():
            row = int(np.argmax(clipped))
            raise InputError(
                f"Expected {self.what} from {self.low:g} to {self.high:g} in {chunk.place(row, self.name)}, got "
                f"{chunk.word(row, self.name)}. Correct it, or widen the bounds in the schema."
            )
        found = {"clipped": clipped, "missing": missing, "foreign": foreign}
        found |= {"gaps": missing} if self.missing == "centre" else {}
        counts.add(self.name, first, **{kind: int(np.count_nonzero(rows)) for kind, rows in found.items()})


@dataclass(frozen=True)
class Listed(Part):
    """Text with a few known values. missing_values: what means that nothing was measured, beside the usual words."""

    name: str
    values: tuple[str, ...]
    missing_values: tuple[str, ...] = field(default=(), kw_only=True, metadata=IF_SET)

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_values", checked_missing_values(self.name, self.missing_values))
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

    def _spellings(self) -> dict[str, int]:
        """Return other words for truth values: 0 and 1 mean false and true, and the other way round."""
        words = [plain(value) for value in self.values]
        if set(words) not in ({"0", "1"}, {"false", "true"}):
            return {}
        first = int(words[0] in ("1", "true"))
        return {word: code ^ first for pair in (("0", "1"), ("false", "true")) for code, word in enumerate(pair)}

    def codes(self, chunk: Chunk, **others: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the code of each row's value; where it is missing, and where unknown: the code is then that of none.

        others: codes of values that the schema does not list.
        """
        known = self._spellings() | others | {plain(value): code for code, value in enumerate(self.values)}
        text, nothing = chunk.text(self.name), {*MISSING, *self.missing_values}
        table = np.full(len(text.values) + 1, _MISSING, np.int64)  # code -1 is the last
        for code, value in enumerate(text.values):
            table[code] = known.get(plain(value), _MISSING if {value, plain(value)} & nothing else _UNKNOWN)
        codes = table.take(text.codes, mode="wrap")
        missing, unknown = codes == _MISSING, codes == _UNKNOWN
        codes[codes < 0] = len(self.values)
        return codes, missing, unknown
