"""A coordinator or a site that works until it is killed. Started by test_coordinator.py and test_site.py."""

from __future__ import annotations

import hashlib
import sys
import time
import warnings
from pathlib import Path

import dp_accounting  # noqa: F401 - takes a second, once for all victims
import jax.flatten_util
import jax.scipy.special  # noqa: F401
import optax  # noqa: F401

import small_federation
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.description import Description
from fedvi.federation.transports.base import run as work
from small_federation import answer, description, open_coordinator, open_site, poll
from victims import fork_for_every_line, say

UPDATES = 40
DESCRIPTION = description(("north", "south", "east"), UPDATES)
LONG = description(DESCRIPTION.sites, 150)
"""For coordinators, which work until they are killed."""
SHORT = description(DESCRIPTION.sites, 12)
EPSILON = 1.0


def release(name: str, sequence: int, chosen: Description = LONG) -> bytes:
    """Return release number `sequence` of a site, the same every time."""
    return small_federation.release(chosen, sequence, chosen.sites.index(name))


def handle_messages(path: str, *acknowledged: str) -> None:
    """Handle releases of all sites in turns, each from the first that was not acknowledged."""
    done = dict(zip(LONG.sites, map(int, acknowledged), strict=True))
    with Coordinator.open(Path(path)) as coordinator:
        for name in LONG.sites if not any(done.values()) else ():
            coordinator.handle(name, poll(LONG, 0))  # all of them are there
        say("ready")
        while True:
            name = min(LONG.sites, key=lambda site: done[site])
            got = answer(coordinator.handle(name, release(name, done[name] + 1)))
            assert got.kind != wire.REFUSED, got
            assert got.applied == done[name] + 1
            done[name] += 1
            say(name, done[name])


def work_at_a_site(folder: str, number: str) -> None:
    """Work as a site with a coordinator in the same process, until there is nothing more to say."""
    with (
        open_coordinator(Path(folder), DESCRIPTION) as coordinator,
        open_site(Path(folder), DESCRIPTION, int(number), EPSILON) as site,
    ):
        name = DESCRIPTION.sites[int(number)]
        coordinator.handle(name, b"warm up: compile nothing, but import what is needed")
        say("ready")

        def send(body: bytes, **_: bool) -> bytes:
            request = wire.decode(body, wire.Request, 1 << 20)
            say("sent", request.kind, request.sequence, hashlib.sha256(body).hexdigest())
            got = coordinator.handle(name, body)
            say("answered", request.kind, request.sequence)
            return got

        work(site, send, sleep=lambda _: None)


def serve_one(path: str, name: str) -> None:
    """Handle all releases of one site, while other processes do so for others."""
    with Coordinator.open(Path(path)) as coordinator:
        for sequence in range(1, SHORT.spec.updates + 1):
            while answer(coordinator.handle(name, poll(SHORT, sequence - 1))).kind == wire.WAIT:
                time.sleep(0.02)
            got = answer(coordinator.handle(name, release(name, sequence, SHORT)))
            assert got.kind != wire.REFUSED, got


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    match sys.argv[1:]:
        case ["serve", path, name]:
            serve_one(path, name)
        case ["coordinator"]:
            fork_for_every_line(handle_messages)
        case ["site"]:
            fork_for_every_line(work_at_a_site)
