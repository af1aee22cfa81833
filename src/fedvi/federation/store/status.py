"""How a federation is, as plain values: for the page, the terminal and `--json`."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.config import kind_of
from fedvi.federation.store.contributions import Contribution, Snapshot, public_rows
from fedvi.federation.store.file import CoordinatorFile
from fedvi.federation.store.records import ABSENT, Refusal, SiteRecord
from fedvi.federation.store.turns import Start
from fedvi.federation.wire import SPENT, WORKING
from fedvi.pytree import tree_map

SILENT = 60.0
"""Seconds after which a site at work should have been heard of."""

RECENT = 600.0
"""Seconds for which a refusal is news."""

SCORED_EVERY = 3.0
"""Seconds between measurements of q."""

SHOWN_CHANGES = 5
"""How many coefficients are shown that a site changes."""

WITHDRAWN = "withdrawn"
"""What is shown as the state of a site that was withdrawn, whatever it said last."""

Score = tuple[int, float, float | None, float]
"""Answers that q has seen, time, accuracy (None for numbers) and log-likelihood."""


class Scores:
    """How well q predicts a public test set, measured now and then."""

    def __init__(self, store: CoordinatorFile, table: Path):
        self._store, (self.x, self._y) = store, public_rows(store.description.schema, table)
        self._lock, self._due = threading.Lock(), 0.0
        self._read: int | None = None
        self.history: list[Score] = []

    def measured(self) -> tuple[Score, ...]:
        """Return all measurements, with a new one if q is new."""
        with self._lock:
            with self._store.at_once():
                readings, asked = self._store.readings(), self._store.asked
            version, now = readings[-1].version if readings else 0, time.time()
            if self._read != len(readings) and time.monotonic() >= self._due:
                self._read = len(readings)
                model: Any = self._store.description.spec.model
                q = tree_map(lambda leaf: np.asarray(leaf, np.float64), asked.posterior)
                predicted = model.learned(float(asked.noise_variance)).predictive(q, self.x)
                likely = float(np.mean(predicted.log_prob(self._y)))
                scores = predicted.scores(self._y) if hasattr(predicted, "scores") else {}
                self.history.append((version, now, scores.get("accuracy"), likely))
                self._due = time.monotonic() + SCORED_EVERY
            return tuple(self.history)


class Contributions:
    """What every site contributes to q: computed in a thread, after a reading, a tenth of the time at most.

    scores: has the public rows to predict, if there are any.
    """

    def __init__(self, store: CoordinatorFile, scores: Scores | None = None):
        self._store, self._x = store, None if scores is None else scores.x
        self._lock, self._due = threading.Lock(), 0.0
        self._known: object = None
        self._found: tuple[Contribution, ...] = ()

    def latest(self) -> tuple[Contribution, ...]:
        """Return what is known, each with its largest changes; and begin to compute anew if q is new."""
        with self._lock:
            if time.monotonic() >= self._due:
                with self._store.at_once():
                    now = len(self._store.readings()), self._store.withdrawn
                    snapshot = None if now in (self._known, (0, ())) else Snapshot.of(self._store)
                if snapshot is not None:
                    self._known, self._due = now, math.inf
                    threading.Thread(target=self._compute, args=(snapshot,), name="contributions", daemon=True).start()
            return self._found

    def _compute(self, snapshot: Snapshot) -> None:
        started = time.monotonic()
        try:
            found = snapshot.contributions(self._x)
            shown = (dataclasses.replace(each, changes=tuple(each.largest_changes[:SHOWN_CHANGES])) for each in found)
            self._found = tuple(shown)
        finally:
            self._due = time.monotonic() + max(SCORED_EVERY, 10 * (time.monotonic() - started))


@dataclasses.dataclass(frozen=True)
class SiteStatus:
    """A site as it is shown: of its record, and of what it declares; None before it was heard of."""

    name: str
    state: str
    last_seen: float | None
    answered: int
    repeated: int
    refused: int
    rows: int | None
    epsilon: float | None
    epsilon_max: float | None
    delta: float | None

    @classmethod
    def of(cls, site: SiteRecord) -> SiteStatus:
        """Return what is shown of a record."""
        state = site.state if site.withdrawn is None else WITHDRAWN
        own = site.name, state, site.last_seen, site.sequence, site.repeated, site.refused
        if (said := site.declared) is None:
            return cls(*own, None, None, None, None)
        return cls(*own, said.rows, said.epsilon, said.epsilon_max, said.delta)


@dataclasses.dataclass(frozen=True)
class Status:
    """Everything that people may want to see.

    predicts: what the model predicts, in words.
    questions, asked: how many are planned, and were asked so far. arrived: whether q is where it should be, as the last
    reading says; None before there is anything to say.
    answers: version, time, place of the site in `sites`. readings: version, time, change of q in nats.
    """

    name: str
    version: int
    time: float
    started: float | None
    stop: str
    over: bool
    model: str
    predicts: str
    features: int
    schema: str
    questions: int
    asked: int
    arrived: bool | None
    sites: tuple[SiteStatus, ...]
    answers: tuple[tuple[int, float, int], ...]
    readings: tuple[tuple[int, float, float], ...]
    scores: tuple[Score, ...]
    refusals: tuple[Refusal, ...]
    health: tuple[str, ...]
    contributions: tuple[Contribution, ...] = ()


def status_of(
    store: CoordinatorFile, scores: Scores | None = None, contributions: Contributions | None = None
) -> Status:
    """Return how a federation is now."""
    description, now = store.description, time.time()
    with store.at_once():
        sites, refusals, readings, applied = store.sites(), store.refusals(), store.readings(), store.applied()
        version, started, stop, over, begun = store.version, store.started, store.stop, store.over, store.begun
        problem = store.problem
    last, here = readings[-1] if readings else None, tuple(site for site in sites if site.withdrawn is None)
    place = {site.name: number for number, site in enumerate(sites)}
    return Status(
        name=description.name,
        version=version,
        time=now,
        started=started,
        stop=stop,
        over=over,
        model=kind_of(type(description.spec.model)),
        predicts=description.schema.target.predicted,
        features=description.schema.dim,
        schema=description.schema.digest,
        questions=description.spec.updates,
        asked=1 if last is None else last.asked,
        arrived=None if last is None or math.isinf(last.arrived) else last.arrived <= last.enough,
        sites=tuple(map(SiteStatus.of, sites)),
        answers=tuple((each.version, each.time, place[each.site]) for each in applied),
        readings=tuple((each.version, each.time, each.change) for each in readings),
        scores=() if scores is None else scores.measured(),
        refusals=tuple(refusals),
        health=()
        if over
        else (*unread(problem), *_complaints(None if begun else description.start, here, refusals, now)),
        contributions=() if contributions is None else contributions.latest(),
    )


def unread(problem: str) -> list[str]:
    """Return why the last answers could not be read, in words; nothing if they could."""
    return [f"The last answers cannot be read, and q stays as it was: {problem}"] if problem else []


def _complaints(start: Start | None, sites: tuple[SiteRecord, ...], refusals: list[Refusal], now: float) -> list[str]:
    """Return what is wrong. start: who is waited for; None if it has begun."""
    absent = [site.name for site in sites if site.state == ABSENT]
    seen = [(site.name, now - (site.last_seen or now)) for site in sites if site.state in (WORKING, SPENT)]
    lately = [each.site for each in refusals if now - each.time < RECENT]
    found = [f"Not joined yet: {', '.join(absent)}."] if absent else []
    if start is not None and start.wait_for != 1:
        awaited = f"{start.wait_for} sites" if isinstance(start.wait_for, int) else ", ".join(start.wait_for)
        found.append(f"No question is asked before these are at work: {awaited}.")
    found += [f"{name} was last heard of {ago(seconds)}." for name, seconds in seen if seconds > SILENT]
    for site in sorted(set(lately)):
        messages = "1 message" if lately.count(site) == 1 else f"{lately.count(site)} messages"
        found.append(f"Refused in the last ten minutes: {messages} of {site}.")
    return found


def ago(seconds: float) -> str:
    """Return how long ago something was, in words."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
