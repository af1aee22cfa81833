"""The loop of a site at work, over any transport.

request = site.request()          paid for, made and committed, if it is a release
answer  = exchange(request)       signed, sent, and checked; or `NotReached`: then the same bytes are sent again
site.receive(answer)
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Protocol

from fedvi.errors import NotReached, SiteRefused
from fedvi.federation.site import Site

ASK_EVERY = 2.0
"""Seconds between messages of a site that has nothing to release, at most; at first it asks sooner."""

SHORTEST, LONGEST = 0.1, 5.0
"""Seconds to wait before the same bytes are sent again, at first and at most."""

TOLD_AFTER = 3
"""Failed exchanges in a row after which people at the site are told."""


class Exchange(Protocol):
    """What brings a message to the coordinator and its answer back: `Correspondence.exchange`."""

    def __call__(self, body: bytes, *, wait: bool) -> bytes:
        """wait: the answer may be held back while there is no question for the site."""


def run(
    site: Site,
    exchange: Exchange,
    stopped: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
    idle: float = math.inf,
) -> bool:
    """Work until the site has nothing more to say, or `stopped()`: ask it what to send, send it, take the answer.

    Return False if it had to wait for `idle` seconds with its rows and ledger open; they are closed then.
    """
    patience, pause, failed, busy = SHORTEST, SHORTEST, 0, time.monotonic()
    while not stopped() and (request := site.request()) is not None:
        sent = time.monotonic()
        try:
            answer = exchange(request, wait=site.patient)
            site.receive(answer, time.monotonic() - sent)
        except NotReached as error:
            failed += 1
            if failed >= TOLD_AFTER:
                site.note(str(error))
            sleep(patience * random.uniform(0.5, 1.0))  # so that not all sites come back at once
            patience = min(2 * patience, LONGEST)
            continue
        except SiteRefused as error:
            site.fail(str(error))
            raise
        patience, failed, now = SHORTEST, 0, time.monotonic()
        if not site.waiting:
            pause, busy = SHORTEST, now
            continue
        if site.is_open and now - busy > idle:
            site.rest()
            return False
        sleep(max(pause - (now - sent), 0.0))  # nothing, if the coordinator held the answer back
        pause = min(2 * pause, ASK_EVERY)
    return True
