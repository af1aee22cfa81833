"""Who sent a message: a site signs with the key of its certificate, and the coordinator has kept the certificate.

    signature | message        the signature is of both the job and the message

FLARE knows who is at the other end of a connection; a message may have come a longer way, and what is then said about
its sender can be made up. A signature cannot. Whoever sends it a second time changes nothing: releases are numbered.
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fedvi.errors import InputError

HASH = hashes.SHA256()
PADDING = padding.PSS(padding.MGF1(HASH), padding.PSS.DIGEST_LENGTH)


class Signer:
    """Signs for the site whose private key is in a file."""

    def __init__(self, path: Path):
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"Cannot use the site's key {path}: {error}. Ask for the kit again.") from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise InputError(f"Expected an RSA key at {path}, got another kind. Ask for the kit again.")
        self._key = key

    def sign(self, job: str, data: bytes) -> bytes:
        """Return a message with its signature before it."""
        return self._key.sign(_signed(job, data), PADDING, HASH) + data


class Verifier:
    """Knows the messages of the site whose certificate is in a file."""

    def __init__(self, path: Path):
        try:
            key = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
        except (OSError, ValueError) as error:
            raise InputError(f"Cannot use the certificate {path}: {error}. Restore it from a copy.") from None
        if not isinstance(key, rsa.RSAPublicKey):
            raise InputError(f"Expected the certificate of an RSA key at {path}, got another kind.")
        self._key = key

    def opened(self, job: str, signed: bytes) -> bytes | None:
        """Return the message without its signature; None if the site has not signed it for this job."""
        size = self._key.key_size // 8
        signature, data = signed[:size], signed[size:]
        try:
            self._key.verify(signature, _signed(job, data), PADDING, HASH)
        except InvalidSignature:
            return None
        return data


def common_name(path: Path) -> str:
    """Return the name that a certificate is for."""
    try:
        names = x509.load_pem_x509_certificate(path.read_bytes()).subject.get_attributes_for_oid(
            x509.NameOID.COMMON_NAME
        )
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot use the certificate {path}: {error}. Ask for the kit again.") from None
    if len(names) != 1:
        raise InputError(f"Expected a certificate for one name at {path}, got {len(names)}. Ask for the kit again.")
    return str(names[0].value)


def _signed(job: str, data: bytes) -> bytes:
    return b"fedvi to the coordinator, job " + job.encode() + b":" + data
