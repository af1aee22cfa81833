"""What a likelihood is: everything that the rest of fedvi asks of a model.

A model speaks about one example at a time: `log p(y_i | x_i, w)`. Partitioned VI needs its expectation under a Gaussian
q over w, the gradient of that expectation in the coordinates of q, and the predictive distribution. A model gives the
first and the last; the gradient comes by differentiation, or faster from a closed form that gives the same numbers.

Randomness is an argument: a model that estimates its expectation by Monte Carlo says with `noise_shape` how many
standard normals it wants per step, and gets them as `z`.
"""

from __future__ import annotations

import abc
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedvi.gaussian import GaussianFamily
from fedvi.models.clipping import clipped_sum_by_row
from fedvi.models.predictive import Predictive

C = TypeVar("C")


class RowSums(Protocol):
    """Anything with a vector per row that can be summed plainly, or with every row's vector clipped.

    For a model the vector is a gradient in the coordinates of q; see `Model.gradient` and `Model.clipped_gradient`.
    """

    def rows_at_once(self, q: Any, x: Any) -> int:
        """Return how many rows of a buffer x are best worked on together."""

    def gradient(self, q: Any, x: Any, y: Any, weights: Any, z: Any) -> Any:
        """Return the weighted sum over rows."""

    def clipped_gradient(
        self, q: Any, x: Any, y: Any, mask: Any, z: Any, clip_norm: Any, offset: Any = None, rows: int | None = None
    ) -> Any:
        """Return the sum over rows in double precision; one row moves it by at most clip_norm."""


class Model(abc.ABC):
    """A likelihood with per-example terms. Subclasses are pytrees: see `fedvi.models.custom` for a small one."""

    @abc.abstractmethod
    def expected_log_likelihood(
        self, q: Any, x: Float[Array, "n ..."], y: Float[Array, "n ..."], z: Float[Array, ...]
    ) -> Float[Array, " n"]:
        """Return `E_q[log p(y_i | x_i, w)]` for every row; q is a Gaussian or its coordinates."""

    @abc.abstractmethod
    def predictive(self, q: GaussianFamily, x: Float[Array, "n ..."]) -> Predictive:
        """Return the distribution of y for every row, with w integrated out."""

    def gradient(
        self,
        q: C,
        x: Float[Array, "n ..."],
        y: Float[Array, "n ..."],
        weights: Float[Array, " n"],
        z: Float[Array, ...],
    ) -> C:
        """Return the gradient of `sum_i weights_i E_q[log p(y_i | x_i, w)]` in the coordinates q."""

        def total(coordinates: C) -> Float[Array, ""]:
            return weights @ self.expected_log_likelihood(coordinates, x, y, z)

        return jax.grad(total)(q)

    def clipped_gradient(
        self,
        q: C,
        x: Float[Array, "n ..."],
        y: Float[Array, "n ..."],
        mask: Float[Array, " n"],
        z: Float[Array, ...],
        clip_norm: Float[Array, ""],
        offset: C | None = None,
        rows: int | None = None,
    ) -> C:
        """Return `sum_i mask_i clip(g_i - offset, clip_norm)` with g_i the gradient of `E_q[log p(y_i | x_i, w)]`.

        mask: 1 for rows that count and 0 for others. offset: None for zero. rows: of the whole sum, if this is only a
        part of it. The sum is in double precision. See `fedvi.models.clipping` for what is guaranteed.
        """

        def of_row(row: Array, target: Array) -> C:
            return self.gradient(q, row[None], target[None], jnp.ones_like(mask[:1]), z)

        shift = jax.tree.map(jnp.zeros_like, q) if offset is None else offset
        return clipped_sum_by_row(of_row, x, y, mask, clip_norm, shift, mask.size if rows is None else rows)

    def rows_at_once(self, q: Any, x: Float[Array, "n ..."]) -> int:  # noqa: ARG002 - closed forms know better
        """Return how many rows of a buffer x are best worked on together."""
        return 256

    def dim(self, x: Float[Array, "n ..."] | np.ndarray) -> int:
        """Return the number of parameters for data like x; one per column unless a model says otherwise."""
        return int(x.shape[-1])

    def noise_shape(self, dim: int) -> tuple[int, ...]:  # noqa: ARG002 - others need it
        """Return the shape of the standard normals `z` that one gradient needs; (0,) for none."""
        return (0,)

    def check_rows(self, x: np.ndarray, y: np.ndarray, where: str) -> None:  # noqa: B027 - most are fine
        """Raise `InputError` if these cannot be rows for this model; `where` names them in the message."""


@runtime_checkable
class Conjugate(Protocol):
    """A model whose likelihood is a Gaussian factor, so that the local optimum has a closed form."""

    def sufficient_statistics(
        self, x: Float[Array, "n d"], y: Float[Array, " n"], weights: Float[Array, " n"]
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Return natural mean and precision matrix of the likelihood of the weighted rows."""
