"""Where random words come from: the operating system for real updates, a seeded Philox stream for simulations.

Sampling and noise are made of uniform 64-bit words by the same code in both cases (`fedvi.privacy.lattice`,
`fedvi.privacy.sampling`). OpenSSL's generator (`ssl.RAND_bytes`) is seeded by the operating system and safe after a
fork. A seeded stream is predictable by design: nothing drawn from it is private, and every artefact says so.
"""

from __future__ import annotations

import abc
import ssl

import numpy as np
from jaxtyping import Float, UInt64

SCHEDULE, UPDATE, STATISTIC = 0, 1, 2
"""Purposes of seeded streams."""

MOST_WORDS = 1 << 20
"""Words that the system is asked for at once."""


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
