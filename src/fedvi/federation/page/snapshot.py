"""The status as JSON: computed at most once in a while, however many ask, and never by two at a time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

EVERY = 0.5
"""Seconds that an answer is given again."""
LONGEST_WAIT = 4.0
"""Seconds that somebody waits for an answer that another request has asked for."""

_log = logging.getLogger(__name__)

Reply = tuple[HTTPStatus, bytes]


class Snapshot:
    """What `status()` last returned. An error becomes an answer too, with no more than the error's name."""

    def __init__(self, status: Callable[[], dict[str, Any]], every: float = EVERY):
        self._status, self._every = status, every
        self._lock = threading.Lock()
        self._reply: Reply = HTTPStatus.SERVICE_UNAVAILABLE, b""
        self._until = -math.inf

    def __call__(self) -> Reply:
        """Return the HTTP status and the JSON."""
        if not self._lock.acquire(timeout=LONGEST_WAIT):
            return HTTPStatus.SERVICE_UNAVAILABLE, _json({"error": "Busy"})
        try:
            if time.monotonic() >= self._until:
                self._reply = self._compute()
                self._until = time.monotonic() + self._every
            return self._reply
        finally:
            self._lock.release()

    def _compute(self) -> Reply:
        try:
            return HTTPStatus.OK, _json(self._status())
        except Exception as error:  # of any kind: the page outlives a moment without an answer
            _log.info("The status could not be computed.", exc_info=True)
            return HTTPStatus.SERVICE_UNAVAILABLE, _json({"error": type(error).__name__})


def _json(value: dict[str, Any]) -> bytes:
    """Return JSON; numbers that are not finite become null."""
    return msgspec.json.encode(value, enc_hook=float)
