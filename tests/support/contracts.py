"""The contract of schedules, algorithms and models: settings and the law that tests of it share."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from fedvi.inference import GradientSteps
from fedvi.privacy import Minibatch
from fedvi.simulation import Asynchronous, EventDriven, Paced, RoundRobin, Schedule, Synchronous
from fedvi.simulation.runs import Carry

DIM = 3
SIZES = [30, 8, 1, 55]
STEPS = GradientSteps(5, 0.3, Minibatch(10))
SCHEDULES: dict[str, Schedule] = {
    "asynchronous": Asynchronous(),
    "round robin": RoundRobin(),
    "synchronous": Synchronous(),
    "paced": Paced(),
    "event-driven": EventDriven(jitter=0.3),
}


def departure_from_law(carry: Carry) -> Mapping[str, float]:
    """How far q is from prior * product of stored factors (summed in float64), relative to the size of the terms."""
    server = carry.server
    worst = 0.0
    leaves = zip(*(jax.tree.leaves(t) for t in (server.posterior, server.prior, server.factors)), strict=True)
    for posterior, prior, factors in (tuple(np.asarray(leaf, np.float64) for leaf in leaf_set) for leaf_set in leaves):
        size = np.abs(prior) + np.abs(factors).sum(axis=0)
        gap = np.abs(posterior - prior - factors.sum(axis=0)) / np.maximum(size, 1e-3)
        worst = max(worst, float(gap.max()))
    return {
        "departure": worst,
        "client factors are server factors": float(
            all(
                np.array_equal(mine, theirs)
                for mine, theirs in zip(
                    jax.tree.leaves(carry.clients.factor), jax.tree.leaves(server.factors), strict=True
                )
            )
        ),
    }
