"""What the live page's server gives: the page as one text, and the status as JSON.

The page is sent with a policy that allows its own style and scripts, by their hashes, and nothing else. What it shows
it asks of its own server, again and again; none of it is in the text.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus

import msgspec

from fedvi.web.pages import DASHES, KNOWN, SPARE, asset, embedded, filled, source

SCRIPTS = (
    "web/chart.js",
    "web/shapes.js",
    "federation/page/status.js",
    "federation/page/charts.js",
    "federation/page/page.js",
)
INK = "#000000"

STATUS_EVERY = 0.5
"""Seconds that a status is given again."""
LONGEST_WAIT = 4.0
"""Seconds that somebody waits for a status that another request has asked for."""

_log = logging.getLogger(__name__)


@cache
def live_page() -> tuple[str, str]:
    """Return the page and its Content-Security-Policy."""
    css = asset("web/base.css") + asset("federation/page/page.css")
    scripts = [asset(name) for name in SCRIPTS]
    colours = [look.colour for look in reversed(KNOWN.values()) if look.colour != INK] + SPARE
    parts = {
        "css": css,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
        "looks": embedded({"colours": colours, "dashes": DASHES}),
    }
    policy = (
        f"default-src 'none'; script-src {' '.join(map(source, scripts))}; style-src {source(css)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return filled(asset("federation/page/page.html"), parts), policy


Reply = tuple[HTTPStatus, bytes]


class Snapshot:
    """What `status()` last returned, as JSON: computed once in a while, however many ask, and never by two at a time.

    An error becomes an answer too, with no more than the error's name.
    """

    def __init__(self, status: Callable[[], object], every: float = STATUS_EVERY):
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


def _json(value: object) -> bytes:
    """Return JSON; numbers that are not finite become null."""
    return msgspec.json.encode(value, enc_hook=float)
