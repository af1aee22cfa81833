"""Sums of clipped per-example gradients: `sum_i clip(g_i - offset, c)` with `clip(g, c) = g min(1, c / |g|)`.

**Sensitivity.** Adding or removing one row moves the sum by at most c in Euclidean norm, whatever the row holds and
whatever q is: a row whose gradient is not finite counts as zero. What rounding could hide is allowed for. Norms are
taken a little larger than computed (`ROUNDING`); squares that vanish count as the least number that does not; where
gradient and offset nearly cancel, a row counts less (`CANCELLATION`), so that the sums that are subtracted are not much
larger than their difference. Sums over many rows come as an unevaluated pair (`paired_sum`): noise is added to the
small half first, so that rounding the large one only rounds what is private already.

Two ways to the same numbers: here, for any model, gradients of a few rows at a time; in `LinearPredictorModel`, a
closed form in which a gradient per row never exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

C = TypeVar("C")

ROUNDING = 2e-4
"""Relative error of a squared norm that is allowed for, and with it the roundings within one chunk of a sum."""

CANCELLATION = 8.0
"""A row's weight is at most so many clip norms over the size of what its shifted gradient is the difference of."""

CHUNK = 512
"""Rows that are summed in plain floating point; sums of more rows are put together with their rounding errors."""

MICROBATCH_BYTES = 16_000_000
"""Memory for the gradients of one microbatch."""


def clip_weights(
    squared_norms: Float[Array, " n"], clip_norm: Float[Array, ""], squared_sizes: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Return `min(1, clip_norm / norm)` for every row, and 0 where the norm is not finite.

    squared_sizes: of what each squared norm was computed from: gradient and offset, squared and added.
    """
    norms = jnp.sqrt(squared_norms + ROUNDING * squared_sizes)
    norms = jnp.maximum(norms, jnp.sqrt(squared_sizes) / CANCELLATION)
    weights = jnp.minimum(1, clip_norm / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))
    return jnp.where(jnp.isfinite(norms), weights, 0)


def paired_sum(part: Callable[[tuple[Array, ...]], C], rows: tuple[Array, ...]) -> tuple[C, C]:
    """Return the sum of `part` over chunks of rows, and what rounding lost of it; the last of `rows` is a mask.

    The two together are the sum with about twice the digits. Up to one chunk they are `part(rows)` and zero.
    """
    count = rows[-1].size
    if count <= CHUNK:
        return part(rows), jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(part, rows))
    missing = -count % CHUNK

    def in_chunks(array: Array, filler: Array) -> Array:
        return jnp.concatenate([array, filler]).reshape(-1, CHUNK, *array.shape[1:])

    *data, mask = rows
    chunks = [in_chunks(array, jnp.repeat(array[:1], missing, axis=0)) for array in data]
    chunks.append(in_chunks(mask, jnp.zeros(missing, mask.dtype)))
    form = jax.eval_shape(part, tuple(entry[0] for entry in chunks))
    first: C = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form)

    def add(so_far: tuple[C, C], now: tuple[Array, ...]) -> tuple[tuple[C, C], None]:
        total, lost = so_far
        new = jax.tree.map(jnp.add, total, term := part(now))
        error = jax.tree.map(_rounding, total, term, new)
        return (new, jax.tree.map(jnp.add, lost, error)), None

    both, _ = jax.lax.scan(add, (first, first), tuple(chunks))
    return both


def _rounding(first: Array, second: Array, rounded: Array) -> Array:
    """Return what `first + second` lost in rounding (Knuth)."""
    virtual = rounded - first
    return (first - (rounded - virtual)) + (second - virtual)


def clipped_sum_by_row(
    gradient_of_row: Callable[[Any, Any], C],
    rows: tuple[Float[Array, "n ..."], Float[Array, "n ..."]],
    mask: Float[Array, " n"],
    clip_norm: Float[Array, ""],
    offset: C,
) -> C:
    """Return the clipped sum over the masked rows, with the gradients of one microbatch in memory at a time.

    offset: has the structure of one gradient.
    """
    shift, unravel = ravel_pytree(offset)
    count = max(1, min(mask.size, MICROBATCH_BYTES // (shift.size * shift.dtype.itemsize)))
    missing = -mask.size % count

    def in_microbatches(array: Array) -> Array:
        padded = jnp.concatenate([array, jnp.repeat(array[:1], missing, axis=0)])
        return padded.reshape(-1, count, *array.shape[1:])

    counted = jnp.concatenate([mask, jnp.zeros(missing, mask.dtype)]).reshape(-1, count)

    def add(total: Array, microbatch: tuple[Array, ...]) -> tuple[Array, None]:
        x, y, counts = microbatch
        gradients = jax.vmap(lambda *row: ravel_pytree(gradient_of_row(*row))[0])(x, y)
        shifted = gradients - shift[None]
        sizes = jnp.sum(gradients**2, axis=1) + jnp.sum(shift**2)
        weights = counts * clip_weights(jnp.sum(shifted**2, axis=1), clip_norm, sizes)
        return total + weights @ jnp.where(weights[:, None] > 0, shifted, 0), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(shift), (*map(in_microbatches, rows), counted))
    summed: C = unravel(total)
    return summed
