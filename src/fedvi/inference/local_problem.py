"""The problem that a client is asked to solve, and the randomness that it may use.

    minimise  KL(q' || anchor * likelihood^scale)       with anchor = start / removed, beginning at q' = start
    target factor = base * q' / start = (base / removed) * q' / anchor

Partitioned VI removes and rebuilds the client's own factor (`removed = base = t_m`); other algorithms differ only in
these three values, and in the scale (see `fedvi.inference.algorithms`).
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int, UInt32

from fedvi.arrays import Array
from fedvi.compiling import jnp
from fedvi.families.base import Factor, GaussianFamily
from fedvi.pytree import pytree


@pytree
class Public:
    """What everybody knows: the prior, the number of clients and the declared rows of all clients together."""

    prior: GaussianFamily
    clients: Float[Array, ""]
    rows: Float[Array, ""]


@pytree
class Problem:
    """One client's local problem."""

    start: GaussianFamily
    removed: GaussianFamily
    base: Factor

    @property
    def anchor(self) -> GaussianFamily:
        """The distribution that q' is tied to; in partitioned VI, the cavity."""
        return self.start / self.removed

    def is_proper(self) -> Bool[Array, ""]:
        """Tell whether the anchor is proper, up to rounding.

        Where a client holds nearly all that is known, the anchor is a small difference of large numbers, and rounding
        may leave it slightly negative. The problem is fine all the same: the likelihood outweighs the anchor there.
        """
        rounding = 16 * float(jnp.finfo(self.start.natural_mean.dtype).eps)
        return (self.anchor * self.start**rounding).is_proper()


@pytree
class Draws:
    """All randomness of one update, drawn before it: what is sampled, and what noise goes in.

    rows, mask: row numbers of the client, and which of them count; step k uses entry `k % batches`.
    scale: weight of the likelihood of each row of a batch. total: the same of all rows that the client declares.
    grid: of noise and what it is added to. These three are public numbers, from one place: `draw`.
    model_noise: standard normals for the model's expectation, one entry per step.
    privacy_noise: whole numbers for the mechanism, one entry per step; of size 0 where nothing is private.
    release_noise: whole numbers for the release; of size 0 unless all of the client is the unit of privacy.
        Both are pairs of words (`fedvi.privacy.lattice.as_pairs`).
    """

    rows: Int[Array, "batches capacity"]
    mask: Bool[Array, "batches capacity"]
    scale: Float[Array, ""]
    total: Float[Array, ""]
    grid: Float[Array, ""]
    model_noise: Float[Array, "steps ..."]
    privacy_noise: UInt32[Array, "steps n 2"]
    release_noise: UInt32[Array, "k 2"]
