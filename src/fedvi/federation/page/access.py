"""Who may look at a live page.

    on loopback    whoever is on this machine, under a name of this machine: a page of another site that has its own
                   name point here ("DNS rebinding") is refused by the Host header
    elsewhere      whoever has the token: in the link, then in a cookie; or as `Authorization: Bearer`

A token given for loopback is asked for there too, for machines with several people on them.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from email.message import Message
from urllib.parse import parse_qs

from fedvi.errors import InputError

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True)
class Access:
    """token: asked for, unless None. names: that the Host header may have; None for any."""

    token: str | None
    names: frozenset[str] | None

    def __post_init__(self) -> None:
        if self.token is not None and not re.fullmatch(r"[A-Za-z0-9_.~-]{16,256}", self.token):
            raise InputError(
                "Expected a token of 16 to 256 letters, digits and -_.~, "
                f"got {len(self.token)} characters. Leave it out to have one made."
            )

    def names_us(self, hosts: list[str]) -> bool:
        """Return whether the Host headers of a request are one, with a name that we go by.

        >>> Access(None, LOOPBACK_NAMES).names_us(["localhost:8080"])
        True
        >>> Access(None, LOOPBACK_NAMES).names_us(["evil.example"])
        False
        """
        if self.names is None:
            return True
        found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:\d{1,5})?", hosts[0].lower()) if len(hosts) == 1 else None
        return found is not None and found[1] in self.names

    def by_link(self, query: str) -> bool:
        """Return whether the query of a link has the token."""
        try:
            given = parse_qs(query, max_num_fields=8).get("token", [])
        except ValueError:
            return False
        return len(given) == 1 and self._is_token(given[0])

    def by_headers(self, headers: Message, cookie: str) -> bool:
        """Return whether a request's headers have the token, in the cookie of that name too, or none is asked for."""
        if self.token is None:
            return True
        kind, _, given = (headers.get("Authorization") or "").partition(" ")
        if kind.lower() == "bearer":
            return self._is_token(given.strip())
        cookies = (one.strip().partition("=") for one in (headers.get("Cookie") or "").split(";"))
        return any(name == cookie and self._is_token(value) for name, _, value in cookies)

    def _is_token(self, given: str) -> bool:
        """Compare in a time that does not say how much of it was right."""
        known = self.token is not None
        return known and hmac.compare_digest(given.encode("utf-8", "replace"), (self.token or "").encode())
