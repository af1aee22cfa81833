"""Signed envelopes: what a transport carries. Whoever carries them can delay or drop them, and nothing else.

    request  b"fedviQ" | version | kind | wait | counter, 8 bytes | length of the name | name | signature | body
    answer   b"fedviA" | version | code, 2 bytes | signature | body

A request is signed by the site over federation, header and SHA-256 of the body; an answer by the coordinator over
federation, SHA-256 of the whole request, code and SHA-256 of the body. So an old answer fits no new question, and a
message of one federation says nothing in another. The keys are Ed25519. The name in a request counts because the key
that belongs to it has signed.

The counter of a site's requests must grow: whoever sends a copy is refused. It starts at the clock, in nanoseconds. A
site whose clock went back learns the last counter from the signed refusal, and goes on from there.
"""

from __future__ import annotations

import hashlib
import struct
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedvi.errors import NotReached, SiteRefused

REQUEST, ANSWER = b"fedviQ\x01", b"fedviA\x01"
MESSAGE, ENROL, REKEY, IDENTITY = range(4)
"""Kinds of requests: a site's message; its first, with its public key, signed by the key of its invitation; a new
public key, signed by the old one; a question for the pin of the coordinator's certificate, unsigned."""

HEADER = struct.Struct(">BBQB")
SIGNATURE = 64
OVERHEAD = len(REQUEST) + HEADER.size + 64 + SIGNATURE
"""Bytes around a body, at most."""

COUNTERS = 1 << 63
"""All counters are below: SQLite's whole numbers."""

FINAL = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN))
"""Codes of signed answers after which a site stops until people have looked."""


class Transport(Protocol):
    """What carries bytes from a site to the coordinator and back.

    wait: seconds that the coordinator may hold back an answer while it has no question for the site.
    """

    wait: float

    def send(self, data: bytes) -> bytes:
        """Return the answer, or raise `NotReached`; the same bytes, or others, may be sent again."""

    def close(self) -> None:
        """Let go of connections."""


@dataclass(frozen=True)
class Envelope:
    """A request that was opened; nothing is proven before `is_signed_by`."""

    data: bytes
    kind: int
    wait: int
    counter: int
    name: str
    signature: bytes
    body: bytes

    @classmethod
    def open(cls, data: bytes) -> Envelope | None:
        """Return what is in a request, or None if it is none."""
        start = len(REQUEST) + HEADER.size
        if len(data) < start + SIGNATURE or data[: len(REQUEST)] != REQUEST:
            return None
        kind, wait, counter, length = HEADER.unpack(data[len(REQUEST) : start])
        name, rest = data[start : start + length], data[start + length :]
        if len(rest) < SIGNATURE or kind > IDENTITY or counter >= COUNTERS or not name.isascii():
            return None
        return cls(data, kind, wait, counter, name.decode(), rest[:SIGNATURE], rest[SIGNATURE:])

    def is_signed_by(self, key: bytes, federation: str) -> bool:
        """Tell whether the owner of this public key has signed the request for this federation."""
        header = self.data[: len(REQUEST) + HEADER.size + len(self.name)]
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(self.signature, _signed(federation, header, self.body))
        except (InvalidSignature, ValueError):
            return False
        return True


def seal(
    key: Ed25519PrivateKey | None, federation: str, name: str, kind: int, wait: int, counter: int, body: bytes
) -> bytes:
    """Return a signed request; without a key an unsigned one."""
    header = REQUEST + HEADER.pack(kind, wait, counter, len(name)) + name.encode()
    signature = bytes(SIGNATURE) if key is None else key.sign(_signed(federation, header, body))
    return header + signature + body


def seal_answer(key: Ed25519PrivateKey, federation: str, request: bytes, code: int, body: bytes) -> bytes:
    """Return a signed answer."""
    header = ANSWER + struct.pack(">H", code)
    return header + key.sign(_signed(federation, header + _hash(request), body)) + body


def open_answer(key: bytes, federation: str, request: bytes, data: bytes) -> tuple[int, bytes]:
    """Return code and body of an answer to just this request, or raise `NotReached` if it is none."""
    start = len(ANSWER) + 2
    header, signature, body = data[:start], data[start : start + SIGNATURE], data[start + SIGNATURE :]
    if not header.startswith(ANSWER) or len(signature) < SIGNATURE:
        raise NotReached(f"Something else than the coordinator answers: {_text(data[:80])!r}")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _signed(federation, header + _hash(request), body))
    except InvalidSignature:
        raise NotReached("An answer came that the coordinator has not signed for this request.") from None
    return int.from_bytes(header[-2:], "big"), body


class Correspondence:
    """A site's signed exchange with its coordinator over any transport: `exchange(body) -> body`.

    It raises `NotReached` for whatever the coordinator has not signed, and `SiteRefused` for a signed refusal.
    """

    def __init__(self, transport: Transport, federation: str, name: str, key: Ed25519PrivateKey, coordinator: bytes):
        self.transport, self._federation, self._name = transport, federation, name
        self.key, self._coordinator = key, coordinator
        self._counter = time.time_ns()

    def exchange(self, body: bytes, kind: int = MESSAGE, *, wait: bool = False) -> bytes:
        """Send a message and return the answer.

        wait: let the coordinator hold the answer back while it has no question.
        """
        seconds = int(self.transport.wait) if wait else 0
        for _ in range(2):
            self._counter += 1
            request = seal(self.key, self._federation, self._name, kind, seconds, self._counter, body)
            code, answer = open_answer(self._coordinator, self._federation, request, self.transport.send(request))
            if code != HTTPStatus.CONFLICT or (last := int.from_bytes(answer, "big")) >= COUNTERS - 1:
                break
            self._counter = max(self._counter, last)
        if code in FINAL:
            raise SiteRefused(f"The coordinator refuses: {_text(answer)}")
        if code != HTTPStatus.OK:
            raise NotReached(f"The coordinator cannot answer now ({code}): {_text(answer)}")
        return answer


def asked_for_pin(transport: Transport, federation: str, nonce: bytes, coordinator: bytes) -> bytes:
    """Return the pin of the coordinator's certificate, as the coordinator signs it now."""
    request = seal(None, federation, "", IDENTITY, 0, 0, nonce)
    code, pin = open_answer(coordinator, federation, request, transport.send(request))
    if code != HTTPStatus.OK:
        raise NotReached(f"The coordinator does not say which certificate it has ({code}).")
    return pin


def _text(data: bytes) -> str:
    """Return what people may see of an answer: nothing that steers a terminal."""
    return "".join(filter(str.isprintable, data[:2000].decode("utf-8", "replace")))


def _signed(federation: str, header: bytes, body: bytes) -> bytes:
    return b"fedvi" + _hash(federation.encode()) + _hash(header) + _hash(body)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
