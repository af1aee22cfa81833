"""Sums of clipped per-example gradients: `sum_i clip(g_i - offset, c)` with `clip(g, c) = g min(1, c / |g|)`.

**Sensitivity.** Adding or removing one row moves the sum by at most c in Euclidean norm, whatever the row holds: a row
whose gradient is not finite counts as zero. Norms are computed in floating point; they are taken a little larger than
computed (`ROUNDING`), so that what is summed is never longer than c.

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

ROUNDING = 1e-5
"""Relative error of a squared norm that is allowed for: about a hundred roundings of float32."""

MICROBATCH_BYTES = 16_000_000
"""Memory for the gradients of one microbatch."""


def clip_weights(
    squared_norms: Float[Array, " n"], clip_norm: Float[Array, ""], slack: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Return `min(1, clip_norm / norm)` for every row, and 0 where the norm is not finite.

    slack: the squared size of what the squared norm was computed from; cancellation may have cost a part of that.
    """
    norms = jnp.sqrt(squared_norms + ROUNDING * slack)
    weights = jnp.minimum(1, clip_norm / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))
    return jnp.where(jnp.isfinite(norms), weights, 0)


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
        finite = jnp.all(jnp.isfinite(gradients), axis=1, keepdims=True)
        shifted = jnp.where(finite, gradients, 0) - shift[None]
        squared = jnp.sum(shifted**2, axis=1)
        weights = clip_weights(squared, clip_norm, squared) * finite[:, 0] * counts
        return total + weights @ jnp.where(jnp.isfinite(shifted), shifted, 0), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(shift), (*map(in_microbatches, rows), counted))
    summed: C = unravel(total)
    return summed
