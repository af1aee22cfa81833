"""What a schema's inference is told, what it decides, and what it has to ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedvi.checks import one_of, whole
from fedvi.errors import InputError
from fedvi.tables.parts import checked_missing_values
from fedvi.tables.reading.words import ORDERS, plain

LEFT_OUT = "left out"


@dataclass(frozen=True)
class Wishes:
    """What people say about a table, because no table says it.

    ignore: columns to leave out. keep: columns that stay although they know the target.
    category, number: columns that hold codes, and numbers, whatever they look like.
    missing: by column, values that mean that nothing was measured. dates: what comes first in 03/04/2024: dmy or mdy.
    splines, log1p: numbers that may have a curve, and whose logarithms are used.
    event: the class of the target whose probability is meant.
    max_categories: how many values of a text column are told apart. min_count: values that come less often are not.
    """

    ignore: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dates: str = ""
    splines: tuple[str, ...] = ()
    log1p: tuple[str, ...] = ()
    event: str = ""
    max_categories: int = 20
    min_count: int = 2

    def __post_init__(self) -> None:
        for name in ("ignore", "keep", "category", "number", "splines", "log1p"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise InputError(f"Expected a list of columns for {name}, got {given!r}.")
            object.__setattr__(self, name, tuple(map(str, given)))
        missing = {str(name): checked_missing_values(str(name), found) for name, found in self.missing.items()}
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "event", plain(str(self.event)))
        whole("max_categories", self.max_categories, 1)
        whole("min_count", self.min_count, 2)
        one_of("dates", self.dates, ("", *ORDERS))
        others = {*self.keep, *self.category, *self.number, *self.splines, *self.log1p}
        for both, what in (
            (set(self.category) & set(self.number), "to be a category or a number"),
            (set(self.ignore) & others, "to be ignored or used"),
        ):
            if both:
                raise InputError(f"Expected a column {what}, got {', '.join(sorted(both))} as both.")

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that something is said about."""
        lists = (self.ignore, self.keep, self.category, self.number, self.splines, self.log1p, tuple(self.missing))
        return tuple(name for each in lists for name in each)


@dataclass(frozen=True)
class Decision:
    """What a column becomes, and why. part: the column of the schema, or its target; None if it is left out."""

    name: str
    becomes: str
    reason: str
    part: Any = None

    @property
    def shown(self) -> str:
        """The values that the schema expects."""
        return "" if self.part is None else str(self.part.shown)


@dataclass(frozen=True)
class Question:
    """What nobody can know from a table. answers: options that decide it."""

    text: str
    answers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text} Say {' or '.join(self.answers)}."


class Unanswered(InputError):
    """A schema cannot be inferred before somebody has answered. questions: all that are open."""

    def __init__(self, questions: Sequence[Question]):
        many = "a question is" if len(questions) == 1 else f"{len(questions)} questions are"
        lines = "".join(f"\n  {number}. {question}" for number, question in enumerate(questions, 1))
        super().__init__(f"Before there is a schema, {many} to be answered. Add to the command:{lines}")
        self.questions = tuple(questions)


def listed(words: Iterable[object], most: int = 5) -> str:
    """Return the first words, with commas between them."""
    shown = [repr(word) if isinstance(word, str) else f"{word:g}" for word in words]
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "")
