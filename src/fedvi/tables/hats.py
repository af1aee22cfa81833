"""Hats: piecewise linear bumps at knots. Sums of them are the curves that are straight between knots, and flat beyond.

    hat of knot k at v = 1 at knot k, 0 at all others, linear between, constant beyond the ends

All hats of a row are from 0 to 1 and sum to 1; two of them at most are not 0. So a row is never long in them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

SPREAD = (-2.0, -1.0, 0.0, 1.0, 2.0)
"""Knots in scales from the centre, for numbers that look normal."""

OCTAVES = 7
"""Knots of a number with many zeros and a long tail, beside 0: its top, and halves of it."""


def hats(values: Float[np.ndarray, " n"], knots: Float[np.ndarray, " k"]) -> Float[np.ndarray, "n k"]:
    """Return all hats of all values. knots: increasing, in the units of the values.

    >>> hats(np.array([-9.0, 0.25, 2.0]), np.array([0.0, 1.0, 2.0])).tolist()
    [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.stack([np.interp(values, knots, one) for one in np.eye(len(knots))], axis=1)


def octaves(top: float) -> tuple[float, ...]:
    """Return 0 and the knots below a top: each is twice the one before.

    >>> octaves(64.0)
    (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    """
    return (0.0, *(top / 2.0**down for down in reversed(range(OCTAVES))))
