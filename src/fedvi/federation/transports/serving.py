"""The coordinator's process: it takes messages over HTTPS and over a Unix socket, and reads answers beside that.

    POST /v1/message     a signed request, and its signed answer (`fedvi.federation.desk`)
    GET  /v1/health      whether somebody is there

One thread writes: what came while it was at work is its next group, one transaction. Another thread reads q out of the
answers and asks the next question. A site that has nothing to answer waits: its reply is held back until there is a
question, for 25 seconds at most. Slow, silent and greedy clients are let go of, and hold up nobody.

The Unix socket `coordinator.sock` is for relays of engines and for a proxy that ends TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from tornado.httputil import HTTPServerRequest
from tornado.netutil import bind_unix_socket

from fedvi.errors import InputError
from fedvi.federation.desk import Desk, Reply
from fedvi.federation.making import CERTIFICATE, SOCKET, TLS_KEY, make_certificate
from fedvi.federation.names import OWN, place_of
from fedvi.federation.page.metrics import Metrics
from fedvi.federation.store.file import FILE
from fedvi.federation.store.reader import Reader
from fedvi.federation.transports.https import HEALTH, PATH
from fedvi.federation.transports.listening import Heard, LimitedServer, bound, respond, room
from fedvi.files import Closing
from fedvi.logs import events

MOST_CONNECTIONS, PER_ADDRESS = 1000, 16
OTHER_FILES = 100
"""Files that a coordinator has open, at most, beside connections."""

IDLE, BODY, LONGEST = 120.0, 10.0, 3600.0
"""Seconds that a connection may be silent, which is also the time for headers; for the body of a message; and that a
connection may last: who takes no answers does not keep it for ever."""

HEADERS = 8192
LONGEST_WAIT = 25.0
GROUP, QUEUE = 64, 512
"""Messages that are answered in one transaction, and that may wait for it, at most."""

LARGE = 1 << 16
"""Bytes of a request whose hash takes longer than a turn to another thread."""

LOOK = 0.5
"""Seconds between looks at the file: commands and the clock may have changed something."""

BEHIND_PROXY = 8002
BYTES, TEXT = {"Content-Type": "application/octet-stream"}, {"Content-Type": "text/plain; charset=utf-8"}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Held:
    """A reply that is held back, and who waits for it: None if the site has gone."""

    reply: Reply
    answer: asyncio.Future[Reply | None]


class Service(Closing):
    """A coordinator at work. `await run(...)` on an event loop; everything is in its folder.

    host, port: where to listen; None for all addresses and the port of the federation's URL, or, if a proxy has the
    certificate, for HTTP on loopback, port 8002. Port 0 takes any that is free.
    """

    def __init__(self, folder: Path, metrics: Metrics | None = None, host: str | None = None, port: int | None = None):
        with contextlib.ExitStack() as undo:
            self._servers: list[LimitedServer] = []
            self.folder = folder
            if not (folder / CERTIFICATE).exists():
                make_certificate(folder, "")
            self._desk = Desk.open(folder, metrics)
            undo.callback(self._desk.close)
            self._desk.coordinator.reads_at_once = False
            self._reader = Reader.open(folder / FILE)
            undo.callback(self._reader.close)
            self._room = min(MOST_CONNECTIONS, (room(2 * MOST_CONNECTIONS + OTHER_FILES) - OTHER_FILES) // 2)
            self._held: dict[str, Held] = {}
            self._changes = 0
            self._writing, self._reading = ThreadPoolExecutor(1, "writer"), ThreadPoolExecutor(1, "reader")
            self._log, self._said = events("service"), ""
            description = self._desk.coordinator.description
            own = description.tls == OWN
            self.sockets = [] if not description.url else _bound(description.url, own, host, port)
            for each in self.sockets:
                undo.callback(each.close)
            self._tls = _context(folder) if own and self.sockets else None
            self.sockets += self._unix_socket()
            undo.pop_all()

    @property
    def places(self) -> list[str]:
        """Where it listens."""
        names = [each.getsockname() for each in self.sockets]
        return [name if isinstance(name, str) else f"{name[0]}:{name[1]}" for name in names]

    async def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Serve, until `until()` or cancelled."""
        self._incoming: asyncio.Queue[tuple[bytes, asyncio.Future[tuple[Reply, int]]]] = asyncio.Queue()
        self._wake = asyncio.Event()
        unix = [each for each in self.sockets if each.family == socket.AF_UNIX]
        others = [each for each in self.sockets if each not in unix]
        self._listen(others, per_address=PER_ADDRESS, ssl_options=self._tls)
        self._listen(unix)
        heard = Heard(lambda said: self._desk.turned_away("no http", reason=said), self._desk.fault)
        tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read(until))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            heard.close()
            for server in self._servers:
                server.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Close sockets and files."""
        for executor in (self._writing, self._reading):
            executor.shutdown()
        for each in self.sockets:
            each.close()
        (self.folder / SOCKET).unlink(missing_ok=True)
        self._desk.close()
        self._reader.close()

    def _unix_socket(self) -> list[socket.socket]:
        path = self.folder / SOCKET
        path.unlink(missing_ok=True)
        try:
            return [bind_unix_socket(str(path), mode=0o660)]
        except OSError as error:
            if not self.sockets:
                raise InputError(f"Cannot make the Unix socket {path}: {error}. Choose a shorter folder.") from None
            self._log.warning("no Unix socket", path=str(path), reason=str(error))
            return []

    def _listen(self, sockets: list[socket.socket], **more: Any) -> None:
        largest = self._desk.largest + HEADERS
        limits = {"max_header_size": HEADERS, "max_body_size": largest, "max_buffer_size": largest + (1 << 16)}
        times = {"idle_connection_timeout": IDLE, "body_timeout": BODY, "longest": LONGEST}
        server = LimitedServer(self._answer, most=self._room, refused=self._desk.turned_away, **limits, **times, **more)
        server.add_sockets(sockets)
        self._servers.append(server)

    async def _answer(self, request: HTTPServerRequest) -> None:
        if request.path == HEALTH and request.method in ("GET", "HEAD"):
            return respond(request, HTTPStatus.OK, b"ok\n", TEXT)
        if request.path != PATH:
            return self._turn_away(request, HTTPStatus.NOT_FOUND, "There is nothing here to look at.")
        if request.method != "POST":
            return self._turn_away(request, HTTPStatus.METHOD_NOT_ALLOWED, "Expected POST.", Allow="POST")
        if self._incoming.qsize() >= QUEUE:
            return self._turn_away(request, HTTPStatus.TOO_MANY_REQUESTS, "Too many messages wait. Try again.")
        try:
            reply = await self._replied(request)
        except Exception as error:  # such as a full disk
            reply = self._desk.fault(error, request.body)
        if reply is not None:
            large = len(reply.request) > LARGE
            sealed = await asyncio.to_thread(self._desk.sealed, reply) if large else self._desk.sealed(reply)
            respond(request, HTTPStatus(reply.code), sealed, BYTES)
        return None

    def _turn_away(self, request: HTTPServerRequest, code: HTTPStatus, text: str, **headers: str) -> None:
        self._desk.turned_away(code.phrase.lower(), code=int(code))
        respond(request, code, f"{text}\n".encode(), TEXT | headers)

    async def _replied(self, request: HTTPServerRequest) -> Reply | None:
        """Return the reply to a message, held back while its site has no question; None if the site is gone."""
        future: asyncio.Future[tuple[Reply, int]] = asyncio.get_running_loop().create_future()
        self._incoming.put_nowait((request.body, future))
        reply, seen = await future
        while reply.wait and self._changes != seen:
            seen = self._changes
            reply = await self._again(reply)
        return await self._waited(request, reply) if reply.wait else reply

    async def _waited(self, request: HTTPServerRequest, reply: Reply) -> Reply | None:
        held = Held(reply, asyncio.get_running_loop().create_future())
        if older := self._held.get(reply.name):
            _give(older, older.reply)  # the site has lost that connection, or there are two of it
        self._held[reply.name] = held
        assert request.connection is not None
        request.connection.set_close_callback(lambda: _give(held, None))  # type: ignore[attr-defined]
        try:
            async with asyncio.timeout(min(reply.wait, LONGEST_WAIT)):
                return await held.answer
        except TimeoutError:
            return await self._again(reply)
        finally:
            if self._held.get(reply.name) is held:
                del self._held[reply.name]

    async def _again(self, reply: Reply) -> Reply:
        return await self._in(self._writing, lambda: self._desk.again(reply))

    async def _write(self) -> None:
        """Answer messages in groups, each group in one transaction."""
        while True:
            group = [await self._incoming.get()]
            while len(group) < GROUP and not self._incoming.empty():
                group.append(self._incoming.get_nowait())
            seen, requests = self._changes, [data for data, _ in group]
            try:
                replies = await self._in(self._writing, partial(self._desk.replies, requests))
            except Exception as error:  # a fault of ours must not end the service
                replies = [self._desk.fault(error, data) for data in requests]
            for (_, future), reply in zip(group, replies, strict=True):
                if not future.done():
                    future.set_result((reply, seen))
            self._wake.set()

    async def _read(self, until: Callable[[], bool]) -> None:
        """Read answers when it is time, and tell sites that wait when there is something new."""
        known: object = None
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK)
            self._wake.clear()
            try:
                mark = await self._in(self._reading, lambda: None if until() else self._looked())
                if mark is None:
                    return await asyncio.sleep(LOOK)  # the last answer may be on its way
                if mark != known:
                    await self._tell_waiting()
                known, self._said = mark, ""
            except Exception as error:  # such as a full disk: it may pass
                if (said := f"{error!r}") != self._said:
                    self._said = said
                    self._log.warning("cannot read", reason=said)
                await asyncio.sleep(LOOK)

    def _looked(self) -> object:
        self._reader.connected = self._desk.coordinator.connected = frozenset(self._held)
        if self._reader.look() and self._reader.read_if_due():
            self._log.info("read", question=int(self._reader.asked.count), answers=self._reader.version)
        return self._reader.mark

    async def _tell_waiting(self) -> None:
        """Answer those sites that wait, and need not wait any longer."""
        self._changes += 1
        waiting = [*self._held.values()]
        replies = await self._in(self._writing, lambda: [self._desk.again(held.reply) for held in waiting])
        for held, reply in zip(waiting, replies, strict=True):
            if not reply.wait:
                _give(held, reply)

    async def _in(self, executor: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(executor, work)


def _give(held: Held, reply: Reply | None) -> None:
    if not held.answer.done():
        held.answer.set_result(reply)


def _bound(url: str, own: bool, host: str | None, port: int | None) -> list[socket.socket]:
    """Return sockets that listen where sites, or the proxy in front, are to come."""
    host = host if host is not None else "" if own else "127.0.0.1"
    port = port if port is not None else place_of(url)[1] if own else BEHIND_PROXY
    try:
        return bound(host, port)
    except (OSError, UnicodeError, OverflowError) as error:
        raise InputError(
            f"Expected an address of this machine to listen at, got {host or 'all addresses'}, port {port}: {error}. "
            "Choose another with --host and --port."
        ) from None


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / TLS_KEY)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"Cannot use {folder / CERTIFICATE} and {folder / TLS_KEY}: {error}. Restore them, or take both away."
        ) from None
    return context
