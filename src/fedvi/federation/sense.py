"""Which posteriors make sense: those whose means and standard deviations are no larger than a million.

Features have scales near one, so that an honest q is a long way from there. Beyond, rounding decides what rows say: a
site refuses to look at its rows through such a q, and the coordinator refuses a release that would make one.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

LARGEST = 1e6


def extent(q: Any) -> Float[Array, ""]:
    """Return the largest mean, whatever its sign, or standard deviation of a proper Gaussian."""
    return jnp.maximum(jnp.max(jnp.abs(q.mean)), jnp.max(q.std))
