"""The attack on floating-point noise: does an adversary recognise a row in what was released?

For a given sum S only some results of `float32(S + s n)` are possible, if n is a normal in single precision. The
adversary knows all rows but one, hence S without and with it, and says in which world fewer of the released numbers are
impossible. No likelihood is used: where all numbers are possible in both worlds, it can only guess.
"""

from __future__ import annotations

import numpy as np

RUNS, CHANCE = 100, 0.71


def possible(r: np.ndarray, total: np.ndarray, std: float) -> np.ndarray:
    """Tell which numbers could have been released, if the sum was `total`."""
    nearest = ((r.astype(np.float64) - total) / std).astype(np.float32)
    found = np.zeros(r.shape, bool)
    for steps in range(-2, 3):
        normal = nearest
        for _ in range(abs(steps)):
            normal = np.nextafter(normal, np.float32(np.sign(steps) * np.inf))
        found |= (total + std * normal.astype(np.float64)).astype(np.float32) == r
    return found


def says_present(impossible_with: int, impossible_without: int) -> float:
    """Return 1 for 'the row was there', 0 for 'it was not', a half if it cannot be told."""
    return 0.5 if impossible_with == impossible_without else float(impossible_with < impossible_without)


def right(guesses: dict[bool, list[float]]) -> float:
    """Return how often the adversary was right; undecided counts half."""
    return float(np.mean([*guesses[True], *(1 - guess for guess in guesses[False])]))
