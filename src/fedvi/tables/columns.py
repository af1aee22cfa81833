"""Columns of a schema: how the values of one become features of x.

number      (clip(value, low, high) - centre) / scale       one feature; 0, the centre, if missing
            and a hat at each of its knots but the two ends: how far the curve is above the line there
date        a number: days since 2000-01-01
category    one 0/1 feature per value but its reference     0 in all of them is the reference

Numbers and dates are in `fedvi.tables.numbers`.

So no feature is a sum of others: with an intercept, every weight has a meaning of its own. A column of your own is a
frozen dataclass, a subclass of `Column`; a schema names it by `kind = "module:Class"`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from fedvi.checks import near, one_of
from fedvi.errors import InputError
from fedvi.tables.counts import Counts
from fedvi.tables.layout import LEVEL, NUMBER
from fedvi.tables.parts import ERROR, Listed, Part
from fedvi.tables.reading.chunk import Chunk

OTHER, GAP, REFERENCE = "other", "missing", "reference"


class Column(Part):
    """A column: some features of x. unknown: what happens with a value that nobody expects.

    exclusive: whether its features are 0 or 1, and at most one of them is not 0.
    """

    unknown: str = ""
    exclusive: ClassVar[bool] = False

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """Names of its features."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of its features (`fedvi.tables.layout`)."""
        return (NUMBER,) * len(self.features)

    @property
    def crossed(self) -> tuple[int, ...]:
        """Which of its features are multiplied in an interaction: all, unless a column says otherwise."""
        return tuple(range(len(self.features)))

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest that a feature can be, whatever its sign."""

    @property
    def refuses(self) -> bool:
        """Whether a value can make a site refuse its table."""
        return ERROR in (self.missing, self.unknown)

    @abstractmethod
    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return the features of all rows, and count what was clipped, missing and unknown."""

    @property
    def units(self) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """A slope and a shift per feature, which is slope * value + shift for values in people's own units."""
        return np.ones(len(self.features)), np.zeros(len(self.features))

    def check_missing(self, missing: Bool[np.ndarray, " n"], chunk: Chunk, others: str) -> None:
        """Raise `InputError` where a value is missing, if the schema asks for it; others: what else it could say."""
        if self.missing == ERROR and missing.any():
            raise InputError(
                f"Expected a value in {chunk.place(int(np.argmax(missing)), self.name)}, got none. "
                f"Fill it in, leave the row out, or set missing = {others} in the schema."
            )


@dataclass(frozen=True)
class Category(Listed, Column):
    """A column with a few known values.

    reference: the value without a feature, to which all others are compared; the first one by default.
    unknown: what another value counts as: "reference", "other" (a feature of its own), or "error", which refuses the
        table.
    missing: what no value counts as: "reference", "missing" (a feature of its own), "other" (that of unknown values),
        or "error".

    >>> Category("sex", ("F", "M"), missing="missing").features
    ('sex=M', 'sex=missing')
    """

    unknown: str = REFERENCE
    missing: str = REFERENCE
    reference: str = ""
    bound: ClassVar = 1.0
    exclusive: ClassVar = True
    comments: ClassVar = {"reference": "has no feature: all others are compared to it"}

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}"
        if not self.values:
            raise InputError(f"Expected at least one of the values of {where}, got none.")
        given: Any = self.reference
        named = self.values[:1] if given == "" else Listed(self.name, (given,)).values  # may be a number, as in tables
        object.__setattr__(self, "reference", named[0])
        one_of(f"reference of {where}", self.reference, self.values)
        one_of(f"unknown of {where}", self.unknown, (REFERENCE, OTHER, ERROR))
        one_of(f"missing of {where}", self.missing, (REFERENCE, GAP, OTHER, ERROR))
        for extra in self.extras:
            if extra in self.values:
                raise InputError(
                    f"Expected no value {extra!r} of {where}: it names the feature for {extra} values. "
                    "Leave it out, and such rows are counted there."
                )
        if not self.features:
            raise InputError(f"Expected two values of {where}, or a feature for others, got only {self.reference!r}.")

    @property
    def extras(self) -> tuple[str, ...]:
        """The features for values that are not listed: other, missing, both or none."""
        return tuple(extra for extra in (OTHER, GAP) if extra in (self.unknown, self.missing))

    @property
    def features(self) -> tuple[str, ...]:
        """One per value but the reference, and those for other and missing values."""
        levels = (value for value in (*self.values, *self.extras) if value != self.reference)
        return tuple(f"{self.name}={level}" for level in levels)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Levels."""
        return (LEVEL,) * len(self.features)

    @property
    def shown(self) -> str:
        """The reference and the first values."""
        more = ", ".join(extra for extra in self.extras)
        return f"{super().shown}{f'; {more}' if more else ''}; reference {self.reference}"

    def encode(self, chunk: Chunk, counts: Counts) -> Float[np.ndarray, "n k"]:
        """Return a 1 for every row, in the feature of its value; nothing but 0 for the reference."""
        levels = (*self.values, *self.extras)
        codes, missing, unknown = self.codes(chunk, **{extra: levels.index(extra) for extra in self.extras})
        gaps, strangers = int(missing.sum()), int(unknown.sum())
        first = f"{chunk.word(int(np.argmax(unknown)), self.name)!r}" if strangers else ""
        counts.add(self.name, first, missing=gaps, unknown=strangers, gaps=gaps if self.missing == REFERENCE else 0)
        self.check_missing(missing, chunk, f'"{REFERENCE}" or "{GAP}"')
        if strangers and (self.unknown == ERROR or chunk.strict):
            row = int(np.argmax(unknown))
            value = chunk.word(row, self.name)
            some = ", ".join(map(repr, self.values[:10])) + (", ..." if len(self.values) > 10 else "")
            raise InputError(
                f"Expected one of {some} in {chunk.place(row, self.name)}, got {value!r}.{near(value, self.values)}"
                f' Add it to values in the schema, or set unknown = "{REFERENCE}" or "{OTHER}".'
            )
        for found, count, policy in ((missing, gaps, self.missing), (unknown, strangers, self.unknown)):
            if count:
                codes[found] = levels.index(self.reference if policy == REFERENCE else policy)
        kept = [level != self.reference for level in levels]
        return np.eye(len(levels), dtype=np.float32)[:, kept].take(codes, axis=0)
