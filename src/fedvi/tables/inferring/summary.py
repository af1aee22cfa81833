"""What is known of one column of a sample: sums over its rows, values, and some rows that are kept."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.reading.chunk import Chunk, Text
from fedvi.tables.reading.words import MISSING, number_or_limit, numbers_in, plain, side_of

MOST_DISTINCT = 200_000
"""Distinct values of a text column that are counted."""

UNITS = frozenset("%‰$£€¥¢₣₤₩₪₫₱₴₹₺₽")
"""Signs for what numbers are measured in."""

LARGEST = 1e100
"""Numbers beyond that are mistakes, and their squares are no numbers."""

DASHES = frozenset(("-", "--", "\N{MINUS SIGN}", "\N{EN DASH}"))
"""Words for a missing value that may be one for a negative result."""

PADDED = re.compile(r"0\d+")
"""A whole number that begins with zero, as codes do."""

MOST_NUMERIC = 0.5
"""Share of a text column's values in the first rows from which on numbers are looked for among them."""


@dataclass
class Moments:
    """Number, mean and squares (the sum of squared distances from it) of the numbers so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Take in more numbers, by the parallel formula."""
        mean = float(values.mean())
        before, share = self.count, len(values) / (self.count + len(values))
        self.count += len(values)
        away = values - mean
        self.squares += float(away @ away) + (mean - self.mean) ** 2 * before * share
        self.mean += (mean - self.mean) * share

    def rounded(self, low: float, high: float) -> tuple[float, float]:
        """Return mean and standard deviation to three digits of the latter, the mean within bounds."""
        spread = math.sqrt(self.squares / self.count)
        digits = 2 - math.floor(math.log10(spread))
        return min(max(round(self.mean, digits), low), high), round(spread, digits)


@dataclass
class Summary:
    """What is known of a column.

    Of its numbers: the smallest and largest, zeros, moments; up to three of them; whether all are whole; whether they
    count rows, from `offset` on.
    counts: how often each value of text comes. words: the same for text among numbers, and sides of limits of detection
    (`sides`). nothing: values that mean that nothing was measured. ordered: values in an order that somebody gave them.
    padded: whether numbers begin with a zero, as codes do. sample: values of the rows that are kept.
    gaps: how often each word for a missing value comes. units: how often numbers have which unit.
    last: the number in the last row.
    """

    name: str
    nothing: tuple[str, ...] = ()
    rows: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    zeros: int = 0
    moments: Moments = field(default_factory=Moments)
    distinct: set[float] = field(default_factory=set)
    is_whole: bool = True
    is_running: bool = True
    offset: float = math.nan
    counts: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    sides: Counter[str] = field(default_factory=Counter)
    ordered: tuple[str, ...] = ()
    padded: bool = False
    overflown: bool = False
    sample: list[np.ndarray] = field(default_factory=list)
    gaps: Counter[str] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    last: float = math.nan

    @property
    def measured(self) -> int:
        """How many rows have a value."""
        return self.rows - self.missing

    @property
    def is_total(self) -> bool:
        """Whether the last row holds the sum of all others."""
        total, several = self.moments.mean * self.numbers, self.numbers - self.zeros > 3
        return several and self.last == self.high > 0 and math.isclose(total, 2 * self.last, rel_tol=1e-9)

    def restore_signs(self) -> None:
        """Take a dash for a value, where others are plus signs, as on dipsticks."""
        if any(value.startswith("+") for value in self.counts):
            for sign in DASHES & self.gaps.keys():
                self.counts[sign] += self.gaps[sign]
                self.missing -= self.gaps.pop(sign)

    @property
    def numbers(self) -> int:
        """How many rows have a number."""
        return self.moments.count

    @property
    def sampled(self) -> np.ndarray:
        """The values of the rows that are kept."""
        return np.concatenate(self.sample)

    @property
    def present(self) -> np.ndarray:
        """The numbers in the rows that are kept, without gaps."""
        sample = self.sampled
        return sample[~np.isnan(sample)] if sample.dtype != object else np.zeros(0)

    def column(self) -> np.ndarray | Text:
        """Return the rows that are kept as a column of a table; values beyond a limit of detection are the limit."""
        sample = self.sampled
        if sample.dtype != object:
            return sample
        known = {value: code for code, value in enumerate(dict.fromkeys(v for v in sample.tolist() if v is not None))}
        return Text(np.array([known.get(value, -1) for value in sample.tolist()]), list(known))

    def take(self, chunk: Chunk, step: int, *, numbers: bool) -> None:
        """Take in a chunk, and keep every so many rows (`step`). numbers: whether to look for them in text too."""
        self.rows += chunk.rows
        column, kept = chunk.columns[self.name], slice(-chunk.start % step, None, step)
        if not isinstance(column, Text):
            values = np.where(np.isin(column, numbers_in(self.nothing)), np.nan, column) if self.nothing else column
            self.missing += int(np.count_nonzero(np.isnan(values)))
            self.add_numbers(values)
            self._check_finite(chunk, values)
            self.sample.append(values[kept])
        else:
            self.add_text(column)
            among = self.add_among_text(chunk, column) if numbers else np.zeros(0)
            self._check_finite(chunk, among)
            self.sample.append(among[kept] if numbers else self._words(column, kept))

    def _check_finite(self, chunk: Chunk, values: np.ndarray) -> None:
        if max(-self.low, self.high) > LARGEST and self.low < math.inf:
            row = int(np.argmax(np.abs(np.nan_to_num(values, nan=0.0, posinf=math.inf, neginf=-math.inf))))
            raise InputError(
                f"Expected a number below {LARGEST:g} in {chunk.place(row, self.name)}, got {values[row]:g}. Correct "
                f"it, leave the column out (--ignore {self.name!r}), or say that it means missing (--missing)."
            )

    def _words(self, text: Text, kept: slice) -> np.ndarray:
        known = (None if word in MISSING or plain(word) in self.nothing else word for word in text.values)
        return np.array([*known, None], object)[text.codes[kept]]

    def add_numbers(self, values: np.ndarray) -> None:
        """Take in numbers, in the order of their rows; NaN is none."""
        gaps = np.isnan(values)
        self.last = float(values[-1]) if len(values) else self.last
        here = values[~gaps] if gaps.any() else values
        if not len(here):
            return
        self.low, self.high = min(self.low, float(here.min())), max(self.high, float(here.max()))
        if max(-self.low, self.high) > LARGEST:
            return
        self.moments.add(here)
        self.is_whole = self.is_whole and bool(np.all(here == np.floor(here)))
        if self.is_running:
            counted = values - np.arange(
                self.rows - len(values), self.rows
            )  # of a running number, the same in all rows
            self.offset = float(counted[~gaps][0]) if math.isnan(self.offset) else self.offset
            self.is_running = bool(np.all(counted[~gaps] == self.offset))
        self.zeros += int(np.count_nonzero(here == 0))
        if len(self.distinct) <= 2:
            self.distinct.update(np.unique(here)[:3].tolist())

    def add_text(self, text: Text) -> None:
        """Count the values of text."""
        if text.ordered and not self.ordered:
            self.ordered = tuple(map(plain, text.values))
        counts = np.bincount(text.codes + 1, minlength=len(text.values) + 1).tolist()
        self.missing += counts[0]
        for value, count in zip(text.values, counts[1:], strict=True):
            if value in MISSING or plain(value) in self.nothing:
                self.missing += count
                self.gaps[value] += count
            elif count and (len(self.counts) < MOST_DISTINCT or plain(value) in self.counts):
                self.counts[plain(value)] += count
            elif count:
                self.overflown = True

    def add_among_text(self, chunk: Chunk, text: Text) -> np.ndarray:
        """Take in the numbers among text, count what is none, and return the numbers of all rows."""

        def read(word: str, decimal: str) -> float:
            return math.nan if plain(word) in self.nothing else number_or_limit(word, decimal)

        values, foreign = chunk.numbers(self.name, read, key="numbers")
        self.add_numbers(values)
        found = np.bincount(text.codes[~np.isnan(values)], minlength=len(text.values)).tolist()
        for word, count in zip(text.values, found, strict=True):
            if count:
                self.units["".join(letter for letter in word if letter in UNITS)] += count
        self.words.update(plain(text.values[code]) for code in text.codes[foreign].tolist())
        marked = {
            code: side_of(word, chunk.decimal)
            for code, word in enumerate(text.values)
            if word[0] in "<>≤≥" or word[-1] == "+"
        }
        for code, side in marked.items():
            if side:
                self.sides[side] += int(np.count_nonzero(text.codes == code))
        return values
