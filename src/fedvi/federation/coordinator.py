"""The durable coordinator: one way to change its file.

    handle(name, bytes) -> bytes        decode, check, apply in ONE transaction, answer with q

A release whose number was applied already is answered with the current q and changes nothing; any other number than
the next one is refused. Whoever calls says who sent the bytes: the engine, by the certificate, never the message.

A message costs the same however many sites there are: it needs one site's factor and the product of all. The step is
`server_step`, the one that simulations use.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
import time
from functools import cached_property
from typing import Any

import numpy as np

from fedvi.compiling import jax, jnp
from fedvi.errors import AbsurdRelease, FedviError, MalformedRelease, OtherFederation, OutOfSequence, ReleaseRefused
from fedvi.families.base import extent
from fedvi.federation.coordinator_file import CoordinatorFile
from fedvi.federation.widths import Said
from fedvi.federation.wire import (
    FACTOR,
    LARGEST_HEADER,
    POLL,
    POSTERIOR,
    REFUSED,
    WIDTH,
    Answer,
    Request,
    arrays_of,
    decode,
    digest,
    encode,
    pack,
    size_of,
    tree_of,
    unpack,
)
from fedvi.inference.private_client import LARGEST_PREDICTOR
from fedvi.inference.server import Server, ServerState
from fedvi.inference.update import Release
from fedvi.pytree import repeat, take

REFUSALS = 1000
"""How many refusals are kept; of all, their number is."""

SEEN = 1.0
"""Seconds after which hearing from a site again is worth a write."""


class Coordinator(CoordinatorFile):
    """The coordinator's file, and the answers to what sites send."""

    clock = staticmethod(time.time)

    def handle(self, name: str, data: bytes) -> bytes:
        """Return the answer to bytes that came from site `name`. What is wrong with them is an answer too."""
        try:
            try:
                request = decode(data, Request, self._largest)
                with self._database.transaction():
                    answer = self._received(name, request, digest(data))
            except ReleaseRefused as error:
                answer = self._refuse(name, error)
        except (FedviError, sqlite3.Error) as error:  # not the message's fault: a full disk, a file in use
            answer = Answer(self.project.digest, REFUSED, 0, 0, error=type(error).__name__, reason=_printable(error))
        return encode(answer)

    def _received(self, name: str, request: Request, identity: str) -> Answer:
        """Do what a request asks for. Within a transaction, which an exception undoes."""
        site, federation, now = self._site(name), self._federation(), self.clock()
        if request.federation != self.project.digest:
            raise OtherFederation(
                f"Site {name!r} was set up for another federation ({request.federation[:12]!r}, here "
                f"{self.project.digest[:12]!r}). Give it the kit of this one."
            )
        repeated = request.sequence == site["sequence"] and identity == site["digest"]
        if request.kind == POLL:
            self._check_poll(name, request, site)
        elif repeated:
            self._set(name, repeated=site["repeated"] + 1)
        elif request.sequence != site["sequence"] + 1:
            raise OutOfSequence(f"Expected release {site['sequence'] + 1} of {name!r}, got {request.sequence}.")
        elif site["width"] is not None:
            raise OutOfSequence(f"Expected nothing more of {name!r} after its last release, got {request.sequence}.")
        elif request.kind == FACTOR:
            self._apply(name, request, site, federation, identity, now)
        elif request.kind == WIDTH:
            width = self._one_number(request, name)
            self._set(name, width=width, sequence=request.sequence, digest=identity)
        self._hear(name, request, site, now)
        self._stop_if_due(now)
        return self._answer(name)

    def _apply(self, name: str, request: Request, site: Any, federation: Any, identity: str, now: float) -> None:
        """Apply a factor: `q <- q * t_new / t_stored`."""
        if site["updates"] >= self.project.updates:
            raise OutOfSequence(
                f"Expected at most {self.project.updates} updates of {name!r}, as was agreed, got one more. All that "
                "is left to take is its last number, when the federation ends."
            )
        factor = tree_of(self._unit, request.arrays)
        self._check_size(name, request.sequence, factor)
        if request.based_on > federation["version"]:
            raise MalformedRelease(
                f"Release {request.sequence} of {name!r} says that it is based on version {request.based_on} of the "
                f"posterior, of which there are {federation['version']}."
            )
        before = self._coordinator(name, site, federation)
        release = Release(factor, jnp.int32(request.sequence), schema=request.schema)
        after = before.receive(name, release).state
        change, found = map(float, _measured(before.state, after))
        if not math.isfinite(change):
            raise AbsurdRelease(
                f"Release {request.sequence} of {name!r} would change the posterior beyond all measure."
            )
        most = LARGEST_PREDICTOR / self.project.schema.feature_bound
        if found > most / 2:  # sites round differently
            raise AbsurdRelease(
                f"Release {request.sequence} of {name!r} would take the posterior's means or standard deviations to "
                f"{found:.3g}; no site takes one beyond {most:g}."
            )
        version = federation["version"] + 1
        calm = change < self.project.stop.change
        if not calm:
            self._database.execute("UPDATE sites SET calm = 0 WHERE calm > 0")
        started = now if federation["started"] is None else federation["started"]
        self._database.execute(
            "UPDATE federation SET version = ?, product = ?, lost = ?, started = ?",
            (version, pack(after.product), pack(after.lost), started),
        )
        self._database.execute(
            "INSERT INTO applied VALUES (?, ?, ?, ?, ?, ?, ?)",
            (version, name, request.sequence, request.based_on, change, now, identity),
        )
        self._set(
            name,
            factor=pack(take(after.factors, 0)),
            sequence=request.sequence,
            digest=identity,
            updates=site["updates"] + 1,
            calm=site["calm"] + 1 if calm else 0,
            staleness=version - 1 - request.based_on,
        )

    def _check_size(self, name: str, sequence: int, factor: Any) -> None:
        largest = self.project.largest
        for field in dataclasses.fields(factor):
            numbers = np.asarray(getattr(factor, field.name))
            limit = largest**2 if field.name == "noise" else largest
            most = float(np.max(np.abs(numbers))) if np.isfinite(numbers).all() else 0.0  # others are found later
            if most > limit:
                raise AbsurdRelease(
                    f"Release {sequence} of {name!r} has a {field.name.replace('_', ' ')} of {most:.3g}; rows as they "
                    f"were declared cannot say more than {limit:.3g}."
                )

    def _check_poll(self, name: str, request: Request, site: Any) -> None:
        if request.sequence != site["sequence"]:
            raise OutOfSequence(
                f"Site {name!r} says that it made {request.sequence} releases, and {site['sequence']} were applied: "
                "its file or the coordinator's is an older copy. Restore the newest one."
            )
        if request.arrays:
            raise MalformedRelease(f"Expected no arrays in a question of {name!r}, got {len(request.arrays)}.")

    def _coordinator(self, name: str, site: Any, federation: Any) -> Server:
        """Return the coordinator as it looks to one site: its own factor, and the product of all."""
        state = ServerState(
            prior=self._spec.prior,
            factors=repeat(unpack(self._unit, site["factor"]), 1),
            sequence=jnp.full(1, site["sequence"], jnp.int32),
            product=unpack(self._unit, federation["product"]),
            lost=unpack(self._unit, federation["lost"]),
            version=jnp.int32(federation["version"]),
        )
        return Server((name,), state, self.project.schema.digest)

    def _hear(self, name: str, request: Request, site: Any, now: float) -> None:
        declared = json.dumps(dataclasses.asdict(request.declared))
        recent = site["last_seen"] is not None and 0 <= now - site["last_seen"] < SEEN
        if request.kind != POLL or request.state != site["state"] or not recent:
            self._set(name, state=request.state, declared=declared, last_seen=now)

    def _stop_if_due(self, now: float) -> None:
        federation = self._federation()
        if federation["stop"]:
            return
        sites = [(row["state"], row["calm"]) for row in self._database.execute("SELECT state, calm FROM sites")]
        seconds = 0.0 if federation["started"] is None else now - federation["started"]
        if reason := self.project.stop.reason(sites, seconds):
            self._database.execute("UPDATE federation SET stop = ?", (reason,))

    def _answer(self, name: str) -> Answer:
        federation, site = self._federation(), self._site(name)
        arrays = arrays_of(self._posterior(federation))
        return Answer(
            self.project.digest, POSTERIOR, federation["version"], site["sequence"], federation["stop"], arrays=arrays
        )

    def _refuse(self, name: str, error: ReleaseRefused) -> Answer:
        """Write down a refusal, and return it as an answer."""
        kind, reason = type(error).__name__, _printable(error)
        with self._database.transaction():
            values = (self.clock(), name, kind, reason)
            self._database.execute("INSERT INTO refusals (time, site, error, reason) VALUES (?, ?, ?, ?)", values)
            self._database.execute(
                "DELETE FROM refusals WHERE number <= (SELECT max(number) FROM refusals) - ?", (REFUSALS,)
            )
            site = self._database.one("SELECT * FROM sites WHERE name = ?", (name,))
            if site is not None:
                self._set(name, refused=site["refused"] + 1)
            federation = self._federation()
        applied = 0 if site is None else site["sequence"]
        return Answer(
            self.project.digest, REFUSED, federation["version"], applied, federation["stop"], error=kind, reason=reason
        )

    def _one_number(self, request: Request, name: str) -> float:
        """Return the number that a site says about the width of the posterior."""
        numbers = [np.asarray(array) for array in request.arrays.values()]
        if len(numbers) != 1 or numbers[0].shape != () or not np.isfinite(numbers[0]):
            raise MalformedRelease(f"Expected one finite number about the width from {name!r}, got something else.")
        number, declared = float(numbers[0]), request.declared
        said = Said.of(number, declared.rows, declared.epsilon_max, declared.delta)
        if abs(number) > self.project.largest or (said is not None and not said.is_possible):
            raise AbsurdRelease(
                f"The number of {name!r} about the width is {number:.3g}; no {declared.rows} rows can give that."
            )
        return number

    @cached_property
    def _largest(self) -> int:
        return size_of(self._unit) + LARGEST_HEADER


def _printable(error: Exception) -> str:
    return "".join(filter(str.isprintable, str(error)))[:2000]


@jax.jit
def _measured(before: ServerState, after: ServerState) -> tuple[Any, Any]:
    """Return `KL(new q || old q)` in nats, and the extent of the new q."""
    q = after.posterior
    return q.kl(before.posterior), extent(q)
