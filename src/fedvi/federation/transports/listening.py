"""HTTP servers with limits: few connections at a time, in all and from one address, and each for a limited time."""

from __future__ import annotations

import errno
import ipaddress
import logging
import resource
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerRequest,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream


class LimitedServer(HTTPServer):
    """A server whose requests are answered by the coroutine `answer(request)`, which ends with `respond`.

    most, per_address: connections at one time. Those of this machine, such as a proxy's, count in all only; IPv6 gives
    everybody a network, which counts as one address.
    longest: seconds that a connection may last. refused: is told why a connection was refused, and of which `network`.
    limits: of Tornado's own.
    """

    def initialize(  # type: ignore[override]
        self,
        answer: Callable[[HTTPServerRequest], Awaitable[None]],
        *,
        most: int,
        per_address: int | None = None,
        longest: float | None = None,
        refused: Callable[..., None] = lambda *_, **__: None,
        **limits: Any,
    ) -> None:
        """Make the server; Tornado calls this instead of `__init__`."""
        super().initialize(lambda request: IOLoop.current().spawn_callback(answer, request), **limits)
        self._most, self._per_address, self._longest, self._refused = most, per_address, longest, refused
        self._open: dict[IOStream, tuple[str, object]] = {}
        self._addresses: Counter[str] = Counter()

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Serve a new connection, or close it if there are too many."""
        own = _source(str(address[0])) if address else ""
        many = self._per_address is not None and own and self._addresses[own] >= self._per_address
        if many or len(self._open) >= self._most:
            stream.close()
            return self._refused(f"too many connections{' of one address' if many else ''}", network=own)
        end = None if self._longest is None else IOLoop.current().call_later(self._longest, stream.close)
        self._open[stream] = own, end
        self._addresses[own] += 1
        return super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Return what takes a request whole."""
        return _Whole(request_conn, self.request_callback)  # type: ignore[arg-type]

    def on_close(self, server_conn: Any) -> None:
        """Forget a connection that was closed."""
        super().on_close(server_conn)
        own, end = self._open.pop(server_conn.stream)
        self._addresses[own] -= 1
        if not self._addresses[own]:
            del self._addresses[own]
        if end is not None:
            IOLoop.current().remove_timeout(end)

    def end(self) -> None:
        """Stop listening, and close all connections."""
        self.stop()
        for stream in [*self._open]:
            stream.close()


class _Whole(HTTPMessageDelegate):
    """Takes a request with its body as bytes: Tornado's own would parse it, if somebody on the way calls it a form."""

    def __init__(self, connection: HTTPConnection, answer: Callable[[HTTPServerRequest], None]):
        self._connection, self._answer, self._body = connection, answer, bytearray()

    def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        assert isinstance(start_line, RequestStartLine)
        self._request = HTTPServerRequest(connection=self._connection, start_line=start_line, headers=headers)

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk

    def finish(self) -> None:
        self._request.body = bytes(self._body)
        self._answer(self._request)

    def on_connection_close(self) -> None:
        self._body.clear()


class Heard(logging.Handler):
    """While it is open, takes what the event loop and Tornado would log: whoever knocks could fill a disk with it.

    refused: is told what was wrong with a connection, fault: what was wrong here.
    """

    def __init__(self, refused: Callable[[str], None], fault: Callable[[BaseException], object]):
        super().__init__(logging.INFO)
        self._refused, self._fault = refused, fault
        self._sources = logging.getLogger("tornado"), logging.getLogger("asyncio")
        for source in self._sources:
            source.setLevel(logging.INFO)
            source.propagate = False
            source.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        error = record.exc_info and record.exc_info[1]
        if error:
            self._fault(error)
        else:
            self._refused(record.getMessage())

    def close(self) -> None:
        """Let them log again."""
        for source in self._sources:
            source.removeHandler(self)
            source.propagate = True
            source.setLevel(logging.NOTSET)
        super().close()


def room(wanted: int) -> int:
    """Have room for so many open files in this process, or as many as are allowed; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def respond(request: HTTPServerRequest, code: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> None:
    """Answer a request; a client that is gone is no error."""
    assert request.connection is not None
    head = HTTPHeaders({"Content-Length": str(len(body))} | dict(headers))
    sent = b"" if request.method == "HEAD" else body
    request.connection.write_headers(ResponseStartLine("", code, code.phrase), head, sent)
    request.connection.finish()


def bound(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at all addresses that a name stands for, or of this machine, at one port."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places, made = dict.fromkeys((family, address) for family, *_, address in found), list[socket.socket]()
    try:
        for family, (name, *_) in places:
            try:
                made.append(socket.create_server((name, made[0].getsockname()[1] if made else port), family=family))
            except OSError as error:
                if len(places) == 1 or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
    except BaseException:
        for each in made:
            each.close()
        raise
    for each in made:
        each.setblocking(False)
    return made


def _source(address: str) -> str:
    """Return the address, or the network of an IPv6 address, that a connection comes from; empty for this machine."""
    try:
        found = ipaddress.ip_interface(f"{address}/64" if ":" in address else address)
    except ValueError:  # a Unix socket has none
        return ""
    return "" if found.ip.is_loopback else str(found.network)
