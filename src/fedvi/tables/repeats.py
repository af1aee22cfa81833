"""Rows that stand twice: each copy counts as a person of its own, and none is protected as what it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from fedvi.tables.reading.chunk import AS_IT_IS, Chunk, Text
from fedvi.tables.reading.source import TableSource

MOST_HASHES = 1 << 18
"""Hashes that are kept; of more rows, those whose last bits are zero."""

ODD, TURN = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Repeats:
    """Counts rows that agree with an earlier one in all columns; estimates how many there are in long tables."""

    def __init__(self) -> None:
        self._kept, self._mask, self._rows = np.zeros(0, np.uint64), np.uint64(0), 0

    def add(self, chunk: Chunk, names: Iterable[str]) -> None:
        """Take in the rows of a chunk; names: the columns to compare."""
        hashes = _hashes(chunk, names)
        self._rows += len(hashes)
        self._kept = np.concatenate([self._kept, hashes[hashes & self._mask == 0]])
        while len(self._kept) > MOST_HASHES:
            self._mask = self._mask * np.uint64(2) + np.uint64(1)
            self._kept = self._kept[self._kept & self._mask == 0]

    @property
    def count(self) -> int:
        """How many rows agree with an earlier one."""
        share = 1 - len(np.unique(self._kept)) / max(len(self._kept), 1)
        return round(share * self._rows)


def repeated_rows(readers: Iterable[TableSource], leave_out: Collection[str | None] = ()) -> int:
    """Return how many rows agree with an earlier one in all columns, over several tables with the same columns.

    leave_out: columns that are not compared, such as the one of sites; nor is the index of a frame. A stream is not
    looked at: it can be read once.
    """
    found = Repeats()
    for reader in (each for each in readers if each.again):
        names = [name for name in reader.columns if name not in leave_out and name not in reader.index]
        for chunk in reader.chunks(dict.fromkeys(names, AS_IT_IS)):
            found.add(chunk, names)
    return found.count


def _hashes(chunk: Chunk, names: Iterable[str]) -> np.ndarray:
    """Return a hash of every row; it holds within this process."""
    total = np.zeros(chunk.rows, np.uint64)
    for name in names:
        column = chunk.columns[name]
        if isinstance(column, Text):
            cells = np.array([*map(hash, column.values), 0], np.int64).view(np.uint64)[column.codes]
        else:
            cells = (column + 0.0).view(np.uint64)  # -0.0 is 0.0, and NaN any of its own
        total += cells
        total *= ODD
        total ^= total >> TURN
    return total
