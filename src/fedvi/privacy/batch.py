"""What one step of one update gets to see: rows of a buffer, by number, and the noise of its sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jaxtyping import Float, Int, UInt32

from fedvi.arrays import Array
from fedvi.compiling import jax, jnp
from fedvi.pytree import pytree

S = TypeVar("S")


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
    model_noise: Float[Array, ...]
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

        def some(k: Any) -> S:
            return part(*(jax.lax.dynamic_slice_in_dim(array, k * at_once, at_once) for array in (rows, mask)))

        def add(k: Array, total: S) -> S:
            return jax.tree.map(jnp.add, total, some(k))

        first = jnp.zeros((), rows.dtype)
        last = jnp.max(jnp.where(mask > 0, jnp.arange(1, mask.size + 1, dtype=rows.dtype), first))
        nothing: S = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(some, first))
        total: S = jax.lax.fori_loop(first, (last + (at_once - 1)) // at_once, add, nothing)
        return total
