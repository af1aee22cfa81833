"""The one place where rows are clipped and summed: `sum_i clip(v_i - offset, C)` with `clip(v, C) = v min(1, C / |v|)`.

**Sensitivity.** Adding or removing one row moves the sum by at most C in Euclidean norm, whatever the row holds and
whatever q is: a row whose vector is not finite counts as zero. Rounding is part of this.

- A row's vector, its norm and its weight depend on that row alone, and on public numbers, to the last bit
  (`fedvi.models.base`).
- Every weighted vector is cut towards zero to whole numbers of public units. Their sum is exact in double precision:
  the same bits in any order and any blocks. One row more moves it by exactly that row's whole numbers.
- Rows are clipped to C / (1 + ROUNDING), which pays for the rounding of a row's own weight and norm, and for that of
  the product of sum and unit at the end: 2^-53 of at most `rows` C. `fedvi.privacy.lattice` refuses so many rows and
  coordinates that this would not do.
- For own models, whose gradients are computed in single precision, a row's vector may depend on the other rows by
  rounding. `8 rows` units of it are allowed for. That is not proven, and the statement of a ledger says so. An outcome
  that a model draws could become another by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from jaxtyping import Float, Int, UInt32

from fedvi.compiling import jax, jnp
from fedvi.models.base import Part
from fedvi.numerics import Array, Bounds, bits_of, snapped, weight_bits
from fedvi.pytree import pytree

S = TypeVar("S")

ROUNDING = 1e-6
"""Relative error that is allowed for in a row's part, beside cutting, which only shortens it."""

LONGEST_OFFSET = 2.0**14
"""Clip norms beyond which an offset is shortened: all rows point away from it then, whatever they hold."""


@pytree
class Batch:
    """What one step of one update gets: which rows, and what noise.

    x, y, lengths: a buffer of rows. rows: those of the batch, by number. mask: 1 for rows that count, 0 for padding.
    feature_bound: of entries of x, if they are on their grid (`fedvi.numerics`); public.
    scale: weight of the likelihood of each row of a batch; public.
    total: `scale` times the expected number of rows in a batch; public.
    grid: of sum and noise; public.
    model_noise: standard normals. privacy_noise: whole numbers, as pairs of words.
    """

    x: Float[Array, "buffer ..."]
    y: Float[Array, "buffer ..."]
    lengths: Float[Array, " buffer"]
    rows: Int[Array, " capacity"]
    mask: Float[Array, " capacity"]
    feature_bound: Float[Array, ""]
    scale: Float[Array, ""]
    total: Float[Array, ""]
    grid: Float[Array, ""]
    model_noise: Float[Array, "*draws"]
    privacy_noise: UInt32[Array, "n 2"]

    def take(self, rows: Any) -> tuple[Array, Array, Array]:
        """Return x, y and lengths of some rows, by number."""
        x, y, lengths = (part.at[rows].get(mode="promise_in_bounds") for part in (self.x, self.y, self.lengths))
        return x, y, lengths

    def sum_over_rows(self, part: Callable[[Array, Array], S], at_once: int) -> S:
        """Return the sum of `part(rows, mask)` over the batch, always so many rows, by number, at once.

        Padding behind the last row that counts is never looked at: a batch costs what it holds, not its room.
        """
        missing = (0, -self.mask.size % at_once)
        rows, mask = jnp.pad(self.rows, missing, mode="edge"), jnp.pad(self.mask, missing)  # no other client's rows

        def add(k: Array, total: S) -> S:
            some = (jax.lax.dynamic_slice_in_dim(array, k * at_once, at_once) for array in (rows, mask))
            return jax.tree.map(jnp.add, total, part(*some))

        first = jnp.zeros((), rows.dtype)
        last = jnp.max(jnp.where(mask > 0, jnp.arange(1, mask.size + 1, dtype=rows.dtype), first))
        shapes = jax.eval_shape(lambda: part(rows[:at_once], mask[:at_once]))
        nothing: S = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        total: S = jax.lax.fori_loop(first, (last + (at_once - 1)) // at_once, add, nothing)
        return total


Sums = tuple[Any, Float[Array, ""]]
"""Whole-number sums, part by part, and how often the offset is to be subtracted, in units of `_count_step`."""


def clipped_sums(parts: Any, mask: Float[Array, " n"], bounds: Bounds, offset: Any = None) -> Sums:
    """Return the sums of a block of rows: whole numbers, to be added up over blocks and handed to `in_units`.

    parts: a pytree of `Part`s. offset: `usable_offset`, or None; only for a single part.
    """
    bounds = dataclasses.replace(bounds, shifted=offset is not None)
    counts = jnp.zeros_like(bounds.norm)

    def clipped(part: Part) -> Any:
        nonlocal counts
        vectors, own = part.vectors, _bounds_of(part, bounds)
        squared = sizes = vectors.squared_norms()
        limit = own.norm / (1 + ROUNDING + 8 * bounds.rows * vectors.rounding)
        if offset is not None:
            length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(offset)))
            sizes = squared + length**2
            squared = jnp.maximum(sizes - 2 * vectors.least_dot(offset), 0)
            limit = jnp.maximum(limit - vectors.longest_cut(own) - length * _count_step(bounds), 0)
        norms = jnp.sqrt(squared + ROUNDING**2 * sizes)
        weights = mask * jnp.minimum(1, limit / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))
        weights = jnp.where(jnp.isfinite(norms), weights, 0)
        if offset is not None:
            counts = counts + jnp.sum(jnp.trunc(weights * (1 / _count_step(bounds))))
        return vectors.whole_sum(weights, own)

    return jax.tree.map(clipped, parts, is_leaf=_is_part), counts


def in_units(sums: Sums, parts: Any, bounds: Bounds, offset: Any = None) -> Any:
    """Return whole-number sums as numbers. parts: of any rows, since only public numbers in them are used."""
    whole, counts = sums
    bounds = dataclasses.replace(bounds, shifted=offset is not None)
    units = jax.tree.map(lambda part: part.vectors.units(_bounds_of(part, bounds)), parts, is_leaf=_is_part)
    total = jax.tree.map(lambda numbers, unit: numbers * jnp.where(jnp.isfinite(unit), unit, 0), whole, units)
    if offset is None:
        return total
    return jax.tree.map(lambda leaf, each: leaf - (counts * _count_step(bounds)) * each, total, offset)


def usable_offset(offset: Any, bounds: Bounds) -> Any:
    """Return an offset with few bits, so that inner products are exact, and not so long that rounding counts."""
    flat, unravel = jax.flatten_util.ravel_pytree(offset)
    longest = bounds.norm * min(2.0**28 / (bounds.rows * flat.size**0.5), LONGEST_OFFSET)
    length = jnp.sqrt(jnp.sum(flat**2))
    shorter = unravel(flat * jnp.minimum(1, longest / jnp.maximum(length, jnp.finfo(flat.dtype).tiny)))
    return jax.tree.map(lambda leaf: snapped(leaf, weight_bits(leaf.shape[-1])), shorter)


def _count_step(bounds: Bounds) -> float:
    """Return the unit in which weights are counted: their sum stays below 2^52 of it."""
    return 2.0 ** -min(30, 52 - bits_of(bounds.rows))


def _bounds_of(part: Part, bounds: Bounds) -> Bounds:
    share = jnp.clip(jnp.asarray(part.share, bounds.norm.dtype), 0, 1)
    return dataclasses.replace(bounds, norm=bounds.norm * jnp.sqrt(share))


def _is_part(node: object) -> bool:
    return isinstance(node, Part)
