"""Two ways to take E[f(eta)] for eta ~ N(mean, variance) in one dimension, as points and weights for z ~ N(0, 1).

`GaussHermite` is deterministic and the default. `MonteCarlo` averages over draws of z shared by all rows of a
minibatch, as the paper did. And `log_expected_sigmoid`, for predictions: precise at any variance.
"""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float

from fedvi.checks import whole
from fedvi.numerics import Array, namespace, special
from fedvi.pytree import pytree, static


@pytree
class GaussHermite:
    """Quadrature that is exact for polynomials of degree below `2 * nodes`."""

    nodes: int = static(default=20)

    def __post_init__(self) -> None:
        whole("nodes", self.nodes, 1)

    def noise_shape(self) -> tuple[int]:
        """Quadrature needs no draws."""
        return (0,)

    def points(self, z: Float[Array, " 0"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Return nodes and weights."""
        nodes, weights = _gauss_hermite(self.nodes)
        xp = namespace(z)
        return xp.asarray(nodes, z.dtype), xp.asarray(weights, z.dtype)


@pytree
class MonteCarlo:
    """Average over `samples` draws, shared by all rows."""

    samples: int = static(default=50)

    def __post_init__(self) -> None:
        whole("samples", self.samples, 1)

    def noise_shape(self) -> tuple[int]:
        """One standard normal per sample."""
        return (self.samples,)

    def points(self, z: Float[Array, " s"]) -> tuple[Float[Array, " s"], Float[Array, " s"]]:
        """Return the draws and equal weights."""
        return z, namespace(z).full_like(z, 1 / self.samples)


@functools.cache
def _gauss_hermite(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return points, weights / weights.sum()


def log_expected_sigmoid(mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return log E[sigmoid(eta)] for eta ~ N(mean, variance), at any mean and variance.

    Where the variance is below 1, Gauss-Hermite quadrature over eta converges fast. Where it is larger the sigmoid
    looks like a step to the Gaussian and quadrature stalls. But `sigmoid(eta) = P(T < eta)` for a standard logistic T,
    so the same number is `E_T[Phi((mean - T) / sqrt(variance))]`, in which the Gaussian is the smooth part: the
    trapezoidal rule over T converges exponentially.

    Far in the left tail the value is all about `exp(eta)`. There `sigmoid(eta) = exp(eta) sigmoid(-eta)`, completing
    the square, gives `exp(mean + variance / 2) E[sigmoid(eta')]` with eta' ~ N(-mean - variance, variance).
    """
    xp, functions = namespace(mean), special(mean)
    tail = mean + variance < 0
    centre = xp.where(tail, -mean - variance, mean)

    nodes, weights = (xp.asarray(part, mean.dtype) for part in _gauss_hermite(32))
    eta = centre[:, None] + xp.sqrt(xp.minimum(variance, 1.0))[:, None] * nodes[None]
    narrow = functions.logsumexp(-xp.logaddexp(-eta, 0) + xp.log(weights)[None], axis=1)

    step = 0.75
    grid = np.arange(-36.0, 36.0 + step, step)
    log_density = xp.asarray(np.log(step / 4) - 2 * np.log(np.cosh(grid / 2)), mean.dtype)
    gaps = (centre[:, None] - xp.asarray(grid, mean.dtype)[None]) / xp.sqrt(xp.maximum(variance, 1.0))[:, None]
    wide = functions.logsumexp(functions.log_ndtr(gaps) + log_density[None], axis=1)

    value = xp.where(variance < 1.0, narrow, wide)
    return xp.where(tail, mean + variance / 2 + value, value)
