"""What the live page's server gives: the page as one text, and what changes, computed now and then.

The page is sent with a policy that allows its own style and scripts, by their hashes, and nothing else. What it shows
it asks of its own server, again and again; none of it is in the text.
"""

from __future__ import annotations

import asyncio
import logging
import math
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
"""Seconds for which a status is given again."""
LONGEST_WAIT = 4.0
"""Seconds that somebody waits for a status."""

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
    """What `compute()` last returned: computed in a thread, once in a while, however many ask, never by two at a time.

    An error becomes an answer too, with no more than the error's name.
    """

    def __init__(self, compute: Callable[[], bytes], every: float = STATUS_EVERY):
        self._compute, self._every = compute, every
        self._task: asyncio.Task[Reply] | None = None
        self._until = -math.inf

    async def __call__(self) -> Reply:
        """Return the HTTP status and the text."""
        if self._task is None or (self._task.done() and time.monotonic() >= self._until):
            self._task = asyncio.create_task(self._computed())
        try:
            return await asyncio.wait_for(asyncio.shield(self._task), LONGEST_WAIT)
        except TimeoutError:
            return HTTPStatus.SERVICE_UNAVAILABLE, json_of({"error": "Busy"})

    async def _computed(self) -> Reply:
        try:
            reply = HTTPStatus.OK, await asyncio.to_thread(self._compute)
        except Exception as error:  # of any kind: the page outlives a moment without an answer
            _log.info("The live page could not be given what it shows.", exc_info=True)
            reply = HTTPStatus.SERVICE_UNAVAILABLE, json_of({"error": type(error).__name__})
        self._until = time.monotonic() + self._every
        return reply


def json_of(value: object) -> bytes:
    """Return JSON; numbers that are not finite become null."""
    return msgspec.json.encode(value, enc_hook=float)
