"""Arithmetic: arrays of NumPy or JAX in one formula, and sums that do not depend on their order.

**Arrays.** A formula takes its functions from the array that it works on, `xp = namespace(x)`. Under NumPy it needs no
JAX; under JAX it can be compiled and differentiated.

**Whole-number sums.** A sum of doubles depends on the order of its terms. A sum of whole numbers does not, as long as
every partial sum stays below 2^53. Private sums are made of such terms only, so that one row more or less moves a sum
by exactly that row's own numbers. The two factors of a product then share 53 bits:

    rows        multiples of bound 2^-row_bits, no larger than `bound`, which is public          `on_row_grid`
    weights     multiples of p 2^-weight_bits, with p the power of two above the largest          `snapped`
    m'x         a sum of d products, exact: row_bits + weight_bits + log2(d) <= 52

Of these, what takes JAX arrays must be called within `double_precision`.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float

from fedvi.compiling import jax, jnp
from fedvi.pytree import loaded_jax

if TYPE_CHECKING:
    from jax import Array as Array
else:
    Array = Any
    """Of jaxtyping's annotations: an array of NumPy or JAX."""


def namespace(x: Any) -> Any:
    """Return the module that has the functions for this array: `numpy`, or `jax.numpy`."""
    return x.__array_namespace__()


def default_namespace() -> ModuleType:
    """Return `jax.numpy` if JAX is loaded, else `numpy`: for arrays that are made of nothing."""
    return np if loaded_jax() is None else jnp


def special(x: Any) -> Any:
    """Return the module of special functions for this array, such as `log_ndtr` and `logsumexp`."""
    if namespace(x) is not np:
        return jax.scipy.special
    import scipy.special  # takes a while to import

    return scipy.special


def cholesky(matrix: Any) -> Any:
    """Return the lower Cholesky factors; NaN where a matrix is not positive definite."""
    xp = namespace(matrix)
    if xp is not np:
        return xp.linalg.cholesky(matrix)
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        if matrix.ndim == 2:
            return np.full_like(matrix, np.nan)
        return np.stack([cholesky(each) for each in matrix])


def inverse_lower(lower: Any) -> Any:
    """Return the inverse of lower triangular matrices."""
    xp = namespace(lower)
    if xp is np:
        return np.tril(np.linalg.inv(lower))
    identity = xp.broadcast_to(xp.eye(lower.shape[-1], dtype=lower.dtype), lower.shape)
    return jax.scipy.linalg.solve_triangular(lower, identity, lower=True)


def diagonal_matrix(values: Any) -> Any:
    """Return the matrices with these diagonals."""
    xp = namespace(values)
    return xp.where(xp.eye(values.shape[-1], dtype=bool), values[..., None, :], 0)


T = TypeVar("T")

MOST_ROW_BITS, MOST_WEIGHT_BITS = 22, 23


def double_precision() -> Any:
    """Return a context in which arrays may be double, also inside compiled code that is single otherwise.

    Loops and compilation keep the precision. `jax.vmap` over such code does not, and warns, unless it is itself called
    within this context.
    """
    return jax.enable_x64(True)


def widen(tree: Any) -> Any:
    """Return the same numbers in double precision."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.float64), tree)


def narrow(tree: T, like: Any) -> T:
    """Return the numbers rounded to the precision of `like`."""
    return jax.tree.map(lambda leaf: leaf.astype(jax.tree.leaves(like)[0].dtype), tree)


def bits_of(count: int) -> int:
    """Return how many bits a sum of so many terms may grow by: `ceil(log2(count))`."""
    return max(0, count - 1).bit_length()


def row_bits(columns: int) -> int:
    """Return how many bits the entries of a row have: the sum of their squares is exact."""
    return min(MOST_ROW_BITS, (52 - bits_of(columns)) // 2)


def weight_bits(columns: int) -> int:
    """Return how many bits the entries of a weight vector have: its product with a row is exact."""
    return min(MOST_WEIGHT_BITS, 52 - row_bits(columns) - bits_of(columns))


def on_row_grid(x: Float[np.ndarray, "n d"], bound: float) -> tuple[np.ndarray, int]:
    """Return the rows as multiples of `bound 2^-row_bits` within `bound`, a power of two, and how many were clipped.

    NaN counts as zero. Each entry depends on itself alone.
    """
    step = bound * 2.0 ** -row_bits(int(np.prod(x.shape[1:])))
    with np.errstate(invalid="ignore"):
        clipped = int(np.count_nonzero(np.abs(x) > bound)) + int(np.count_nonzero(np.isnan(x)))
        values = np.clip(np.nan_to_num(np.asarray(x, np.float64), nan=0.0), -bound, bound)
    np.rint(values / step, out=values)
    values *= step
    return values.astype(x.dtype), clipped


def row_lengths(x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
    """Return the Euclidean length of every row on its grid, rounded up: it is never less than it is.

    Squares and their sums are exact, so that each length depends on its own row alone.
    """
    flat = x.reshape(len(x), int(np.prod(x.shape[1:])))
    squares = np.concatenate(
        [np.square(flat[i : i + 4096], dtype=np.float64).sum(axis=1) for i in range(0, len(x), 4096)] or [np.zeros(0)]
    )
    return np.nextafter(np.sqrt(squares).astype(x.dtype), np.asarray(np.inf, x.dtype))


def power_above(value: Float[Array, ""]) -> Float[Array, ""]:
    """Return the least power of two that is not below a positive number; a tiny one for zero."""
    exponent = jax.lax.bitcast_convert_type(value, jnp.int64) & jnp.int64(0x7FF0000000000000)
    power = jax.lax.bitcast_convert_type(exponent, jnp.float64)
    return jnp.maximum(jnp.where(power == value, power, 2 * power), 2.0**-900)


def snapped(values: Float[Array, "*shape"], bits: int) -> Float[Array, "*shape"]:
    """Return multiples of `p 2^-bits`, at most 2^bits of them, with p the power of two above the largest."""
    step = power_above(jnp.max(jnp.abs(values))) * 2.0**-bits
    return jnp.rint(values * (1 / step)) * step


def row_sums(values: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Return the sum of every row, as a product with ones, which compilers make fast where `sum(axis=1)` is slow."""
    return values @ jnp.ones(values.shape[1], values.dtype)


def whole_row_sums(
    values: Float[Array, "n d"], largest: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Return the sum of every row, each entry rounded so that the sum is exact, and how far off it can be.

    largest: the most that an entry can be, from public numbers.
    """
    columns = values.shape[1]
    step = power_above(largest) * 2.0 ** -(52 - bits_of(columns))
    return row_sums(jnp.rint(values * (1 / step))) * step, 0.5 * columns * step


def cut(values: Float[Array, "*shape"], step: Float[Array, ""]) -> Float[Array, "*shape"]:
    """Return how many whole steps each number has, towards zero: nothing becomes longer."""
    return jnp.trunc(values * (1 / step))


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The public numbers behind a private sum, from which its units follow.

    norm: the longest vector that a row may add. feature: the largest entry of a row, a power of two.
    rows: the most rows that a sum may have. shifted: whether something is subtracted from vectors before they are cut,
        so that cutting may make a difference longer: it has to be fine then.
    """

    norm: Float[Array, ""]
    feature: Float[Array, ""]
    rows: int
    shifted: bool = False

    @property
    def step(self) -> Float[Array, ""]:
        """The unit of what is summed: sums of vectors no longer than `norm` stay below 2^53 of it."""
        return power_above(self.norm) * 2.0 ** -(52 - bits_of(self.rows))

    def row_step(self, columns: int) -> Float[Array, ""]:
        """Return the unit of the entries of a row."""
        return self.feature * 2.0 ** -row_bits(columns)

    def scalar_step(self, largest: Any, columns: int) -> Float[Array, ""]:
        """Return the unit of one number per row, at most `largest`, whose products with rounded squares are summed."""
        return power_above(largest) * 2.0 ** -(52 - row_bits(columns) - bits_of(self.rows))
