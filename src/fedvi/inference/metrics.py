"""How good predictions are: accuracy, log-likelihood, Brier score, calibration, coverage.

`evaluate` takes a posterior and labelled rows and returns what applies to the model's predictive distribution, under
the same names everywhere. Rows are predicted in chunks, so memory does not grow with the test set.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from fedvi.compiling import jax, jnp
from fedvi.families.base import GaussianFamily
from fedvi.inference.rows import check_table
from fedvi.models.base import Model
from fedvi.models.predictive import Predictive
from fedvi.numerics import Array

CHUNK = 16
"""Rows that are predicted at a time: few, so that what is made of them stays in a core's cache."""


def evaluate(model: Model, q: GaussianFamily, x: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Return the scores of the model's predictions for rows x with known y.

    >>> from fedvi import Gaussian, LogisticRegression
    >>> q = Gaussian.from_moments([2.0], [0.1])
    >>> evaluate(LogisticRegression(), q, [[1.0], [-1.0]], [1, -1])["accuracy"]
    1.0
    """
    checked_x, checked_y = check_table((x, y), model, "the rows to evaluate")
    return score(model, q, jnp.asarray(checked_x), jnp.asarray(checked_y))


def score(model: Model, q: GaussianFamily, x: Float[Array, "n ..."], y: Float[Array, "n ..."]) -> dict[str, float]:
    """Do what `evaluate` does, with rows that have been checked."""
    log_prob, predicted = jax.tree.map(np.asarray, _predict(model, q, x, y, min(CHUNK, len(x))))
    scores = {} if predicted is None else predicted.scores(np.asarray(y))
    return {"log_likelihood": float(np.mean(log_prob)), **scores}


@functools.partial(jax.jit, static_argnames="chunk")
def _predict(model: Model, q: Any, x: Array, y: Array, chunk: int) -> tuple[Array, Predictive | None]:
    """Return the log probability of every row's y, and the predictive distribution if scores are known for it."""

    def of_rows(rows: Array, targets: Array) -> tuple[Array, Predictive | None]:
        predictive = model.predictive(q, rows)
        kept = predictive if hasattr(predictive, "scores") else None  # others know log probabilities only
        return predictive.log_prob(targets), kept

    def of_chunk(k: Array) -> tuple[Array, Predictive | None]:
        return of_rows(*(jax.lax.dynamic_slice_in_dim(array, k * chunk, chunk) for array in (x, y)))

    full, rest = divmod(len(x), chunk)
    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), jax.lax.map(of_chunk, jnp.arange(full)))
    if rest == 0:
        return parts
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), parts, of_rows(x[-rest:], y[-rest:]))
