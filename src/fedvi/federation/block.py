"""Many turns in one compiled loop.

`run_block` plays a block of planned turns: client step, server step, next turn. It is the only place where the
simulation calls the two steps. Everything about a turn is data (client number, slots, draws), so one compilation
serves every schedule and every client; the number of turns is data too.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from fedvi.data import Clients
from fedvi.federation.server import ServerState, Verdict, init_server, server_step
from fedvi.gaussian import Factor, GaussianFamily
from fedvi.local import Algorithm, ClientState, Draws, Public, client_step, init_client
from fedvi.models import Model
from fedvi.pytree import choose, put, pytree, repeat, take


@pytree
class Carry:
    """The whole state of a simulated federation.

    clients: stacked client states.
    snapshots: the q's that clients have fetched, by slot (see `fedvi.federation.plan`).
    """

    server: ServerState
    clients: ClientState
    snapshots: GaussianFamily


@pytree
class Turns:
    """Planned turns as arrays."""

    client: Int[Array, " turns"]
    source: Int[Array, " turns"]
    save: Int[Array, " turns"]


@functools.partial(jax.jit, static_argnames="clients")
def init_carry(algorithm: Algorithm, prior: GaussianFamily, clients: int) -> Carry:
    """Return the state before the first turn."""
    unit: Factor = algorithm.unit_factor(prior)
    return Carry(
        server=init_server(prior, unit, clients),
        clients=repeat(init_client(algorithm, prior), clients),
        snapshots=repeat(prior, clients + 1),
    )


@jax.jit
def look(carry: Carry, before: GaussianFamily) -> tuple[GaussianFamily, Array, Array]:
    """Return q, how far it is from an earlier one in nats, and how many negative precisions were repaired so far."""
    q: GaussianFamily = carry.server.posterior
    return q, q.kl(before), jnp.sum(carry.clients.repairs)


@jax.jit
def run_block(
    algorithms: Algorithm,
    model: Model,
    public: Public,
    data: Clients,
    carry: Carry,
    turns: Turns,
    draws: Draws,
    count: Int[Array, ""],
) -> tuple[Carry, Int[Array, " turns"]]:
    """Play the first `count` turns; return the new state and what became of every update.

    algorithms: stacked over clients.
    """

    def play(k: Int[Array, ""], so_far: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, verdicts = so_far
        turn: Turns = take(turns, k)
        algorithm: Algorithm = take(algorithms, turn.client)
        state: ClientState = take(carry.clients, turn.client)
        q = take(carry.snapshots, turn.source)
        site = data.site(turn.client)
        problem = algorithm.problem(public, q, state.factor, site.size)
        new, release = client_step(algorithm, model, public, q, state, site, take(draws, k))
        server, verdict = server_step(carry.server, turn.client, release)
        verdict = jnp.where(problem.is_proper(), verdict, jnp.int32(Verdict.IMPROPER_CAVITY))
        carry = Carry(
            server=server,
            clients=put(carry.clients, turn.client, choose(verdict == Verdict.ACCEPTED, new, state)),
            snapshots=put(carry.snapshots, turn.save, server.posterior),
        )
        return carry, verdicts.at[k].set(verdict)

    start: Any = (carry, jnp.zeros_like(turns.client))
    played: tuple[Carry, Array] = jax.lax.fori_loop(0, count, play, start)
    return played
