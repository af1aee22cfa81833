"""Where random words come from, and which rows they put into the batch of each step.

**Words.** Real updates draw from the operating system, simulations from a seeded Philox stream. Sampling and noise are
made of uniform 64-bit words by the same code in both cases (here and in `fedvi.privacy.lattice`). OpenSSL's generator
(`ssl.RAND_bytes`) is seeded by the operating system and safe after a fork. A seeded stream is predictable by design:
nothing drawn from it is private, and every artefact says so.

**Batches** are row numbers and mask of one static shape. Padding repeats a row that was drawn, and is masked.

**Public number of rows.** A site declares a number of rows; the true one never leaves it. Batch sizes, rates and scales
follow from the declared number, and room for rows from `most_rows`, a tenth more. Two neighbouring tables for which the
same number is declared are treated alike in everything but their rows.
"""

from __future__ import annotations

import abc
import functools
import math
import ssl

import numpy as np
from jaxtyping import Float, UInt64

from fedvi.checks import in_range, whole

SCHEDULE, UPDATE, STATISTIC = 0, 1, 2
"""Purposes of seeded streams."""

MOST_WORDS = 1 << 20
"""Words that the system is asked for at once."""


PIECE = 4.0
"""Gaps are drawn in pieces that a coin survives with probability exp(-PIECE) or more."""


class Source(abc.ABC):
    """A source of uniform random words."""

    @abc.abstractmethod
    def words(self, count: int) -> UInt64[np.ndarray, " count"]:
        """Return so many uniform 64-bit words."""

    @property
    @abc.abstractmethod
    def generator(self) -> np.random.Generator:
        """NumPy's generator for what has no influence on privacy: draws of a model, batches without a promise."""

    def uniform(self, count: int) -> Float[np.ndarray, " count"]:
        """Return uniform numbers in (0, 1], with all the digits that a double has."""
        return (self.words(count).astype(np.float64) + 1.0) * 2.0**-64

    def permutation(self, count: int) -> np.ndarray:
        """Return 0, ..., count - 1 in random order."""
        return np.argsort(self.words(count), kind="stable")


class System(Source):
    """The operating system's generator: what real updates draw from."""

    def words(self, count: int) -> UInt64[np.ndarray, " count"]:
        """Return so many words."""
        parts = [ssl.RAND_bytes(8 * min(MOST_WORDS, count - start)) for start in range(0, count, MOST_WORDS)]
        return np.frombuffer(b"".join(parts), np.uint64)

    @property
    def generator(self) -> np.random.Generator:
        """A generator with a key of its own."""
        return np.random.Generator(np.random.Philox(key=self.words(2)))


class Seeded(Source):
    """A stream that is named by numbers and counter-based. Simulations only.

    A run that resumes, or draws in another order, finds the same bits without having saved any state.
    """

    def __init__(self, seed: int, purpose: int, client: int = 0, update: int = 0):
        self._bits = np.random.Philox(0)
        self._generator = np.random.Generator(self._bits)
        self.restart(seed, purpose, client, update)

    def restart(self, seed: int, purpose: int, client: int = 0, update: int = 0) -> Seeded:
        """Turn to another stream; takes a tenth of the time that a new one takes."""
        key, counter = (np.array(words, np.uint64) for words in ([seed, purpose], [0, 0, client, update]))
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"key": key, "counter": counter},
            "buffer": _NOTHING,
            "buffer_pos": len(_NOTHING),
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self

    def words(self, count: int) -> UInt64[np.ndarray, " count"]:
        """Return so many words."""
        return np.asarray(self._bits.random_raw(count))

    @property
    def generator(self) -> np.random.Generator:
        """The same stream as NumPy's generator."""
        return self._generator


_NOTHING = np.zeros(4, np.uint64)


def expected_batch(rows: int, minimum: int, fraction: float) -> int:
    """Return the batch size `max(minimum, ceil(fraction rows))`, or all rows if there are fewer."""
    return min(rows, max(minimum, math.ceil(fraction * rows)))


def default_public_rows(rows: int) -> int:
    """Return the number of rows that a site declares unless it says another: two digits of it, rounded down.

    >>> default_public_rows(3907), default_public_rows(99)
    (3900, 99)
    """
    unit = 10 ** max(0, len(str(rows)) - 2)
    return rows // unit * unit


def most_rows(public_rows: int) -> int:
    """Return the most rows that a table may have for which so many are declared: a tenth more."""
    return -(-11 * public_rows // 10)


class AllRows:
    """Sampling that takes every row in every step."""

    def batch_size(self, public_rows: int) -> int:
        """Return the number of rows."""
        return public_rows

    def capacity(self, public_rows: int) -> int:
        """Return the most rows that there may be."""
        return most_rows(public_rows)

    def draw(
        self,
        source: Source,  # nothing is random here
        rows: int,
        public_rows: int,
        steps: int,
        capacity: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch for all steps."""
        return all_rows(rows, capacity)


class FixedSize:
    """Batches of `max(minimum, ceil(fraction rows))` rows without replacement, or of all if there are fewer."""

    minimum: int
    fraction: float

    def batch_size(self, public_rows: int) -> int:
        """Return the number of rows in a batch."""
        return expected_batch(public_rows, self.minimum, self.fraction)

    def capacity(self, public_rows: int) -> int:
        """Return the number of rows in a batch."""
        return self.batch_size(public_rows)

    def draw(
        self, source: Source, rows: int, public_rows: int, steps: int, capacity: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch per step."""
        return fixed_size(source.generator, rows, self.batch_size(public_rows), steps, capacity)


def check_batch(minimum: int, fraction: float) -> None:
    """Raise unless batch sizes can follow from these."""
    whole("minimum", minimum, 1)
    in_range("fraction", fraction, 0, 1)


def all_rows(rows: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers and mask of one batch of all rows."""
    index = np.arange(capacity, dtype=np.int32)[None]
    return np.where(index < rows, index, 0).astype(np.int32), index < rows


def poisson_sample(source: Source, rows: int, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw each row in each step independently with probability `rate`.

    Returns how many rows each step drew, and their numbers, step by step. All steps together are one long series of
    coin flips. The gaps between heads are geometric, and only those are drawn, by inversion of a uniform number u with
    64 bits: `1 + floor(log u / log(1 - rate))`. Gaps beyond `longest` are drawn piece by piece, so that u is never so
    small that its digits run out. Given all coins before it, a coin has its probability of tails within a factor of
    1 +- FLIP, and of heads within 1 +- FLIP / rate.
    """
    flips, log_tails = rows * steps, math.log1p(-rate)
    longest = max(1, int(PIECE / -log_tails))
    heads, last = [np.zeros(0, np.int64)], -1
    while last < flips:
        expected = 1.03 * (flips - last) * rate
        uniform = source.uniform(int(expected + 4 * math.sqrt(expected) + 16))
        gaps = 1 + np.floor(np.log(uniform) * (1 / log_tails)).astype(np.int64)
        beyond = gaps > longest
        places = last + np.cumsum(np.where(beyond, longest, gaps))
        heads.append(places[~beyond])
        last = int(places[-1])
    drawn = np.concatenate(heads)
    starts = np.arange(steps + 1) * rows
    ends = np.searchsorted(drawn, starts)
    sizes = np.diff(ends)
    return sizes, drawn[: ends[-1]] - np.repeat(starts[:-1], sizes)


def padded(sizes: np.ndarray, row: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, so many for each step, as row numbers and mask of shape (steps, capacity)."""
    mask = np.arange(capacity)[None] < sizes[:, None]
    index = np.zeros(mask.shape, np.int32)
    index[mask] = row
    return np.where(mask, index, index[:, :1]), mask


def fixed_size(
    rng: np.random.Generator, rows: int, size: int, steps: int, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return one batch per step of `size` rows without replacement, or of all rows if there are fewer."""
    size = min(size, rows)
    batches = np.empty((steps, capacity), np.int32)
    for batch in batches:
        batch[:size] = rng.choice(rows, size, replace=False, shuffle=False)
    batches[:, size:] = batches[:, :1]
    mask = np.zeros(batches.shape, bool)
    mask[:, :size] = True
    return batches, mask


@functools.lru_cache(maxsize=4096)
def poisson_capacity(rows: int, rate: float, overflow: float) -> int:
    """Return the least size that a batch out of so many rows exceeds with at most probability `overflow`, or all."""
    from scipy.stats import binom  # takes longer to import than all of fedvi

    if rate == 1 or overflow == 0:
        return rows
    return max(1, min(rows, int(binom.isf(overflow, rows, rate))))
