"""Summaries of the columns of a table that may be shown: what a schema is inferred from.

The table is read once, or twice where the first block of rows did not tell whether a column holds numbers. Beside sums
over all rows, some rows are kept whole (`SAMPLE`, at equal distances), to look at columns together.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.reading.chunk import AS_IT_IS, NUMBER, TEXT, Chunk, Kind, Text
from fedvi.tables.reading.decimals import look_at
from fedvi.tables.reading.source import TableSource, ahead
from fedvi.tables.reading.words import (
    COMMA,
    MISSING,
    POINT,
    number_or_limit,
    numbers_in,
    plain,
    side_of,
    takes,
)
from fedvi.tables.repeats import Repeats

MOST_DISTINCT = 200_000
"""Distinct values of a text column that are counted."""

SAMPLE = 10_000
"""Rows that are kept whole, about."""

LARGEST = 1e100
"""Numbers beyond that are mistakes, and their squares are no numbers."""

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

    @property
    def measured(self) -> int:
        """How many rows have a value."""
        return self.rows - self.missing

    @property
    def numbers(self) -> int:
        """How many rows have a number."""
        return self.moments.count

    @property
    def sampled(self) -> np.ndarray:
        """The values of the rows that are kept."""
        return np.concatenate(self.sample)

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
            elif count and (len(self.counts) < MOST_DISTINCT or plain(value) in self.counts):
                self.counts[plain(value)] += count
            elif count:
                self.overflown = True

    def add_among_text(self, chunk: Chunk, text: Text) -> np.ndarray:
        """Take in the numbers among text, count what is none, and return the numbers of all rows."""

        def read(word: str) -> float:
            return math.nan if plain(word) in self.nothing else number_or_limit(word, chunk.decimal)

        values, foreign = text.numbers(read, key="numbers")
        self.add_numbers(values)
        self.words.update(plain(text.values[code]) for code in text.codes[foreign].tolist())
        marked = {code: side_of(word, chunk.decimal) for code, word in enumerate(text.values) if word[0] in "<>≤≥"}
        for code, side in marked.items():
            if side:
                self.sides[side] += int(np.count_nonzero(text.codes == code))
        return values


@dataclass(frozen=True)
class Looked:
    """Summaries of all columns by name.

    undecided: columns whose numbers leave open what separates decimals, with an example.
    repeated: rows that agree with an earlier one.
    """

    columns: dict[str, Summary]
    rows: int
    repeated: int
    undecided: dict[str, str] = field(default_factory=dict)


def look(
    reader: TableSource, names: Sequence[str], texts: Collection[str], missing: Mapping[str, tuple[str, ...]]
) -> Looked:
    """Return summaries of columns. texts: those to be read as text, whatever they hold.

    missing: values that mean that nothing was measured, by column.

    What separates decimals in the table's numbers is found first, and said in the reader's dialect.
    """
    with closing(reader.chunks(dict.fromkeys(names, AS_IT_IS))) as chunks:
        first = next(chunks)
    words = {name: first.text(name).values for name in names if isinstance(first.columns[name], Text)}
    numeric = {name for name, found in words.items() if name not in texts and _share(found, _is_numeric) > MOST_NUMERIC}
    decimal, undecided = reader.dialect.decimal, dict[str, str]()
    if not decimal:
        found_decimals = look_at({name: words[name] for name in names if name in numeric}, reader.delimiter)
        decimal, undecided = found_decimals.decimal, found_decimals.asked
        reader.said += found_decimals.said
        reader.dialect = reader.dialect.with_given(decimal=decimal)
    padded = {name for name in numeric if any(map(PADDED.fullmatch, words[name]))}
    kinds: dict[str, Kind] = {name: TEXT if name in texts or name in words else NUMBER for name in names}
    kinds |= {name: NUMBER for name in numeric - padded if _are_plain(words[name][:1000], decimal)}
    found = {name: Summary(name, missing.get(name, ()), padded=name in padded) for name in names}
    repeats = Repeats()
    step, numbers = 1, {name for name in names if name in numeric or kinds[name] == NUMBER}
    with closing(reader.chunks(kinds)) as chunks, closing(ahead(chunks)) as coming:
        for chunk in coming:
            repeats.add(chunk, names)
            for name, summary in found.items():
                summary.take(chunk, step, numbers=name in numbers)
            while sum(map(len, found[names[0]].sample)) > 2 * SAMPLE:
                step *= 2
                for summary in found.values():
                    summary.sample = [summary.sampled[::2]]
    again = [name for name, summary in found.items() if summary.counts and kinds[name] == NUMBER and name not in texts]
    lost = [name for name in again if found[name].numbers <= MOST_NUMERIC * found[name].measured]
    if lost:  # the first rows held numbers, most others do not
        found |= look(reader, lost, lost, missing).columns
    return Looked(found, next(iter(found.values())).rows, repeats.count, undecided)


def _are_plain(words: Sequence[str], decimal: str) -> bool:
    """Tell whether Arrow understands these numbers, or words for a missing one."""
    if decimal == COMMA:
        return all(("." not in word and takes(float, word.replace(",", "."))) or word in MISSING for word in words)
    return all(takes(float, word) or word in MISSING for word in words)


def _is_numeric(text: str) -> bool:
    return text in MISSING or takes(lambda each: number_or_limit(each, POINT), text)


def _share(words: Sequence[str], holds: Callable[[str], bool]) -> float:
    """Return the share of words for which something holds."""
    return sum(map(holds, words)) / max(len(words), 1)
