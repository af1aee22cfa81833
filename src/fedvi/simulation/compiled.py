"""Many turns in one compiled loop.

`play_blocks` plays planned turns of several runs: the client's update, the server's step, the next turn. It is the only
place where the simulation calls the two. Everything about a turn is data (client number, slots, draws), so one
compilation serves every schedule and every client; numbers of turns and runs are data too.

Runs that share rows and model, and whose settings differ in numbers only (seeds, learning rates, noise, clips), are the
same program with other data. A run comes out the same, bit for bit, alone or in company.
"""

from __future__ import annotations

import functools

from jaxtyping import Int

from fedvi.compiling import jax, jnp
from fedvi.families.base import Factor, GaussianFamily
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Draws, Public
from fedvi.inference.rows import ClientRows
from fedvi.inference.server import ServerState, Verdict, init_server, server_step
from fedvi.inference.update import ClientState, init_client, update
from fedvi.models.base import Model
from fedvi.numerics import Array
from fedvi.pytree import choose, put, pytree, repeat, take


@pytree
class Carry:
    """The whole state of a simulated federation.

    clients: stacked client states.
    snapshots: the q's that clients have fetched, by slot (see `fedvi.simulation.schedules`).
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


@pytree
class Settings:
    """Settings of a run: its clients' algorithms, stacked, and what is public."""

    algorithms: Algorithm
    public: Public


@pytree
class Block:
    """Turns of a run, and their randomness, stacked over turns; there may be room for more than `count`."""

    turns: Turns
    draws: Draws
    count: Int[Array, ""]


@functools.partial(jax.jit, static_argnames="clients")
def init_carry(algorithm: Algorithm, prior: GaussianFamily, clients: int) -> Carry:
    """Return the state before the first turn."""
    unit: Factor = algorithm.first_factor(prior)
    return Carry(
        server=init_server(prior, unit, clients),
        clients=repeat(init_client(algorithm, prior), clients),
        snapshots=repeat(prior, clients + 1),
    )


@jax.jit
def look(carry: Carry, run: Int[Array, ""], before: GaussianFamily) -> tuple[GaussianFamily, Array, Array]:
    """Return a run's q, how far it is from an earlier one in nats, and how many precisions were repaired so far."""
    carry = take(carry, run)
    q: GaussianFamily = carry.server.posterior
    return q, q.kl(before), jnp.sum(carry.clients.repairs)


@jax.jit
def play_blocks(
    model: Model, data: ClientRows, settings: Settings, carry: Carry, blocks: Block, runs: Int[Array, ""]
) -> tuple[Carry, Int[Array, "runs turns"]]:
    """Play a block of each of several runs; return the new state and the verdict on every update.

    settings, carry, blocks: stacked over runs. Model and rows are the same for all.
    runs: how many there are. As a number, so that XLA does not write the loop out, which takes long to compile.
    """

    def play_run(run: Int[Array, ""], so_far: tuple[Carry, Array]) -> tuple[Carry, Array]:
        own: Settings = take(settings, run)
        block: Block = take(blocks, run)

        def play_turn(k: Int[Array, ""], so_far: tuple[Carry, Array]) -> tuple[Carry, Array]:
            carry, verdicts = so_far
            turn: Turns = take(block.turns, k)
            algorithm: Algorithm = take(own.algorithms, turn.client)
            state: ClientState = take(carry.clients, turn.client)
            q = take(carry.snapshots, turn.source)
            rows = data.rows_of(turn.client)
            problem = algorithm.problem(own.public, q, state.factor)
            new, release, _ = update(algorithm, model, own.public, q, state, rows, take(block.draws, k))
            server, verdict = server_step(carry.server, turn.client, release)
            verdict = jnp.where(problem.is_proper(), verdict, jnp.int32(Verdict.IMPROPER_CAVITY))
            carry = Carry(
                server=server,
                clients=put(carry.clients, turn.client, choose(verdict == Verdict.ACCEPTED, new, state)),
                snapshots=put(carry.snapshots, turn.save, server.posterior),
            )
            return carry, verdicts.at[k].set(verdict)

        all_carries, all_verdicts = so_far
        start = take(all_carries, run), jnp.zeros_like(block.turns.client)
        carry, verdicts = jax.lax.fori_loop(0, block.count, play_turn, start)
        return put(all_carries, run, carry), all_verdicts.at[run].set(verdicts)

    start = carry, jnp.zeros_like(blocks.turns.client)
    played: tuple[Carry, Array] = jax.lax.fori_loop(0, runs, play_run, start)
    return played
