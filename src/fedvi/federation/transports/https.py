"""HTTPS at a site: one outgoing connection, kept open, to a coordinator that is known by its certificate.

    Https(address).send(data)      POST {url}/v1/message, and the answer, whatever its HTTP code is

The certificate is known by its SHA-256 (the pin), or trusted because this machine trusts who has signed it. TLS keeps
messages secret; that they are genuine, the signatures in them say (`fedvi.federation.envelope`). So an answer counts
whatever the HTTP code is, and whatever else comes, such as the page of a proxy, is found out there.

A coordinator may get a new certificate. A site that finds another one asks, over a connection to just that
certificate, which one the coordinator has, and takes the new pin only if the coordinator has signed it. That question
tells nothing of the site.
"""

from __future__ import annotations

import errno
import os
import re
import ssl
import time
from collections.abc import Callable
from functools import cache
from http.client import HTTPException
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import msgspec
import urllib3
from urllib3 import exceptions

from fedvi.errors import InputError, NotReached
from fedvi.federation.envelope import asked_for_pin
from fedvi.federation.invitation import Address
from fedvi.federation.names import SYSTEM
from fedvi.federation.transports.link import LARGEST
from fedvi.logs import events

PATH, HEALTH = "/v1/message", "/v1/health"
CONNECT, BEYOND_WAIT, WHOLE = 10.0, 20.0, 120.0
"""Seconds for a connection, for an answer beyond those that the coordinator may hold it back, and for all of it."""

NONCE = 32
OTHER = re.compile(r'ingerprints did not match.* got "([0-9a-f]{64})"')
"""How urllib3 says that a certificate is another one, and which."""


class Https:
    """A site's transport over HTTPS. `HTTPS_PROXY` and `NO_PROXY` are heeded. For one thread at a time.

    on_new_pin: is told the SHA-256 of the coordinator's new certificate, to be stored; None: no other is asked after.
    largest: bytes of a message.
    """

    wait = 25.0

    def __init__(self, address: Address, on_new_pin: Callable[[str], None] | None = None, *, largest: int = LARGEST):
        self._address, self._on_new_pin, self._largest = address, on_new_pin, largest
        self._pool = _pool_to(address.url, address.tls, self.wait)

    def send(self, data: bytes) -> bytes:
        """Send a message and return the answer, or raise `NotReached`."""
        if not 0 < len(data) <= self._largest:
            raise InputError(f"Expected a message of 1 to {self._largest} bytes, got {len(data)}.")
        try:
            return self._exchange(data)
        except exceptions.SSLError as error:
            if not self._follow_certificate(error):
                raise self._explained(error) from None
            return self.send(data)
        except (exceptions.HTTPError, HTTPException, OSError, ValueError) as error:
            raise self._explained(error) from None

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def _exchange(self, data: bytes) -> bytes:
        opened = self._pool.num_connections
        try:
            return self._once(data)
        except (exceptions.ProtocolError, exceptions.SSLError, ConnectionError):
            if self._pool.num_connections > opened:
                raise
        return self._once(data)  # the other end had closed the old connection

    def _once(self, data: bytes) -> bytes:
        kind = {"Content-Type": "application/octet-stream"}
        how = {"retries": False, "redirect": False, "preload_content": False, "decode_content": False}
        answer = self._pool.urlopen("POST", f"{_path(self._address.url)}{PATH}", data, kind, **how)
        try:
            body, until = bytearray(), time.monotonic() + WHOLE
            while part := answer.read1(1 << 16):
                body += part
                if len(body) > LARGEST or time.monotonic() > until:
                    raise exceptions.ProtocolError("an answer without end")
        except BaseException:
            answer.close()
            raise
        finally:
            answer.release_conn()
        if not body:
            raise NotReached(f"{self._address.url} gives an empty answer, with HTTP code {answer.status}.")
        return bytes(body)

    def _follow_certificate(self, error: exceptions.SSLError) -> bool:
        """Take the pin of the certificate that is there if the coordinator says that it is its own; tell whether."""
        found = OTHER.search(str(error))
        if found is None or self._on_new_pin is None:
            return False
        pin, nonce = found[1], os.urandom(NONCE)
        there = Https(msgspec.structs.replace(self._address, tls=pin))
        try:
            said = asked_for_pin(there, self._address.federation, nonce, self._address.coordinator)
        except NotReached:
            return False
        finally:
            there.close()
        if said != pin.encode():
            return False
        self.close()
        self._address = msgspec.structs.replace(self._address, tls=pin)
        self._pool = _pool_to(self._address.url, pin, self.wait)
        events("transport").info("the coordinator has a new certificate", pin=pin)
        self._on_new_pin(pin)
        return True

    def _explained(self, error: Exception) -> NotReached:
        return NotReached(f"Cannot reach {self._address.url}: {_cause(error, self._address.tls)}.")


def _pool_to(url: str, tls: str, wait: float) -> urllib3.HTTPSConnectionPool:
    """Return a place for one connection that accepts this certificate only."""
    place = urllib3.util.parse_url(url)
    host, port = place.host or "", place.port or 443
    how: dict[str, object] = {"ssl_context": _context(system=tls == SYSTEM), "maxsize": 1, "retries": False}
    how["timeout"] = urllib3.Timeout(connect=CONNECT, read=wait + BEYOND_WAIT)
    if tls != SYSTEM:
        how["assert_fingerprint"] = tls
    proxy = getproxies().get("https")
    if not proxy or proxy_bypass(f"{host}:{port}"):
        return urllib3.HTTPSConnectionPool(host, port, **how)  # type: ignore[arg-type]
    through = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
    own = urllib3.util.make_headers(proxy_basic_auth=unquote(through.auth)) if through.auth else None
    manager = urllib3.ProxyManager(through._replace(auth=None).url, proxy_headers=own, **how)  # type: ignore[arg-type]
    pool = manager.connection_from_host(host, port, "https")
    assert isinstance(pool, urllib3.HTTPSConnectionPool)
    return pool


@cache
def _context(*, system: bool) -> ssl.SSLContext:
    """Return the context of all connections of this process: to load the system's certificates takes a while."""
    context = urllib3.util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if system else ssl.CERT_NONE)
    if system:
        context.load_default_certs()
    return context


def _path(url: str) -> str:
    """Return the path in a URL that all of the coordinator's paths begin with."""
    return (urllib3.util.parse_url(url).path or "").rstrip("/")


def _cause(error: BaseException, tls: str) -> str:
    """Return what is wrong, and what may be done about it."""
    if isinstance(error, exceptions.ProxyError):
        return f"the proxy of HTTPS_PROXY does not let it through ({_innermost(error)})"
    if isinstance(error, exceptions.SSLError):
        if "ingerprint" in str(error):
            return (
                "the certificate there is not the one in the invitation. If a proxy of your network opens TLS, ask the "
                "coordinator for an invitation with tls = system"
            )
        trust = "; this machine does not trust who has signed the certificate" if tls == SYSTEM else ""
        return f"TLS fails ({_innermost(error)}{trust})"
    if isinstance(error, exceptions.NameResolutionError):
        return "nobody knows this host's name here"
    if getattr(_innermost(error), "errno", None) == errno.ECONNREFUSED:
        return "nobody listens there now"
    if isinstance(error, exceptions.ConnectTimeoutError) and not isinstance(error, exceptions.NewConnectionError):
        return f"no connection within {CONNECT:g} s. A firewall may be in the way"
    if isinstance(error, exceptions.ReadTimeoutError):
        return "no answer came in time"
    return f"{_innermost(error)}"


def _innermost(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or getattr(error, "original_error", None)) is not None:
        error = cause
    return error
