"""How many updates a real federation makes per second, and what one takes, if computing takes next to nothing."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np

from fedvi.errors import FedviError
from fedvi.federation.demo.local import LocalFederation
from fedvi.federation.demo.tables import tiny_project
from fedvi.federation.settings import FOLDER, STATE
from fedvi.federation.site import read_site
from fedvi.sqlite import Database

LIMIT = 600.0


@dataclasses.dataclass(frozen=True)
class Speed:
    """What was measured, while all sites were at work.

    milliseconds: from one update of a site to its next: pay, compute, commit, send, apply, answer, commit; median.
    answer_milliseconds: of that, from sending to the answer; mean over the last updates.
    """

    sites: int
    updates: int
    updates_per_second: float
    milliseconds: float
    answer_milliseconds: float
    seconds_to_first: float


def measure_speed(folder: Path, updates: int) -> Speed:
    """Run a federation of tiny tables, and read the times off the coordinator's file."""
    started, clock = time.monotonic(), time.time()
    federation = LocalFederation(folder, tiny_project(folder, updates), 1.0)
    with federation.running(), federation.store() as store:
        while not store.over:
            if time.monotonic() - started > LIMIT:
                raise FedviError(f"The federation did not end within {LIMIT:g} seconds.")
            federation.ensure()
            time.sleep(0.5)
        federation.wait()
        applied = store.updates(most=10**9)
    times = {
        site: np.array([when for _, when, name, _ in applied if name == site]) for site in federation.project.sites
    }
    first, last = max(each[0] for each in times.values()), min(each[-1] for each in times.values())
    together = [when for _, when, _, _ in applied if first <= when <= last]
    if last <= first or len(together) < 10:
        raise FedviError(f"Sites were never all at work at once in {updates} updates. Use more with --updates.")
    cycles = np.concatenate([np.diff(each[(each >= first) & (each <= last)]) for each in times.values()])
    answers = []
    for site in federation.project.sites:
        with Database.open(federation.kit(site) / FOLDER / STATE) as database:
            answers.append(float(read_site(database)["latency"]))
    return Speed(
        sites=len(times),
        updates=len(together),
        updates_per_second=(len(together) - 1) / (last - first),
        milliseconds=1000 * float(np.median(cycles)),
        answer_milliseconds=1000 * float(np.mean(answers)),
        seconds_to_first=applied[0][1] - clock,
    )
