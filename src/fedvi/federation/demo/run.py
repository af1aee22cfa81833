"""The demonstration: UCI Adult over a coordinator and four sites, watched until they are done, or killed meanwhile."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedvi.federation.demo.chaos import Chaos
from fedvi.federation.demo.checking import Check
from fedvi.federation.demo.local import LocalFederation
from fedvi.federation.demo.tables import TEST, adult_description
from fedvi.federation.page.server import LivePage
from fedvi.federation.status import Scores, status_of
from fedvi.fitting.from_federation import fitted_of

BETWEEN_KILLS = (3.0, 10.0)
"""Seconds from one kill to the next, at least and at most."""

LIMIT = 900.0
"""Seconds after which a federation is given up that does not come to its end, beside those of chaos."""


@dataclasses.dataclass(frozen=True)
class DemoReport(Check):
    """What came of it: scores on public test rows, what was killed how often, how long it took, and the sites."""

    accuracy: float
    log_likelihood: float
    kills: dict[str, int]
    seconds: float
    sites: list[dict[str, Any]]


def demonstrate(
    folder: Path,
    *,
    epsilon: float,
    updates: int,
    seed: int,
    chaos: float,
    show: Callable[[dict[str, Any]], None],
    say: Callable[[str], None],
) -> DemoReport:
    """Make the federation in a folder, run it to its end, and return what came of it.

    chaos: seconds for which processes are killed at random. show: is given the status, again and again. say: is told
    what happens.
    """
    started = time.monotonic()
    say("Writing the tables of four sites, and making certificates and kits ...")
    federation = LocalFederation(folder, adult_description(folder, epsilon, updates, seed), epsilon)
    say("Starting the coordinator and four sites, each in processes of its own ...")
    killer, rng = Chaos(federation, seed), random.Random(seed)
    with federation.running(), federation.store() as store:
        scores = Scores(store, federation.folder / TEST)
        with LivePage(lambda: status_of(store, scores)) as live:
            say(f"Live page: {live.address}")
            strike = end_of_chaos = math.inf
            for now in federation.until_over(store, chaos + LIMIT):
                show(status_of(store, scores))
                if strike == math.inf and store.version:
                    end_of_chaos, strike = now + chaos, now + rng.uniform(*BETWEEN_KILLS)
                if strike <= now < end_of_chaos:
                    if hit := killer.strike():
                        say(f"Killed: {hit}")
                    strike += rng.uniform(*BETWEEN_KILLS)
            show(status_of(store, scores))
    with federation.store() as store:
        measured = fitted_of(store).evaluate(federation.folder / TEST)
        return DemoReport(
            **dataclasses.asdict(federation.check(store)),
            accuracy=measured["accuracy"],
            log_likelihood=measured["log_likelihood"],
            kills=dict(killer.kills),
            seconds=time.monotonic() - started,
            sites=status_of(store)["sites"],
        )
