"""Arrays of NumPy or of JAX: one formula serves both.

A formula takes its functions from the array that it works on, `xp = namespace(x)`. Under NumPy it needs no JAX; under
JAX it can be compiled and differentiated. Here is also what the two namespaces do not have in common.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

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
