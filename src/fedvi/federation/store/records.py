"""Tables of the coordinator's file, and their rows: what is known of a site, answers, readings, refusals."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from fedvi.federation.wire import Declared

FORMAT = 4
SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE federation (
    description TEXT NOT NULL, version INTEGER NOT NULL, asked BLOB NOT NULL, begun INTEGER NOT NULL,
    started REAL, stop TEXT NOT NULL, noise REAL NOT NULL, refresh INTEGER NOT NULL, problem TEXT NOT NULL
) STRICT;
CREATE TABLE sites (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, sequence INTEGER NOT NULL, factor BLOB NOT NULL, digest TEXT NOT NULL,
    declared TEXT, last_seen REAL, repeated INTEGER NOT NULL, refused INTEGER NOT NULL, key BLOB,
    counter INTEGER NOT NULL, invitation BLOB, expires REAL NOT NULL, withdrawn REAL, withdrawn_after INTEGER
) STRICT;
CREATE TABLE applied (
    version INTEGER PRIMARY KEY, site TEXT NOT NULL, sequence INTEGER NOT NULL, time REAL NOT NULL,
    digest TEXT NOT NULL, UNIQUE (site, sequence)
) STRICT;
CREATE TABLE readings (
    number INTEGER PRIMARY KEY, version INTEGER NOT NULL, asked INTEGER NOT NULL, change REAL NOT NULL,
    arrived REAL NOT NULL, enough REAL NOT NULL, time REAL NOT NULL
) STRICT;
CREATE TABLE refusals (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, site TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL
) STRICT
"""

MIGRATIONS = {
    3: """
ALTER TABLE federation ADD COLUMN noise REAL NOT NULL DEFAULT 0;
ALTER TABLE federation ADD COLUMN refresh INTEGER NOT NULL DEFAULT 0;
ALTER TABLE federation ADD COLUMN problem TEXT NOT NULL DEFAULT '';
ALTER TABLE sites ADD COLUMN key BLOB;
ALTER TABLE sites ADD COLUMN counter INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sites ADD COLUMN invitation BLOB;
ALTER TABLE sites ADD COLUMN expires REAL NOT NULL DEFAULT 0;
ALTER TABLE sites ADD COLUMN withdrawn REAL;
ALTER TABLE sites ADD COLUMN withdrawn_after INTEGER
"""
}
"""From each older format to the next. Sites of format 3 came with kits: what they have answered can be read and
exported, and they go on only with the version that made the kits."""

ABSENT = "absent"
"""State of a site that was never heard of."""


@dataclasses.dataclass(frozen=True)
class SiteRecord:
    """What is known of a site.

    state: as it said last. sequence, digest: of its last answer; release k answers question k.
    repeated, refused: how many messages. declared: None before the site was heard of.
    key: its public key, None before it has joined. counter: of its last request that changed something.
    invitation, expires: public key of its last invitation, and until when it may be used.
    withdrawn: when its answers were taken out, if they were; readings with a number above `withdrawn_after` lack them.
    """

    name: str
    state: str = ABSENT
    sequence: int = 0
    digest: str = ""
    last_seen: float | None = None
    repeated: int = 0
    refused: int = 0
    declared: Declared | None = None
    key: bytes | None = None
    counter: int = 0
    invitation: bytes | None = None
    expires: float = 0.0
    withdrawn: float | None = None
    withdrawn_after: int | None = None


@dataclasses.dataclass(frozen=True)
class Applied:
    """An answer that was taken. version: how many there are with it."""

    version: int
    site: str
    sequence: int
    time: float
    digest: str


@dataclasses.dataclass(frozen=True)
class Reading:
    """One reading of all answers. version: how many answers it has seen. asked: questions that were asked then.

    change: KL(new q || old q), in nats. arrived, enough: the fit has arrived if the first is at most the second.
    """

    number: int
    version: int
    asked: int
    change: float
    arrived: float
    enough: float
    time: float

    def seen(self, sites: Sequence[SiteRecord], applied: Sequence[Applied]) -> list[int]:
        """Return how many answers of each site it has read: none of one that was withdrawn before."""
        counts = Counter(each.site for each in applied[: self.version])
        stayed = (site.withdrawn_after is None or self.number <= site.withdrawn_after for site in sites)
        return [counts[site.name] if here else 0 for site, here in zip(sites, stayed, strict=True)]


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A message that was refused."""

    time: float
    site: str
    code: str
    reason: str
