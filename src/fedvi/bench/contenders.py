"""fedvi's own steps and the floor under them, ready to be timed.

The floor is the arithmetic that no implementation can avoid: with a batch x of L rows, the four products

    x m        x^2 v        a x        b x^2

in single precision by NumPy's own library of linear algebra, and nothing else: no gathering of rows, no sigmoid, no
clipping, no optimiser. fedvi's steps are whole updates of a client, many in one compiled loop; sampled rows and noise
are drawn before, as they are in `simulate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedvi.bench.problem import OneSite
from fedvi.bench.timing import Contender
from fedvi.local import Algorithm, ClientState, Draws, client_step, init_client
from fedvi.pytree import repeat, take

UPDATES = 8
"""Updates in one compiled loop, each with draws of its own."""


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


def updates(problem: OneSite, algorithm: Algorithm, seed: int, count: int = UPDATES) -> Contender:
    """Return `count` updates of one client in one compiled loop; a unit is one local step."""
    draws = jax.device_put(problem.draws(algorithm, count, seed))
    state = init_client(algorithm, problem.public.prior)
    run = _compiled(many_updates, problem, algorithm)
    return Contender(lambda: jax.block_until_ready(run(state, draws)), count * algorithm.solver.steps)


def batched_updates(problem: OneSite, algorithm: Algorithm, seed: int, seeds: int, count: int = UPDATES) -> Contender:
    """Return the same for several seeds in one compiled program; a unit is one local step of one seed."""
    each = [problem.draws(algorithm, count, seed + index) for index in range(seeds)]
    draws = jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *each))
    states = repeat(init_client(algorithm, problem.public.prior), seeds)
    run = _compiled(_side_by_side, problem, algorithm)
    return Contender(lambda: jax.block_until_ready(run(states, draws)), seeds * count * algorithm.solver.steps)


def _compiled(run: Callable[..., Any], problem: OneSite, algorithm: Algorithm) -> Callable[..., Any]:
    """Return `run` compiled; rows and settings are arguments, or the compiler would compute with them beforehand."""
    # One array per setting, made once: turning Python numbers into arrays would be timed with every call.
    fixed = jax.device_put((algorithm, problem))
    compiled = jax.jit(run)
    return lambda *rest: compiled(*fixed, *rest)


def many_updates(algorithm: Algorithm, problem: OneSite, state: ClientState, draws: Draws) -> ClientState:
    """Make one update after the other; as in a federation of one client, q is the prior times its factor."""
    prior = problem.public.prior

    def one(k: Any, state: ClientState) -> ClientState:
        q = state.factor.posterior(prior)
        return client_step(algorithm, problem.model, problem.public, q, state, problem.site, take(draws, k))[0]

    return jax.lax.fori_loop(0, draws.scale.shape[0], one, state)


def _side_by_side(algorithm: Algorithm, problem: OneSite, states: ClientState, draws: Draws) -> ClientState:
    """Make the updates of several seeds in one program."""
    return jax.lax.map(lambda seed: many_updates(algorithm, problem, *seed), (states, draws))
