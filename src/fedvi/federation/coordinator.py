"""The durable coordinator: one way to change its file.

    handle(name, bytes) -> bytes        decode, check, apply in ONE transaction, answer with q

A release whose number was applied already is answered with the current q and changes nothing; any other number than
the next one is refused. Whoever calls says who sent the bytes: the engine, by the certificate, never the message.

A message costs the same however many sites there are: it needs one site's factor and the product of all. The step is
`server_step`, the one that simulations use.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from dataclasses import replace
from functools import cached_property

import msgspec
import numpy as np

from fedvi.errors import AbsurdRelease, FedviError, MalformedRelease, OtherFederation, OutOfSequence, ReleaseRefused
from fedvi.families.base import Factor, extent
from fedvi.federation import wire
from fedvi.federation.coordinator_file import Applied, CoordinatorFile, Product, Refusal, SiteRecord
from fedvi.federation.widths import Said
from fedvi.federation.wire import POSTERIOR, REFUSED, Answer, Request
from fedvi.inference.algorithms import LARGEST_PREDICTOR
from fedvi.inference.server import Server, ServerState
from fedvi.inference.update import Release
from fedvi.numerics import default_namespace
from fedvi.pytree import repeat, take, tree_map

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
                request = wire.decode(data, Request, self._largest)
                with self._database.transaction(), np.errstate(all="ignore"):  # what is not finite is refused
                    answer = self._received(name, request, hashlib.sha256(data).hexdigest())
            except ReleaseRefused as error:
                answer = self._refused(name, error)
        except FedviError as error:  # not the message's fault: a full disk, a file in use
            reason = _printable(error)
            answer = Answer(self.description.digest, REFUSED, 0, 0, code=wire.UNAVAILABLE, reason=reason)
        return wire.encode(answer)

    def _received(self, name: str, request: Request, digest: str) -> Answer:
        """Do what a request asks for. Within a transaction, which an exception undoes."""
        site, time_now = self.site(name), self.clock()
        if request.federation != self.description.digest:
            raise OtherFederation(
                f"Site {name!r} was set up for another federation ({request.federation[:12]!r}, here "
                f"{self.description.digest[:12]!r}). Give it the kit of this one."
            )
        known = site
        if request.kind == wire.POLL:
            _check_poll(request, site)
        elif request.sequence == site.sequence and digest == site.digest:
            known = replace(site, repeated=site.repeated + 1)
        elif request.sequence != site.sequence + 1:
            raise OutOfSequence(f"Expected release {site.sequence + 1} of {name!r}, got {request.sequence}.")
        elif site.width is not None:
            raise OutOfSequence(f"Expected nothing more of {name!r} after its final release, got {request.sequence}.")
        elif request.kind == wire.FACTOR:
            known = self._updated(site, request, digest, time_now)
        else:
            width = self._final_number(request, name)
            known = replace(site, sequence=request.sequence, digest=digest, width=width)
        recent = site.last_seen is not None and 0 <= time_now - site.last_seen < SEEN
        if request.kind != wire.POLL or request.state != site.state or not recent:
            self._save(replace(known, state=request.state, declared=request.declared, last_seen=time_now))
        self._stop_if_due(time_now)
        now = self._product()
        arrays = wire.arrays_of(self._posterior(now))
        return Answer(self.description.digest, POSTERIOR, now.version, known.sequence, now.stop, arrays=arrays)

    def _save(self, site: SiteRecord) -> None:
        columns = vars(site) | {"declared": msgspec.json.encode(site.declared).decode()}
        self._database.update("sites", columns, "WHERE name = ?", site.name)

    def _updated(self, site: SiteRecord, request: Request, digest: str, time_now: float) -> SiteRecord:
        """Apply a factor: `q <- q * t_new / t_stored`. Return what is known of the site then."""
        name, now = site.name, self._product()
        if site.updates >= self.description.updates:
            raise OutOfSequence(
                f"Expected at most {self.description.updates} updates of {name!r}, as was agreed, got one more. All "
                "that is left to take is its final release, when the federation ends."
            )
        factor = wire.tree_of(self._unit, request.arrays)
        self._check_size(name, request.sequence, factor)
        if request.based_on > now.version:
            raise MalformedRelease(
                f"Release {request.sequence} of {name!r} says that it is based on version {request.based_on} of the "
                f"posterior, of which there are {now.version}."
            )
        before = self._server(site, now)
        release = Release(factor, default_namespace().int32(request.sequence), schema=request.schema)
        after = tree_map(np.asarray, before.receive(name, release).state)
        q = after.posterior
        change, found = float(q.kl(before.posterior)), float(extent(q))
        if not math.isfinite(change):
            raise AbsurdRelease(
                f"Release {request.sequence} of {name!r} would change the posterior beyond all measure."
            )
        most = LARGEST_PREDICTOR / self.description.schema.feature_bound
        if found > most / 2:  # sites round differently
            raise AbsurdRelease(
                f"Release {request.sequence} of {name!r} would take the posterior's means or standard deviations to "
                f"{found:.3g}; no site takes one beyond {most:g}."
            )
        calm = change < self.description.stop.change
        if not calm:
            self._database.execute("UPDATE sites SET calm = 0 WHERE calm > 0")
        self._database.execute(
            "UPDATE federation SET version = ?, product = ?, lost = ?, started = ifnull(started, ?)",
            (now.version + 1, wire.pack(after.product), wire.pack(after.lost), time_now),
        )
        update = Applied(now.version + 1, name, request.sequence, request.based_on, change, time_now, digest)
        self._database.insert("applied", dataclasses.astuple(update))
        stored = wire.pack(take(after.factors, 0))
        self._database.update("sites", {"factor": stored}, "WHERE name = ?", name)
        return replace(
            site,
            sequence=request.sequence,
            digest=digest,
            updates=site.updates + 1,
            calm=site.calm + 1 if calm else 0,
            staleness=now.version - request.based_on,
        )

    def _check_size(self, name: str, sequence: int, factor: Factor) -> None:
        largest = self.description.largest
        for field, values in vars(factor).items():
            numbers = np.asarray(values)
            limit = largest**2 if field == "noise" else largest
            most = float(np.max(np.abs(numbers))) if np.isfinite(numbers).all() else 0.0  # others are found later
            if most > limit:
                raise AbsurdRelease(
                    f"Release {sequence} of {name!r} has a {field.replace('_', ' ')} of {most:.3g}; rows as they "
                    f"were declared cannot say more than {limit:.3g}."
                )

    def _server(self, site: SiteRecord, now: Product) -> Server:
        """Return the server as it looks to one site: its own factor, and the product of all."""
        xp = default_namespace()
        state = ServerState(
            prior=self.description.spec.prior,
            factors=repeat(self._factor(site.name), 1),
            sequence=xp.full(1, site.sequence, xp.int32),
            product=now.product,
            lost=now.lost,
            version=xp.int32(now.version),
        )
        return Server((site.name,), state, self.description.schema.digest)

    def _stop_if_due(self, time_now: float) -> None:
        if self.stop:
            return
        seconds = 0.0 if self.started is None else time_now - self.started
        if reason := self.description.stop.reason(self.states(), seconds):
            self.end(reason)

    def _refused(self, name: str, error: ReleaseRefused) -> Answer:
        """Write down a refusal, and return it as an answer."""
        refusal = Refusal(self.clock(), name, error.code, _printable(error))
        with self._database.transaction():
            self._database.insert("refusals", (None, *dataclasses.astuple(refusal)))
            old = "number <= (SELECT max(number) FROM refusals) - ?"
            self._database.execute(f"DELETE FROM refusals WHERE {old}", (REFUSALS,))
            self._database.execute("UPDATE sites SET refused = refused + 1 WHERE name = ?", (name,))
            applied = self.site(name).sequence if name in self.names else 0
            version, stop = self.version, self.stop
        return Answer(self.description.digest, REFUSED, version, applied, stop, code=error.code, reason=refusal.reason)

    def _final_number(self, request: Request, name: str) -> float:
        """Return the number that a site says about the width of the posterior."""
        numbers = [np.asarray(array) for array in request.arrays.values()]
        if len(numbers) != 1 or numbers[0].shape != () or not np.isfinite(numbers[0]):
            raise MalformedRelease(f"Expected one finite number about the width from {name!r}, got something else.")
        number, declared = float(numbers[0]), request.declared
        said = Said.of(number, declared.rows, declared.epsilon_max, declared.delta)
        if abs(number) > self.description.largest or (said is not None and not said.is_possible):
            raise AbsurdRelease(
                f"The number of {name!r} about the width is {number:.3g}; no {declared.rows} rows can give that."
            )
        return number

    @cached_property
    def _largest(self) -> int:
        return wire.size_of(self._unit) + wire.LARGEST_HEADER


def _check_poll(request: Request, site: SiteRecord) -> None:
    if request.sequence != site.sequence:
        raise OutOfSequence(
            f"Site {site.name!r} says that it made {request.sequence} releases, and {site.sequence} were applied: "
            "its file or the coordinator's is an older copy. Restore the newest one."
        )
    if request.arrays:
        raise MalformedRelease(f"Expected no arrays in a question of {site.name!r}, got {len(request.arrays)}.")


def _printable(error: Exception) -> str:
    return "".join(filter(str.isprintable, str(error)))[:2000]
