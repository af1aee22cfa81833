"""Lattice releases: a sum and its noise are whole numbers on one public grid, so that bits tell nothing.

Floating-point noise added to a floating-point sum does not hide the sum: for a given sum only some results are
possible, and an adversary who knows the other rows sees which. Here the sum S is rounded to a public grid of spacing g,
a power of two, and the noise is drawn on the same grid:

    K = rint(S / g)        Z = floor(M N), N standard normal        released: g (K + Z)

Public numbers: clip norm C, noise multiplier sigma, coordinates k, most rows n.

    g = largest power of two with  g sqrt(k) <= 2^-20 C  and  g <= 2^-26 sigma C;  doubled while  n C / g + 13 M >= 2^52
    M = sigma (C (1 + 2^-22) + g sqrt(k)) / g

**Sensitivity.** Sums of neighbours differ by at most C. Rounding moves a coordinate by at most g/2 in each world, so
that |g K - g K'| <= C + g sqrt(k). The 2^-22 pays for settings that reach compiled code in single precision.

**Privacy.** K is whole, so K + floor(M N) = floor(K + M N): post-processing of the Gaussian mechanism on K, whose
standard deviation M is sigma times its sensitivity. The event is Gaussian(sigma) exactly.

**Range.** |K| + |Z| < 2^52, so that everything is exact in double precision. g depends on public numbers only.

**The sampler** (`Lattice.noise`) draws Z from uniform 64-bit words alone. The half-line up to 13 M is cut into segments
of 2^b numbers, M/128 < 2^b <= M/64. Word 1 chooses a segment i by an alias table, with probability proportional to
exp(-a_i^2 / 2), a_i = i 2^b / M. Of word 2, b bits are the position j, one is the sign, the others are U. The pair is
accepted if U < exp(-x (a_i + x/2)), x = (j + 1/2) / M; one more word decides ties. Z = i 2^b + j, or its complement.
Each value has its probability within a factor 1 +- ETA, but for values of total probability TAU
(`fedvi.privacy.events`); docs/privacy.md has the argument, and accountants add the price to every epsilon and delta.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int, UInt32

from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.numerics import Array, narrow, widen
from fedvi.privacy.sampling import Source

T = TypeVar("T")
Words = UInt32[Array, "k 2"]

FINEST, SMOOTHEST, SETTINGS, REACH, RANGE = 2.0**-20, 2.0**-26, 2.0**-22, 13.0, 2.0**52

MOST_ROUNDING = 2.0**29
"""Rows times the root of coordinates beyond which rounding of a sum might count."""

AT_ONCE = 8192
"""Numbers that are drawn together: what is made of them stays in a core's cache."""


@dataclasses.dataclass(frozen=True)
class Lattice:
    """A grid and the size of the noise on it.

    grid: the spacing g. size: standard deviation M of the noise, in units of the grid. numbers: coordinates.
    """

    grid: float
    size: float
    numbers: int

    @classmethod
    def of(cls, clip_norm: float, noise_multiplier: float, numbers: int, most_rows: int) -> Lattice:
        """Return the lattice for sums of up to `most_rows` vectors of so many numbers, none longer than clip_norm."""
        if most_rows * math.sqrt(numbers) > MOST_ROUNDING:
            raise InputError(
                f"Expected rows times the root of coordinates up to 2^29, got {most_rows} rows and {numbers} "
                "coordinates: rounding in their sum is not bounded beyond. Split the site."
            )
        return _lattice(float(clip_norm), float(noise_multiplier), numbers, most_rows)

    def noise(self, source: Source, *shape: int) -> Int[np.ndarray, "*shape"]:
        """Draw whole numbers: floor(M N) with N standard normal."""
        drawn = np.empty(math.prod(shape), np.int64)
        for start in range(0, len(drawn), AT_ONCE):
            drawn[start : start + AT_ONCE] = _draw(source, self.size, min(AT_ONCE, len(drawn) - start))
        return drawn.reshape(shape)

    def release(self, total: Float[np.ndarray, " k"], noise: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Return a sum with its noise, for NumPy; `released` does the same in compiled code."""
        return (np.rint(total / self.grid) + noise) * self.grid


@functools.lru_cache(maxsize=65536)
def _lattice(clip_norm: float, noise_multiplier: float, numbers: int, most_rows: int) -> Lattice:
    root = math.sqrt(max(numbers, 1))
    finest = min(FINEST * clip_norm / root, SMOOTHEST * noise_multiplier * clip_norm)
    grid = math.ldexp(1.0, math.frexp(finest)[1] - 1)
    while True:
        size = noise_multiplier * (clip_norm * (1 + SETTINGS) + grid * root) / grid
        if most_rows * clip_norm / grid + REACH * size < RANGE:
            return Lattice(grid, size, numbers)
        grid *= 2
        if grid * root > clip_norm or grid > SMOOTHEST * noise_multiplier * clip_norm:
            raise InputError(
                f"Expected noise and rows that fit 2^52 steps of a grid, got noise multiplier {noise_multiplier:g} and "
                f"{most_rows} rows. {'Split the site' if grid * root <= clip_norm else 'Use less noise'}."
            )


def as_pairs(noise: Int[np.ndarray, "*shape"]) -> UInt32[np.ndarray, "*shape 2"]:
    """Return whole numbers as pairs of 32-bit words: compiled code cuts 64-bit arguments to 32 bits, silently."""
    return np.ascontiguousarray(noise, np.int64).view(np.uint32).reshape(*noise.shape, 2)


def released(total: Float[Array, " k"], noise: UInt32[Array, "k 2"], grid: Float[Array, ""]) -> Float[Array, " k"]:
    """Return a sum with its noise, exact in double precision: the only place where rows and noise meet.

    noise: `as_pairs`. Within `double_precision`.
    """
    spacing = widen(grid)
    whole = jax.lax.bitcast_convert_type(noise, jnp.int64).astype(jnp.float64)
    return (jnp.rint(total / spacing) + whole) * spacing


def with_its_noise(total: T, noise: Words, grid: Float[Array, ""], like: Any) -> tuple[T, Words]:
    """Return a pytree of sums with its noise, in the precision of `like`, and the same before it was rounded.

    Within `double_precision`.
    """
    flat, unravel = jax.flatten_util.ravel_pytree(total)
    noisy = released(flat, noise, grid)
    return narrow(unravel(noisy), like), as_words(noisy)


def as_words(values: Float[Array, "*shape"]) -> UInt32[Array, "*shape 2"]:
    """Return doubles as pairs of 32-bit words, in which they leave compiled code unchanged; `from_words` reads them."""
    return jax.lax.bitcast_convert_type(values, jnp.uint32)


def from_words(words: Any) -> Float[np.ndarray, "*shape"]:
    """Return the doubles that `as_words` wrote."""
    return np.ascontiguousarray(words).view(np.float64)[..., 0]


def _draw(source: Source, size: float, count: int) -> np.ndarray:
    table = _table(size)
    drawn: list[np.ndarray] = []
    missing = count
    while missing > 0:
        tried = int(1.012 * missing) + 12
        words = source.words(2 * tried)
        first, second = words[:tried], words[tried:]
        column = (first & table.columns).view(np.int64)
        keeps = (first >> table.column_bits) < table.threshold.take(column)
        segment = np.where(keeps, column, table.alias.take(column))
        position = (second & table.position_mask).view(np.int64)
        x = position * (1 / size)
        x += 0.5 / size
        wanted = table.start.take(segment)
        wanted += 0.5 * x
        wanted *= x
        np.exp(np.negative(wanted, out=wanted), out=wanted)
        wanted *= table.room
        given = (second >> table.rest_shift).view(np.int64).astype(np.float64)
        whole = np.floor(wanted)
        accepted = given < whole
        for tie in np.flatnonzero(given == whole):
            accepted[tie] = source.uniform(1)[0] < wanted[tie] - given[tie]
        segment <<= table.bits
        segment += position
        segment ^= -((second >> table.sign_shift) & _ONE).view(np.int64)  # the complement, if the bit is set
        signed = segment[accepted][:missing]
        drawn.append(signed)
        missing -= len(signed)
    return np.concatenate(drawn)


_ONE = np.uint64(1)


@dataclasses.dataclass(frozen=True, eq=False)
class _Table:
    """The segments for one size of noise, and how to choose among them with one word (Walker's alias method)."""

    bits: int
    columns: np.uint64
    column_bits: np.uint64
    position_mask: np.uint64
    sign_shift: np.uint64
    rest_shift: np.uint64
    room: float
    threshold: np.ndarray
    alias: np.ndarray
    start: np.ndarray


@functools.lru_cache(maxsize=1024)
def _table(size: float) -> _Table:
    bits = math.frexp(size)[1] - 1 - 6  # 2^bits is within size / 128 and size / 64
    segments = math.ceil(REACH * size / 2.0**bits)
    column_bits = max(10, (segments - 1).bit_length())
    columns = 1 << column_bits
    start = np.arange(segments) * (2.0**bits / size)
    weights = [int(weight) for weight in np.ldexp(np.exp(-start * start / 2), 62).tolist()]
    total, full = sum(weights), 1 << (64 - column_bits)
    shares = [(weight << 64) // total for weight in weights]
    for segment in range((1 << 64) - sum(shares)):  # what rounding down has left, one to each of the most probable
        shares[segment] += 1
    shares += [0] * (columns - segments)
    threshold, alias = _alias(shares, full)
    return _Table(
        bits=bits,
        columns=np.uint64(columns - 1),
        column_bits=np.uint64(column_bits),
        position_mask=np.uint64((1 << bits) - 1),
        sign_shift=np.uint64(bits),
        rest_shift=np.uint64(bits + 1),
        room=2.0 ** (63 - bits),
        threshold=threshold,
        alias=alias,
        start=np.concatenate([start, np.zeros(columns - segments)]),
    )


def _alias(shares: list[int], full: int) -> tuple[np.ndarray, np.ndarray]:
    """Return thresholds and aliases: column i keeps `threshold_i / full` of itself, the rest goes to its alias."""
    threshold, alias = np.full(len(shares), full, np.uint64), np.arange(len(shares))
    left: list[Any] = list(shares)
    small = [i for i, share in enumerate(left) if share < full]
    large = [i for i, share in enumerate(left) if share > full]
    while small and large:
        poor, rich = small.pop(), large[-1]
        threshold[poor], alias[poor] = left[poor], rich
        left[rich] -= full - left[poor]
        if left[rich] <= full:
            large.pop()
            if left[rich] < full:
                small.append(rich)
    return threshold, alias
