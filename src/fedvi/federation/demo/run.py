"""The demonstration: UCI Adult over a coordinator and four sites, watched until they are done, or killed meanwhile.

Also how many answers a real federation gives per second, and what one takes, if computing takes next to nothing.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedvi.datasets.adult import load_adult, paper_split
from fedvi.datasets.partitions import DirichletLabels
from fedvi.errors import FedviError
from fedvi.federation.demo.checking import Check
from fedvi.federation.demo.local import Chaos, LocalFederation
from fedvi.federation.description import Description
from fedvi.federation.page.server import LivePage
from fedvi.federation.settings import FOLDER, STATE
from fedvi.federation.site_file import SiteFile
from fedvi.federation.status import Scores, SiteStatus, Status, status_of
from fedvi.federation.turns import Start
from fedvi.fitting.from_federation import fitted_of
from fedvi.tables.inferring.infer import infer_schema
from fedvi.tables.numbers import Number
from fedvi.tables.schema import Schema
from fedvi.tables.targets import BinaryTarget

SITES = ("east", "north", "south", "west")
TEST = "test.csv"
LEFT_OUT = ("fnlwgt", "education")
"""A weight of the census, and what education-num says as a number."""

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
    sites: tuple[SiteStatus, ...]


def demonstrate(
    folder: Path,
    *,
    epsilon: float,
    updates: int | None,
    seed: int,
    chaos: float,
    show: Callable[[Status], None],
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
            sites=status_of(store).sites,
        )


@dataclasses.dataclass(frozen=True)
class Speed:
    """What was measured, while all sites were at work.

    milliseconds: from one answer of a site to its next: pay, compute, commit, send, apply, wait for others; median.
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


def adult_description(folder: Path, epsilon: float, updates: int | None, seed: int) -> Description:
    """Write SITE.csv for every site and test.csv, and return the federation.

    Sites differ in size and in how many of their people earn much.
    """
    adult, split = load_adult(), paper_split()
    columns = {name: np.where(column == "?", "unknown", column) for name, column in adult.columns.items()}
    columns["income"] = np.where(adult.target > 0, ">50K", "<=50K")
    train = {name: column[split.train_rows] for name, column in columns.items()}
    schema = infer_schema(train, target="income", event=">50K", ignore=LEFT_OUT).schema  # the table is public
    parts = DirichletLabels(clients=len(SITES), concentration=2.0, seed=seed).split(split.train[1])
    for site, rows in zip(SITES, parts.values(), strict=True):
        write_csv(folder / f"{site}.csv", {name: column[rows] for name, column in train.items()})
    write_csv(folder / TEST, {name: column[split.test_rows] for name, column in columns.items()})
    chosen = {"updates": updates, "epsilon": epsilon, "start": Start(len(SITES))}
    return Description("adult", SITES, schema, len(split.train_rows), **chosen)  # type: ignore[arg-type]


def tiny_description(folder: Path, updates: int, sites: tuple[str, ...] = SITES, rows: int = 50) -> Description:
    """Write tables with which an update is next to no work, two numbers and a few rows; return the federation."""
    schema = Schema((Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1)), BinaryTarget("y", ("no", "yes")))
    for number, site in enumerate(sites):
        rng = np.random.default_rng(number)
        numbers = {name: rng.normal(size=rows).round(3) for name in ("a", "b")}
        write_csv(folder / f"{site}.csv", {**numbers, "y": np.where(numbers["a"] > numbers["b"], "yes", "no")})
    return Description("tiny", sites, schema, rows * len(sites), updates=updates, start=Start(len(sites)))


def write_csv(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Write a table."""
    import pyarrow as pa
    from pyarrow import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    csv.write_csv(pa.table({name: pa.array(column.tolist()) for name, column in columns.items()}), path)
