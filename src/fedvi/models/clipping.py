"""Sums of clipped per-example gradients: `sum_i clip(g_i - offset, c)` with `clip(g, c) = g min(1, c / |g|)`.

**Sensitivity.** Adding or removing one row moves the sum by at most c in Euclidean norm, whatever the row holds and
whatever q is: a row whose gradient is not finite counts as zero. Rounding is part of this. Norms, weights and the sum
over rows are computed in double precision, whatever else is single. Rows are clipped to a little less than c, by what n
additions can lose at worst: `n^2 2^-52` of it. The sum is returned in double precision, for noise to be added before it
is rounded.

Rounding in a gradient itself depends on how many rows are computed together, so that one row less may move what others
contribute. Closed forms compute in double precision, where that is nothing; for other models' gradients, in the
precision in use, `8 n` units of rounding are allowed for.

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

ROUNDING = 1e-6
"""Relative error that is allowed for beside that of the additions.

The most of it is that settings such as the noise multiplier may reach compiled code in single precision.
"""

MICROBATCH_BYTES = 16_000_000
"""Memory for the gradients of one microbatch."""


def double_precision() -> Any:
    """Return a context in which arrays may be double, also inside compiled code that is single otherwise.

    Loops and compilation keep the precision. `jax.vmap` over such code does not, and warns, unless it is itself called
    within this context.
    """
    return jax.enable_x64(True)


def widen(tree: Any) -> Any:
    """Return the same numbers in double precision; only within `double_precision`."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.float64), tree)


def narrow(tree: C, like: Any) -> C:
    """Return the numbers rounded to the precision of `like`; only within `double_precision`."""
    return jax.tree.map(lambda leaf: leaf.astype(jax.tree.leaves(like)[0].dtype), tree)


def clip_weights(
    squared_norms: Float[Array, " n"],
    clip_norm: Float[Array, ""],
    squared_sizes: Float[Array, " n"],
    rows: int,
    unit: float = 0.0,
) -> Float[Array, " n"]:
    """Return `min(1, clip_norm / norm)` for every row, and 0 where the norm is not finite.

    squared_sizes: of what each squared norm was computed from: gradient and offset, squared and added.
    rows: how many are summed. unit: of rounding in each of them.
    """
    norms = jnp.sqrt(squared_norms + ROUNDING**2 * squared_sizes)
    limit = clip_norm / (1 + ROUNDING + rows**2 * 2.0**-52 + 8 * rows * unit)
    weights = jnp.minimum(1, limit / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))
    return jnp.where(jnp.isfinite(norms), weights, 0)


def grouped(size: int, x: Array, y: Array, mask: Array) -> tuple[Array, ...]:
    """Return the rows in groups of `size` along a new first axis, the last one filled up with masked rows."""
    missing = -mask.size % size

    def in_groups(array: Array, filler: Array) -> Array:
        return jnp.concatenate([array, filler]).reshape(-1, size, *array.shape[1:])

    data = (in_groups(array, jnp.repeat(array[:1], missing, axis=0)) for array in (x, y))
    return (*data, in_groups(mask, jnp.zeros(missing, mask.dtype)))


def clipped_sum_by_row(
    gradient_of_row: Callable[[Any, Any], C],
    x: Float[Array, "n ..."],
    y: Float[Array, "n ..."],
    mask: Float[Array, " n"],
    clip_norm: Float[Array, ""],
    offset: C,
    total_rows: int,
) -> C:
    """Return the clipped sum over the masked rows, with the gradients of one microbatch in memory at a time.

    offset: has the structure of one gradient. total_rows: of the sum that this is a part of.
    """
    flat_offset, _ = ravel_pytree(offset)
    count = max(1, min(mask.size, MICROBATCH_BYTES // (flat_offset.size * 8)))

    def of_rows(*rows: Array) -> Array:
        return jax.vmap(lambda *row: ravel_pytree(gradient_of_row(*row))[0])(*rows)

    microbatches = grouped(count, x, y, mask)
    unit = float(jnp.finfo(flat_offset.dtype).eps)
    with double_precision():
        shift, limit = widen(flat_offset), widen(clip_norm)

        def add(total: Array, microbatch: tuple[Array, ...]) -> tuple[Array, None]:
            *rows, counts = microbatch
            with jax.enable_x64(flat_offset.dtype == jnp.float64):  # the model's own work stays as it is
                single = of_rows(*rows)
            gradients, counts = widen((single, counts))
            shifted = gradients - shift[None]
            sizes = jnp.sum(gradients**2, axis=1) + jnp.sum(shift**2)
            weights = counts * clip_weights(jnp.sum(shifted**2, axis=1), limit, sizes, total_rows, unit)
            return total + weights @ jnp.where(weights[:, None] > 0, shifted, 0), None

        total, _ = jax.lax.scan(add, jnp.zeros_like(shift), microbatches)
        _, unravel = ravel_pytree(widen(offset))
        summed: C = unravel(total)
        return summed
