"""What the coordinator's file holds, as dataclasses, and its tables.

federation   one row: the description, the product of all factors and what its rounding lost, when it began, stop
sites        one row each: factor, number of its last release, what it says about itself
applied      every update; refusals: the newest
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from fedvi.federation.wire import Declared
from fedvi.sqlite import Row

FORMAT = 2
SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE federation (
    description TEXT NOT NULL, version INTEGER NOT NULL, product BLOB NOT NULL, lost BLOB NOT NULL,
    started REAL, stop TEXT NOT NULL
) STRICT;
CREATE TABLE sites (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, calm INTEGER NOT NULL, sequence INTEGER NOT NULL, factor BLOB NOT NULL,
    digest TEXT NOT NULL, width REAL, updates INTEGER NOT NULL, staleness INTEGER, declared TEXT, last_seen REAL,
    repeated INTEGER NOT NULL, refused INTEGER NOT NULL
) STRICT;
CREATE TABLE applied (
    version INTEGER PRIMARY KEY, site TEXT NOT NULL, sequence INTEGER NOT NULL, based_on INTEGER NOT NULL,
    change REAL NOT NULL, time REAL NOT NULL, digest TEXT NOT NULL, UNIQUE (site, sequence)
) STRICT;
CREATE TABLE refusals (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, site TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL
) STRICT
"""


@dataclasses.dataclass(frozen=True)
class SiteRecord:
    """What is known of a site.

    state: as it said last. calm: updates in a row that changed q little. sequence, digest: of its last release.
    width: the number of its final release; None before. staleness: updates of others that its last one had not seen.
    repeated, refused: how many messages. declared: None before the site was heard of.
    """

    name: str
    state: str
    calm: int
    sequence: int
    digest: str
    width: float | None
    updates: int
    staleness: int | None
    last_seen: float | None
    repeated: int
    refused: int
    declared: Declared | None


@dataclasses.dataclass(frozen=True)
class Applied:
    """An update that was applied. based_on: version of q that it was made from. change: KL(new q || old q), nats."""

    version: int
    site: str
    sequence: int
    based_on: int
    change: float
    time: float
    digest: str


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A message that was refused."""

    time: float
    site: str
    code: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Product:
    """The product of all factors, what its rounding lost, and how many updates it has seen."""

    product: Any
    lost: Any
    version: int
    started: float | None
    stop: str


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A federation at one instant.

    factors: of the sites, stacked in the same order.
    posterior, version, stop: q, how many releases it has seen, and why the federation has ended.
    """

    sites: tuple[SiteRecord, ...]
    factors: Any
    posterior: Any
    version: int
    stop: str


STORED = tuple(field.name for field in dataclasses.fields(SiteRecord))[:-1]
APPLIED = tuple(field.name for field in dataclasses.fields(Applied))


def site_record(row: Row) -> SiteRecord:
    """Return a row of the columns `STORED` and `declared` as a record."""
    values: dict[str, Any] = dict(zip((*STORED, "declared"), row, strict=True))
    said = values["declared"]
    return SiteRecord(**{**values, "declared": said and msgspec.json.decode(said, type=Declared)})
