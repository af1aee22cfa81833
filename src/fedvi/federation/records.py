"""Rows of the coordinator's file: what is known of a site, answers, readings, refusals."""

from __future__ import annotations

import dataclasses

from fedvi.federation.wire import Declared

ABSENT = "absent"
"""State of a site that was never heard of."""


@dataclasses.dataclass(frozen=True)
class SiteRecord:
    """What is known of a site.

    state: as it said last. sequence, digest: of its last answer; release k answers question k.
    repeated, refused: how many messages. declared: None before the site was heard of.
    """

    name: str
    state: str = ABSENT
    sequence: int = 0
    digest: str = ""
    last_seen: float | None = None
    repeated: int = 0
    refused: int = 0
    declared: Declared | None = None


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


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A message that was refused."""

    time: float
    site: str
    code: str
    reason: str
