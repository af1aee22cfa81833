"""How many updates a real federation makes per second, and what one takes, if computing takes next to nothing."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np

from fedvi.errors import FedviError
from fedvi.federation.demo.local import LocalFederation
from fedvi.federation.demo.tables import tiny_description
from fedvi.federation.settings import FOLDER, STATE
from fedvi.federation.site_file import SiteFile

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
    started = time.time()
    federation = LocalFederation(folder, tiny_description(folder, updates), 1.0)
    with federation.running(), federation.store() as store:
        for _ in federation.until_over(store, LIMIT):
            pass
        applied = store.applied()
    times = {
        site: np.array([each.time for each in applied if each.site == site]) for site in federation.description.sites
    }
    first, last = max(each[0] for each in times.values()), min(each[-1] for each in times.values())
    together = [each.time for each in applied if first <= each.time <= last]
    if last <= first or len(together) < 10:
        raise FedviError(f"Sites were never all at work at once in {updates} updates. Use more with --updates.")
    cycles = np.concatenate([np.diff(each[(each >= first) & (each <= last)]) for each in times.values()])
    answers = []
    for site in federation.description.sites:
        with SiteFile.open(federation.kit(site) / FOLDER / STATE) as file:
            answers.append(file.load().latency or 0.0)
    return Speed(
        sites=len(times),
        updates=len(together),
        updates_per_second=(len(together) - 1) / (last - first),
        milliseconds=1000 * float(np.median(cycles)),
        answer_milliseconds=1000 * float(np.mean(answers)),
        seconds_to_first=applied[0].time - started,
    )
