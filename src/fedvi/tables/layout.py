"""Layout: what is public about the columns of x, for priors and for those who read private sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

INTERCEPT, NUMBER, LEVEL, HAT = "intercept", "number", "level", "hat"
"""Kinds of features: the constant 1, a number, whether a category has a value, a bump of a number at a knot."""


@dataclass(frozen=True)
class Layout:
    """Public facts about the columns of x.

    kinds: of every feature. exclusive: groups of features that are 0 or 1 and of which at most one is not 0, such as
    the levels of a category. bound: features are within it, whatever their sign.
    """

    kinds: tuple[str, ...]
    exclusive: tuple[tuple[int, ...], ...] = ()
    bound: float = 1.0

    @property
    def intercept(self) -> bool:
        """Whether the first feature is a constant 1."""
        return self.kinds[:1] == (INTERCEPT,)

    def are(self, kind: str) -> np.ndarray:
        """Tell which features are of a kind."""
        return np.array([found == kind for found in self.kinds])
