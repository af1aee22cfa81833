"""Invitations: one line of text that lets one site join, once, and says how to know the coordinator.

    fedvi1_ + base64url( fields as MessagePack | CRC-32 )

The seed in it is the site's proof: it is the private key of a pair whose public half the coordinator keeps. It never
travels: the site signs its own new public key with it. A copy that was cut or changed is noticed by the CRC.
"""

from __future__ import annotations

import base64
import binascii
import time
import zlib
from typing import Annotated

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Meta

from fedvi.errors import InputError
from fedvi.federation.names import SITE, TLS, check_place

PREFIX = "fedvi1_"
DAYS = 7.0
"""For which an invitation may be used."""

KEY_SIZE = 32
LONGEST = 4096
Key = Annotated[bytes, Meta(min_length=KEY_SIZE, max_length=KEY_SIZE)]


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a site reaches its coordinator, and knows it.

    url: where it is; empty if an engine carries the bytes. tls: `system`, or the SHA-256 of the certificate there.
    federation: its identity. site: the name of this site. coordinator: its public key.
    """

    url: Annotated[str, Meta(max_length=1024)]
    tls: str
    federation: Annotated[str, Meta(min_length=1, max_length=64)]
    site: Annotated[str, Meta(pattern=rf"^({SITE.pattern})\Z")]
    coordinator: Key

    def __post_init__(self) -> None:
        if self.url:
            check_place(self.url, self.tls)
        if self.tls and not TLS.fullmatch(self.tls):
            raise ValueError("no SHA-256 of a certificate")


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """What the line holds. expires: in seconds since the epoch."""

    address: Address
    seed: Key
    expires: int

    @property
    def key(self) -> Ed25519PrivateKey:
        """The key that signs the site's own new key."""
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    def line(self) -> str:
        """Return the invitation as one line."""
        body = msgspec.msgpack.encode(self)
        checked = body + zlib.crc32(body).to_bytes(4, "big")
        return PREFIX + base64.urlsafe_b64encode(checked).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Return the invitation in a text, whose lines may have been wrapped."""
        line = "".join(text.split()).strip("\"'`")
        if not line.startswith(PREFIX) or len(line) > LONGEST:
            raise InputError(
                f"Expected an invitation, a line that starts with {PREFIX}, got {_shown(line)}. Give the line as the "
                "coordinator gave it, or - to read it from standard input."
            )
        cut = InputError("This invitation is not whole: a part was cut off or changed on its way. Ask for it again.")
        code = line.removeprefix(PREFIX)
        try:
            raw = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise cut from None
        body, check = raw[:-4], raw[-4:]
        if zlib.crc32(body).to_bytes(4, "big") != check:
            raise cut
        try:
            return msgspec.msgpack.decode(body, type=cls)
        except msgspec.MsgspecError:
            raise InputError("This invitation is of another version of fedvi. Use that version.") from None

    def require_current(self) -> None:
        """Raise if it is too old to be used."""
        if time.time() > self.expires:
            then = time.strftime("%F %R", time.localtime(self.expires))
            raise InputError(f"This invitation could be used until {then}. Ask the coordinator for a new one.")


def is_line(text: str) -> bool:
    """Tell whether a text is meant as an invitation."""
    return text.strip("\"'` \n").startswith(PREFIX)


def _shown(line: str) -> str:
    return repr(f"{line[:12]}...") if len(line) > 12 else repr(line)  # never much of a secret
