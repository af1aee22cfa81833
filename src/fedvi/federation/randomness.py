"""Seeded randomness for simulations: predictable by design, so nothing drawn from it is private.

Every stream is named by numbers, `stream(seed, purpose, client, update)`, and counter-based (Philox). A run that
resumes, or draws in another order, finds the same bits without having saved any generator.
"""

from __future__ import annotations

import numpy as np

SCHEDULE = 0
UPDATE = 1


def stream(seed: int, purpose: int, client: int = 0, update: int = 0) -> np.random.Generator:
    """Return the generator for one purpose, client and update of a seeded simulation."""
    key, counter = (np.array(words, np.uint64) for words in ([seed, purpose], [0, 0, client, update]))
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
