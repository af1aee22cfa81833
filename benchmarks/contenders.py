"""fedvi's own steps and the floor under them, ready to be timed.

The floor is the arithmetic that no implementation can avoid: with a batch x of L rows, the four products

    x m        x^2 v        a x        b x^2

in single precision by NumPy's own library of linear algebra, and nothing else: no gathering of rows, no sigmoid, no
clipping, no optimiser. fedvi's steps are whole updates of a client, by the compiled loop of `simulate` itself; sampled
rows and noise are drawn before, as they are there.
"""

from __future__ import annotations

import itertools

import jax
import numpy as np

from benchmarks.problem import OneSite
from benchmarks.timing import Contender
from fedvi.inference.algorithms import Algorithm
from fedvi.simulation.compiled import play_blocks
from fedvi.simulation.loop import arrange, stack

UPDATES = 8
"""Updates of a run in one compiled loop, each with draws of its own."""


def bare_products(batch: int, features: int, seed: int) -> Contender:
    """Return the floor: the four products of one step."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    x, mean, variance, a, b = (
        numbers(batch, features),
        numbers(features),
        numbers(features),
        numbers(batch),
        numbers(batch),
    )
    squares = x * x

    def products() -> None:
        _ = x @ mean, squares @ variance, a @ x, b @ squares

    return Contender(products)


def updates(problem: OneSite, algorithm: Algorithm, seed: int, runs: int = 1, count: int = UPDATES) -> Contender:
    """Return `count` updates of each of `runs` federations that differ in their seeds; a unit is one step of one run.

    It is what `simulate` calls between two measurements, after drawing: client steps, server steps, all runs in one
    compiled loop.
    """
    same = [problem.run(algorithm, seed + index) for index in range(runs)]
    block = arrange(same, [list(itertools.islice(run.turns(), count)) for run in same], count)
    settings, start = stack([run.settings for run in same]), stack([run.init() for run in same])
    # Arrays on the device, made once: moving them there would be timed with every call.
    given = jax.device_put((problem.model, problem.clients.rows, settings, start, block, np.int32(runs)))
    return Contender(lambda: jax.block_until_ready(play_blocks(*given)), runs * count * algorithm.solver.steps)
