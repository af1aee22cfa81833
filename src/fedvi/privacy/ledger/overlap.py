"""One budget for people, not for files: notices that a table holds rows that another ledger on this machine knows.

A sketch of a table is a small random sample of its rows, by hashes. Two tables are compared by what their samples have
in common, which works although rows were dropped or shuffled, columns swapped, cells changed or a column added:

    h(cell)   64 bits, keyed: SipHash of a number to nine digits, BLAKE2b of other text, trimmed, in one case
    row       the sum of h over its cells, mixed; and for each column the sum over the other cells
    kept      the 1,024 smallest hashes of rows, the 8,192 smallest of all, and how many different ones there are

The key is random, one per machine. Key and sketches lie in the state directory (`fedvi.privacy.ledger.witness`),
readable for their owner only, and never leave it. Whoever has both can test a guess of a row, as can
whoever has the machine.

Strangers look alike by accident where tables are narrow. Rows of one table tell how often (Good and Turing): if R
values occur more than once in n rows, about 2 R of them are to be expected in n others.

What it cannot notice: two columns changed in all rows. Tables of which fewer than half of the rows are different (a few
yes/no columns) tell nothing; of them only the same rows are found, by their digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, UInt64
from numpy.typing import ArrayLike

WHOLE, ALL = 1024, 8192
"""Hashes that are kept: of whole rows, and of all."""

HITS = 5
"""Common hashes of either kind that are no accident, beyond those that are to be expected."""

TELLING = 0.5
"""Share of different rows below which a table tells nothing."""

Hashes = UInt64[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True)
class Overlap:
    """What two tables have in common: share of rows of the smaller one, and hashes of either kind beyond accidents.

    other_key: they were hashed by two keys, so that nobody can tell.
    """

    share: float
    rows: float
    parts: float
    other_key: bool = False

    @property
    def is_noticed(self) -> bool:
        """Whether a person should be asked."""
        return self.rows >= HITS or self.parts >= HITS or self.other_key

    def __str__(self) -> str:
        if self.other_key:
            return "unknown, because rows.key is not the key that its rows were hashed by"
        if self.share >= 0.005:
            return f"{self.share:.0%} of the rows"
        return "rows that agree but for one column" if self.parts >= HITS else "unknown"


@dataclasses.dataclass(frozen=True, eq=False)
class Smallest:
    """The smallest of a set of hashes, those of them that more than one row has, and about how many all are."""

    hashes: Hashes
    repeated: Hashes
    distinct: int

    def common(self, other: Smallest, most: int) -> tuple[float, float]:
        """Return how many of the smallest are in both beyond accidents, and about how many of all are."""
        union = np.union1d(self.hashes, other.hashes)[:most]
        both = int(np.sum(np.isin(union, self.hashes) & np.isin(union, other.hashes)))
        similar = both / max(len(union), 1)
        seen = union[-1] if len(union) else np.uint64(0)
        repeated = int(np.sum(self.repeated <= seen) + np.sum(other.repeated <= seen))
        sizes = 2 * self.distinct * other.distinct / max(self.distinct**2 + other.distinct**2, 1)
        accidents = sizes * repeated if similar < 0.5 else 0.0  # or tables in which every row comes twice look strange
        chance = 4 * math.sqrt((1 + sizes) * accidents)
        shared = similar * (self.distinct + other.distinct) / (1 + similar)
        return both - accidents - chance, shared


@dataclasses.dataclass(frozen=True, eq=False)
class Sketch:
    """A sketch of a table. rows: how many it had. key: tells by which key it was hashed; empty if nobody knows."""

    rows: int
    whole: Smallest
    parts: Smallest
    key: str = ""

    @classmethod
    def of(cls, batches: Iterable[Sequence[Hashes]], key: bytes) -> Sketch:
        """Return the sketch of a table that comes in batches of hashed columns (`number_hashes`, `text_hashes`)."""
        rows, whole, without = 0, _Collector(WHOLE), list[_Collector]()
        for columns in batches:
            total = np.asarray(np.sum(columns, axis=0, dtype=np.uint64))
            whole.add(_mixed(total), rows)
            without = without or [_Collector(ALL) for _ in columns]
            for collector, column in zip(without, columns, strict=True):
                collector.add(_mixed(total - column), rows)
            rows += len(total)
        pool = _Collector(ALL)
        telling = [part for part in (whole, *without) if part.distinct >= TELLING * rows]
        for part in telling:
            pool.merge(part)
        parts = Smallest(pool.hashes, pool.repeated, sum(part.distinct for part in telling))
        identifier = hashlib.blake2b(key=key, person=b"fedvi rows.key", digest_size=16).hexdigest()
        return cls(rows, Smallest(whole.hashes, whole.repeated, whole.distinct), parts, identifier)

    @classmethod
    def of_arrays(cls, x: np.ndarray, y: np.ndarray, key: bytes) -> Sketch:
        """Return the sketch of rows that came as numbers."""
        table = np.concatenate([_flat(x), _flat(y)], axis=1)
        blocks = (table[start : start + 65_536] for start in range(0, len(table), 65_536))
        return cls.of(([number_hashes(column, key) for column in block.T] for block in blocks), key)

    @property
    def is_telling(self) -> bool:
        """Whether enough rows are different."""
        return self.whole.distinct >= TELLING * self.rows

    def overlap(self, other: Sketch) -> Overlap:
        """Return what two tables have in common."""
        if not (self.is_telling and other.is_telling):
            return Overlap(0.0, 0, 0)
        if self.key and other.key and self.key != other.key:
            return Overlap(0.0, 0, 0, other_key=True)
        rows, shared = self.whole.common(other.whole, WHOLE)
        parts, _ = self.parts.common(other.parts, ALL)
        return Overlap(min(1.0, shared / max(1, min(self.whole.distinct, other.whole.distinct))), rows, parts)

    def to_bytes(self) -> bytes:
        """Return the sketch as bytes, for a file of one's own."""
        lists = [self.whole.hashes, self.whole.repeated, self.parts.hashes, self.parts.repeated]
        about = [self.rows, self.whole.distinct, self.parts.distinct, *map(len, lists), self.key]
        return json.dumps(about).encode() + b"\n" + np.concatenate(lists).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Sketch:
        """Return the sketch that `to_bytes` wrote; before version 0.2 it did not say by which key."""
        head, _, body = data.partition(b"\n")
        rows, whole, parts, one, two, three, _, *key = json.loads(head)
        lists = np.split(np.frombuffer(body, np.uint64), np.cumsum([one, two, three]))
        return cls(rows, Smallest(lists[0], lists[1], whole), Smallest(lists[2], lists[3], parts), *key)


_NOTHING = Smallest(np.zeros(0, np.uint64), np.zeros(0, np.uint64), 0)
NO_SKETCH = Sketch(0, _NOTHING, _NOTHING)
"""Of a table about which nothing is known."""


class _Collector:
    """Keeps the smallest of many hashes, and of each the first and the last row that it came from."""

    def __init__(self, most: int):
        self._most, self._limit = most, np.uint64(2**64 - 1)
        self._kept, self._first, self._last = np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add(self, hashes: Hashes, row: int) -> None:  # row: number of the first
        small = np.flatnonzero(hashes <= self._limit)
        self._take(hashes[small], row + small, row + small)

    def merge(self, other: _Collector) -> None:
        self._take(other._kept, other._first, other._last)

    def _take(self, hashes: Hashes, first: np.ndarray, last: np.ndarray) -> None:
        if not len(hashes):
            return
        everything = np.concatenate([self._kept, hashes])
        order = np.argsort(everything, kind="stable")
        ordered = everything[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))[: 4 * self._most + 1]
        full = len(starts) > 4 * self._most
        end = starts[-1] if full else len(ordered)
        starts = starts[: 4 * self._most]
        self._kept = ordered[starts]
        self._first = np.minimum.reduceat(np.concatenate([self._first, first])[order[:end]], starts)
        self._last = np.maximum.reduceat(np.concatenate([self._last, last])[order[:end]], starts)
        if full:
            self._limit = self._kept[-1]

    @property
    def hashes(self) -> Hashes:
        return self._kept[: self._most]

    @property
    def repeated(self) -> Hashes:
        """Those of the smallest that came from more than one row."""
        return self.hashes[(self._first != self._last)[: self._most]]

    @property
    def distinct(self) -> int:
        """How many there are: exact if all were kept, else estimated from how densely they lie."""
        full = self._limit < np.uint64(2**64 - 1)
        return int(len(self._kept) / (float(self._kept[-1]) * 2.0**-64)) if full else len(self._kept)


def rows_digest(x: ArrayLike, y: ArrayLike) -> str:
    """Return what identifies the rows of a data set, in whatever order and floating-point type they come."""
    features, targets = (_flat(np.asarray(part, np.float32)) for part in (x, y))
    table = np.ascontiguousarray(np.concatenate([features, targets], axis=1)) + np.float32(0)  # -0 is 0
    rows = sorted(hashlib.blake2b(row.data, digest_size=32).digest() for row in table)
    shape = f"{table.shape[0]} rows of {features.shape[1]} and {targets.shape[1]} columns "
    return hashlib.sha256(shape.encode() + b"".join(rows)).hexdigest()


def _flat(part: np.ndarray) -> np.ndarray:
    """Return one line of numbers per row, also of no rows."""
    return part.reshape(len(part), math.prod(part.shape[1:]))


def number_hashes(values: Float[np.ndarray, " n"], key: bytes) -> Hashes:
    """Return the hash of every number, to nine digits; of NaN, that of an empty cell."""
    values = np.asarray(values, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exponent = np.floor(np.log10(np.abs(values)))
        exponent = np.where(np.isfinite(exponent), exponent, 0.0)
        digits = np.rint(values * 10.0 ** (8 - exponent))
        overflowed = np.where(np.isfinite(digits), digits, 0.0)
    words = overflowed.astype(np.int64).view(np.uint64) ^ (exponent.astype(np.int64).view(np.uint64) << np.uint64(48))
    hashes = _siphash(words, key)
    return np.where(np.isnan(values), np.uint64(_text_hash("", key)), hashes)


def text_hashes(codes: np.ndarray, values: Sequence[str], key: bytes) -> Hashes:
    """Return the hash of every row of a text column: `values[codes[i]]`, or -1 for an empty cell."""
    numbers = np.array([_number(value) for value in values], np.float64)
    hashes = number_hashes(numbers, key) if len(values) else np.zeros(0, np.uint64)
    words = [_text_hash(value, key) if math.isnan(number) else 0 for value, number in zip(values, numbers, strict=True)]
    table = np.where(np.isnan(numbers), np.array(words, np.uint64), hashes)
    return np.append(table, np.uint64(_text_hash("", key)))[codes]


def _number(text: str) -> float:
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _text_hash(text: str, key: bytes) -> int:
    canonical = text.strip().casefold().encode()
    return int.from_bytes(hashlib.blake2b(canonical, key=key, digest_size=8).digest(), "little")


def _mixed(sums: Hashes) -> Hashes:
    return (sums ^ (sums >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)


def _siphash(words: Hashes, key: bytes) -> Hashes:
    """Return SipHash-2-4 of one 8-byte word each, with the first 16 bytes of the key."""
    low, high = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    constants = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    state = [np.full(len(words), k ^ c, np.uint64) for k, c in zip((low, high, low, high), constants, strict=True)]
    for block in (words, np.full(len(words), 8 << 56, np.uint64)):
        state[3] ^= block
        for _ in range(2):
            _round(state)
        state[0] ^= block
    state[2] ^= np.uint64(0xFF)
    for _ in range(4):
        _round(state)
    mixed: Hashes = state[0] ^ state[1] ^ state[2] ^ state[3]
    return mixed


def _round(v: list[Hashes]) -> None:
    for one, two, turn in _HALVES:
        v[one] += v[two]
        v[two] = _turned(v[two], turn) ^ v[one]
        if turn in (13, 17):
            v[one] = _turned(v[one], 32)


_HALVES = ((0, 1, 13), (2, 3, 16), (0, 3, 21), (2, 1, 17))


def _turned(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
