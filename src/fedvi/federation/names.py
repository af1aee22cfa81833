"""Names of federations and sites, and the address of a coordinator."""

from __future__ import annotations

import re

from fedvi.errors import InputError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,57}[a-z0-9])?")
SITE = re.compile(rf"{NAME.pattern}(\.([2-9]|[1-9][0-9]))?")
"""A site's name; `north.2` is the second table of site `north`."""

RESERVED = {"all", "coordinator"}
HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-f:]+\]"
URL = re.compile(rf"https://(?P<host>{HOST})(:(?P<port>\d{{1,5}}))?(/[\w./-]*)?")
OWN, SYSTEM = "own", "system"
TLS = re.compile(rf"{OWN}|{SYSTEM}|[0-9a-f]{{64}}")
PLACEHOLDERS = ("example.org", "example.com", "example.net", "example", "invalid")
"""Names of hosts that nobody has, with all below them."""


def check_name(what: str, name: str, form: re.Pattern[str] = SITE) -> None:
    """Raise unless a federation or a site may have this name."""
    if not form.fullmatch(name) or name in RESERVED:
        numbered = " (north.2 for a second table of north)" if form is SITE else ""
        raise InputError(
            f"Expected {what} of lower-case letters, digits and hyphens{numbered}, and not one of "
            f"{', '.join(sorted(RESERVED))}; got {name!r}."
        )


def base_name(site: str) -> str:
    """Return the site that a table belongs to: `north` for `north.2`."""
    return site.partition(".")[0]


def place_of(url: str) -> tuple[str, int]:
    """Return host and port of a URL; without one an empty host."""
    found = URL.fullmatch(url)
    return ("", 0) if found is None else (found["host"], int(found["port"] or 443))


def check_place(url: str, tls: str) -> None:
    """Raise unless a coordinator may be there."""
    if url and not 0 < place_of(url)[1] < 65536:
        raise InputError(f'Expected url like "https://coordinator.hospital.org:8443", got {url!r}.')
    if not TLS.fullmatch(tls):
        raise InputError(f"Expected tls to be own, system or the SHA-256 of a certificate, got {tls!r}.")


def check_real(url: str) -> None:
    """Raise if nobody can have this address: it was copied from an example."""
    host = place_of(url)[0].lower()
    if any(host == each or host.endswith(f".{each}") for each in PLACEHOLDERS):
        raise InputError(f"Expected the coordinator's own address in url, got the placeholder {url!r}.")
