"""The client's update: the page that everything else serves.

    server:  q = prior * t_1 * ... * t_M                        natural parameters: to multiply is to add
    client:  cavity = q / t_m
             q' = argmin KL(q' || cavity * likelihood_m)        by private steps
             t_m' = t_m * (q' / q)^damping                      all that leaves, with its privacy event
    server:  q <- q * t_m' / t_m                                at once, whenever it comes

`draw` draws all randomness of an update; `update` computes it and is pure. It returns the client's new state, which
stays, and a `Release`, the one thing that may leave. Simulations and real sites call this same function, and
`fedvi.inference.server.server_step` for the server's part. Algorithms differ in the local problem
(`fedvi.inference.algorithms`), solvers in how it is solved, mechanisms in what a step sees of the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int, UInt32

from fedvi.compiling import jax, jnp
from fedvi.errors import ImproperError
from fedvi.families.base import Factor, GaussianFamily, require_proper
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Draws, Public
from fedvi.inference.rows import Rows
from fedvi.models.base import Model
from fedvi.numerics import Array
from fedvi.privacy.events import NOT_PRIVATE, AnyEvent
from fedvi.privacy.lattice import Lattice, as_pairs
from fedvi.privacy.sampling import Source
from fedvi.pytree import choose, precision, pytree, static


@pytree
class ClientState:
    """What a client keeps between communications. Never leaves the client.

    factor: its factor t_m as last released.
    solver: state of the solver, such as Adagrad's accumulators.
    sequence: number of releases made so far.
    repairs: number of negative precisions set to zero so far.
    """

    factor: Factor
    solver: Any
    sequence: Int[Array, ""]
    repairs: Int[Array, ""]


@pytree
class Release:
    """The one thing that may leave a client.

    factor: the whole new factor, not a difference: applying it twice does no harm.
    sequence: 1 for the client's first release, then 2, 3, ...
    event: what it cost in privacy, or `NOT_PRIVATE`.
    schema: hash of the feature schema that the rows were encoded by; empty if they came as numbers.
    """

    factor: Factor
    sequence: Int[Array, ""]
    event: AnyEvent = static(default=NOT_PRIVATE)
    schema: str = static(default="")


def init_client(algorithm: Algorithm, prior: GaussianFamily) -> ClientState:
    """Return the state of a client that has not communicated: its factor is 1."""
    zero = jnp.zeros((), jnp.int32)
    return ClientState(algorithm.first_factor(prior), algorithm.solver.init(prior), zero, zero)


def draw(
    algorithm: Algorithm,
    model: Model,
    public: Public,
    rows: int,
    public_rows: int,
    source: Source,
    capacity: int | None = None,
) -> Draws:
    """Draw all randomness of one update of a client, as NumPy arrays.

    rows: that the client has; public_rows: that it declares.
    capacity: rows that a batch has room for, at least what the client's own need; clients of unequal sizes share one
    compiled update by sharing it.
    """
    solver, dtype = algorithm.solver, precision()
    mechanism, steps = solver.mechanism, solver.steps
    room = mechanism.capacity(public_rows) if capacity is None else capacity
    index, mask = mechanism.draw(source, rows, public_rows, steps, room)
    shape = (steps, *model.noise_shape(public.prior.dim))
    normals = source.generator.standard_normal(shape) if all(shape) else np.zeros(shape)
    lattice, scale = _public_numbers(algorithm, public, public_rows)
    in_steps, in_release = np.zeros((steps, 0), np.int64), np.zeros(0, np.int64)
    if lattice is not None and algorithm.client_level is not None:
        in_release = lattice.noise(source, lattice.numbers)
    elif lattice is not None:
        in_steps = lattice.noise(source, steps, lattice.numbers)
    made: Callable[..., Draws] = Draws  # of NumPy's arrays
    return made(
        rows=index,
        mask=mask,
        scale=np.asarray(scale, dtype),
        total=np.asarray(scale * mechanism.batch_size(public_rows), dtype),
        grid=np.asarray(0.0 if lattice is None else lattice.grid, dtype),
        model_noise=normals.astype(dtype),
        privacy_noise=as_pairs(in_steps),
        release_noise=as_pairs(in_release),
    )


@functools.lru_cache(maxsize=65536)  # of settings, which compare by identity
def _public_numbers(algorithm: Algorithm, public: Public, public_rows: int) -> tuple[Lattice | None, float]:
    return algorithm.lattice(public, public_rows), algorithm.row_scale(public, public_rows)


def update(
    algorithm: Algorithm, model: Model, public: Public, q: GaussianFamily, state: ClientState, rows: Rows, draws: Draws
) -> tuple[ClientState, Release, UInt32[Array, "steps n 2"]]:
    """Make one update. Pure; an improper anchor gives a release of NaN, which every server refuses.

    The third is all that has noise in it, before it was rounded (`as_words`): for audits. Everything that leaves, and
    everything that stays, follows from that and from public numbers. Where nobody looks, it costs nothing.
    """
    problem = algorithm.problem(public, q, state.factor)
    target, solver, seen = algorithm.solver.solve(problem, state.solver, model, rows, draws)
    change = algorithm.change(state.factor, target)
    if algorithm.client_level is not None:
        change, seen = algorithm.client_level.protect(change, draws.release_noise, draws.grid)
        seen = seen[None]
    factor = state.factor * change
    repairs = jnp.zeros((), jnp.int32)
    if algorithm.repair:
        factor, repairs = factor.repaired()
    factor = choose(problem.is_proper(), factor, factor**jnp.nan)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(factor)]))
    solver = choose(finite, solver, state.solver)  # a client recovers when it is asked something sensible again
    new = ClientState(factor, solver, state.sequence + 1, state.repairs + repairs)
    return new, Release(factor, new.sequence), seen


def _without_seen(*given: Any) -> tuple[ClientState, Release]:
    return update(*given)[:2]


@functools.cache
def _compiled() -> Callable[..., tuple[ClientState, Release]]:
    return jax.jit(_without_seen)


def checked_update(
    algorithm: Algorithm, model: Model, public: Public, q: GaussianFamily, state: ClientState, rows: Rows, draws: Draws
) -> tuple[ClientState, Release]:
    """Make one update at a site: `update`, compiled, after checking that q and the anchor are proper."""
    check_request(algorithm, public, q, state)
    return _compiled()(algorithm, model, public, q, state, rows, draws)


def check_request(algorithm: Algorithm, public: Public, q: GaussianFamily, state: ClientState) -> None:
    """Raise `ImproperError` unless an update of q can be made. Looks at what is public only."""
    require_proper(q, "posterior that the client received")
    problem = algorithm.problem(public, q, state.factor)
    if not bool(problem.is_proper()):
        raise ImproperError(f"The cavity of the client is improper: {problem.anchor!r}.")
