"""What a reader of tables gives: batches of the columns that are wanted, each as numbers or as text.

    number   float64, NaN where nothing was measured
    text     a code per row and the distinct strings of the batch, -1 where nothing was measured

Rows are counted from 1 in errors, the header not counted; `Chunk.start` counts from 0.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedvi.errors import InputError

Kind = Literal["number", "text"]
NUMBER: Kind = "number"
TEXT: Kind = "text"

MISSING = frozenset(
    ["", "?", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null"]
)
"""Words for "nothing was measured". In text columns they are left as they are: a schema may list them as values."""


class NotANumber(InputError):
    """Text stands where a number is wanted.

    column: where.
    """

    def __init__(self, message: str, column: str):
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, eq=False)
class Text:
    """A text column of a batch: `values[codes[i]]` is row i, and -1 a row without a value."""

    codes: np.ndarray
    values: list[str]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows `start`, `start + 1`, ... of a table."""

    start: int
    rows: int
    numbers: Mapping[str, np.ndarray]
    texts: Mapping[str, Text]

    def part(self, first: int, last: int) -> Chunk:
        """Return rows `first` to `last` of the batch."""
        rows = slice(first, last)
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        texts = {name: Text(text.codes[rows], text.values) for name, text in self.texts.items()}
        return Chunk(self.start + first, last - first, numbers, texts)


class Reader(ABC):
    """A table that can be read in batches, as often as its source can.

    name: how errors call it. columns: the names of its columns. fraction: how much of it was read, from 0 to 1.
    """

    name: str
    columns: tuple[str, ...]
    fraction: float = 0.0
    reads_ahead = False
    """Whether it works in threads of its own."""

    def batches(self, wanted: Mapping[str, Kind]) -> Generator[Chunk, None, None]:
        """Yield the wanted columns, batch by batch, or raise `InputError` naming row, column and value."""
        self.require(wanted)
        start = 0
        with in_one_line(self.name), contextlib.closing(self._read(dict(wanted))) as found:
            for batch in found:
                start = batch.start + batch.rows
                if batch.rows:
                    yield batch
        if start == 0:
            raise InputError(f"Expected rows in {self.name}, got only a header with {len(self.columns)} columns.")

    def require(self, names: Iterable[str]) -> None:
        """Raise `InputError` for a column that is not there, with those that are."""
        for name in names:
            if name not in self.columns:
                there = ", ".join(self.columns[:30]) + (", ..." if len(self.columns) > 30 else "")
                raise InputError(f"Expected column {name!r} in {self.name}, got {there}.{near(name, self.columns)}")

    @abstractmethod
    def _read(self, wanted: dict[str, Kind]) -> Generator[Chunk, None, None]:
        """Yield batches of columns that are there."""

    def _check_columns(self) -> None:
        seen: set[str] = set()
        for column in self.columns:
            if column in seen:
                raise InputError(f"Expected every column of {self.name} once, got {column!r} twice. Rename one.")
            seen.add(column)
        if not self.columns:
            raise InputError(f"Expected columns in {self.name}, got none.")


def near(name: str, allowed: Iterable[str]) -> str:
    """Return ` Did you mean 'age'?`, or nothing if no name is near.

    >>> near("Agee", ["age", "sex"])
    " Did you mean 'age'?"
    """
    by_lower = {other.lower(): other for other in allowed}
    found = difflib.get_close_matches(name.lower().strip(), by_lower, 1)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""


def place(name: str, row: int, column: str) -> str:
    """Return where a value stands, for errors; `row` counts from 0."""
    return f"row {row + 1} of column {column!r} of {name}"


def parse_number(text: str) -> float:
    """Return the number that a text holds, NaN for a word of `MISSING`, or raise ValueError.

    >>> parse_number(" +1e3 "), parse_number("?")
    (1000.0, nan)
    """
    text = text.strip()
    if text in MISSING:
        return math.nan
    if "_" in text:  # which Python allows, and nobody else
        raise ValueError(text)
    return float(text)


def plain(text: str) -> str:
    """Return one spelling for texts that mean the same whole number or truth value.

    >>> plain("1.0"), plain("-0.00"), plain("True"), plain("1.50"), plain("01")
    ('1', '0', 'true', '1.50', '01')
    """
    if re.fullmatch(r"-?\d+\.0*", text):
        text = text.partition(".")[0]
    if text == "-0":
        return "0"
    return text.lower() if text.lower() in ("true", "false") else text


@contextlib.contextmanager
def in_one_line(name: str) -> Iterator[None]:
    """Turn what the libraries raise for bad data and bad files into an `InputError` of one line."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"Expected to be allowed to read {name}, got permission denied.") from None
    except FileNotFoundError:
        raise InputError(f"Expected a table at {name}, got no such file.") from None
    except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
        raise InputError(f"Expected to read {name}, got: {first_line(error)}.") from None


def first_line(error: BaseException) -> str:
    """Return what an error says, in one line and without a full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).strip()[:300].rstrip(".:")
