"""Any likelihood that can be written down for one example.

`f(params, x, y)` returns the log-likelihood of one example for one parameter vector, in JAX. Its expectation under q
is estimated with reparameterised draws `params = q.transform(z)` that all rows share; gradients flow through the draws.

Predictions average over fixed quasi-random draws (Sobol points), so that they need no seed and do not flicker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from fedvi.checks import whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import Coordinates, GaussianFamily
from fedvi.models.base import Model
from fedvi.models.predictive import Predictive
from fedvi.numerics import Array
from fedvi.pytree import pytree, static

DRAWS = 4
"""Outcomes that are drawn for a row: more take time, and make the longest of their gradients longer."""


@pytree
class CustomModel(Model):
    """A model made from a per-example log-likelihood.

    log_likelihood: `f(params, x, y)` for one example, with params a vector; written in JAX.
    params: number of parameters; None for one per column of x.
    samples: draws per gradient step.
    predict: `g(params, x)` for one example, returning a `Bernoulli`, `Categorical` or `Normal` without a row axis.
        Without it predictions know only the log probability of given y.
    predictive_samples: draws for predictions, a power of two.
    outcomes: all values that y can have, if they are few, such as (0, 1): private steps are then right on average.
    draw: `h(params, x, key)` for one example, drawing a y from the model, in JAX: the same for other outcomes, such as
        counts. A step takes five gradients of a row then, not one.

    Poisson regression:

    >>> import jax
    >>> import jax.numpy as jnp
    >>> def log_likelihood(w, x, y):
    ...     log_rate = x @ w
    ...     return y * log_rate - jnp.exp(log_rate)
    >>> def draw(w, x, key):
    ...     return jax.random.poisson(key, jnp.exp(x @ w))
    >>> model = CustomModel(log_likelihood, draw=draw)
    """

    log_likelihood: Callable[..., Any] = static()
    params: int | None = static(default=None)
    samples: int = static(default=10)
    predict: Callable[..., Any] | None = static(default=None)
    predictive_samples: int = static(default=256)
    outcomes: tuple[float, ...] = static(default=())
    draw: Callable[..., Any] | None = static(default=None)

    def __post_init__(self) -> None:
        whole("samples", self.samples, 1)
        whole("predictive_samples", self.predictive_samples, 1)
        if self.predictive_samples.bit_count() != 1:
            raise InputError(f"Expected predictive_samples to be a power of two, got {self.predictive_samples}.")
        if self.params is not None:
            whole("params", self.params, 1)
        if self.outcomes and self.draw is not None:
            raise InputError("Expected outcomes or draw, got both. Leave draw out: it is for outcomes that are many.")

    @property
    def all_outcomes(self) -> tuple[float, ...]:
        """As they were given."""
        return self.outcomes

    @property
    def looks_at_outcomes(self) -> bool:
        """Not if they are given, or drawn."""
        return not self.outcomes and self.draw is None

    def drawn_outcomes(
        self, q: Coordinates, x: Float[Array, "n ..."], y: Float[Array, "n ..."], z: Float[Array, "s d"]
    ) -> list[Float[Array, "n ..."]]:
        """Return `DRAWS` outcomes of every row, each with parameters of its own drawn from q.

        Their randomness comes from z and a hash of the row's x: a row has the same draws beside any other rows.
        """
        if self.draw is None:
            return []
        one, draw, shape = _words(z)[0], self.draw, (DRAWS, q.mean.shape[-1])

        def of_row(row: Array) -> Array:
            words = _words(row)
            mixed = (words ^ (words >> 16)) * jax.random.bits(jax.random.key(one), words.shape, jnp.uint32)
            keys = jax.random.split(jax.random.key(one ^ jnp.sum(mixed, dtype=jnp.uint32)), DRAWS + 1)
            params = q.transform(jax.random.normal(keys[0], shape, q.mean.dtype))
            return jax.vmap(draw, (0, None, 0))(params, row, keys[1:])

        return [each.astype(y.dtype) for each in jnp.moveaxis(jax.vmap(of_row)(x), 1, 0)]

    def dim(self, x: Float[Array, "n ..."] | np.ndarray) -> int:
        """Return `params`, or one per column."""
        return self.params if self.params is not None else super().dim(x)

    def check_form(self, x: np.ndarray, y: np.ndarray, where: str) -> None:
        """Raise unless the log-likelihood of a row is one number, and a drawn y has the shape of y."""
        w, *row = (jax.ShapeDtypeStruct(shape, x.dtype) for shape in ((self.dim(x),), x.shape[1:], y.shape[1:]))
        value = jax.eval_shape(self.log_likelihood, w, *row)
        if getattr(value, "shape", None) != ():
            raise InputError(
                f"Expected log_likelihood to return one number for a row of {where} with x {x.shape[1:]} and "
                f"y {y.shape[1:]}, got {value}."
            )
        if self.draw is None:
            return
        drawn = jax.eval_shape(self.draw, w, row[0], jax.random.key(0))
        if getattr(drawn, "shape", None) != y.shape[1:]:
            raise InputError(f"Expected draw to return one y of shape {y.shape[1:]} for a row of {where}, got {drawn}.")

    def noise_shape(self, dim: int) -> tuple[int, ...]:
        """One vector of standard normals per draw."""
        return (self.samples, dim)

    def expected_log_likelihood(
        self, q: Any, x: Float[Array, "n ..."], y: Float[Array, "n ..."], z: Float[Array, "s d"]
    ) -> Float[Array, " n"]:
        """Return the average over draws, for every row."""
        by_row = jax.vmap(self.log_likelihood, (None, 0, 0))
        return jnp.mean(jax.vmap(by_row, (0, None, None))(q.transform(z), x, y), axis=0)

    def predictive(self, q: GaussianFamily, x: Float[Array, "n ..."]) -> Predictive:
        """Return the mixture over draws of `predict`, or of the likelihood itself if there is no `predict`."""
        normals = jnp.asarray(_quasi_normals(self.predictive_samples, q.dim), q.natural_mean.dtype)
        draws = q.coordinates().transform(normals)
        if self.predict is None:
            return LikelihoodMixture(draws, x, self.log_likelihood)
        predict = jax.vmap(self.predict, (0, None))
        mixture: Predictive = _in_chunks(lambda row: predict(draws, row).mixture(), x)
        return mixture


@pytree
class LikelihoodMixture:
    """The predictive distribution of which only log probabilities are known: `log mean_s p(y | x, w_s)`."""

    draws: Float[Array, "s d"]
    x: Float[Array, "n ..."]
    log_likelihood: Callable[..., Any] = static()

    def log_prob(self, y: Float[Array, "n ..."]) -> Float[Array, " n"]:
        """Return the log probability of each row's y."""

        def of_row(row: tuple[Array, Array]) -> Array:
            return jax.scipy.special.logsumexp(jax.vmap(self.log_likelihood, (0, None, None))(self.draws, *row))

        return _in_chunks(of_row, (self.x, y)) - jnp.log(float(len(self.draws)))


def _words(numbers: Array) -> Array:
    """Return the bits of numbers."""
    return jax.lax.bitcast_convert_type(numbers.ravel(), jnp.uint32).ravel()


def _in_chunks(f: Callable[[Any], Any], rows: Any) -> Any:
    """Apply f to every row, so many at a time that memory stays bounded with hundreds of draws."""
    return jax.lax.map(f, rows, batch_size=256)


@functools.lru_cache(maxsize=8)
def _quasi_normals(samples: int, dim: int) -> np.ndarray:
    """Return fixed standard normals: scrambled Sobol points, or pseudo-random ones beyond Sobol's dimensions."""
    from scipy.special import ndtri  # scipy.stats takes longer to import than all of fedvi
    from scipy.stats import qmc

    if dim > qmc.Sobol.MAXDIM:
        return np.random.default_rng(0).standard_normal((samples, dim))
    points = qmc.Sobol(dim, scramble=True, rng=np.random.default_rng(0)).random(samples)
    return np.asarray(ndtri(np.clip(points, 1e-12, 1 - 1e-12)))
