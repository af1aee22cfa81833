"""Words that a text column is likely to hold, found again by their bytes: several times faster than by hashing text.

    key = first 8 bytes of a value, and its next 8 if some are longer        zeros after its end
    slot = top bits of key * multiplier                                      one for every word: a perfect hash
    code = table[slot], right if the word's key is the value's key

Keys of up to 16 bytes without zeros among them say all about a value. Where a column holds a longer value, or a word
that is not among the known ones, `codes` gives up, and the caller does it the slow way.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

LONGEST = 16
MOST_WORDS = 64
FEW_WORDS = 4
BITS = 12
"""Of a slot: 4096 of them, so that a few multipliers are enough to find one without collisions."""

MASKS = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)
"""What is left of 8 bytes when so many of them count."""

MIXING = np.uint64(0xD6E8FEB86659FD93)
SHIFT = np.uint64(64 - BITS)


class Vocabulary:
    """Words in the order of their codes; never changed, so that threads may share it."""

    def __init__(self, words: Sequence[bytes]):
        self.words = tuple(words)
        keys = [int.from_bytes(word, "little") for word in self.words]
        self._first = np.array([key & 0xFFFFFFFFFFFFFFFF for key in keys], np.uint64)
        self._second = np.array([key >> 64 for key in keys], np.uint64)
        self._multiplier, self._table = _perfect(_mixed(self._first, self._second))

    def extended(self, values: Any) -> Vocabulary | None:
        """Return the vocabulary with more words, an Arrow array of bytes, or None if it would be of no use."""
        if len(self.words) + len(values) > 2 * MOST_WORDS:
            return None
        words = dict.fromkeys([*self.words, *values.to_pylist()])
        if len(words) > MOST_WORDS or any(len(word) > LONGEST or b"\0" in word for word in words):
            return None
        return Vocabulary(tuple(words))

    @functools.cached_property
    def texts(self) -> list[str | None]:
        """The words as text."""
        return [word.decode() for word in self.words]

    def codes(self, column: Any) -> np.ndarray | None:
        """Return the code of every row of an Arrow array of bytes, or None if some row is no known word.

        There must be no zero bytes in it.
        """
        if not self.words or not len(column):
            return None
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
        text = np.frombuffer(data, np.uint8)[: ends[-1]] if data is not None else np.zeros(0, np.uint8)
        starts, lengths = ends[:-1], np.diff(ends)
        longest = int(lengths.max())
        if longest > LONGEST:
            return None
        padded = np.concatenate([text, np.zeros(LONGEST, np.uint8)])
        first = _bytes_at(padded, starts, lengths)
        second = _bytes_at(padded, starts + 8, lengths - 8) if longest > 8 else None
        if second is None and len(self.words) <= FEW_WORDS:
            return self._compared(first)
        slots = (_mixed(first, second) * self._multiplier) >> SHIFT
        codes = self._table.take(slots.view(np.int64))
        same = self._first.take(codes) == first
        if second is not None or self._second.any():
            same &= self._second.take(codes) == (0 if second is None else second)
        return codes if same.all() else None

    def _compared(self, keys: np.ndarray) -> np.ndarray | None:
        """Return the codes of keys by comparing them with every word: faster than slots while there are few."""
        codes, found = np.zeros(len(keys), np.int8), 0
        for code, (word, more) in enumerate(zip(self._first, self._second, strict=True)):
            same = keys == word
            if not more:
                found += int(np.count_nonzero(same))
                codes += same.view(np.int8) * np.int8(code)
        return codes.astype(np.int64) if found == len(keys) else None


def _bytes_at(padded: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return up to 8 bytes from every start as one number, zeros after the end."""
    anywhere = np.ndarray((len(padded) - 7,), "<u8", buffer=padded, strides=(1,))
    return anywhere.take(starts, mode="clip") & MASKS.take(lengths, mode="clip")


def _mixed(first: np.ndarray, second: np.ndarray | None) -> np.ndarray:
    return first if second is None else first ^ (second * MIXING)


def _perfect(keys: np.ndarray) -> tuple[np.uint64, np.ndarray]:
    """Return a multiplier that sends all keys to slots of their own, and the code of every slot."""
    rng = np.random.default_rng(0)
    while True:
        multiplier = np.uint64(rng.integers(0, 1 << 63, dtype=np.uint64) * 2 + 1)
        slots = (keys * multiplier) >> SHIFT
        if len(np.unique(slots)) == len(keys):
            table = np.zeros(1 << BITS, np.int64)  # what NumPy takes by without a cast
            table[slots.astype(np.int64)] = np.arange(len(keys))
            return multiplier, table
