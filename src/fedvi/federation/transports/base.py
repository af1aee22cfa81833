"""What carries messages between a site and its coordinator, and the loop of a site at work.

at a site          send(bytes) -> bytes, or `NotReached`: then the same bytes are sent again
at the coordinator Coordinator.handle(name, bytes) -> bytes
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from fedvi.errors import NotReached, SiteRefused
from fedvi.federation.site import Site

ASK_EVERY = 2.0
"""Seconds between messages of a site that has nothing to release, at most; at first it asks sooner."""

SHORTEST, LONGEST = 0.1, 5.0
"""Seconds to wait before the same bytes are sent again, at first and at most."""


def run(
    site: Site,
    send: Callable[[bytes], bytes],
    stopped: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Work until the site has nothing more to say, or `stopped()`: ask it what to send, send it, take the answer."""
    patience = pause = SHORTEST
    while not stopped() and (request := site.request()) is not None:
        try:
            sent = time.monotonic()
            answer = send(request)
            site.receive(answer, time.monotonic() - sent)
        except NotReached:
            sleep(patience * random.uniform(0.5, 1.0))  # so that not all sites come back at once
            patience = min(2 * patience, LONGEST)
            continue
        except SiteRefused as error:
            site.fail(str(error))
            raise
        patience = SHORTEST
        if site.waiting:
            sleep(pause)
        pause = min(2 * pause, ASK_EVERY) if site.waiting else SHORTEST
