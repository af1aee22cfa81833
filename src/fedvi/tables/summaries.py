"""Summaries of the columns of a table that may be shown: what `fedvi.tables.infer` looks at."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.read import MISSING, NUMBER, TEXT, Kind, TableSource, Text, as_text_where_needed, parse_number, plain

MOST_DISTINCT = 200_000


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
        self.squares += float(np.square(values - mean).sum()) + (mean - self.mean) ** 2 * before * share
        self.mean += (mean - self.mean) * share

    def rounded(self, low: float, high: float) -> tuple[float, float]:
        """Return mean and standard deviation to three digits of the latter, the mean within bounds."""
        spread = math.sqrt(self.squares / self.count)
        digits = 2 - math.floor(math.log10(spread))
        return min(max(round(self.mean, digits), low), high), round(spread, digits)


@dataclass
class Summary:
    """What is known of a column so far. moments, logs: of its numbers, and of log(1 + number) if none is negative.

    zeros: how many are 0. least: the smallest above it.
    """

    name: str
    rows: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    zeros: int = 0
    least: float = math.inf
    moments: Moments = field(default_factory=Moments)
    logs: Moments = field(default_factory=Moments)
    distinct: set[float] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    is_number: bool = False
    overflown: bool = False

    @property
    def measured(self) -> int:
        """How many rows have a value."""
        return self.rows - self.missing

    def add_numbers(self, values: np.ndarray) -> None:
        """Take in one chunk of numbers."""
        self.is_number = True
        self.rows += len(values)
        here = values[~np.isnan(values)]
        self.missing += len(values) - len(here)
        if not len(here):
            return
        self.low, self.high = min(self.low, float(here.min())), max(self.high, float(here.max()))
        self.moments.add(here)
        if self.low >= 0:
            self.logs.add(np.log1p(here))
            self.zeros += int(np.count_nonzero(here == 0))
            self.least = min(self.least, float(here[here > 0].min(initial=math.inf)))
        if len(self.distinct) <= 2:
            self.distinct.update(np.unique(here)[:3].tolist())

    def add_text(self, text: Text) -> None:
        """Take in one chunk of text."""
        self.rows += len(text.codes)
        counts = np.bincount(text.codes + 1, minlength=len(text.values) + 1).tolist()
        self.missing += counts[0]
        for value, count in zip(text.values, counts[1:], strict=True):
            if value in MISSING:
                self.missing += count
            elif count and (len(self.counts) < MOST_DISTINCT or plain(value) in self.counts):
                self.counts[plain(value)] += count
            elif count:
                self.overflown = True


def look(reader: TableSource, names: list[str]) -> dict[str, Summary]:
    """Return summaries of all columns: of numbers, if all values are."""
    with closing(reader.chunks(dict.fromkeys(names, TEXT))) as chunks:
        first = next(chunks)
    kinds: dict[str, Kind] = {
        name: NUMBER if all(map(is_number, first.texts[name].values[:1000])) else TEXT for name in names
    }

    def read() -> dict[str, Summary]:
        found = {name: Summary(name) for name in names}
        for chunk in reader.chunks(kinds):
            for name, summary in found.items():
                if kinds[name] == TEXT:
                    summary.add_text(chunk.texts[name])
                    continue
                values = chunk.numbers[name]
                if np.isinf(values).any():
                    row = int(np.argmax(np.isinf(values)))
                    raise InputError(f"Expected a finite number in {chunk.place(row, name)}, got {values[row]}.")
                summary.add_numbers(values)
        return found

    return as_text_where_needed(kinds, read)


def is_number(text: str) -> bool:
    """Tell whether a text holds a number, or a word of `MISSING`."""
    try:
        parse_number(text)
    except ValueError:
        return False
    return True
