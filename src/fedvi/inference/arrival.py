"""How far a fit without privacy is from where it should be.

Answers to questions say it by themselves (`fedvi.inference.reading`). Else one more pass over all rows gives the
slope that is left of the evidence lower bound by the mean of q = N(m, S), and with it the size of a Newton step:

    g = sum_i d E_q[log p(y_i | x_i, w)] / d m - P0 (m - m0)        decrement = |S^1/2 g| / sqrt(d)

in standard deviations, the root mean square over weights. Where q is mean-field, S is its diagonal. It needs rows, so
it is for simulations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from fedvi.compiling import jax, jnp
from fedvi.families.base import GaussianFamily
from fedvi.inference.rows import Rows
from fedvi.models.base import Model
from fedvi.numerics import Array
from fedvi.privacy.clipping import Batch
from fedvi.privacy.without_privacy import FullBatch

PAIRS = 8
"""Draws of a model's own randomness, each with its opposite, which cancels what is linear in it."""


def newton_decrement(model: Model, prior: GaussianFamily, q: GaussianFamily, rows: Rows, count: int) -> float:
    """Return how far q is from its optimum, in standard deviations. count: of the rows in the buffer."""
    shape = model.noise_shape(prior.dim)
    normals = np.random.default_rng(0).standard_normal((PAIRS, *shape))
    draws = np.concatenate([normals, -normals]) if math.prod(shape) else normals[:1]
    squares = jax.jit(_squared)(model, prior, q, rows, jnp.int32(count), jnp.asarray(draws, q.natural_mean.dtype))
    return math.sqrt(float(squares) / prior.dim)


def _squared(
    model: Model, prior: Any, q: GaussianFamily, rows: Rows, count: Array, draws: Float[Array, "k ..."]
) -> Float[Array, ""]:
    """Return |S^1/2 g|^2, averaged over draws before it is squared."""
    coordinates: Any = q.coordinates()
    numbers = jnp.arange(len(rows.y), dtype=jnp.int32)
    one = jnp.ones((), rows.lengths.dtype)

    def slope(z: Array) -> Array:
        batch = Batch(
            x=rows.x,
            y=rows.y,
            lengths=rows.lengths,
            rows=numbers,
            mask=(numbers < count).astype(one.dtype),
            feature_bound=rows.feature_bound,
            scale=one,
            total=one,
            grid=one,
            model_noise=z,
            privacy_noise=jnp.zeros((0, 2), jnp.uint32),
        )
        pull = jax.grad(lambda at: -at.expected_log(prior))(coordinates)
        negative, _ = FullBatch().gradient(model, coordinates, batch, pull)
        found: Array = negative.mean
        return found

    left = jnp.mean(jax.lax.map(slope, draws), axis=0)
    _, pull_back = jax.vjp(coordinates.transform, jnp.zeros_like(left))
    (scaled,) = pull_back(left)
    return jnp.sum(scaled**2)
