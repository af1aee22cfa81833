"""A proxy that ends TLS in front of a coordinator and spoils a part of what it carries, as networks and middleboxes do.

    cut before or after the coordinator has it, delayed, doubled, copied later, altered, answered with a foreign error

It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from collections import Counter
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.httputil import HTTPServerRequest

from fedvi.federation.making import CERTIFICATE, TLS_KEY, make_certificate, pin_of
from fedvi.federation.transports.listening import LimitedServer, bound, respond
from fedvi.federation.transports.serving import BODY, IDLE, LONGEST_WAIT, MOST_CONNECTIONS
from fedvi.files import Closing

FAULTS = ("cut before", "cut after", "delayed", "doubled", "copied later", "altered", "foreign error")
LATER = 2.0
"""Seconds that something is delayed, at most."""

HTML = {"Content-Type": "text/html"}


class SpoilingProxy(Closing):
    """The proxy. `port` is where sites reach it, `pin` how they know it; `counts` what it has done.

    target: of the coordinator, such as http://127.0.0.1:8002. share: of the exchanges that are spoilt.
    """

    def __init__(self, folder: Path, target: str, share: float, seed: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        make_certificate(folder, "https://localhost")
        self.pin, self.share, self.counts = pin_of(folder), share, Counter[str]()
        self._target, self._random = target, random.Random(seed)
        self._sockets = bound("127.0.0.1", 0)
        self.port = int(self._sockets[0].getsockname()[1])
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / CERTIFICATE, folder / TLS_KEY)
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()

    async def _serve(self) -> None:
        limits = {"idle_connection_timeout": IDLE, "body_timeout": BODY}
        server = LimitedServer(self._carry, most=MOST_CONNECTIONS, ssl_options=self._tls, **limits)
        server.add_sockets(self._sockets)
        self._client = AsyncHTTPClient(force_instance=True, max_clients=MOST_CONNECTIONS)
        await asyncio.to_thread(self._over.wait)
        server.end()
        self._client.close()

    async def _carry(self, request: HTTPServerRequest) -> None:
        fault = self._random.choice(FAULTS) if self._random.random() < self.share else ""
        self.counts[fault or "carried"] += 1
        if fault == "cut before":
            return self._cut(request)
        if fault == "foreign error":
            code = self._random.choice((HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.BAD_GATEWAY))
            return respond(request, code, b"<h1>The proxy of the house says no</h1>", HTML)
        if fault == "delayed":
            await asyncio.sleep(self._random.uniform(0, LATER))
        found = await self._forward(request)
        if fault == "doubled":
            await self._forward(request)
        if fault == "copied later":
            asyncio.get_running_loop().call_later(self._random.uniform(0, LATER), self._copy, request)
        if fault == "cut after" or found is None:
            return self._cut(request)
        code, body = found
        if fault == "altered" and body:
            place = self._random.randrange(len(body))
            body = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        return respond(request, code, body, {})

    def _copy(self, request: HTTPServerRequest) -> None:
        self._copied = asyncio.create_task(self._forward(request))  # kept, or it may be collected

    async def _forward(self, request: HTTPServerRequest) -> tuple[HTTPStatus, bytes] | None:
        """Return the coordinator's answer, None if there is none."""
        times: Any = {"connect_timeout": 5.0, "request_timeout": LONGEST_WAIT + 10}
        there = HTTPRequest(f"{self._target}{request.path}", request.method or "", None, request.body or None, **times)
        try:
            answer = await self._client.fetch(there, raise_error=False)
        except (HTTPClientError, OSError):
            return None
        return (HTTPStatus(answer.code), answer.body) if answer.code < 599 else None

    def _cut(self, request: HTTPServerRequest) -> None:
        """Close a connection without a word."""
        assert request.connection is not None
        request.connection.detach().close()  # type: ignore[attr-defined]
