"""Transports within one process: what is sent goes to a function, and may be spoilt on its way."""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Carrier = Callable[[bytes], bytes]


class Direct:
    """Hands each request to a function. sent: all requests; answers: what came for them."""

    def __init__(self, answer: Carrier, wait: float = 0.0):
        self._answer, self.wait = answer, wait
        self.sent: list[bytes] = []
        self.answers: list[bytes] = []

    def send(self, data: bytes) -> bytes:
        self.sent.append(data)
        self.answers.append(self._answer(data))
        return self.answers[-1]

    def close(self) -> None:
        pass


def key(number: int) -> Ed25519PrivateKey:
    """Return a private key, always the same."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


def public(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()
