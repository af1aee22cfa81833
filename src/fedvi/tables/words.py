"""What the words of a table mean: numbers, missing values, spellings; and where an error is.

Rows are counted from 1 in errors, the header not counted.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator

from fedvi.errors import InputError

MISSING = frozenset(
    ["", "?", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null"]
)
"""Words for "nothing was measured". In text columns they are left as they are: a schema may list them as values."""

GIVE_ENCODING = "Give its encoding, for example --encoding latin-1 (encoding='latin-1' in Python), or convert it."


class NotANumber(InputError):
    """Text stands where a number is wanted.

    column: where.
    """

    def __init__(self, message: str, column: str):
        super().__init__(message)
        self.column = column


def check_once(names: Iterable[str], what: str) -> None:
    """Raise `InputError` for a name that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"Expected every {what} once, got {name!r} twice. Rename one.")
        seen.add(name)


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


def is_number(text: str) -> bool:
    """Tell whether a text holds a number, or a word of `MISSING`."""
    try:
        parse_number(text)
    except ValueError:
        return False
    return True


def number_or_nan(text: str) -> float:
    """Return the number that a text holds, or NaN."""
    return parse_number(text) if is_number(text) else math.nan


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
