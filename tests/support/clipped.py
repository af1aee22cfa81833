"""Clipped sums of small tables, as models and mechanisms make them, and laws that they keep."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedvi import FullGaussian, Gaussian, LinearRegression, LogisticRegression
from fedvi.models import GaussHermite, Model, MonteCarlo, base
from fedvi.numerics import Bounds, double_precision, on_row_grid, row_lengths, widen
from fedvi.privacy import Batch, FullBatchGaussian
from fedvi.privacy.clipping import clipped_sums, in_units, usable_offset
from fedvi.privacy.lattice import from_words

DIM, ROWS, BOUND = 4, 12, 64.0
MODELS = {"logistic": LogisticRegression(), "linear": LinearRegression(0.5)}
ALL_MODELS = {**MODELS, "monte-carlo": LogisticRegression(MonteCarlo(7)), "nodes": LogisticRegression(GaussHermite(32))}
SPREADS: dict[str, Any] = {"mean-field": np.linspace(0.1, 2, DIM), "full": 0.5 * np.eye(DIM) + 0.3}


def coordinates(family: str, seed: int = 0, scale: float = 1.0) -> Any:
    mean = np.random.default_rng(seed).normal(size=DIM)
    kind: Any = Gaussian if family == "mean-field" else FullGaussian
    return kind.from_moments(mean, scale * SPREADS[family]).coordinates()


def on_grid(x: Any, bound: float = BOUND) -> tuple[jax.Array, jax.Array]:
    """Rows on their grid, and their lengths."""
    values, _ = on_row_grid(np.asarray(x, jnp.zeros(0).dtype), bound)
    return jnp.asarray(values), jnp.asarray(row_lengths(values))


def rows(seed: int = 1, size: float = 3.0) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Features are multiples of 1/32, so that their squares are on the grid of squares too."""
    rng = np.random.default_rng(seed)
    x, y = size * rng.normal(size=(ROWS, DIM)), np.sign(rng.normal(size=ROWS))
    return on_grid(np.round(32 * x) / 32)[0], jnp.asarray(y, float), jnp.asarray(np.arange(ROWS) < 9, float)


def random_offset(q: Any) -> Any:
    """Anything that a gradient can be: above the diagonal of a Cholesky root there is nothing."""
    rng = np.random.default_rng(2)
    values = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), q)
    return jax.tree.map(lambda v: jnp.asarray(np.tril(v) if v.ndim == 2 else v, float), values)


def flat(tree: Any) -> np.ndarray:
    """All numbers of a sum, which is in double precision."""
    return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)])


def vectors_of(model: Model, by_row: bool) -> Any:
    return functools.partial(Model.row_vectors, model) if by_row else model.row_vectors


def both_sums(
    model: Model,
    q: Any,
    data: Any,
    clip: Any,
    offset: Any = None,
    z: Any = None,
    bound: float = BOUND,
    most: int | None = None,
    by_row: bool = False,
    lengths: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a clipped sum in whole numbers, and the same in units; most: rows that there is room for."""
    x, y, mask = data
    lengths = jnp.asarray(row_lengths(np.asarray(x))) if lengths is None else lengths
    noise = jnp.zeros(0, x.dtype) if z is None else z
    with double_precision():
        return _both_sums(
            model, q, x, y, mask, lengths, noise, clip, offset, bound, len(y) if most is None else most, by_row
        )


@functools.partial(jax.jit, static_argnames=("most", "by_row"))
def _both_sums(
    model: Any,
    q: Any,
    x: Any,
    y: Any,
    mask: Any,
    lengths: Any,
    z: Any,
    clip: Any,
    offset: Any,
    bound: Any,
    most: int,
    by_row: bool,
) -> Any:
    bounds = Bounds(widen(clip), widen(bound), most)
    part = vectors_of(model, by_row)(q, z, jnp.asarray(bound, x.dtype))(x, y, lengths)
    shift = None if offset is None else usable_offset(widen(offset), bounds)
    sums = clipped_sums(part, widen(mask), bounds, shift)
    return ravel_pytree(sums)[0], ravel_pytree(in_units(sums, part, bounds, shift))[0]


def clipped_sum(*arguments: Any, **settings: Any) -> np.ndarray:
    return np.asarray(both_sums(*arguments, **settings)[1], float)


def brute_force(model: Model, q: Any, data: Any, clip: float, offset: Any, z: Any) -> np.ndarray:
    """The definition, row by row in NumPy, with gradients by automatic differentiation of the value."""
    x, y, mask = data
    shift: Any = 0.0 if offset is None else np.asarray(ravel_pytree(offset)[0], float)
    total: Any = np.zeros(ravel_pytree(q)[0].size)
    for row in np.flatnonzero(np.asarray(mask)):
        gradient = _gradient(model, q, x[row : row + 1], y[row : row + 1], z)
        flat: Any = np.asarray(ravel_pytree(gradient)[0], float) - shift
        total += flat * min(1.0, clip / np.linalg.norm(flat))
    return total


@jax.jit
def _gradient(model: Any, q: Any, x: Any, y: Any, z: Any) -> Any:
    return jax.grad(lambda coordinates: model.expected_log_likelihood(coordinates, x, y, z)[0])(q)


def by_mechanism(
    model: Any, q: Any, data: Any, clip: float, offset: Any = None, z: Any = None, order: Any = None
) -> np.ndarray:
    """The same sum as a mechanism makes it, in blocks, with noise zero; rounded to the finest grid that is used."""
    x, y, mask = data
    order = np.arange(len(y)) if order is None else order
    batch = Batch(
        x=x,
        y=y,
        lengths=jnp.asarray(row_lengths(np.asarray(x))),
        rows=jnp.asarray(order, jnp.int32),
        mask=mask[order],
        feature_bound=jnp.asarray(BOUND),
        scale=jnp.asarray(1.0),
        total=jnp.asarray(float(len(y))),
        grid=jnp.asarray(FullBatchGaussian(1.0, clip).lattice(2, 2, 1.0).grid),
        model_noise=jnp.zeros(0) if z is None else z,
        privacy_noise=jnp.zeros((ravel_pytree(q)[0].size, 2), jnp.uint32),
    )
    return from_words(_noisy_sum(base.GRADIENT_BYTES)(model, q, batch, jnp.asarray(clip), offset))


@functools.cache
def _noisy_sum(_room: int) -> Any:
    return jax.jit(lambda *arguments: FullBatchGaussian(1.0, 1.0).noisy_sum(*arguments)[1])


def check_closed_form(model: str, family: str, clip: float, with_offset: bool) -> None:
    """Sums are those of the definition, by closed form and row by row."""
    q, z, bound = coordinates(family), jnp.zeros(0), 8.0
    x, _ = on_grid(np.round(32 * np.random.default_rng(4).uniform(-bound, bound, (ROWS, DIM))) / 32, bound)
    data = x, *rows()[1:]
    offset = random_offset(q) if with_offset else None
    truth = brute_force(MODELS[model], q, data, clip, offset, z)
    for by_row in (False, True):
        summed = clipped_sum(MODELS[model], q, data, clip, offset, bound=bound, by_row=by_row)
        error = np.abs(summed - truth) / np.abs(truth).max()
        assert error.max() < 2e-5


def check_order(model: Model, family: str, with_offset: bool) -> None:
    """At every place in blocks of the size in use, and beside other rows or none."""
    count = 150
    rng = np.random.default_rng(0)
    x = on_grid(3 * rng.normal(size=(count, DIM)))[0]
    data = x, jnp.asarray(np.sign(rng.normal(size=count)), float), jnp.asarray(rng.random(count) < 0.8, float)
    q, z = coordinates(family), jnp.asarray(rng.normal(size=model.noise_shape(DIM)), float)
    offset = random_offset(q) if with_offset else None
    sums = {
        by_mechanism(model, q, data, 0.7, offset, z, order).tobytes()
        for order in (np.arange(count), np.arange(count)[::-1], *(rng.permutation(count) for _ in range(5)))
    }
    assert len(sums) == 1


def check_long_sum(count: int, with_offset: bool) -> None:
    """Rows chosen so that single precision would round every addition, and all of them in one direction.

    The neighbour lacks the first row, so that every other row moves up by one place.
    """
    clip, dim = 1.0, 3
    y = np.resize(np.array([2.0] * 257 + [0.9 * 2**-16] * 255), count)
    y[0] = -2.0
    x, _ = on_grid(np.ones((count, dim)))
    q = Gaussian.standard(dim).coordinates()
    offset = jax.tree.map(lambda leaf: jnp.full_like(leaf, 100.0), q) if with_offset else None

    def total(chosen: Any) -> tuple[np.ndarray, np.ndarray]:
        data = x[chosen], jnp.asarray(y[chosen], float), jnp.ones(len(y[chosen]))
        whole, units = both_sums(LinearRegression(), q, data, jnp.float32(clip), offset, most=count)
        return np.asarray(whole), np.asarray(units)

    everybody, others, first = total(slice(None)), total(slice(1, None)), total(slice(0, 1))
    assert np.array_equal(everybody[0] - others[0], first[0])
    assert (0.1 if with_offset else 0.99) * clip < np.linalg.norm(everybody[1] - others[1]) <= clip
    backwards = total(np.random.default_rng(0).permutation(count))
    assert np.array_equal(everybody[0], backwards[0])
