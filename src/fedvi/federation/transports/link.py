"""How a site and a coordinator meet an engine that carries their bytes: over Unix sockets, in processes of their own.

    site          Link(path)                     listens; offers one request after the other
    site's relay  Visitor(path).exchange(answer) brings the answer to what was taken last, takes the next request
    coordinator's relay  deliver(path, data)     posts a request to the coordinator's socket, returns the answer

A request stays on offer until an answer comes: a relay may die with it, and the next one takes the same bytes. Bytes
travel as bytes, never as pickled objects. This module checks sizes only; signatures are checked above it. It imports
neither JAX nor NumPy, and a relay needs nothing else of fedvi.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from fedvi.errors import InputError, NotReached

LARGEST = 64 * 2**20
"""Bytes of a request or an answer, at most."""

HELD = 20.0
"""Seconds that a visitor waits for a request, at most; then it takes an empty one."""

VISITORS = 16
"""Visitors at one time; one more is sent away."""


class Link:
    """A site's transport: requests wait at a Unix socket for the relays of an engine.

    patience: seconds until `send` gives up. mode: permissions of the socket; 0o660 lets in the relay of another user of
    the same group. fits: whether an answer belongs to a request. What does not fit is dropped: without this, two relays
    that carry everything twice would stay one answer behind for ever.
    """

    wait = 5.0

    def __init__(
        self,
        path: Path,
        patience: float = 180.0,
        mode: int = 0o600,
        fits: Callable[[bytes, bytes], bool] = lambda _request, _answer: True,
    ):
        self._path, self._patience, self._fits = path, patience, fits
        self._one_at_a_time, self._changed = threading.Lock(), threading.Condition()
        self._request = self._answer = b""
        self._closed, self._places = False, threading.BoundedSemaphore(VISITORS)
        _clear(path)
        mask = os.umask(0o777 & ~mode)  # the socket never has wider permissions, not even for a moment
        try:
            self._listener = Listener(str(path), "AF_UNIX", backlog=VISITORS)
        except OSError as error:
            raise InputError(f"Expected a path at which a Unix socket can be made, got {path}: {error}.") from None
        finally:
            os.umask(mask)
        threading.Thread(target=self._listen, name="fedvi-link", daemon=True).start()

    def send(self, data: bytes) -> bytes:
        """Offer a request until a visitor brings an answer, and return it. Raise `NotReached` when none comes."""
        _check(data)
        with self._one_at_a_time, self._changed:
            self._request, self._answer = data, b""
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._answer or self._closed, self._patience)
                answer = self._answer
            finally:
                self._request = self._answer = b""
        if not answer:
            raise NotReached(f"No relay brought an answer to {self._path} within {self._patience:g} s.")
        return answer

    def close(self) -> None:
        """Stop listening. Whoever waits in `send` gets `NotReached`."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            Client(str(self._path), "AF_UNIX").close()  # wakes the thread that accepts
        with contextlib.suppress(OSError):
            self._listener.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                visitor = self._listener.accept()
            except OSError:  # such as too many open files
                time.sleep(0.1)
                continue
            if self._places.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(visitor,), name="fedvi-link-visitor", daemon=True).start()
            else:
                visitor.close()

    def _serve(self, visitor: Connection) -> None:
        """Take answers from a visitor and give it requests, until one of both goes away."""
        taken = None  # not known: a new visitor may bring the answer to what an earlier one took
        try:
            with contextlib.suppress(EOFError, OSError), visitor:
                while not self._closed:
                    answer = visitor.recv_bytes(LARGEST)
                    with self._changed:
                        if answer and taken in (None, self._request) and self._fits(self._request, answer):
                            self._hand_in(answer)
                        self._changed.wait_for(lambda: self._request or self._closed, HELD)
                        taken = self._request
                    visitor.send_bytes(taken)
        finally:
            self._places.release()

    def _hand_in(self, answer: bytes) -> None:
        if self._request:  # else nobody waits for it
            self._request, self._answer = b"", answer
            self._changed.notify_all()


class Visitor:
    """A relay's visit at a site's link."""

    def __init__(self, path: Path):
        try:
            self._connection = Client(str(path), "AF_UNIX")
        except OSError as error:
            raise NotReached(f"No site listens at {path}: {error}.") from None

    def exchange(self, answer: bytes) -> bytes:
        """Hand in the answer to the request taken last, and return the next; either is empty if there is none."""
        try:
            self._connection.send_bytes(answer)
            if self._connection.poll(HELD + 10):
                return self._connection.recv_bytes(LARGEST)
        except (EOFError, OSError) as error:
            raise NotReached(f"The site has closed its link: {error!r}.") from None
        raise NotReached("The site does not answer at its link.")

    def close(self) -> None:
        """Go away."""
        self._connection.close()


def deliver(socket_path: Path, data: bytes, seconds: float) -> bytes:
    """Post a request to the coordinator's Unix socket and return the answer, or raise `NotReached`.

    What comes back counts as an answer whatever its HTTP code is: the site finds out whether the coordinator signed it.
    """
    _check(data)
    connection = _UnixConnection(socket_path, seconds)
    try:
        connection.request("POST", "/v1/message", data, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse().read(LARGEST + 1)
    except (OSError, http.client.HTTPException) as error:
        raise NotReached(f"No coordinator answers at {socket_path}: {error!r}.") from None
    finally:
        connection.close()
    if not 0 < len(answer) <= LARGEST:
        raise NotReached(f"Expected an answer of 1 to {LARGEST} bytes at {socket_path}, got {len(answer)} or more.")
    return answer


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float):
        super().__init__("localhost", timeout=seconds)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _check(data: bytes) -> None:
    if not 0 < len(data) <= LARGEST:
        raise InputError(f"Expected a message of 1 to {LARGEST} bytes, got {len(data)}.")


def _clear(path: Path) -> None:
    """Take away the socket that a killed process left behind; raise `InputError` if somebody listens there."""
    if not path.exists():
        return
    try:
        Client(str(path), "AF_UNIX").close()
    except ConnectionRefusedError:
        if path.is_socket():
            path.unlink()
            return
    except OSError as error:
        raise InputError(f"Expected a path at which a Unix socket can be made, got {path}: {error}.") from None
    raise InputError(f"Expected a path that is free, got {path}: another process or file is there.")
