"""Noise that fits a budget: as little as lets a client make all of its updates.

An algorithm whose `noise_multiplier` is None leaves the noise open. With a budget and a number of updates it is found,
for every client by itself: clients with other budgets, or other numbers of rows, need other noise.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable
from typing import Any

from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import Algorithm
from fedvi.privacy.budget import Budget, noise_for
from fedvi.privacy.events import with_noise


def leaves_noise_open(algorithm: Algorithm) -> bool:
    """Tell whether the algorithm's noise is still to be found."""
    holder = algorithm.solver.mechanism if algorithm.client_level is None else algorithm.client_level
    return getattr(holder, "noise_multiplier", 0.0) is None


def calibrated(
    algorithm: Algorithm, prior: GaussianFamily, budget: Budget | None, public_rows: int, updates: float
) -> Algorithm:
    """Return the algorithm with the least noise with which so many updates of so many rows fit the budget.

    budget: with a fixed delta. An algorithm whose noise is given comes back as it is.
    """
    if not leaves_noise_open(algorithm):
        return algorithm
    if budget is None or updates == float("inf"):
        raise InputError(
            "The algorithm leaves its noise open (noise_multiplier=None): give a budget and a number of updates "
            "(simulate: privacy and max_updates), from which it is found, or a noise_multiplier."
        )
    unit_noise = set_noise(algorithm, 1.0).event(prior, public_rows)
    return set_noise(algorithm, _least_noise(unit_noise, int(max(updates, 1)), budget))


def set_noise(algorithm: Algorithm, noise_multiplier: float) -> Algorithm:
    """Return the same algorithm with this noise."""
    values: Any = algorithm
    if algorithm.client_level is not None:
        loud = dataclasses.replace(algorithm.client_level, noise_multiplier=noise_multiplier)
        return dataclasses.replace(values, client_level=loud)
    solver: Any = algorithm.solver
    mechanism: Any = dataclasses.replace(solver.mechanism, noise_multiplier=noise_multiplier)
    return dataclasses.replace(values, solver=dataclasses.replace(solver, mechanism=mechanism))


@functools.lru_cache(maxsize=4096)
def _least_noise(event: Hashable, updates: int, budget: Budget) -> float:
    return noise_for(lambda noise: with_noise(event, noise), updates, budget)
