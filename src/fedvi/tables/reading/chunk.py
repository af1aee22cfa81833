"""Some rows of a table: each column as numbers, or as text with a code per row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from fedvi.tables.reading.messages import place
from fedvi.tables.reading.words import POINT, parse_number, plain

Kind = Literal["number", "text", "as it is"]
NUMBER: Kind = "number"
TEXT: Kind = "text"
AS_IT_IS: Kind = "as it is"
"""Numbers if the table says that they are; text files say nothing."""


@dataclass(frozen=True, eq=False)
class Text:
    """A text column of a chunk: `values[codes[i]]` is row i, and -1 a row without a value.

    ordered: whether somebody has put the values in this order. listed: whether somebody has said that they are classes.
    decimal: of words that leave it open, if the table has numbers here; empty: as in the rest of the table.
    read: numbers of all values, once somebody has asked.
    """

    codes: np.ndarray
    values: list[str]
    ordered: bool = False
    listed: bool = False
    decimal: str = ""
    read: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)

    def word(self, row: int) -> str:
        """Return the value of a row that has one."""
        return self.values[self.codes[row]]

    def numbers(self, read: Callable[[str], float], key: str) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Return the number of every row, NaN without one, and which rows hold text that `read` does not take.

        key: what tells one way to read from another; parts of a column share what was read.
        """
        if key not in self.read:
            numbers = np.full(len(self.values) + 1, np.nan)  # code -1 is the last
            foreign = np.zeros(len(self.values) + 1, bool)
            for code, value in enumerate(self.values):
                try:
                    numbers[code] = read(value)
                except ValueError:
                    foreign[code] = True
            self.read[key] = numbers, foreign
        numbers, foreign = self.read[key]
        return numbers[self.codes], foreign[self.codes]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows `start`, `start + 1`, ... of a table; `start` counts from 0.

    table: its name, for errors. decimal: of words that leave it open. strict: refuse a row for what it holds.
    """

    table: str
    start: int
    rows: int
    columns: Mapping[str, np.ndarray | Text]
    decimal: str = POINT
    strict: bool = False

    def text(self, name: str) -> Text:
        """Return a column as text."""
        column = self.columns[name]
        if isinstance(column, Text):
            return column
        values, codes = np.unique(column, return_inverse=True)
        words = [plain(str(value)) for value in values.tolist()]
        return Text(np.where(np.isnan(column), -1, codes), words, decimal=POINT)

    def numbers(
        self, name: str, read: Callable[[str, str], float] = parse_number, key: str = ""
    ) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Return a column as numbers, NaN where a value is missing, and which rows hold text that is none.

        read: what makes a number of a text and of what separates decimals, or raises ValueError. key: its name.
        """
        column = self.columns[name]
        if isinstance(column, Text):
            decimal = column.decimal or self.decimal
            return column.numbers(lambda text: read(text, decimal), key)
        return column, np.zeros(len(column), bool)

    def word(self, row: int, name: str) -> str:
        """Return a value that is there, as people read it."""
        column = self.columns[name]
        return column.word(row) if isinstance(column, Text) else f"{column[row]:.10g}"

    def place(self, row: int, column: str) -> str:
        """Return where a value stands, for errors; `row` counts from 0 in this chunk."""
        return place(self.table, self.start + row, column)

    def part(self, first: int, last: int) -> Chunk:
        """Return rows `first` to `last` of the chunk."""
        return dataclasses.replace(self.only(slice(first, last)), start=self.start + first, rows=last - first)

    def only(self, rows: slice | np.ndarray) -> Chunk:
        """Return some rows of the chunk, by a mask or a slice; the first one keeps its number."""
        columns = {
            name: dataclasses.replace(column, codes=column.codes[rows]) if isinstance(column, Text) else column[rows]
            for name, column in self.columns.items()
        }
        return dataclasses.replace(self, rows=len(np.arange(self.rows)[rows]), columns=columns)
