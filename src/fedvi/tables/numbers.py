"""Columns of numbers, and of dates, which are days since 2000-01-01 and from there on numbers like any others."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from fedvi.checks import one_of
from fedvi.errors import InputError
from fedvi.tables.columns import Column
from fedvi.tables.counts import MANY, Counts
from fedvi.tables.hats import hats
from fedvi.tables.layout import HAT, LEVEL, NUMBER
from fedvi.tables.parts import ERROR, IF_SET, SIDES, Scaled
from fedvi.tables.reading.chunk import TEXT, Chunk, Kind
from fedvi.tables.reading.words import ABOVE, BELOW, EPOCH, OPEN, ORDERS, order_of, parse_date, plain

LOG1P = "log1p"
TRANSFORMS = ("none", LOG1P)
FIRST_DAY, LAST_DAY = ((day - EPOCH).days for day in (datetime.date.min, datetime.date.max))
"""What can be a date."""

IN_WORDS = {BELOW: "is below its limit", ABOVE: "is above its limit"}


@dataclass(frozen=True)
class Number(Scaled, Column):
    """A column of numbers.

    missing: what to do where nothing was measured: "centre" puts the centre there, "indicator" does too and says so in
        another feature, "error" refuses the table.
    transform: "none", or "log1p" for log(1 + value); centre and scale are then those of the logarithm.
    knots: in the table's units; empty for a straight line. With transform, hats are straight in the logarithm.
    limits: sides on which values may be beyond a limit of detection, such as <0.6 ("<", ">"): such a value counts as
        the limit, and a feature for its side says so. Without them it does too, and counts as clipped.

    >>> Number("gain", 0, 64, 1, 1, transform="log1p", knots=(0, 16, 32, 64)).features
    ('log1p(gain)', 'gain~[16]', 'gain~[32]')
    """

    missing: str = "centre"
    transform: str = "none"
    knots: tuple[float, ...] = ()
    limits: tuple[str, ...] = field(default=(), kw_only=True, metadata=IF_SET)  # type: ignore[misc]
    comments: ClassVar = {"knots": "in the column's own units"}

    def __post_init__(self) -> None:
        where = f"column {self.name!r}"
        one_of(f"transform of {where}", self.transform, TRANSFORMS)
        super().__post_init__()
        one_of(f"missing of {where}", self.missing, ("centre", "indicator", ERROR))
        object.__setattr__(self, "knots", self._checked_knots())
        for side in self.limits:
            one_of(f"limits of {where}", side, (BELOW, ABOVE))
        object.__setattr__(self, "limits", tuple(side for side in (BELOW, ABOVE) if side in self.limits))

    def _checked_knots(self) -> tuple[float, ...]:
        given: Any = self.knots
        real = isinstance(given, Iterable) and all(isinstance(knot, int | float) for knot in given)
        knots = tuple(float(knot) + 0.0 for knot in given) if real else ()
        increasing = len(knots) > 2 and all(knot < after for knot, after in pairwise(knots))
        if not real or (knots and not (increasing and self.low <= knots[0] and knots[-1] <= self.high)):
            raise InputError(
                f"Expected at least three increasing knots of column {self.name!r} from {self.low:g} to {self.high:g}, "
                f"or none, got {given!r}."
            )
        return knots

    def measured(self, values: Float[np.ndarray, " *n"]) -> Float[np.ndarray, " *n"]:
        """Return the values, or their logarithms."""
        return np.log1p(values) if self.transform == LOG1P else values

    @property
    def ends(self) -> tuple[float, float]:
        """Both bounds, or their logarithms."""
        if self.transform == LOG1P and self.low < 0:
            raise InputError(
                f"Expected low >= 0 for column {self.name!r}, whose values become log(1 + value), got {self.low}."
            )
        return super().ends

    @property
    def features(self) -> tuple[str, ...]:
        """The number, its hats, on which side it is beyond a limit, and where it is missing, if the schema says so."""
        line = f"log1p({self.name})" if self.transform == LOG1P else self.name
        bumps = (f"{self.name}~[{knot:.10g}]" for knot in self.knots[1:-1])
        return (line, *bumps, *(f"{self.name} {IN_WORDS[side]}" for side in self.limits), *self._gap)

    @property
    def _gap(self) -> tuple[str, ...]:
        return (f"{self.name} is missing",) if self.missing == "indicator" else ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """A number, hats, and what says that it is beyond a limit or missing."""
        bumps = max(len(self.knots) - 2, 0)
        return (NUMBER, *(HAT,) * bumps, *(LEVEL,) * (len(self.features) - 1 - bumps))

    @property
    def crossed(self) -> tuple[int, ...]:
        """The number itself, without hats."""
        return tuple(j for j, kind in enumerate(self.kinds) if kind == NUMBER)

    @property
    def bound(self) -> float:
        """The distance of the farther end from the centre, in scales."""
        return max(1.0 if len(self.features) > 1 else 0.0, *(abs(e - self.centre) / self.scale for e in self.ends))

    @property
    def shown(self) -> str:
        """Bounds, centre and scale, transform and knots."""
        transform = f", {self.transform}" if self.transform != "none" else ""
        knots = f", knots {', '.join(f'{knot:g}' for knot in self.knots)}" if self.knots else ""
        limits = f", limits of detection {' and '.join(self.limits)}" if self.limits else ""
        return super().shown + transform + knots + limits

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return the scaled numbers, their hats, and where they are missing if the schema asks for that."""
        values, missing = self.scaled(chunk, counts)
        self.check_missing(missing, chunk, '"centre" or "indicator"')
        parts = [values[:, None]]
        if self.knots:
            knots = (self.measured(np.array(self.knots)) - self.centre) / self.scale
            parts.append(hats(values, knots)[:, 1:-1])
        if self.limits:
            sides = self.sides(chunk)
            parts.append(np.stack([sides == SIDES[side] for side in self.limits], axis=1))
        if self.missing == "indicator":
            parts.append(missing[:, None])
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    @property
    def units(self) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """One over the scale, around the centre; hats and the indicator have none."""
        slopes, shifts = np.ones(len(self.features)), np.zeros(len(self.features))
        slopes[0], shifts[0] = 1 / self.scale, -self.centre / self.scale
        return slopes, shifts


@dataclass(frozen=True)
class Date(Number):
    """A column of dates. Bounds, centre, scale and knots are in days since 2000-01-01.

    order: of day and month in dates such as 03/04/2024: "dmy" or "mdy". 2024-04-03 and 3 Apr 2024 need none. Empty:
        nobody has said; then 03/04/2024 is no date, and 13/04/2024 is one.

    >>> Date("seen", low=0, high=366, centre=183, scale=100, order="dmy").read("01.02.2000", ".")
    31.0
    """

    order: str = ""
    what: ClassVar = "a date"

    def __post_init__(self) -> None:
        one_of(f"order of column {self.name!r}", self.order, ("", *ORDERS))
        super().__post_init__()
        if not FIRST_DAY <= self.low < self.high <= LAST_DAY:
            raise InputError(
                f"Expected bounds of column {self.name!r} as days since {EPOCH}, from {FIRST_DAY} to {LAST_DAY}, got "
                f"{self.low:g} and {self.high:g}."
            )

    @property
    def comments(self) -> Mapping[str, str]:  # type: ignore[override]
        """The dates that days mean."""
        return {key: str(day_of(getattr(self, key))) for key in ("low", "high", "centre")} | {"scale": "days"}

    @property
    def shown(self) -> str:
        """First and last day, centre and scale."""
        first, last, centre = (day_of(each) for each in (self.low, self.high, self.centre))
        return f"{first} to {last}, centre {centre}, scale {self.scale:g} days"

    @property
    def reads(self) -> dict[str, Kind]:
        """The column, as text."""
        return {self.name: TEXT}

    def check_order(self, chunk: Chunk) -> None:
        """Raise `InputError` where most dates have another order than the schema says, or nobody has said one."""
        words = [word for word in chunk.text(self.name).values if "." not in word]  # with points the day is first
        told = Counter(map(order_of, words))
        wrong = next((order for order in ORDERS if told[order] > told[self.order]), "") if self.order else OPEN
        if wrong and told[wrong] > MANY * len(words):
            says = f"the schema says {self.order!r}" if self.order else "the schema does not say which comes first"
            raise InputError(
                f"Expected to know the order of day and month in column {self.name!r} of {chunk.table}: {says}, and "
                f"there is {next(word for word in words if order_of(word) == wrong)!r}. Write dates as 2024-01-31, or "
                f"set the column's order in the schema ({' or '.join(ORDERS)})."
            )

    def read(self, text: str, decimal: str) -> float:
        """Return the days since 2000-01-01, NaN for a missing date, or raise ValueError."""
        return math.nan if plain(text) in self.missing_values else parse_date(text, self.order or order_of(text))


def day_of(days: float) -> datetime.date:
    """Return the date so many days after 2000-01-01."""
    return EPOCH + datetime.timedelta(days=round(days))
