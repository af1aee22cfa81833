"""A small web server for one page: `/` and `/status.json`, to look at and nothing else.

The page holds its style and scripts, and its policy lets it talk to this server only. A connection carries one
request, has seconds for it, and there are few at a time: a client that is slow or greedy holds up nobody for long,
and the federation, which runs elsewhere, not at all.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from fedvi.errors import InputError
from fedvi.federation.page.page import Snapshot, live_page

MOST_CONNECTIONS = 32
LONGEST_SILENCE = 5.0
"""Seconds that a client may send or take nothing."""
LONGEST_CONNECTION = 10.0
"""Seconds that a connection may last."""

TEXT, HTML, JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class LivePage:
    """The live page of a federation; use it in a `with` statement.

    status: returns what is to be shown, as plain values; called in threads of the server, one at a time, at most
    twice a second, and only while somebody looks.
    host, port: where to listen; port 0 takes any that is free.
    token: asked for if given. An address that others reach must have one: it is made if not given. What it opens
    travels unencrypted: beyond a network that you trust, leave the page on loopback and use a tunnel (ssh -L).
    address: the link to open, with the token if one is asked for.
    """

    def __init__(self, status: Callable[[], object], host: str = "127.0.0.1", port: int = 0, token: str | None = None):
        family, place = _resolved(host, port)
        ip = ipaddress.ip_address(place[0])
        if token is None and not ip.is_loopback:
            token = secrets.token_urlsafe(32)
        name = f"[{ip}]" if ip.version == 6 else str(ip)
        access = Access(token, LOOPBACK_NAMES | {name} if ip.is_loopback else None)
        self._server = _Server(family, place, Snapshot(status), access)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="live page", daemon=True)
        origin = f"http://{socket.gethostname() if ip.is_unspecified else name}:{self._server.port}/"
        self.address = origin if token is None else f"{origin}?token={token}"

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass(frozen=True)
class Access:
    """Who may look. token: asked for, unless None. names: that the Host header may have; None for any.

    On loopback: whoever is on this machine, under a name of this machine. A page of another site that has its own name
    point here ("DNS rebinding") is refused by the Host header. A token given for loopback is asked for there too, for
    machines with several people on them.
    Elsewhere: whoever has the token: in the link, then in a cookie; or as `Authorization: Bearer`.
    """

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


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError, OverflowError) as error:
        raise InputError(f"Expected an address of this machine, got {host!r}, port {port}: {error}.") from None
    family, _, _, _, place = found[0]
    return family, place


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, family: socket.AddressFamily, place: tuple[Any, ...], snapshot: Snapshot, access: Access):
        self.address_family, self.snapshot, self.access = family, snapshot, access
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        try:
            super().__init__(place, _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"Expected an address to listen at, got {place[0]} port {place[1]}: {error}. Port 0 takes any."
            ) from None

    @property
    def cookie(self) -> str:
        """The cookie that holds the token: a name of its own for every page of this machine."""
        return f"fedvi-live-{self.port}"

    def server_bind(self) -> None:
        """Bind without asking a name server for our own name, which can take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            welcome = len(self._open) < MOST_CONNECTIONS
            if welcome:
                self._open[request] = time.monotonic() + LONGEST_CONNECTION
        if welcome:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that last too long: whoever waits for them in a thread wakes up."""
        now = time.monotonic()
        with self._lock:
            late = [request for request, end in self._open.items() if end < now]
        for request in late:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client went away."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = LONGEST_SILENCE
    server_version, sys_version = "fedvi", ""

    def parse_request(self) -> bool:
        """Refuse every method but one, known or not."""
        if not super().parse_request():
            return False
        if self.command != "GET":
            self._say(HTTPStatus.METHOD_NOT_ALLOWED, "This page is to look at only: GET.", {"Allow": "GET"})
        return self.command == "GET"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        access = self.server.access
        if not access.names_us(self.headers.get_all("Host", [])):
            self._say(HTTPStatus.MISDIRECTED_REQUEST, "This page goes by localhost, 127.0.0.1 and [::1] only.")
        elif access.token is not None and access.by_link(query):
            self._open_door()
        elif not access.by_headers(self.headers, self.server.cookie):
            text = "This page asks for its token: open the whole link that the coordinator gave."
            self._say(HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": "Bearer"})
        elif path == "/":
            page, policy = live_page()
            self._send(HTTPStatus.OK, HTML, page.encode(), {"Content-Security-Policy": policy})
        elif path == "/status.json":
            code, body = self.server.snapshot()
            self._send(code, JSON, body)
        else:
            self._say(HTTPStatus.NOT_FOUND, "There is / and /status.json.")

    def _open_door(self) -> None:
        """Move the token from the link to a cookie, and go on to the clean address.

        By a page of our own that goes on, not by status 303: a link that is followed from another site (a mail, a
        chat) would arrive there without the cookie, which is for requests of our own pages only.
        """
        cookie = f"{self.server.cookie}={self.server.access.token}; HttpOnly; SameSite=Strict; Path=/"
        self._say(HTTPStatus.OK, "Opening the page.", {"Set-Cookie": cookie, "Refresh": "0; url=./"})

    def _say(self, code: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        self._send(
            code, TEXT, f"{text}\n".encode(), {"Content-Security-Policy": "default-src 'none'"} | (headers or {})
        )

    def _send(self, code: HTTPStatus, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        common = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in (common | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its name in the class that it comes from
        """Say nothing."""
