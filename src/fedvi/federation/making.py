"""Making a federation: the coordinator's folder with its file and keys; invitations, and taking them back.

folder/   federation.toml, schema.toml   as every site gets it when it joins
          coordinator.db                 answers, questions, history, and the public keys of sites
          coordinator.key                signs all answers; whoever has it is the coordinator
          tls.crt, tls.key               for HTTPS; if they are taken away, start makes new ones
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import ipaddress
import secrets
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fedvi.checks import in_range
from fedvi.errors import InputError
from fedvi.federation.description import FILE as DESCRIPTION
from fedvi.federation.description import SCHEMA_FILE, Description
from fedvi.federation.invitation import DAYS, KEY_SIZE, Address, Invitation
from fedvi.federation.names import OWN, check_real, place_of
from fedvi.federation.store.file import FILE, CoordinatorFile
from fedvi.federation.wire import LEFT
from fedvi.files import new_folder, write

KEY, TLS_KEY, CERTIFICATE, SOCKET = "coordinator.key", "tls.key", "tls.crt", "coordinator.sock"
LIFETIME = datetime.timedelta(days=3650)


def make_federation(description: Description, folder: Path) -> Description:
    """Make the folder, or nothing at all, and return the description with its identity."""
    check_real(description.url)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"Expected a new or empty folder, got {folder}, which is not. Choose another with --out.")
    description = dataclasses.replace(description, identity=secrets.token_hex(16))
    with new_folder(folder) as unfinished:
        make_key(unfinished / KEY)
        make_certificate(unfinished, description.url)
        description.save(unfinished)
        CoordinatorFile.create(unfinished / FILE, description).close()
    return description


def invite(folder: Path, name: str, days: float = DAYS) -> str:
    """Return an invitation for a site, which takes part from now on if it is new; an earlier one no longer works."""
    in_range("days", days, 0, LIFETIME.days, open_low=True)
    with CoordinatorFile.open(folder / FILE) as file:
        address = address_of(folder, file.description, name)
        if name not in file.names:
            file.add_site(name)
        elif file.site(name).withdrawn is not None:
            raise InputError(f"{name!r} was withdrawn. Choose a new name, such as {name}-again.")
        seed, expires = secrets.token_bytes(KEY_SIZE), int(time.time() + 86400 * days)
        invitation = Invitation(address, seed, expires)
        public = invitation.key.public_key().public_bytes_raw()
        file.change_site(name, invitation=public, expires=float(expires))
    return invitation.line()


def revoke(folder: Path, name: str) -> None:
    """Take nothing more of a site, as if it had left: forget its key and its invitation. What it has answered stays."""
    with CoordinatorFile.open(folder / FILE) as file:
        file.change_site(name, key=None, invitation=None, expires=0.0, state=LEFT)


def copy_federation(folder: Path, copy: Path) -> None:
    """Copy all that a coordinator needs into a new folder. Its file may be at work."""
    with new_folder(copy) as unfinished:
        for name in (DESCRIPTION, SCHEMA_FILE, KEY, TLS_KEY, CERTIFICATE):
            if (folder / name).exists():
                write(unfinished / name, (folder / name).read_bytes(), private=True)
        with CoordinatorFile.open(folder / FILE) as file:
            file.copy(unfinished / FILE)


def address_of(folder: Path, description: Description, site: str) -> Address:
    """Return how a site reaches the coordinator of this folder."""
    url, tls = description.url, description.tls
    pin = "" if not url else pin_of(folder) if tls == OWN else tls
    return Address(url, pin, description.identity, site, read_key(folder / KEY).public_key().public_bytes_raw())


def make_key(path: Path) -> Ed25519PrivateKey:
    """Write a new private key, for its owner's eyes only."""
    key = Ed25519PrivateKey.generate()
    write(path, f"{key.private_bytes_raw().hex()}\n", private=True)
    return key


def read_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file."""
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except FileNotFoundError:
        raise InputError(
            f"Expected the private key {path}, got none. Restore it: nobody is known without it."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"Expected a private key in {path}, got something else: {error}. Restore it.") from None


def make_certificate(folder: Path, url: str) -> None:
    """Write a key and a certificate of our own for HTTPS. Sites know it by its SHA-256, whatever name it has."""
    key, host = ec.generate_private_key(ec.SECP256R1()), place_of(url)[0] or "localhost"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedvi coordinator")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write(folder / TLS_KEY, private, private=True)
    write(folder / CERTIFICATE, certificate.public_bytes(Encoding.PEM))


def pin_of(folder: Path) -> str:
    """Return the SHA-256 of the folder's certificate."""
    return pin_of_file(folder / CERTIFICATE)


def pin_of_file(path: Path) -> str:
    """Return the SHA-256 of the first certificate in a PEM file, in hexadecimal."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"Expected a certificate (PEM) in {path}, got none: {error}") from None
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)
