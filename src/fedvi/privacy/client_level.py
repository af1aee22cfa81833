"""Client-level privacy: the unit of privacy is everything that a client holds.

    released change = clip(change, C) + C noise_multiplier N(0, I)          on a lattice (`fedvi.privacy.lattice`)

The change is that of the client's factor in natural parameters, after damping, all of them as one vector. Neighbours:
the client takes part with its data, or it takes part without and sends noise alone. Its presence moves a release by at
most C, however many rows it has and whatever its local steps did with them. (A client whose data is exchanged for other
data, be it empty, moves it by at most 2 C; that is the epsilon under substitution.) Each release is one Gaussian
mechanism; repair and everything that the server does is post-processing.
"""

from __future__ import annotations

from typing import TypeVar

from jaxtyping import Float

from fedvi.checks import one_number
from fedvi.compiling import jax, jnp
from fedvi.models.base import Part, StoredVectors
from fedvi.numerics import Array, Bounds, double_precision, widen
from fedvi.privacy.clipping import clipped_sums, in_units
from fedvi.privacy.events import CLIENT, Event, gaussian, noise_given
from fedvi.privacy.lattice import Lattice, Words, with_its_noise
from fedvi.privacy.mechanism import GaussianNoise
from fedvi.pytree import pytree

F = TypeVar("F")


@pytree
class ClientLevel(GaussianNoise):
    """Clip and noise for the whole change of a factor.

    noise_multiplier: standard deviation of the noise in units of the clip norm; None for the least that lets each
        client's budget last for `max_updates` updates.
    clip_norm: longest change of natural parameters in one release.
    """

    noise_multiplier: float | Float[Array, ""] | None = 10.0
    clip_norm: float | Float[Array, ""] = 1.0

    unit = CLIENT

    def sensitivity(self, scale: float = 1.0) -> float:  # rows do not matter
        """Return how far one client moves its release."""
        return float(self.clip_norm)

    def lattice(self, numbers: int, public_rows: int = 1, scale: float = 1.0) -> Lattice:
        """Return the lattice of a change of so many numbers."""
        return Lattice.of(float(self.clip_norm), float(noise_given(self.noise_multiplier)), numbers, 1)

    def protect(self, change: F, noise: Words, grid: Float[Array, ""]) -> tuple[F, Words]:
        """Return the clipped change with its noise, and the same before it was rounded to the precision in use.

        A change that is not finite counts as none.
        """
        one_number("clip_norm", self.clip_norm)
        one_number("noise_multiplier", self.noise_multiplier)
        with double_precision():
            wide: F = widen(change)
            flat, _ = jax.flatten_util.ravel_pytree(wide)
            bounds = Bounds(widen(self.clip_norm), jnp.ones_like(flat[0]), 1)
            part = Part(StoredVectors(flat[None], wide))
            summed: F = in_units(clipped_sums(part, jnp.ones(1), bounds), part, bounds)
            rounded, seen = with_its_noise(summed, noise, grid, change)
        return jax.tree.map(_symmetric, rounded), seen

    def event(self, public_rows: int, steps: int, numbers: int) -> Event:  # one release
        """Return what one release of so many numbers did to the client."""
        return gaussian(self.noise_multiplier, 1, numbers)


def _symmetric(leaf: Array) -> Array:
    """Make noisy precision matrices symmetric again; vectors stay as they are."""
    return leaf if leaf.ndim < 2 else 0.5 * (leaf + jnp.swapaxes(leaf, -1, -2))
