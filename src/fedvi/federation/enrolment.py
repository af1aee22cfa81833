"""Joining at a site: the site makes its key, the coordinator lets it in, and nothing secret travels.

    invitation -> folder/site.key, on disk -> its public half, signed by the invitation's key -> the federation

Whoever is killed on the way does the same again, with the same key. A new key is signed by the old one (`rekey`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from fedvi.errors import InputError, NotReached, SiteRefused
from fedvi.federation.description import FILE, SCHEMA_FILE, files_of
from fedvi.federation.envelope import ENROL, REKEY, Correspondence, Transport
from fedvi.federation.invitation import Invitation
from fedvi.federation.making import make_key, read_key
from fedvi.federation.settings import ADDRESS, KEY, load_address, save_address, transport_to
from fedvi.files import Lock, sync_folder, write

NEXT_KEY, LOCK = "site.next.key", "key.lock"
AGAIN = 1.0
"""Seconds between attempts to reach the coordinator."""


def enrol(
    invitation: Invitation,
    folder: Path,
    link: Path | None = None,
    link_mode: str = "600",
    patience: float = 60.0,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Join with an invitation; the folder then holds all that a site needs from its coordinator.

    patience: seconds for which a coordinator that cannot be reached is tried. say: is told why.
    """
    address = invitation.address
    if (folder / ADDRESS).exists():
        old = load_address(folder)
        if any(getattr(old, what) != getattr(address, what) for what in ("federation", "site", "coordinator")):
            raise InputError(
                f"{folder} belongs to site {old.site!r} of another federation or coordinator. Choose another --folder."
            )
    elif not (folder / KEY).exists():
        invitation.require_current()
        if folder.exists() and any(each.name != LOCK for each in folder.iterdir()):
            raise InputError(f"Expected a new or empty folder, got {folder}. Choose another with --folder.")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    with Lock(folder / LOCK, str(folder), wait=10.0):  # of two that join here at once, both have one key
        key = read_key(folder / KEY) if (folder / KEY).exists() else make_key(folder / KEY)
    transport = transport_to(folder, address, link, link_mode)
    try:
        signer = Correspondence(transport, address.federation, address.site, invitation.key, address.coordinator)
        answer = _insisting(lambda: signer.exchange(key.public_key().public_bytes_raw(), ENROL), patience, say)
    finally:
        transport.close()
    files = files_of(answer.decode("utf-8", "replace"))
    if not (folder / FILE).exists():  # what a site has agreed to does not change
        for name in (SCHEMA_FILE, FILE):  # in this order: then both are there, or are written again
            write(folder / name, files[name])
    save_address(folder, address)


def rekey(folder: Path, transport: Transport) -> None:
    """Take a new key, and let the coordinator know; or end what was begun before.

    The new key is on disk before it is sent. If the answer got lost, the coordinator may know either of both.
    """
    address, begun = load_address(folder), (folder / NEXT_KEY).exists()
    new = read_key(folder / NEXT_KEY) if begun else make_key(folder / NEXT_KEY)

    def signed_by(key: Path) -> None:
        mine = Correspondence(transport, address.federation, address.site, read_key(key), address.coordinator)
        mine.exchange(new.public_key().public_bytes_raw(), REKEY)

    try:
        signed_by(folder / KEY)
    except SiteRefused:  # it may know the new key already: the request was delivered twice, or an answer got lost
        try:
            signed_by(folder / NEXT_KEY)
        except SiteRefused:
            if not begun:
                (folder / NEXT_KEY).unlink()
            raise
    os.replace(folder / NEXT_KEY, folder / KEY)
    sync_folder(folder)


def _insisting(attempt: Callable[[], bytes], patience: float, say: Callable[[str], None]) -> bytes:
    until, said = time.monotonic() + patience, ""
    while True:
        try:
            return attempt()
        except NotReached as error:
            if time.monotonic() > until:
                raise
            if str(error) != said:
                say(said := str(error))
            time.sleep(AGAIN)
