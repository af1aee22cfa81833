"""How fast a federation is where the work of sites is next to nothing: real processes, every step synced to disk.

    updates_per_s         of 4 real sites that come late and answer questions of before: pay, sum, commit, send, apply
    in_step_per_s         of 4 real sites that answer each question together, after the coordinator has read and asked
    round_trip_ms         of a lone site: from sending a release to the coordinator's signed word that it is applied
    question_ms           the same, until the next question is there
    p99_ms_200_sites      round trips of 200 sites that send 50 releases a second together
    first_update_s        from starting the demonstration to the first release that is applied

For the second to the fourth, sites are threads of one process that make up their releases, with keys, ledgerless.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.errors import FedviError
from fedvi.federation import wire
from fedvi.federation.demo.local import COORDINATOR, LocalFederation
from fedvi.federation.demo.run import LIMIT, SITES, demonstrate, names, tiny_description
from fedvi.federation.description import Description
from fedvi.federation.enrolment import enrol
from fedvi.federation.envelope import Correspondence
from fedvi.federation.invitation import Invitation
from fedvi.federation.making import invite, read_key
from fedvi.federation.settings import KEY, load_address, transport_to
from fedvi.federation.store.turns import Start

STEPS = 60
"""Questions where sites wait for each one."""

WARM = 3
"""Number of the update of each site from which on updates are counted."""

MANY, PER_SECOND = 200, 50
IDLE = 5.0
"""Seconds that a waiting site gets to become idle."""


@dataclasses.dataclass(frozen=True)
class Speed:
    """What was measured. coordinator_mb: with 200 sites; idle_site_mb: of a site that waits for a question."""

    updates_per_s: float
    in_step_per_s: float
    round_trip_ms: float
    question_ms: float
    median_ms_200_sites: float
    p99_ms_200_sites: float
    coordinator_mb: float
    idle_site_mb: float
    first_update_s: float


def measure(folder: Path, updates: int, seconds: float) -> Speed:
    """Measure everything, one after the other. seconds: for which 200 sites work."""
    late, idle = _late(folder / "late", updates), _idle(folder / "idle")
    in_step = _in_step(folder / "few", STEPS)
    lone, until_question = _lone(folder / "lone", STEPS)
    many, memory = _many(folder / "many", seconds)
    quiet: Any = {"show": lambda _: None, "say": lambda _: None}
    first = demonstrate(folder / "demo", epsilon=1.0, updates=2, seed=0, chaos=0, **quiet).seconds_to_first
    median, p99 = np.percentile(many, (50, 99))
    return Speed(late, in_step, lone, until_question, float(median), float(p99), memory, idle, first)


def _late(folder: Path, updates: int) -> float:
    """Return updates per second of real sites whose questions were all asked before they came."""
    description = tiny_description(folder, updates, ("first", *SITES))
    federation = LocalFederation(folder, dataclasses.replace(description, start=Start(1)), 1.0)
    with federation.running(()):
        first = Caller(federation, "first")
        for number in range(updates):
            first.until_asked()
            first.release(wait=number + 1 < updates)
        first.leave()
    with federation.running(SITES):
        return _rate(federation, updates)


def _in_step(folder: Path, updates: int) -> float:
    """Return updates per second of real sites that wait for each other and for the coordinator."""
    federation = LocalFederation(folder, tiny_description(folder, updates), 1.0)
    with federation.running():
        return _rate(federation, updates)


def _rate(federation: LocalFederation, updates: int) -> float:
    with federation.store() as store:
        for _ in federation.until_over(store, LIMIT):
            pass
        applied = [each for each in store.applied() if each.site in SITES]
    began = max(each.time for each in applied if each.sequence == WARM)  # all have compiled by then
    ended = min(each.time for each in applied if each.sequence == updates)
    times = [each.time for each in applied if began <= each.time <= ended]
    if ended <= began or len(times) < updates:
        raise FedviError(f"Sites were never all at work at once in {updates} updates. Use more with --updates.")
    return (len(times) - 1) / (ended - began)


def _idle(folder: Path) -> float:
    """Return how much memory a site takes that waits."""
    waits = LocalFederation(folder, tiny_description(folder, 2, ("north", "south")), 1.0)
    with waits.running(("north",)):
        home = waits.home("north")
        while not (home / "site.db").exists():
            time.sleep(0.2)
        waits.parties["north"].end()
        command = [sys.executable, "-m", "fedvi", "site", "join", str(home), "--yes", "--waiting"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            time.sleep(IDLE)
            memory = _megabytes(process.pid)
            process.kill()
    return memory


def _lone(folder: Path, updates: int) -> tuple[float, float]:
    """Return milliseconds, median, of a release of a lone site, and of one whose answer is the next question."""
    description = tiny_description(folder, 2 * updates, ("north",))
    found = []
    with _coordinator(folder, description) as federation:
        site = Caller(federation, "north")
        for wait in (False, True):
            site.until_asked()
            took = []
            for _ in range(updates - 1):
                took.append(site.release(wait=wait))
                site.until_asked()
            found.append(1000 * float(np.median(took)))
    return found[0], found[1]


def _many(folder: Path, seconds: float) -> tuple[list[float], float]:
    """Return milliseconds of each release of 200 sites, and the coordinator's memory then."""
    rounds = max(round(seconds * PER_SECOND / MANY), 2)
    description = tiny_description(folder, rounds, names(MANY))
    with _coordinator(folder, description) as federation, ThreadPoolExecutor(MANY) as threads:
        sites = list(threads.map(lambda name: Caller(federation, name), description.sites))
        list(threads.map(Caller.until_asked, sites))
        start, took, taking = time.monotonic() + 1.0, list[float](), threading.Lock()

        def work(number: int) -> None:
            for turn in range(rounds):
                time.sleep(max(start + (turn * MANY + number) / PER_SECOND - time.monotonic(), 0))
                milliseconds = 1000 * sites[number].release(wait=False)
                with taking:
                    took.append(milliseconds)
                if turn + 1 < rounds:
                    sites[number].until_asked()

        list(threads.map(work, range(MANY)))
        process = federation.parties[COORDINATOR].process
        assert process is not None
        return took, _megabytes(process.pid)


@contextlib.contextmanager
def _coordinator(folder: Path, description: Description) -> Iterator[LocalFederation]:
    """Give a federation whose coordinator is at work, without its sites."""
    federation = LocalFederation(folder, description, 1.0)
    with federation.running(()):
        yield federation


class Caller:
    """A site that makes up its releases: as many bytes, keys and signatures as a real one has."""

    def __init__(self, federation: LocalFederation, name: str):
        home = federation.home(name)
        enrol(Invitation.parse(invite(federation.coordinator, name)), home)
        self._description, address = federation.description, load_address(home)
        self._exchange = Correspondence(
            transport_to(home, address, None), address.federation, name, read_key(home / KEY), address.coordinator
        ).exchange
        unit: Any = self._description.spec.algorithm.first_factor(self._description.spec.prior)
        self._parts = [np.zeros(part.shape, np.float32) for part in (unit.sums, unit.noise, unit.rows)]
        self._made, self._random = 0, np.random.default_rng(len(name))

    def until_asked(self) -> None:
        """Wait for the next question."""
        while self._said(wire.POLL, {}, wait=True).kind != wire.QUESTION:
            time.sleep(0.01)

    def leave(self) -> None:
        """Say that nothing more comes."""
        self._said(wire.POLL, {}, wait=False, state=wire.LEFT)

    def release(self, *, wait: bool) -> float:
        """Answer the question; return how many seconds the answer took."""
        sums, noise, rows = self._parts
        sums[self._made] = self._random.normal(0, 20, sums.shape[1])
        noise[self._made], rows[self._made] = 100, 50
        self._made += 1
        started = time.perf_counter()
        answer = self._said(wire.FACTOR, {str(place): part for place, part in enumerate(self._parts)}, wait=wait)
        took = time.perf_counter() - started
        if answer.kind == wire.REFUSED:
            raise FedviError(f"The coordinator refuses a made-up release: {answer.reason}")
        return took

    def _said(self, kind: str, arrays: dict[str, np.ndarray], *, wait: bool, state: str = wire.WORKING) -> wire.Answer:
        declared = wire.Declared(50, 0.5, 1.0, 1e-3, ())
        own = self._description.digest, self._description.schema.digest
        request = wire.Request(*own, kind, self._made, state, declared, arrays)
        return wire.decode(self._exchange(wire.encode(request), wait=wait), wire.Answer, 1 << 20)


def _megabytes(process: int) -> float:
    """Return the memory of a process that is its own or shared."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
