"""The coordinator's desk: opens signed requests, has them answered, signs the answers.

    answer(bytes) -> bytes        whatever comes, by whatever transport; never raises

What came meanwhile is answered as one group: one transaction, one sync of the disk. Who sent a message is whoever has
the key that signed it. Who joins signs with the key of its invitation; that invitation then belongs to the key which it
brought in: the same request again gets the same answer, another key is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedvi.errors import FedviError, FileFailed, UnknownClient
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.envelope import ENROL, IDENTITY, OVERHEAD, REKEY, Envelope, seal_answer
from fedvi.federation.invitation import KEY_SIZE
from fedvi.federation.making import KEY, pin_of, read_key
from fedvi.federation.names import OWN
from fedvi.federation.page.metrics import Metrics
from fedvi.federation.store.file import FILE
from fedvi.federation.store.records import SiteRecord
from fedvi.files import Closing
from fedvi.logs import Field, events

LOGGED = 60
"""Refusals that are logged per minute, at most, and faults: nobody fills a disk by knocking."""

REVOKED = "This site has not joined, or it was revoked."


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer before it is signed.

    request: the bytes that it answers. name: of the site; empty if nobody is proven. refusal: a word for the log.
    wait: seconds for which it may be held back, because there is no question for the site yet.
    """

    request: bytes
    code: int
    body: bytes
    name: str = ""
    refusal: str = ""
    wait: int = 0


class Desk(Closing):
    """The desk of a coordinator. Thread by thread: one answers, others may read the coordinator's file."""

    def __init__(self, coordinator: Coordinator, key: Ed25519PrivateKey, pin: str = "", metrics: Metrics | None = None):
        self.coordinator, self._key, self._pin = coordinator, key, pin
        self._identity = coordinator.description.identity
        self.metrics = metrics or Metrics()
        self._counters: dict[str, int] = {}
        self._log, self._minute, self._logged = events("desk"), 0.0, Counter[str]()

    @classmethod
    def open(cls, folder: Path, metrics: Metrics | None = None) -> Desk:
        """Open the desk of a coordinator's folder."""
        key, coordinator = read_key(folder / KEY), Coordinator.open(folder / FILE)
        description = coordinator.description
        return cls(coordinator, key, pin_of(folder) if description.url and description.tls == OWN else "", metrics)

    @property
    def largest(self) -> int:
        """Bytes that a request may have."""
        return self.coordinator.largest + wire.LARGEST_HEADER + OVERHEAD

    def answer(self, data: bytes) -> bytes:
        """Return the signed answer to a request."""
        return self.sealed(self.replies([data])[0])

    def sealed(self, reply: Reply) -> bytes:
        """Sign a reply."""
        return seal_answer(self._key, self._identity, reply.request, reply.code, reply.body)

    def replies(self, requests: Sequence[bytes]) -> list[Reply]:
        """Answer a group of requests in one transaction; if it cannot be committed, nothing has happened."""
        before = dict(self._counters)
        started = time.perf_counter()
        try:
            with self.coordinator.together():
                made = [self._replied(each) for each in requests]
        except FedviError as error:  # such as a full disk
            self._counters = before
            made = [self.fault(error, each) for each in requests]
        seconds = time.perf_counter() - started
        for reply in made:
            self.metrics.handled(seconds / len(made), reply.code, reply.refusal)
            if reply.refusal:
                self._tell(reply)
        self.metrics.committed(seconds, len(made))
        return made

    def again(self, reply: Reply) -> Reply:
        """Return a reply that was held back as it is now."""
        if self.coordinator.site(reply.name).key is None:
            return _refusal(reply.request, HTTPStatus.UNAUTHORIZED, REVOKED, reply.name)
        answer = self.coordinator.told(reply.name)
        return dataclasses.replace(reply, body=wire.encode(answer), wait=reply.wait if _may_wait(answer) else 0)

    def fault(self, error: BaseException, data: bytes = b"") -> Reply:
        """Return the reply to a request that cannot be answered; log why if the fault is ours."""
        if isinstance(error, FedviError):
            return _refusal(data, HTTPStatus.SERVICE_UNAVAILABLE, wire.printable(error))
        where = "".join(traceback.format_tb(error.__traceback__))[-1000:]
        self._warn("fault", error=repr(error), traceback=where)
        return _refusal(data, HTTPStatus.INTERNAL_SERVER_ERROR, "The coordinator has a fault. Its log says more.")

    def turned_away(self, refusal: str, **fields: Field) -> None:
        """Count and log what was refused before it came here. refusal: a word of the program."""
        self.metrics.refused(refusal)
        self._warn("refused", refusal=refusal, **fields)

    def close(self) -> None:
        """Close the coordinator's file."""
        self.coordinator.close()

    def _replied(self, data: bytes) -> Reply:
        """Answer one request. A fault of ours with it undoes and holds up nothing else."""
        try:
            with self.coordinator.together():
                return self._reply(data)
        except FileFailed:
            raise  # nobody can be answered now
        except Exception as error:
            return self.fault(error, data)

    def _reply(self, data: bytes) -> Reply:
        if len(data) > self.largest:
            return _refusal(data, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"Expected at most {self.largest} bytes.")
        found = Envelope.open(data)
        if found is None:
            return _refusal(data, HTTPStatus.BAD_REQUEST, "Expected a signed request of fedvi.")
        if found.kind == IDENTITY:
            return Reply(data, HTTPStatus.OK, self._pin.encode())
        try:
            site = self.coordinator.site(found.name)
        except UnknownClient:
            return _refusal(data, HTTPStatus.UNAUTHORIZED, "This site is not known here.")
        if found.kind == ENROL:
            return self._enrolled(found, site)
        if site.key is None:
            return _refusal(data, HTTPStatus.UNAUTHORIZED, REVOKED, site.name)
        if not found.is_signed_by(site.key, self._identity):
            return _refusal(data, HTTPStatus.UNAUTHORIZED, "This is not the signature of the site.", site.name)
        last = max(self._counters.get(site.name, 0), site.counter)
        if found.counter <= last:
            return Reply(data, HTTPStatus.CONFLICT, last.to_bytes(8, "big"), site.name, "copy")
        self._counters[site.name] = found.counter
        if found.kind == REKEY:
            return self._rekeyed(found, site)
        answer = self.coordinator.reply(site.name, found.body, found.counter)
        if answer.code == wire.UNAVAILABLE:
            raise FileFailed(answer.reason)
        wait = found.wait if _may_wait(answer) else 0
        return Reply(data, HTTPStatus.OK, wire.encode(answer), site.name, answer.code, wait)

    def _enrolled(self, found: Envelope, site: SiteRecord) -> Reply:
        """Let a site in with the key that it made."""
        data, new = found.data, found.body
        if site.invitation is None or not found.is_signed_by(site.invitation, self._identity):
            return _refusal(data, HTTPStatus.FORBIDDEN, "This invitation is not valid, or a newer one was made.")
        if len(new) != KEY_SIZE:
            return _refusal(data, HTTPStatus.BAD_REQUEST, "Expected a public key.", site.name)
        used = site.expires == 0
        if used and site.key != new:
            return _refusal(data, HTTPStatus.FORBIDDEN, "This invitation was used already.", site.name)
        if not used and self.coordinator.clock() > site.expires:
            return _refusal(data, HTTPStatus.FORBIDDEN, "This invitation is too old.", site.name)
        if not used:
            self.coordinator.change_site(site.name, key=new, expires=0.0)
            self._log.info("joined", site=site.name, key=_short(new))
        return Reply(data, HTTPStatus.OK, self.coordinator.description.to_text().encode(), site.name)

    def _rekeyed(self, found: Envelope, site: SiteRecord) -> Reply:
        if len(found.body) != KEY_SIZE:
            return _refusal(found.data, HTTPStatus.BAD_REQUEST, "Expected a public key.", site.name)
        self.coordinator.change_site(site.name, key=found.body, counter=found.counter)
        self._log.info("has a new key", site=site.name, key=_short(found.body))
        return Reply(found.data, HTTPStatus.OK, b"", site.name)

    def _tell(self, reply: Reply) -> None:
        """Log a refusal."""
        text = "" if reply.refusal == "copy" else reply.body[:200].decode("utf-8", "replace")
        reason = "" if reply.code == HTTPStatus.OK else text
        name, code = reply.name or "unknown", int(reply.code)
        self._warn("refused", site=name, code=code, refusal=reply.refusal, reason=reason)

    def _warn(self, event: str, **fields: Field) -> None:
        """Log what somebody should look at, unless there is too much of it."""
        now = time.monotonic()
        if now - self._minute > 60:
            self._minute, self._logged = now, Counter()
        self._logged[event] += 1
        if self._logged[event] <= LOGGED:
            self._log.warning(event, **fields)
        elif self._logged[event] == LOGGED + 1:
            self._log.warning("more within a minute are counted, not logged", of=event)


def _refusal(data: bytes, code: HTTPStatus, text: str, name: str = "") -> Reply:
    return Reply(data, code, text.encode(), name, code.phrase.lower())


def _may_wait(answer: wire.Answer) -> bool:
    return answer.kind == wire.WAIT and not answer.stop


def _short(key: bytes) -> str:
    """Return what people may compare of a public key."""
    return hashlib.sha256(key).hexdigest()[:16]
