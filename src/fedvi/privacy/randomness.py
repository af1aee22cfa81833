"""Randomness that nobody can predict: ChaCha20, keyed with 256 bits from the operating system.

Sampling and noise of real updates come from here, a fresh key for every update. Simulations use seeded streams instead
(`fedvi.federation.randomness`) and say so.
"""

from __future__ import annotations

import secrets

import numpy as np


def secure_generator() -> np.random.Generator:
    """Return a NumPy generator on a fresh ChaCha20 key stream."""
    from randomgen import ChaCha

    return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))
