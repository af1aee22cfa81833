"""The contents of a ledger: entries chained by hashes, and the account that they add up to.

    chain_k = SHA-256(chain_{k-1}, number, time, kind, body)

An entry that was changed, dropped or moved breaks the chain after it. The chain is no signature: whoever may write the
file can write all of it anew. It is there to notice accidents.

| kind      | body                                                                                  |
|-----------|---------------------------------------------------------------------------------------|
| `opened`  | identity of the ledger, budget, unit of privacy, declared number of rows, fingerprint |
|           | and schema of the data                                                                |
| `plan`    | an event and how often it may happen; `anew` if plans made before were given up       |
| `charge`  | an event that is about to happen, or `times` of them, planned `for` another ledger    |
| `word`    | something that a person accepted in so many words: other data, a move, a rollback     |
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from fedvi.errors import InputError, LedgerDamaged
from fedvi.privacy import events
from fedvi.privacy.budget import Budget
from fedvi.privacy.ledger.statement import Spent

OPENED, PLAN, CHARGE, WORD = "opened", "plan", "charge", "word"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a ledger."""

    number: int
    time: str
    kind: str
    body: dict[str, Any]
    chain: str

    @classmethod
    def after(cls, previous: str, number: int, time: str, kind: str, body: dict[str, Any]) -> Entry:
        """Return the entry that follows the one with chain `previous`."""
        return cls(number, time, kind, body, link(previous, number, time, kind, body))


def link(previous: str, number: int, time: str, kind: str, body: dict[str, Any]) -> str:
    """Return the chain of an entry."""
    return hashlib.sha256(json.dumps([previous, number, time, kind, body], sort_keys=True).encode()).hexdigest()


@dataclasses.dataclass
class Book:
    """A ledger's entries, checked, and what they add up to.

    planned, charged: how often each event may happen, and did. by_purpose: the latter by what it was for.
    """

    where: str
    entries: list[Entry] = dataclasses.field(default_factory=list)
    planned: dict[Any, int] = dataclasses.field(default_factory=dict)
    charged: dict[Any, int] = dataclasses.field(default_factory=dict)
    by_purpose: dict[str, dict[Any, int]] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, entries: Iterable[Entry], where: str) -> Book:
        """Return the book that these entries make, or raise `LedgerDamaged`."""
        book = cls(where)
        for entry in entries:
            book.append(entry)
        if not book.entries:
            raise LedgerDamaged(f"Ledger {where} has no beginning: it was truncated, or it is no ledger. Restore it.")
        return book

    def append(self, entry: Entry) -> None:
        """Add an entry that follows the last one, or raise `LedgerDamaged`."""
        if entry != Entry.after(self.link, len(self.entries), entry.time, entry.kind, entry.body):
            raise LedgerDamaged(f"Ledger {self.where} is damaged at entry {len(self.entries)}: its chain is broken.")
        try:
            if (entry.kind == OPENED) != (entry.number == 0):
                raise InputError(f"entry {entry.number} is {entry.kind!r}")
            if entry.kind == OPENED:
                self.opened(entry.body)
            if entry.kind == PLAN:
                event = events.from_json(entry.body["event"])
                if entry.body["anew"]:
                    self.planned = dict(self.charged)
                self.planned[event] = self.planned.get(event, 0) + entry.body["updates"]
            if entry.kind == CHARGE:
                event, times = events.from_json(entry.body["event"]), entry.body.get("times", 1)
                for counts in (self.charged, self.by_purpose.setdefault(str(entry.body.get("purpose", "")), {})):
                    counts[event] = counts.get(event, 0) + times
        except (KeyError, TypeError, InputError) as error:
            raise LedgerDamaged(f"Ledger {self.where} cannot be understood: {error}.") from error
        self.entries.append(entry)

    @property
    def link(self) -> str:
        """The chain that the next entry follows."""
        return self.entries[-1].chain if self.entries else ""

    @staticmethod
    def opened(body: dict[str, Any]) -> tuple[Budget, str]:
        """Return budget and unit of privacy of an `opened` entry."""
        return Budget(**body["budget"]), str(body["unit"])

    @functools.cached_property
    def budget(self) -> Budget:
        """What may be spent."""
        return self.opened(self.entries[0].body)[0]

    @property
    def unit(self) -> str:
        """The unit of privacy."""
        return self.opened(self.entries[0].body)[1]

    @property
    def public_rows(self) -> int | None:
        """How many rows were declared when the ledger was made; None for ledgers of earlier versions."""
        declared = self.entries[0].body.get("public_rows")
        return None if declared is None else int(declared)

    @property
    def older(self) -> tuple[dict[str, str], ...]:
        """The ledgers of the same people, which pay for everything too: path and identity of each."""
        return tuple(older for entry in self.words for older in entry.body.get("older", ()))

    @property
    def head(self) -> Entry:
        """The last entry."""
        return self.entries[-1]

    @property
    def words(self) -> list[Entry]:
        """What people accepted."""
        return [entry for entry in self.entries if entry.kind == WORD]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the data that the ledger belongs to, as last accepted."""
        given = [entry.body["fingerprint"] for entry in self.words if "fingerprint" in entry.body]
        return str([self.entries[0].body["fingerprint"], *given][-1])

    @property
    def schema(self) -> str:
        """Hash of the feature schema that the data was encoded by, as last accepted; empty if there is none."""
        given = [entry.body["schema"] for entry in self.words if "schema" in entry.body]
        return str([self.entries[0].body.get("schema", ""), *given][-1])

    def remaining(self, event: Any) -> int:
        """Return how often the event may still happen: a comparison of two whole numbers."""
        return self.planned.get(event, 0) - self.charged.get(event, 0)

    @property
    def spent(self) -> Spent:
        """What the data has paid so far."""
        return Spent.of(self.charged, self.budget, self.unit, caveats=self.caveats, notes=self.notes)

    def statement(self, holder: str) -> str:
        """Return the promise in plain words; `holder` names whose data it is about."""
        declared = [] if self.public_rows is None else [self.public_rows]
        return self.spent.statement(holder, *declared)

    @property
    def notes(self) -> tuple[str, ...]:
        """What people said: words that they accepted, and settings that they called independent."""
        said = [f"{entry.body['accepted']!r} was accepted in entry {entry.number}" for entry in self.words]
        independent = [entry for entry in self.entries if entry.kind == PLAN and entry.body.get("independent")]
        return (
            *said,
            *(f"the settings of entry {entry.number} do not depend on what was released" for entry in independent),
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """What makes the account incomplete: what people accepted, and releases whose noise was not on a lattice."""
        said = tuple(entry.body["caveat"] for entry in self.words if "caveat" in entry.body)
        old = sum(count for event, count in self.charged.items() if event.numbers == 0)
        leaky = f"{old} releases were made by an earlier version, whose noise did not hide rows (SECURITY.md)"
        return (*said, leaky) if old else said
