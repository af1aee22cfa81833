"""How a federation is, as plain values: for the page, the terminal and `--json`."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

from fedvi.config import kind_of
from fedvi.federation.coordinator_file import ABSENT, CoordinatorFile, Refusal, SiteRecord
from fedvi.federation.wire import SPENT, WORKING
from fedvi.inference.rows import evaluate
from fedvi.tables.encode import encode

SILENT = 60.0
"""Seconds after which a site at work should have been heard of."""

RECENT = 600.0
"""Seconds for which a refusal is news."""

OF_SITE = ("name", "state", "last_seen", "updates", "staleness", "repeated", "refused")
DECLARED = ("rows", "epsilon", "epsilon_max", "delta")
"""What is shown of a site, and of what it declares."""


class Scores:
    """How well q predicts a public test set, measured now and then."""

    def __init__(self, store: CoordinatorFile, table: Path, every: float = 3.0):
        rows = encode(store.description.schema, table)
        self._store, self._x, self._y, self._every = store, rows.x, rows.y, every
        self._lock, self._due = threading.Lock(), 0.0
        self.history: list[tuple[int, float, float | None, float]] = []

    def measured(self) -> list[tuple[int, float, float | None, float]]:
        """Return version, time, accuracy (None for numbers) and log-likelihood, with a new line if q is new."""
        with self._lock:
            version, now = self._store.version, time.time()
            known = bool(self.history) and self.history[-1][0] == version
            if not known and time.monotonic() >= self._due:
                scores = evaluate(self._store.description.spec.model, self._store.posterior, self._x, self._y)  # type: ignore[arg-type]
                self.history.append((version, now, scores.get("accuracy"), scores["log_likelihood"]))
                self._due = time.monotonic() + self._every
            return list(self.history)


def status_of(store: CoordinatorFile, scores: Scores | None = None) -> dict[str, Any]:
    """Return everything that people may want to see."""
    description, now, sites, refusals = store.description, time.time(), store.sites(), store.refusals()
    place = {name: number for number, name in enumerate(store.names)}
    updates = store.applied(most=2000)
    return {
        "name": description.name,
        "version": store.version,
        "time": now,
        "started": store.started,
        "stop": store.stop,
        "over": store.over,
        "model": kind_of(type(description.spec.model)),
        "features": description.schema.dim,
        "schema": description.schema.digest,
        "sites": [_shown(site) for site in sites],
        "updates": [[each.version, each.time, place[each.site], each.change] for each in updates],
        "scores": [] if scores is None else [list(each) for each in scores.measured()],
        "refusals": [dataclasses.asdict(each) for each in refusals],
        "health": list(_complaints(store, sites, refusals, now)),
    }


def _shown(site: SiteRecord) -> dict[str, Any]:
    declared = {key: getattr(site.declared, key, None) for key in DECLARED}
    return {**{key: getattr(site, key) for key in OF_SITE}, **declared}


def _complaints(
    store: CoordinatorFile, sites: tuple[SiteRecord, ...], refusals: list[Refusal], now: float
) -> list[str]:
    if store.over:
        return []
    absent = [site.name for site in sites if site.state == ABSENT]
    seen = [(site.name, now - (site.last_seen or now)) for site in sites if site.state in (WORKING, SPENT)]
    lately = [each.site for each in refusals if now - each.time < RECENT]
    found = [f"Not joined yet: {', '.join(absent)}."] if absent else []
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
