"""The server's side of one communication: `q <- q * t_new / t_old`, at once.

The server keeps every client's factor and their product, so that always

    q = prior * t_1 * ... * t_M

The product is a running sum of natural parameters. It is kept with its rounding errors (compensated summation), so
that it still equals the sum of the stored factors after any number of communications in float32.

`server_step` is pure and compiled; a release that it does not accept changes nothing. `Server` adds what compiled
code cannot do: names, types and exceptions.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int

from fedvi.compiling import jax
from fedvi.errors import (
    ImproperError,
    ImproperRelease,
    MalformedRelease,
    NonFiniteRelease,
    OtherSchema,
    OutOfSequence,
    UnknownClient,
)
from fedvi.families.base import Factor, GaussianFamily, require_proper
from fedvi.inference.update import Release
from fedvi.numerics import Array, default_namespace, namespace
from fedvi.pytree import choose, leaves, loaded_jax, put, pytree, repeat, take

F = TypeVar("F", bound=Factor)


class Verdict(enum.IntEnum):
    """What became of an update."""

    ACCEPTED = 0
    NON_FINITE = 1
    OUT_OF_SEQUENCE = 2
    IMPROPER = 3
    IMPROPER_CAVITY = 4  # seen by the client: nothing was released


@pytree
class ServerState:
    """The prior, every client's factor, and their product.

    factors, sequence: stacked over clients; sequence is the number of the last release applied.
    product, lost: the product of all factors, and the rounding errors of having computed it step by step.
    version: number of releases applied.
    asked: questions, and what was read out of answers to them, if the algorithm is by questions; else None.
    """

    prior: GaussianFamily
    factors: Factor
    sequence: Int[Array, " m"]
    product: Factor
    lost: Factor
    version: Int[Array, ""]
    asked: Any = None

    @property
    def posterior(self) -> GaussianFamily:
        """The current q; if the algorithm is by questions, that of the last reading."""
        q: GaussianFamily = self.asked.posterior if self.asked else (self.product * self.lost).posterior(self.prior)
        return q


def init_server(prior: GaussianFamily, unit: Factor, clients: int, asked: Any = None) -> ServerState:
    """Return a server whose clients all have the factor 1, so that q is the prior. asked: the first question."""
    xp = namespace(leaves(unit)[0])
    return ServerState(
        prior=prior,
        factors=repeat(unit, clients),
        sequence=xp.zeros(clients, xp.int32),
        product=unit,
        lost=unit,
        version=xp.zeros((), xp.int32),
        asked=asked,
    )


def server_step(state: ServerState, client: int | Array, release: Release) -> tuple[ServerState, Int[Array, ""]]:
    """Apply a release of client number `client`, and return the verdict; unless accepted, nothing changes. Pure."""
    xp, old = namespace(state.sequence), take(state.factors, client)
    product, lost = _accumulate(*_accumulate(state.product, state.lost, release.factor), old**-1)
    verdict = xp.select(
        [
            ~_is_finite(release.factor),
            release.sequence != state.sequence[client] + 1,
            ~(release.factor.is_legal() & (product * lost).is_proper_with(state.prior)),
        ],
        [xp.int32(Verdict.NON_FINITE), xp.int32(Verdict.OUT_OF_SEQUENCE), xp.int32(Verdict.IMPROPER)],
        xp.int32(Verdict.ACCEPTED),
    )
    accepted = verdict == Verdict.ACCEPTED
    new = ServerState(
        prior=state.prior,
        factors=put(state.factors, client, choose(accepted, release.factor, old)),
        sequence=put(state.sequence, client, state.sequence[client] + accepted.astype(xp.int32)),
        product=choose(accepted, product, state.product),
        lost=choose(accepted, lost, state.lost),
        version=state.version + accepted.astype(xp.int32),
        asked=state.asked,
    )
    return new, verdict


@dataclasses.dataclass(frozen=True)
class Server:
    """A server with named clients, for use from Python: `coordinator = coordinator.receive(name, release)`.

    schema: hash of the feature schema that all releases must carry; empty if rows come as numbers.
    ask: from a state to the next question, if the algorithm is by questions; else None.
    """

    names: tuple[str, ...]
    state: ServerState
    schema: str = ""
    ask: Callable[[ServerState], Any] | None = None

    @classmethod
    def start(
        cls,
        prior: GaussianFamily,
        names: Iterable[str],
        unit: Factor | None = None,
        schema: str = "",
        *,
        algorithm: Any = None,
        model: Any = None,
    ) -> Server:
        """Return a coordinator whose posterior is the prior.

        unit: the factor 1 of the family in use. algorithm, model: for algorithms by questions (`NoiseAwarePVI`), in
        place of unit.
        """
        names = tuple(names)
        require_proper(prior, "prior")
        if algorithm is None:
            return cls(names, init_server(prior, prior.one() if unit is None else unit, len(names)), schema)
        asked = algorithm.first_asked(model, prior)
        state = init_server(prior, algorithm.first_factor(prior), len(names), asked)
        return cls(names, state, schema, functools.partial(algorithm.asked_next, model) if asked else None)

    @property
    def posterior(self) -> GaussianFamily:
        """The current q."""
        return self.state.posterior

    def sent_to(self, name: str) -> Any:
        """Return what a client works on: q, or its next question; None while it has to wait for the others."""
        asked = self.state.asked
        if asked is None:
            return self.posterior
        number = int(self.state.sequence[self.names.index(name)])
        return take(asked.questions, number) if number < int(asked.count) else None

    def asking(self) -> Server:
        """Return the coordinator after reading all answers and asking the next question, whoever is missing."""
        return (
            self
            if self.ask is None
            else dataclasses.replace(self, state=dataclasses.replace(self.state, asked=self.ask(self.state)))
        )

    def receive(self, name: str, release: Release) -> Server:
        """Return the coordinator after applying a release, or raise `ReleaseRefused`.

        When every client has answered all questions that were asked, the next one is asked.
        """
        if name not in self.names:
            raise UnknownClient(f"Release from unknown client {name!r}; known are {', '.join(self.names)}.")
        _check_form(release, name, self.state)
        if release.schema != self.schema:
            raise OtherSchema(
                f"Client {name!r} encodes its rows by feature schema {release.schema[:12] or 'none'}, the federation "
                f"by {self.schema[:12] or 'none'}. Give every site the same schema file."
            )
        client = self.names.index(name)
        numbers = Release(release.factor, release.sequence)  # without the event, which would be compiled in
        step = server_step if loaded_jax() is None else jax.jit(server_step)
        state, verdict = step(self.state, client, numbers)
        raise_unless_accepted(Verdict(int(verdict)), name, int(release.sequence), int(self.state.sequence[client]))
        received = dataclasses.replace(self, state=state)
        all_have = state.asked and int(np.min(np.asarray(state.sequence))) >= int(state.asked.count)
        return received.asking() if all_have else received


def raise_unless_accepted(verdict: Verdict, name: str, sequence: int, applied: int) -> None:
    """Raise what the verdict on update number `sequence` of client `name` means."""
    match verdict:
        case Verdict.ACCEPTED:
            return
        case Verdict.NON_FINITE:
            raise NonFiniteRelease(
                f"Release {sequence} of client {name!r} holds NaN or infinity: its local steps diverged. "
                "Use a smaller learning rate, scale the data, or let the optimiser clip gradients."
            )
        case Verdict.IMPROPER_CAVITY:
            raise ImproperError(
                f"The cavity of client {name!r} is improper before update {sequence}. "
                "Use more damping, a smaller learning rate, or repair=True."
            )
        case Verdict.OUT_OF_SEQUENCE:
            raise OutOfSequence(f"Expected release {applied + 1} of client {name!r}, got release {sequence}.")
        case Verdict.IMPROPER:
            raise ImproperRelease(
                f"Release {sequence} of client {name!r} would make the posterior improper. "
                "Use more damping, a smaller learning rate, or repair=True."
            )


def _check_form(release: Release, name: str, state: ServerState) -> None:
    if not isinstance(release, Release):
        raise MalformedRelease(f"Expected a Release from client {name!r}, got {type(release).__name__}.")
    wanted, given = _form(state.product), _form(release.factor)
    if wanted != given:
        raise MalformedRelease(f"Expected {wanted} from client {name!r}, got {given}.")
    xp = default_namespace()
    if np.shape(release.sequence) != () or not np.issubdtype(xp.result_type(release.sequence), np.integer):
        raise MalformedRelease(f"Expected a whole sequence number from client {name!r}, got {release.sequence!r}.")


def _form(factor: Factor) -> str:
    xp = default_namespace()
    parts = [f"{xp.result_type(leaf)}{list(np.shape(leaf))}" for leaf in leaves(factor)]
    return f"{type(factor).__name__}({', '.join(parts)})"


def _is_finite(factor: Factor) -> Array:
    xp = namespace(leaves(factor)[0])
    return xp.all(xp.stack([xp.all(xp.isfinite(leaf)) for leaf in leaves(factor)]))


def _accumulate(total: F, lost: F, factor: F) -> tuple[F, F]:
    """Multiply `factor` into `total`, and its rounding error into `lost` (Knuth's two-sum, leaf by leaf)."""
    new = total * factor
    rounded = new / total
    error = (total / (new / rounded)) * (factor / rounded)
    return new, lost * error
