"""Cells of any type, such as those of workbooks: one column of numbers, truth values or text out of each."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from fedvi.tables.reading.chunk import NUMBER, TEXT, Kind
from fedvi.tables.reading.words import plain, spelled

SCALARS = (str, bool, Number, datetime.date, datetime.time, np.generic)
"""What a cell may be in a column of several types."""


def of_one_type(cells: Sequence[Any], kind: Kind, *, private: bool = False) -> list[Any]:
    """Return the cells of a column in one type: as numbers or truth values if all are, else as text.

    private: no cell is refused, and each means the same whatever others hold.
    """
    found = [None if _is_nothing(cell) else cell for cell in cells]
    kinds = {type(cell) for cell in found if cell is not None}
    if (strange := [kind.__name__ for kind in kinds if not issubclass(kind, SCALARS)]) and not private:
        raise TypeError(f"cells of type {strange[0]}")
    whole = bool in kinds and kinds <= {bool, int, float} and all(cell in (None, 0, 1) for cell in found)
    if whole and not private:
        return [None if cell is None else bool(cell) for cell in found]
    if kinds <= {float, int} and all(cell is None or abs(cell) <= 2**53 for cell in found):
        return found
    words = [None if cell is None else word_of(cell, kind) for cell in found]
    return [None if word is None else word.encode(errors="replace").decode() for word in words] if private else words


def _is_nothing(cell: Any) -> bool:
    try:
        return cell is None or bool(cell != cell) or (isinstance(cell, str) and not cell)
    except TypeError:  # pandas does not tell whether its NA is NA
        return True


def word_of(cell: Any, kind: Kind) -> str:
    """Return a cell as a text that means the same.

    kind: what is wanted; truth values are 0 and 1 among numbers, and a number stays one where it may be read as such.
    """
    if isinstance(cell, datetime.datetime | datetime.date | datetime.time):
        return cell.isoformat()
    if isinstance(cell, bool) and kind == NUMBER:
        return str(int(cell))
    return plain(str(cell)) if isinstance(cell, str) or kind == TEXT else spelled(cell)
