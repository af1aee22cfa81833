"""A small web server to look at and nothing else: the page at `/`, its data at `/status.json`, and `/metrics`.

The page holds its style and scripts, and its policy lets it talk to this server only. A connection carries one
request, has seconds for it, and there are few at a time. All waiting is on an event loop, and what is shown is computed
in other threads: a slow or greedy client does not slow down the federation.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from tornado.httputil import HTTPServerRequest, split_host_and_port

from fedvi.errors import InputError
from fedvi.federation.page.page import Snapshot, json_of, live_page
from fedvi.federation.transports.listening import LimitedServer, bound, respond

MOST_CONNECTIONS = 32
LONGEST_CONNECTION = 10.0
"""Seconds that a connection may last."""
LIMITS: dict[str, Any] = {
    "max_header_size": 8192,
    "max_body_size": 8192,
    "idle_connection_timeout": 5.0,
    "body_timeout": 5.0,
}
"""Bytes and seconds for the headers of a request, and for what follows them."""

TEXT, HTML, JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
COMMON = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Reply = tuple[HTTPStatus, str, bytes, dict[str, str]]
"""HTTP code, type, body, more headers."""


class LivePage:
    """The live page of a federation: `listen()` on an event loop that runs, or `with LivePage(...)` on one of its own.

    status: returns what is shown, as plain values. metrics: returns text for Prometheus. Both are called in threads, at
    most twice a second, and only if somebody asks.
    host, port: where to listen; port 0 takes any that is free.
    token: asked for if given. An address that others reach must have one: it is made if not given. What it opens
    travels unencrypted: beyond a network that you trust, leave the page on loopback and use a tunnel (ssh -L).
    address: the link to open, with the token if one is asked for.

    On loopback, everybody on this machine may look, under a name of this machine. The Host header shows a page of
    another site whose own name points here ("DNS rebinding"): it is refused. Elsewhere, and on loopback if a token is
    given, the token is needed: in the link, then in a cookie; or as `Authorization: Bearer`.
    """

    def __init__(
        self,
        status: Callable[[], object],
        metrics: Callable[[], bytes] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ):
        if token is not None and not re.fullmatch(r"[A-Za-z0-9_.~-]{16,256}", token):
            expected = f"Expected a token of 16 to 256 letters, digits and -_.~, got {len(token)} characters."
            raise InputError(f"{expected} Leave it out to have one made.")
        try:
            self._sockets = bound(host, port)
        except (OSError, UnicodeError, OverflowError) as error:
            expected = f"Expected an address of this machine to listen at, got {host!r}, port {port}: {error}."
            raise InputError(f"{expected} Port 0 takes any that is free.") from None
        ips = [ipaddress.ip_address(each.getsockname()[0]) for each in self._sockets]
        port, private = self._sockets[0].getsockname()[1], all(ip.is_loopback for ip in ips)
        name = f"[{ips[0]}]" if ips[0].version == 6 else str(ips[0])
        self._names = LOOPBACK_NAMES | {name} if private else None
        self._token = token if token is not None or private else secrets.token_urlsafe(32)
        self._cookie = f"fedvi-live-{port}"  # a name of its own for every page of this machine
        origin = f"http://{socket.gethostname() if ips[0].is_unspecified else name}:{port}/"
        self.address = origin if self._token is None else f"{origin}?token={self._token}"
        self._data = {"/status.json": (JSON, Snapshot(lambda: json_of(status())))}
        if metrics is not None:
            self._data["/metrics"] = PROMETHEUS, Snapshot(metrics)
        few = {"most": MOST_CONNECTIONS, "longest": LONGEST_CONNECTION}
        self._server = LimitedServer(self._answer, no_keep_alive=True, **few, **LIMITS)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._alone()), name="live page", daemon=True)
        self._over = threading.Event()

    def listen(self) -> None:
        """Serve on the event loop that runs in this thread."""
        self._server.add_sockets(self._sockets)

    def stop(self) -> None:
        """Close everything. Call it in the thread that called `listen`."""
        self._server.end()

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _alone(self) -> None:
        self.listen()
        await asyncio.to_thread(self._over.wait)
        self.stop()

    async def _answer(self, request: HTTPServerRequest) -> None:
        code, kind, body, more = await self._reply(request)
        respond(request, code, body, {"Content-Type": kind} | COMMON | more)

    async def _reply(self, request: HTTPServerRequest) -> Reply:
        if request.method != "GET":
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "This page is to look at only: GET.", Allow="GET")
        name, _ = split_host_and_port(request.headers.get("Host", "").lower())
        if self._names is not None and name not in self._names:
            return _said(HTTPStatus.MISDIRECTED_REQUEST, "This page goes by localhost, 127.0.0.1 and [::1] only.")
        if self._token is not None:
            if self._is_token(*request.query_arguments.get("token", ())):
                return self._open_door()
            if not self._is_token(self._shown(request)):
                text = "This page asks for its token: open the whole link that the coordinator gave."
                return _said(HTTPStatus.UNAUTHORIZED, text, **{"WWW-Authenticate": "Bearer"})
        if request.path == "/":
            page, policy = live_page()
            return HTTPStatus.OK, HTML, page.encode(), {"Content-Security-Policy": policy}
        if found := self._data.get(request.path):
            code, body = await found[1]()
            return code, found[0] if code == HTTPStatus.OK else JSON, body, {}
        return _said(HTTPStatus.NOT_FOUND, f"There is / and {' and '.join(self._data)}.")

    def _shown(self, request: HTTPServerRequest) -> bytes:
        """Return the token that a request's headers show, if any."""
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return given.strip().encode()
        held = request.cookies.get(self._cookie)
        return b"" if held is None else held.value.encode()

    def _is_token(self, *given: bytes) -> bool:
        """Compare in a time that does not say how much of it was right."""
        return len(given) == 1 and hmac.compare_digest(given[0], str(self._token).encode())

    def _open_door(self) -> Reply:
        """Move the token from the link to a cookie, and go on to the clean address.

        A page of our own goes on, not status 303: a link in a mail or a chat would arrive there without the cookie,
        which is sent with requests of our own pages only.
        """
        cookie = f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        return _said(HTTPStatus.OK, "Opening the page.", Refresh="0; url=./", **{"Set-Cookie": cookie})


def _said(code: HTTPStatus, text: str, **headers: str) -> Reply:
    return code, TEXT, f"{text}\n".encode(), {"Content-Security-Policy": "default-src 'none'"} | headers
