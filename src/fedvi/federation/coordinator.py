"""The durable coordinator: one way to change its file.

    handle(name, bytes) -> bytes        decode, check, apply in ONE transaction, answer with the site's next question

Release k of a site is its answer to question k. A release whose number was taken already changes nothing and is
answered again; any other number than the next one is refused. Whoever calls says who sent the bytes: the desk, by the
signature, never the message.

When all answers to the last question are there (`store.turns`), q is read out of all answers and the next question
asked (`store.reader`). A site whose next question was not asked yet is told to wait, and asks
again. The step is `server_step`, the one that simulations use.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import replace
from functools import cached_property
from typing import cast

import msgspec
import numpy as np

from fedvi.errors import (
    AbsurdRelease,
    FedviError,
    MalformedRelease,
    OtherFederation,
    OutOfSequence,
    ReleaseRefused,
    Withdrawn,
)
from fedvi.families.messages import Messages
from fedvi.federation import wire
from fedvi.federation.store.file import planned_noise
from fedvi.federation.store.reader import Reader
from fedvi.federation.store.records import Applied, Refusal, SiteRecord
from fedvi.federation.wire import QUESTION, REFUSED, WAIT, Answer, Declared, Request
from fedvi.inference.server import Server, ServerState
from fedvi.inference.update import Release
from fedvi.numerics import default_namespace
from fedvi.privacy.sampling import most_rows
from fedvi.pytree import repeat, take, tree_map

REFUSALS = 1000
"""How many refusals are kept; of all, their number is."""

FAR = 10.0
"""Standard deviations of noise that no honest answer exceeds."""

MOST_ROWS, LEAST_EPSILON, MOST_NOISE = 10, 0.1, 30.0
"""What a site may declare: rows and epsilon in parts of those of the description, noise in parts of what that epsilon
asks for. Answers are added up, so that one with much more noise would drown those of all others."""

SEEN = 1.0
"""Seconds after which hearing from a site again is worth a write."""


class Coordinator(Reader):
    """The coordinator's file, and the answers to what sites send.

    reads_at_once: whether answers are read as part of `handle`; else somebody calls `read_if_due` beside it.
    """

    reads_at_once = True

    def handle(self, name: str, data: bytes, counter: int = 0) -> bytes:
        """Return the answer to bytes that came from site `name`. What is wrong with them is an answer too.

        counter: of the envelope, which is kept with every change of state.
        """
        return wire.encode(self.reply(name, data, counter))

    def reply(self, name: str, data: bytes, counter: int = 0) -> Answer:
        """Return what `handle` puts into bytes."""
        try:
            try:
                request = wire.decode(data, Request, self.largest)
                with self._database.transaction(), np.errstate(all="ignore"):  # what is not finite is refused
                    self._received(name, request, hashlib.sha256(data).hexdigest(), counter)
                if self.reads_at_once:
                    self.read_if_due()
                return self.told(name)
            except ReleaseRefused as error:
                return self._refused(name, error)
        except FedviError as error:  # not the message's fault: a full disk, a file in use
            return Answer(self.description.digest, REFUSED, 0, 0, code=wire.UNAVAILABLE, reason=wire.printable(error))

    def _received(self, name: str, request: Request, digest: str, counter: int) -> None:
        """Do what a request asks for. Within a transaction, which an exception undoes."""
        site, time_now = self.site(name), self.clock()
        if request.federation != self.description.digest:
            raise OtherFederation(
                f"Site {name!r} was set up for another federation ({request.federation[:12]!r}, here "
                f"{self.description.digest[:12]!r}). Invite it to this one."
            )
        if site.withdrawn is not None:
            raise _withdrawn(name)
        self._check_declared(name, request.declared)
        known = site
        if request.kind == wire.POLL:
            _check_poll(request, site)
        elif request.sequence == site.sequence and digest == site.digest:
            known = replace(site, repeated=site.repeated + 1)
        elif request.sequence != site.sequence + 1:
            raise OutOfSequence(f"Expected release {site.sequence + 1} of {name!r}, got {request.sequence}.")
        else:
            known = self._answered(site, request, digest, time_now)
        recent = site.last_seen is not None and 0 <= time_now - site.last_seen < SEEN
        if request.kind != wire.POLL or request.state != site.state or not recent:
            counter = max(counter, site.counter)
            said = {"state": request.state, "declared": request.declared, "last_seen": time_now, "counter": counter}
            self._save(replace(known, **said))  # type: ignore[arg-type]

    def told(self, name: str) -> Answer:
        """Return what a site that has sent nothing wrong is told: its next question, or to wait, or the end.

        A site that was withdrawn since then is refused.
        """
        time_now = self.clock()
        (sequence,) = self._database.only("SELECT sequence FROM sites WHERE name = ?", (name,))
        self._stop_if_due(time_now)
        version, stop, begun = self._database.only("SELECT version, stop, begun OR version > 0 FROM federation")
        withdrawn = self.withdrawn
        news = "; ".join(f"{each} was withdrawn" for each in withdrawn)[: wire.LONGEST_TEXT]
        told = Answer(self.description.digest, WAIT, version, sequence, stop, news=news)
        if name in withdrawn:
            gone = _withdrawn(name)
            return msgspec.structs.replace(told, kind=REFUSED, code=gone.code, reason=str(gone))
        if stop or not (begun or self.description.start.begins(self._turns(time_now), time_now)):
            return told
        asked = self.asked
        if sequence >= int(asked.count):
            return told
        question = wire.arrays_of(take(asked.questions, sequence))
        return msgspec.structs.replace(told, kind=QUESTION, arrays=question)

    def _save(self, site: SiteRecord) -> None:
        columns = vars(site) | {"declared": msgspec.json.encode(site.declared).decode()}
        self._database.update("sites", columns, "WHERE name = ?", site.name)

    def _answered(self, site: SiteRecord, request: Request, digest: str, time_now: float) -> SiteRecord:
        """Take the answer to the site's next question. Return what is known of the site then."""
        name, number, version = site.name, request.sequence, self.version + 1
        if number > int(self.asked.count):
            raise OutOfSequence(f"Expected nothing of {name!r} before question {number} was asked, got an answer.")
        xp, before = default_namespace(), self._factor(name)
        state = ServerState(
            prior=self.description.spec.prior,
            factors=repeat(before, 1),
            sequence=xp.full(1, site.sequence, xp.int32),
            product=before,
            lost=self._unit,
            version=xp.int32(version - 1),
        )
        release = Release(wire.tree_of(self._unit, request.arrays), xp.int32(number), schema=request.schema)
        server = Server((name,), state, self.description.schema.digest).receive(name, release)
        factor = cast(Messages, tree_map(np.asarray, take(server.state.factors, 0)))
        self._check_answer(name, number, before, factor, request.declared)
        self._database.execute("UPDATE federation SET version = ?, started = ifnull(started, ?)", (version, time_now))
        self._database.insert("applied", dataclasses.astuple(Applied(version, name, number, time_now, digest)))
        self._database.update("sites", {"factor": wire.pack(factor)}, "WHERE name = ?", name)
        return replace(site, sequence=number, digest=digest)

    def _check_declared(self, name: str, declared: Declared) -> None:
        """Raise if a site declares what cannot be, before it has paid for anything."""
        rows, least = self.description.rows, LEAST_EPSILON * self.description.epsilon
        if not 0 < declared.rows <= MOST_ROWS * rows:
            raise AbsurdRelease(
                f"Site {name!r} declares {declared.rows} rows, and the federation was made for about {rows} of all "
                "sites. Make one with the right number, or declare fewer."
            )
        if declared.epsilon_max < least:
            raise AbsurdRelease(
                f"Site {name!r} has epsilon {declared.epsilon_max:g}, and the federation was made for "
                f"{self.description.epsilon:g}: its noise would drown the answers of all others. Expected at least "
                f"{least:g}."
            )

    def _check_answer(self, name: str, number: int, before: Messages, after: Messages, declared: Declared) -> None:
        """Raise unless an answer is one that the declared rows can give, and all earlier ones are as they were."""
        others = np.arange(len(after.rows)) != number - 1
        pairs = zip(_parts(before), _parts(after), strict=True)
        if not all(np.array_equal(one[others], other[others]) for one, other in pairs):
            raise MalformedRelease(f"Expected release {number} of {name!r} to change its answer {number} only.")
        sums, noise, rows = (part[number - 1] for part in _parts(after))
        if rows != np.float32(declared.rows):
            raise AbsurdRelease(f"Release {number} of {name!r} is of {rows:g} rows; {declared.rows} were declared.")
        deviation, most = math.sqrt(noise), MOST_NOISE * self._planned_noise
        if not 0 < deviation <= most:
            raise AbsurdRelease(
                f"Release {number} of {name!r} says that its noise is {deviation:.3g}; it must be above 0 and at most "
                f"{most:.3g}."
            )
        length = float(np.linalg.norm(np.asarray(sums, np.float64)))
        longest = most_rows(declared.rows) + deviation * (math.sqrt(len(sums)) + FAR)
        if length > longest:
            raise AbsurdRelease(
                f"Release {number} of {name!r} has length {length:.3g}; {declared.rows} rows and their noise cannot "
                f"say more than {longest:.3g}."
            )

    @cached_property
    def _planned_noise(self) -> float:
        """Standard deviation of the noise in an answer of a site with the suggested budget and its share of rows."""
        (noise,) = self._database.only("SELECT noise FROM federation")
        return float(noise) or planned_noise(self.description)

    def _refused(self, name: str, error: ReleaseRefused) -> Answer:
        """Write down a refusal, and return it as an answer."""
        refusal = Refusal(self.clock(), name, error.code, wire.printable(error))
        with self._database.transaction():
            self._database.insert("refusals", (None, *dataclasses.astuple(refusal)))
            old = "number <= (SELECT max(number) FROM refusals) - ?"
            self._database.execute(f"DELETE FROM refusals WHERE {old}", (REFUSALS,))
            self._database.execute("UPDATE sites SET refused = refused + 1 WHERE name = ?", (name,))
            applied = self.site(name).sequence if name in self.names else 0
            version, stop = self.version, self.stop
        return Answer(self.description.digest, REFUSED, version, applied, stop, code=error.code, reason=refusal.reason)

    @cached_property
    def largest(self) -> int:
        """Bytes that the arrays of a message may have."""
        return wire.size_of(self._unit) + wire.LARGEST_HEADER


def _withdrawn(name: str) -> Withdrawn:
    return Withdrawn(f"Site {name!r} was withdrawn: its answers were taken out, and nothing more is taken of it.")


def _check_poll(request: Request, site: SiteRecord) -> None:
    if request.sequence != site.sequence:
        raise OutOfSequence(
            f"Site {site.name!r} says that it made {request.sequence} releases, and {site.sequence} were applied: "
            "its file or the coordinator's is an older copy. Restore the newest one."
        )
    if request.arrays:
        raise MalformedRelease(f"Expected no arrays in a question of {site.name!r}, got {len(request.arrays)}.")


def _parts(factor: Messages) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.asarray(factor.sums), np.asarray(factor.noise), np.asarray(factor.rows)
