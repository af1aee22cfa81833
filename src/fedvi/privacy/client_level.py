"""Client-level privacy: the unit of privacy is everything that a client holds.

    released change = clip(change, C) + C noise_multiplier N(0, I)          on a lattice (`fedvi.privacy.lattice`)

The change is that of the client's factor in natural parameters, after damping, all of them as one vector. Neighbours:
the client takes part with its data, or it takes part without and sends noise alone. Its presence moves a release by at
most C, however many rows it has and whatever its local steps did with them. (A client whose data is exchanged for other
data, be it empty, moves it by at most 2 C; that is the epsilon under substitution.) Each release is one Gaussian
mechanism; repair and everything that the server does is post-processing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from jaxtyping import Float

from fedvi.arrays import Array
from fedvi.checks import in_range, one_number
from fedvi.compiling import jax, jnp
from fedvi.models.row_vectors import Part, StoredVectors
from fedvi.numerics import Bounds, double_precision, narrow, widen
from fedvi.privacy.clipping import clipped_sums, in_units
from fedvi.privacy.events import MOST_NOISE, gaussian, noise_given
from fedvi.privacy.lattice import Lattice, as_words, released
from fedvi.privacy.mechanism import LEAST_CLIP, Words
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
        in_range("clip_norm", self.clip_norm, LEAST_CLIP)

    def lattice(self, numbers: int) -> Lattice:
        """Return the lattice of a change of so many numbers."""
        return Lattice.of(float(self.clip_norm), float(noise_given(self.noise_multiplier)), numbers, 1)

    def protect(self, change: F, noise: Words, grid: Float[Array, ""]) -> tuple[F, Words]:
        """Return the clipped change with its noise, and the same before it was rounded to the precision in use.

        A change that is not finite counts as none.
        """
        one_number("clip_norm", self.clip_norm)
        one_number("noise_multiplier", self.noise_multiplier)
        with double_precision():
            flat, unravel = jax.flatten_util.ravel_pytree(widen(change))
            bounds = Bounds(widen(self.clip_norm), jnp.ones_like(flat[0]), 1)
            part = Part(StoredVectors(flat[None], flat))
            summed = in_units(clipped_sums(part, jnp.ones(1), bounds), part, bounds)
            noisy = released(summed, noise, grid)
            rounded: F = narrow(unravel(noisy), change)
            seen = as_words(noisy)
        return jax.tree.map(_symmetric, rounded), seen

    def event(self, numbers: int) -> Hashable:
        """Return what one release of so many numbers did to the client."""
        return gaussian(self.noise_multiplier, 1, numbers)


def _symmetric(leaf: Array) -> Array:
    """Make noisy precision matrices symmetric again; vectors stay as they are."""
    return leaf if leaf.ndim < 2 else 0.5 * (leaf + jnp.swapaxes(leaf, -1, -2))
