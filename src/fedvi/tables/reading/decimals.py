"""What separates decimals in the numbers of a table: points or commas.

    12,5   1.234,5   0.123          such a number tells
    45.123   1,234                  such a number leaves it open: `OPEN`

Other numbers of the table tell then, or it is asked. Numbers of which some have one separator with three digits behind
it, and all others none, look like thousands (628, 3.457, 13.178), whatever other columns tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedvi.tables.reading.chunk import Chunk, Text
from fedvi.tables.reading.words import COMMA, OPEN, POINT, decimal_of, parse_number

MOST_WORDS = 5000
"""Words of a column that are looked at."""

OTHER = {POINT: COMMA, COMMA: POINT}


@dataclass(frozen=True)
class Decimals:
    """decimal: POINT or COMMA; nothing, if no number tells.

    asked: columns that leave it open, by name with an example. told: those among them for which others tell.
    """

    decimal: str
    asked: dict[str, str]
    told: dict[str, str]

    @property
    def said(self) -> list[str]:
        """What people should know about columns for which others tell."""
        if not self.told:
            return []
        shown = ", ".join(
            f"{word!r} of column {name!r} as {parse_number(word, self.decimal or POINT):.10g}"
            for name, word in self.told.items()
        )
        why = "the rest of the table tells" if self.decimal else "commas between values tell"
        return [f"Numbers are read as {why}: {shown}. If that is wrong, give --decimal."]


def written_numbers(chunk: Chunk, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the words of those columns that are text, but not of numbers that Arrow has as such."""
    texts = ((name, chunk.columns[name]) for name in names)
    return {name: text.values for name, text in texts if isinstance(text, Text) and not text.decimal}


def look_at(words: Mapping[str, Sequence[str]], delimiter: str) -> Decimals:
    """Return what these numbers tell, by column. delimiter: of a text file; a comma there is none within numbers."""
    seen = {name: Counter(map(decimal_of, found[:MOST_WORDS])) for name, found in words.items()}
    votes = Counter(mark for marks in seen.values() for mark in (POINT, COMMA) if marks[mark])
    voted = max(votes, key=lambda mark: votes[mark]) if votes[POINT] != votes[COMMA] else ""
    decimal = voted or (POINT if delimiter == COMMA else "")
    asked, told = dict[str, str](), dict[str, str]()
    for name, marks in seen.items():
        if not marks[OPEN + POINT] + marks[OPEN + COMMA]:
            continue
        word = next(word for word in words[name] if decimal_of(word).startswith(OPEN))
        thousands = bool(marks[""] and decimal and marks[OPEN + decimal])
        disagrees = not decimal or marks[OTHER[decimal]] or thousands
        if not marks[decimal or POINT]:
            (asked if disagrees else told)[name] = word
    return Decimals(voted, asked, told)


def either_way(word: str) -> str:
    """Return a number that leaves it open, with both readings."""
    as_point, as_comma = (f"{parse_number(word, decimal):.10g}" for decimal in (POINT, COMMA))
    return f"{word!r}, which is {as_point} if a point separates decimals, and {as_comma} if a comma does"
