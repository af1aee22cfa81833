"""Lattice releases: the grid follows from public numbers, noise has the probabilities that it should have."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvi.errors import InputError
from fedvi.numerics import double_precision
from fedvi.privacy import lattice as lattices
from fedvi.privacy.events import ETA, TAU
from fedvi.privacy.lattice import Lattice, as_pairs, as_words, from_words, released
from fedvi.privacy.sampling import Seeded, Source, System

EXAMPLE = Lattice.of(1.5, 5.0, 216, 2**20)


@given(st.floats(1e-20, 1e6), st.floats(1e-3, 1e4), st.integers(1, 100_000), st.integers(1, 2**20))
def test_the_grid_is_fine_and_whole_numbers_stay_below_two_to_52(
    clip_norm: float, noise: float, numbers: int, rows: int
) -> None:
    if rows * math.sqrt(numbers) > 2**29:
        return
    found = Lattice.of(clip_norm, noise, numbers, rows)
    assert math.frexp(found.grid)[0] == 0.5
    assert found.size * found.grid >= noise * (clip_norm + found.grid * math.sqrt(numbers))
    assert rows * clip_norm / found.grid + 13 * found.size < 2**52
    assert found.grid * math.sqrt(numbers) <= clip_norm


def test_the_documents_examples_of_grids_are_right() -> None:
    assert EXAMPLE.grid == 2.0**-24
    assert math.log2(EXAMPLE.size) == pytest.approx(26.9, abs=0.05)
    assert EXAMPLE.grid * math.sqrt(216) / 1.5 == pytest.approx(5.8e-7, rel=0.01)
    wide = Lattice.of(1.0, 5.0, 100_000, 2**20)
    assert wide.grid == 2.0**-29


def test_more_rows_and_coordinates_than_rounding_allows_are_refused() -> None:
    with pytest.raises(InputError, match=r"Expected rows times the root of coordinates up to 2\^29"):
        Lattice.of(1.0, 5.0, 10**6, 10**6)


def test_noise_is_added_exactly_in_compiled_code_of_single_precision() -> None:
    noise = np.array([2**40 + 1, -(2**40) - 1, 3, -(2**31), 2**33], np.int64)

    @jax.jit
    def run(pairs: jax.Array, grid: jax.Array) -> jax.Array:
        with double_precision():
            return as_words(released(jnp.asarray([0.25, -0.25, 1.3, 0.0, 7.0], jnp.float64), pairs, grid))

    found = from_words(run(as_pairs(noise), np.float32(2.0**-24))) * 2.0**24
    assert np.array_equal(found, np.rint(np.array([0.25, -0.25, 1.3, 0.0, 7.0]) * 2.0**24) + noise)
    assert np.array_equal(EXAMPLE.release(np.array([1.3]), noise[2:3]) / EXAMPLE.grid, found[2:3])


# The sampler


def normal_mass(z: int, size: float) -> Decimal:
    """Return the probability of floor(size N) = z to 50 digits, up to the factor 1 / sqrt(2 pi).

    The density at the middle of the bin, and the next term: those after it are below size^-4.
    """
    width = 1 / Decimal(size)
    middle = (Decimal(z) + Decimal("0.5")) * width
    return (-middle * middle / 2).exp() * width * (1 + (middle * middle - 1) * width * width / 24)


def sampled_mass(z: int, size: float) -> Decimal:
    """Return the probability that the sampler proposes z and accepts it, up to one factor for all z."""
    table = lattices._table(size)
    number = z if z >= 0 else ~z
    segment, position = number >> table.bits, number & ((1 << table.bits) - 1)
    full = 1 << (64 - int(table.column_bits))
    chosen = int(table.threshold[segment]) + sum(
        full - int(table.threshold[column]) for column in np.flatnonzero(table.alias == segment) if column != segment
    )
    x = (position + 0.5) / size
    wanted = float(np.exp(-(x * (table.start[segment] + 0.5 * x)))) * table.room
    return Decimal(chosen) * Decimal(wanted)


@pytest.mark.parametrize("size", [EXAMPLE.size, 2.0**26, 2.0**31.3, 1.99 * 2.0**35])
def test_every_value_has_its_probability(size: float) -> None:
    """|P'(z) - P(z)| <= ETA P(z) + a part of TAU, and all parts together are no more than TAU."""
    table = lattices._table(size)
    part = Decimal(TAU) / Decimal(2 * int(np.count_nonzero(table.start)) + 2) / (1 << table.bits)
    with decimal.localcontext() as context:
        context.prec = 50
        rng = np.random.default_rng(0)
        far = [int(sign * reach * size) for reach in (5, 6, 8, 10, 12.5) for sign in (-1, 1)]
        values = [*rng.integers(-4 * int(size), 4 * int(size), 100).tolist(), 0, -1, 1, 2**20, *far]
        truth = {z: normal_mass(z, size) for z in values}
        found = {z: sampled_mass(z, size) for z in values}
        scale = sum(truth.values(), Decimal(0)) / sum(found.values(), Decimal(0))  # of what is accepted at all
        for z in values:
            assert abs(found[z] * scale - truth[z]) <= Decimal(ETA) * truth[z] + part * Decimal(math.sqrt(2 * math.pi))


def test_segments_are_chosen_with_probabilities_that_add_up() -> None:
    table = lattices._table(EXAMPLE.size)
    full = 1 << (64 - int(table.column_bits))
    assert np.all(table.threshold <= full)
    assert set(table.alias.tolist()) <= set(range(len(table.start)))
    weights = np.zeros(len(table.start))
    np.add.at(weights, np.arange(len(weights)), table.threshold / full)
    np.add.at(weights, table.alias, 1 - table.threshold / full)
    expected = np.where(np.arange(len(weights)) < np.count_nonzero(table.start) + 1, np.exp(-(table.start**2) / 2), 0)
    assert np.allclose(weights / weights.sum(), expected / expected.sum(), rtol=1e-9, atol=1e-15)


def test_a_million_numbers_are_normal() -> None:
    from scipy.stats import chi2, kstest, norm

    drawn = EXAMPLE.noise(Seeded(1, 0), 1_000_000)
    scaled = (drawn + 0.5) / EXAMPLE.size
    assert kstest(scaled, "norm").pvalue > 1e-4
    assert abs(np.std(scaled) - 1) < 4e-3
    edges = np.linspace(-4, 4, 65)
    counts, _ = np.histogram(scaled, edges)
    expected = np.diff(norm.cdf(edges)) * len(scaled)
    assert np.sum((counts - expected) ** 2 / expected) < chi2.isf(1e-4, 64)
    assert abs(int(np.sum(np.abs(scaled) > 4)) - 63) < 45
    low = np.bincount(drawn & 255, minlength=256)
    assert np.sum((low - len(drawn) / 256) ** 2 / (len(drawn) / 256)) < chi2.isf(1e-4, 255)


def test_the_same_words_give_the_same_noise_and_no_word_is_used_twice() -> None:
    one, two = EXAMPLE.noise(Seeded(3, 1, 2, 4), 25, 216), EXAMPLE.noise(Seeded(3, 1, 2, 4), 25, 216)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, EXAMPLE.noise(Seeded(3, 1, 2, 5), 25, 216))
    assert len(np.unique(one)) == one.size
    assert not np.array_equal(EXAMPLE.noise(System(), 100), EXAMPLE.noise(System(), 100))


def test_ties_are_decided_by_one_more_word() -> None:
    """Words chosen such that U is just at the probability: the next word decides, either way."""
    size = EXAMPLE.size
    table = lattices._table(size)
    position = 12_345
    x = (position + 0.5) / size
    wanted = float(np.exp(-(x * (table.start[0] + 0.5 * x)))) * table.room
    second = (math.floor(wanted) << (table.bits + 1)) | position

    class Chosen(Source):
        def __init__(self, tie: int):
            self.tie = tie

        def words(self, count: int) -> np.ndarray:
            if count == 1:
                return np.array([self.tie], np.uint64)
            return np.concatenate([np.zeros(count // 2, np.uint64), np.full(count // 2, second, np.uint64)])

        @property
        def generator(self) -> np.random.Generator:
            raise AssertionError

    assert wanted % 1 > 0
    assert Lattice(EXAMPLE.grid, size, 1).noise(Chosen(0), 3).tolist() == [position] * 3


def test_words_of_the_system_are_uniform_and_never_the_same() -> None:
    words = System().words(100_000)
    assert len(np.unique(words)) == len(words)
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 1e-3
    assert len(System().words(2_500_000)) == 2_500_000
    uniform = System().uniform(10_000)
    assert uniform.min() > 0
    assert uniform.max() <= 1
    assert sorted(System().permutation(100)) == list(range(100))


@settings(max_examples=20)
@given(st.integers(0, 2**63), st.integers(1, 50))
def test_a_permutation_is_one(seed: int, count: int) -> None:
    assert sorted(Seeded(seed, 0).permutation(count).tolist()) == list(range(count))


def test_a_grid_too_coarse_for_the_samplers_argument_is_refused() -> None:
    assert Lattice.of(1.0, 1.0, 1, 2**25).size >= 2**26
    with pytest.raises(InputError, match="Split the site"):
        Lattice.of(1.0, 1.0, 1, 2**28)
