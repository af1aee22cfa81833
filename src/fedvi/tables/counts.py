"""What happened to values on their way into features, by column; and what people are told about it.

For the site alone: counts tell about rows, and nothing sends them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedvi.errors import InputError, ValuesClipped

MANY = 0.05
"""Share of a column's rows from which on people are warned that its values are clipped or unknown."""

MEASURED_ROWS = 20
"""A column without any value is refused in tables of at least that many rows."""

KINDS = {
    "clipped": "beyond the bounds of the schema, and count as the bound",
    "unknown": "not listed in the schema, and count as it says of such values",
    "foreign": "no number or date where one belongs, and count as missing",
    "gaps": "missing, and count as the centre or the reference of the column",
    "missing": "missing",
}
"""What can happen to a value, in words."""


@dataclass
class Counts:
    """How many values of each column were clipped, unknown, foreign or missing (`KINDS`); gaps are missing ones, too.

    unusable: rows without a target that can be used. repeated: rows that agree with an earlier one in all columns.
    skipped: lines that are no rows.
    examples: by column, a value that is unknown or foreign.
    """

    rows: int = 0
    clipped: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    unusable: int = 0
    repeated: int = 0
    skipped: int = 0
    examples: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        total = Counts(self.rows + other.rows)
        for whole in ("unusable", "repeated", "skipped"):
            setattr(total, whole, getattr(self, whole) + getattr(other, whole))
        for part in (self, other):
            for kind in KINDS:
                for name, number in getattr(part, kind).items():
                    total.add(name, **{kind: number})
            total.examples = part.examples | total.examples
        return total

    def add(self, name: str, example: str = "", **found: int) -> None:
        """Count values of a column by what happened to them. example: one that is foreign or unknown, and where."""
        for kind, number in found.items():
            counts = getattr(self, kind)
            counts[name] = counts.get(name, 0) + number
        if example:
            self.examples.setdefault(name, example)

    def share(self, kind: str, name: str) -> float:
        """Return the share of rows of which a column's value is of this kind."""
        return getattr(self, kind).get(name, 0) / max(self.rows, 1)

    @property
    def changed(self) -> dict[str, dict[str, int]]:
        """By kind and column, how many values count as something else; only where there are some."""
        found = {kind: {name: n for name, n in getattr(self, kind).items() if n} for kind in KINDS if kind != "missing"}
        return {kind: by_column for kind, by_column in found.items() if by_column}

    def lines(self, bounds: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Return a line for each kind, and warnings about columns with many such values.

        bounds: what the schema expects of each column, for people.
        """
        said, warned = [], []
        for kind, by_column in self.changed.items():
            shown = ", ".join(
                f"{name} {number:,} ({_percent(number, self.rows)})" for name, number in by_column.items()
            )
            said.append(f"Values that are {KINDS[kind]}: {shown}.")
            for name in by_column:
                if self.share(kind, name) >= MANY or kind == "foreign":
                    found = f", for example {self.examples[name]}" if name in self.examples else ""
                    expected = f" The schema expects {bounds[name]}." if name in bounds else ""
                    warned.append(
                        f"Column {name!r}: {_percent(by_column[name], self.rows)} of {self.rows:,} values are "
                        f"{KINDS[kind]}{found}.{expected}" + (" Is it in the same unit?" if kind == "clipped" else "")
                    )
        if self.unusable:
            said.append(f"Rows without a target that can be used, left out: {self.unusable:,} of {self.rows:,}.")
        if self.repeated:
            said.append(
                f"Rows that agree with an earlier one in all columns: {self.repeated:,} of {self.rows:,}. If they are "
                "copies, leave them out: each counts as a person of its own."
            )
        if self.skipped:
            said.append(
                f"Lines with a value too many or too few, or with an open quotation mark: {self.skipped:,} left out."
            )
        if self.unusable >= MANY * self.rows > 0:
            warned.append(
                f"{_percent(self.unusable, self.rows)} of {self.rows:,} rows have no target that can be used."
            )
        return said, warned

    def warn(self, bounds: Mapping[str, str], stacklevel: int = 2) -> None:
        """Warn about columns of which many values were changed."""
        for text in self.lines(bounds)[1]:
            warnings.warn(text, ValuesClipped, stacklevel=stacklevel + 1)

    def check_measured(self, table: str) -> None:
        """Raise `InputError` if a column of a table that is long enough has no value at all."""
        for name, missing in self.missing.items():
            if missing + self.foreign.get(name, 0) == self.rows >= MEASURED_ROWS:
                found = f", for example {self.examples[name]}" if name in self.examples else ""
                raise InputError(
                    f"Expected values in column {name!r} of {table}, got none in {self.rows} rows{found}. Is it the "
                    "right column? If so, take it out of the schema."
                )


def _percent(number: int, rows: int) -> str:
    return f"{100 * number / max(rows, 1):.3g} %"
