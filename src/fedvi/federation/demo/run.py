"""The demonstration: UCI Adult over a coordinator and four sites, watched until they are done, or killed meanwhile.

Also how many answers a real federation gives per second, and what one takes, if computing takes next to nothing.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedvi.datasets.adult import load_adult, paper_split
from fedvi.datasets.partitions import DirichletLabels
from fedvi.federation.demo.checking import Check
from fedvi.federation.demo.local import HTTPS, Chaos, LocalFederation
from fedvi.federation.description import Description
from fedvi.federation.page.server import LivePage
from fedvi.federation.store.status import Contributions, Scores, SiteStatus, Status, status_of
from fedvi.federation.store.turns import Start
from fedvi.fitting.from_federation import fitted_of
from fedvi.tables.inferring.infer import infer_schema
from fedvi.tables.numbers import Number
from fedvi.tables.schema import Schema
from fedvi.tables.targets import BinaryTarget

if TYPE_CHECKING:
    import pyarrow as pa

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
    """What came of it: scores on public test rows, what was killed and spoilt how often, times, and the sites."""

    accuracy: float
    log_likelihood: float
    kills: dict[str, int]
    spoilt: dict[str, int]
    seconds: float
    seconds_to_first: float
    sites: tuple[SiteStatus, ...]


def demonstrate(
    folder: Path,
    *,
    epsilon: float,
    updates: int | None,
    seed: int,
    chaos: float,
    sites: int = len(SITES),
    transport: str = HTTPS,
    show: Callable[[Status], None],
    say: Callable[[str], None],
) -> DemoReport:
    """Make the federation in a folder, run it to its end, and return what came of it.

    chaos: seconds for which processes are killed at random. show: is given the status, again and again. say: is told
    what happens.
    """
    started, began = time.monotonic(), time.time()
    say(f"Writing the tables of {sites} sites, and making keys and invitations ...")
    description = adult_description(folder, epsilon, updates, seed, names(sites))
    federation = LocalFederation(folder, description, epsilon, transport, spoilt=chaos > 0 and transport == HTTPS)
    say(f"Starting the coordinator and {sites} sites, each a process of its own ...")
    killer, rng = Chaos(federation, seed), random.Random(seed)
    with federation.running(), federation.store() as store:
        scores = Scores(store, federation.folder / TEST)
        with LivePage(partial(status_of, store, scores, Contributions(store, scores))) as live:
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
            spoilt={} if federation.proxy is None else dict(federation.proxy.counts),
            seconds=time.monotonic() - started,
            seconds_to_first=store.applied()[0].time - began,
            sites=status_of(store).sites,
        )


def names(number: int) -> tuple[str, ...]:
    """Return names of so many sites."""
    return (*SITES, *(f"site-{each}" for each in range(len(SITES) + 1, number + 1)))[:number]


def adult_description(
    folder: Path, epsilon: float, updates: int | None, seed: int, sites: tuple[str, ...] = SITES
) -> Description:
    """Write SITE.csv for every site and test.csv, and return the federation.

    Sites differ in size and in how many of their people earn much.
    """
    adult, split = load_adult(), paper_split()
    columns = {name: np.where(column == "?", "unknown", column) for name, column in adult.columns.items()}
    columns["income"] = np.where(adult.target > 0, ">50K", "<=50K")
    train = arrow_of(columns, split.train_rows)
    schema = infer_schema(train, target="income", event=">50K", ignore=LEFT_OUT).schema  # the table is public
    parts = DirichletLabels(clients=len(sites), concentration=2.0, seed=seed).split(split.train[1])
    for site, rows in zip(sites, parts.values(), strict=True):
        write_csv(folder / f"{site}.csv", train.take(rows))
    write_csv(folder / TEST, arrow_of(columns, split.test_rows))
    chosen = {"updates": updates, "epsilon": epsilon, "start": Start(len(sites))}
    return Description("adult", sites, schema, len(split.train_rows), **chosen)  # type: ignore[arg-type]


def tiny_description(folder: Path, updates: int, sites: tuple[str, ...] = SITES, rows: int = 50) -> Description:
    """Write tables with which an update is next to no work, two numbers and a few rows; return the federation."""
    schema = Schema((Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1)), BinaryTarget("y", ("no", "yes")))
    for number, site in enumerate(sites):
        rng = np.random.default_rng(number)
        numbers = {name: rng.normal(size=rows).round(3) for name in ("a", "b")}
        columns = {**numbers, "y": np.where(numbers["a"] > numbers["b"], "yes", "no")}
        write_csv(folder / f"{site}.csv", arrow_of(columns, np.arange(rows)))
    return Description("tiny", sites, schema, rows * len(sites), updates=updates, start=Start(len(sites)))


def arrow_of(columns: dict[str, np.ndarray], rows: np.ndarray) -> pa.Table:
    """Return some rows of a table. From lists: of NumPy's arrays Arrow would make pandas load, which takes a second."""
    import pyarrow as pa

    return pa.table({name: pa.array(column[rows].tolist()) for name, column in columns.items()})


def write_csv(path: Path, table: pa.Table) -> None:
    """Write a table."""
    from pyarrow import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    csv.write_csv(table, path)
