"""The contents of a ledger: entries chained by hashes, and the account that they add up to.

    chain_k = SHA-256(chain_{k-1}, number, time, kind, body)

An entry that was changed, dropped or moved breaks the chain after it. The chain is no signature: whoever may write the
file can write all of it anew. It is there to notice accidents.

| kind              | body                                                                                  |
|-------------------|---------------------------------------------------------------------------------------|
| `opened`          | identity of the ledger, budget, unit of privacy, declared number of rows, fingerprint |
|                   | and schema of the data                                                                |
| `declared`        | the declared number of rows of a ledger that was made without one                     |
| `plan`            | an event and how often it may happen; `anew` if plans made before were given up       |
| `charge`          | an event that is about to happen, or `times` of them, planned `for` another ledger    |
| `acknowledgement` | a warning that a person confirmed: other data, a move, a rollback                     |

Ledgers of version 0.1 have no format number, say `word` for `acknowledgement`, and `example` for the unit `row`. They
are read and continued.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from fedvi.errors import InputError, LedgerDamaged, LedgerError
from fedvi.files import digest, fingerprint
from fedvi.privacy import events
from fedvi.privacy.budget import Budget
from fedvi.privacy.ledger.locked import Locked
from fedvi.privacy.ledger.statement import Spent

OPENED, DECLARED, PLAN, CHARGE, ACKNOWLEDGEMENT = "opened", "declared", "plan", "charge", "acknowledgement"
OLD_ACKNOWLEDGEMENT, OLD_UNITS = "word", {"example": events.ROW}
"""Names that ledgers of version 0.1 hold, and what they are called now."""

FORMAT = 1
SCHEMA = f"""
PRAGMA application_id = 0x66656476;
PRAGMA user_version = {FORMAT};
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, chain TEXT NOT NULL
) STRICT;
CREATE TRIGGER never_changed BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER never_deleted BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
"""


class OlderLedger(NamedTuple):
    """A ledger of the same people: where it is, and its identity."""

    path: str
    ledger: str


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
        return cls(number, time, kind, body, digest([previous, number, time, kind, body], compact=False))


@dataclasses.dataclass
class Book:
    """A ledger's entries, checked, and what they add up to.

    planned, charged: how often each event may happen, and did. by_purpose: the latter by what it was for.
    identity: what tells this ledger from all others. key: of the data's fingerprint. unit: of privacy.
    public_rows: how many rows were declared, once and for all; None for ledgers of version 0.1 until used.
    fingerprint, schema: of the data that the ledger belongs to, and hash of its feature schema, as last accepted.
    older: the ledgers of the same people, which pay for everything too.
    """

    where: str
    entries: list[Entry] = dataclasses.field(default_factory=list)
    planned: dict[Any, int] = dataclasses.field(default_factory=dict)
    charged: dict[Any, int] = dataclasses.field(default_factory=dict)
    by_purpose: dict[str, dict[Any, int]] = dataclasses.field(default_factory=dict)
    identity: str = dataclasses.field(init=False)
    key: str = dataclasses.field(init=False)
    budget: Budget = dataclasses.field(init=False)
    unit: str = dataclasses.field(init=False)
    public_rows: int | None = None
    fingerprint: str = ""
    schema: str = ""
    older: tuple[OlderLedger, ...] = ()

    @classmethod
    def read(cls, entries: Iterable[Entry], where: str) -> Book:
        """Return the book that these entries make, or raise `LedgerDamaged`."""
        book = cls(where)
        for entry in entries:
            book.append(entry)
        if not book.entries:
            raise LedgerDamaged(f"Ledger {where} has no beginning: it was truncated, or it is no ledger. Restore it.")
        return book

    def following(self, *contents: tuple[str, dict[str, Any]]) -> list[Entry]:
        """Return new entries of these kinds and bodies that follow the last one, as of now."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        chain, first, entries = self.chain, len(self.entries), list[Entry]()
        for number, (kind, body) in enumerate(contents, first):
            entries.append(Entry.after(chain, number, now, kind, body))
            chain = entries[-1].chain
        return entries

    def append(self, entry: Entry) -> None:
        """Add an entry that follows the last one, or raise `LedgerDamaged`."""
        if entry != Entry.after(self.chain, len(self.entries), entry.time, entry.kind, entry.body):
            raise LedgerDamaged(f"Ledger {self.where} is damaged at entry {len(self.entries)}: its chain is broken.")
        try:
            if (entry.kind == OPENED) != (entry.number == 0):
                raise InputError(f"entry {entry.number} is {entry.kind!r}")
            body = entry.body
            if entry.kind == OPENED:
                self.identity, self.key, self.budget = str(body["ledger"]), str(body["salt"]), Budget(**body["budget"])
                self.unit = OLD_UNITS.get(body["unit"], str(body["unit"]))
            if entry.kind in (OPENED, DECLARED) and self.public_rows is None:
                self.public_rows = body.get("public_rows")
            if entry.kind == OPENED or _is_acknowledgement(entry):
                self.fingerprint = str(body.get("fingerprint", self.fingerprint))
                self.schema = str(body.get("schema", self.schema))
                self.older += tuple(OlderLedger(**older) for older in body.get("older", ()))
            if entry.kind == PLAN:
                event = events.from_json(body["event"])
                if body["anew"]:
                    self.planned = dict(self.charged)
                self.planned[event] = self.planned.get(event, 0) + body["updates"]
            if entry.kind == CHARGE:
                event, times = events.from_json(body["event"]), body.get("times", 1)
                for counts in (self.charged, self.by_purpose.setdefault(str(body.get("purpose", "")), {})):
                    counts[event] = counts.get(event, 0) + times
        except (KeyError, TypeError, InputError) as error:
            raise LedgerDamaged(f"Ledger {self.where} cannot be understood: {error}.") from error
        self.entries.append(entry)

    @property
    def chain(self) -> str:
        """The chain that the next entry follows."""
        return self.entries[-1].chain if self.entries else ""

    @property
    def head(self) -> Entry:
        """The last entry."""
        return self.entries[-1]

    @property
    def acknowledgements(self) -> list[Entry]:
        """The warnings that people confirmed."""
        return [entry for entry in self.entries if _is_acknowledgement(entry)]

    def remaining(self, event: Any) -> int:
        """Return how often the event may still happen: a comparison of two whole numbers."""
        return self.planned.get(event, 0) - self.charged.get(event, 0)

    def closed(self, event: Any, updates: int, already: dict[Any, int]) -> str:
        """Say that so many more of the event would spend too much beside what is planned or charged already."""
        total = {**already, event: already.get(event, 0) + updates}
        which = f"Update {total[event]}" if updates == 1 else f"{updates} updates"
        return (
            f"{which} would spend eps={self.budget.spent(total):.4g} of {self.budget.epsilon:g}"
            f"{' beside what is planned' if already is self.planned and already else ''}: budget closed."
        )

    def late(self) -> str:
        """Say that settings were chosen after releases, and what to do."""
        return (
            f"{sum(self.charged.values())} releases were made under the plans of {self.where}, and accountant "
            f"{self.budget.accountant!r} covers only settings that were fixed before them. If nothing that was "
            "released had an influence on the new ones, say independent=True; otherwise use accountant 'filter'."
        )

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
        """What people said: warnings that they confirmed, and settings that they called independent."""
        said = [f"{entry.body['accepted']!r} was accepted in entry {entry.number}" for entry in self.acknowledgements]
        independent = [entry for entry in self.entries if entry.kind == PLAN and entry.body.get("independent")]
        return (
            *said,
            *(f"the settings of entry {entry.number} do not depend on what was released" for entry in independent),
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """What makes the account incomplete: confirmed warnings, and releases whose noise was not on a lattice."""
        said = tuple(entry.body["caveat"] for entry in self.acknowledgements if "caveat" in entry.body)
        old = sum(count for event, count in self.charged.items() if event.numbers == 0)
        leaky = f"{old} releases were made by an earlier version, whose noise did not hide rows (SECURITY.md)"
        return (*said, leaky) if old else said


def _is_acknowledgement(entry: Entry) -> bool:
    return entry.kind in (ACKNOWLEDGEMENT, OLD_ACKNOWLEDGEMENT)


def opening(
    identity: str, key: str, data: str, unit: str, schema: str, budget: Budget, public_rows: int | None
) -> dict[str, Any]:
    """Return the body of an `opened` entry, for a budget that a ledger can keep. data: `rows_digest` of the rows."""
    if not isinstance(budget, Budget) or budget.caveat:
        raise InputError(f"Expected a budget that is a guarantee, got {budget!r}.")
    if budget.all_of({}):
        raise InputError(f"Expected the whole budget of the data, got {budget!r}. Plan its events in the ledger.")
    if not isinstance(budget.delta, float):
        raise InputError(f"Expected delta as a number, got {budget.delta!r}. Use budget.fixed(rows).")
    body = {
        "ledger": identity,
        "salt": key,
        "fingerprint": fingerprint(key, data),
        "unit": unit,
        "schema": schema,
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta, "accountant": budget.accountant},
    }
    return body if public_rows is None else {**body, "public_rows": public_rows}


def write_entries(database: Locked, entries: Iterable[Entry]) -> None:
    """Write entries. Within a transaction."""
    for entry in entries:
        database.insert("entries", (entry.number, entry.time, entry.kind, json.dumps(entry.body), entry.chain))


def read_book(database: Locked) -> Book:
    """Return the book in a ledger's file, or raise `LedgerDamaged`; `LedgerError` if a newer fedvi has made it."""
    where = str(database.of_format("a ledger", 0, FORMAT).path)
    try:
        found = database.execute("SELECT number, time, kind, body, chain FROM entries ORDER BY number")
        entries = [Entry(number, time, kind, json.loads(body), chain) for number, time, kind, body, chain in found]
    except (ValueError, LedgerError) as error:
        raise LedgerDamaged(
            f"Expected a ledger at {where}, got a file without entries that can be read ({error}). If it is something "
            "else, give the ledger's own path. If not, it is damaged: restore the newest copy."
        ) from error
    return Book.read(entries, where)
