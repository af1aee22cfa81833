"""Client-level privacy: the unit of privacy is everything that a client holds.

    released change = clip(change, C) + C noise_multiplier N(0, I)

The change is that of the client's factor in natural parameters, after damping, all of them as one vector. Neighbours:
the client takes part with its data, or it takes part without and sends noise alone. Its presence moves a release by at
most C, however many rows it has and whatever its local steps did with them. (A client whose data is exchanged for other
data, be it empty, moves it by at most 2 C; that is the epsilon under substitution.) Each release is one Gaussian
mechanism; repair and everything that the server does is post-processing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from fedvi.checks import in_range, one_number, positive
from fedvi.models.clipping import clip_weights, double_precision, narrow, widen
from fedvi.privacy.events import MOST_NOISE, gaussian, noise_given
from fedvi.pytree import pytree

F = TypeVar("F")


@pytree
class ClientLevel:
    """Clip and noise for the whole change of a factor.

    noise_multiplier: standard deviation of the noise in units of the clip norm; None for the least that lets each
        client's budget last for `max_updates` updates.
    clip_norm: longest change of natural parameters in one release.
    """

    noise_multiplier: float | Float[Array, ""] | None = 10.0
    clip_norm: float | Float[Array, ""] = 1.0

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            in_range("noise_multiplier", self.noise_multiplier, 0, MOST_NOISE, open_low=True)
        positive("clip_norm", self.clip_norm)

    def protect(self, change: F, noise: Float[Array, " k"]) -> F:
        """Return the clipped change with its noise; a change that is not finite counts as none."""
        one_number("clip_norm", self.clip_norm)
        one_number("noise_multiplier", self.noise_multiplier)
        with double_precision():
            flat, unravel = ravel_pytree(widen(change))
            squared = jnp.sum(flat**2)
            size, limit, normals = widen((noise_given(self.noise_multiplier), self.clip_norm, noise))
            weight = clip_weights(squared, limit, squared, 1)
            clipped = jnp.where(weight > 0, weight * flat, 0)
            noisy: F = narrow(unravel(clipped + size * limit * normals), change)
        return jax.tree.map(_symmetric, noisy)

    def event(self) -> Hashable:
        """Return what one release did to the client."""
        return gaussian(self.noise_multiplier)


def _symmetric(leaf: Array) -> Array:
    """Make noisy precision matrices symmetric again; vectors stay as they are."""
    return leaf if leaf.ndim < 2 else 0.5 * (leaf + jnp.swapaxes(leaf, -1, -2))
