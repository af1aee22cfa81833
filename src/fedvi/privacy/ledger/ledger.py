"""The privacy ledger of one data set: everything that was ever released from it, paid before it was drawn.

    plan     settings and how often they may be used; checked against the budget by the accountant, once
    charge   one use, durably on disk before anything is drawn; a comparison of two whole numbers, no refunds

A ledger belongs to a data set, not to a run: all that is released from the data, training or preprocessing, is composed
in one account. The entry of a charge is committed and synced before `charge` returns, so that a process that is killed
at any instant has recorded at least what it released.

Accountants other than `filter` prove epsilon for settings that do not depend on what was released. So plans are made
before the first charge. Later ones need the accountant `filter`, or a person's word (`independent=True`) that nothing
released had an influence on them.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Collection, Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.checks import one_of, whole
from fedvi.errors import BudgetClosed, ChosenLate, InputError, LedgerError, LedgerRolledBack, OtherData
from fedvi.privacy import events
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import CLIENT, EXAMPLE
from fedvi.privacy.ledger import storage, witness
from fedvi.privacy.ledger.entries import CHARGE, OPENED, PLAN, WORD, Book, Entry
from fedvi.privacy.ledger.overlap import Sketch
from fedvi.privacy.ledger.statement import Spent

SCHEMA = """
PRAGMA application_id = 0x66656476;
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, chain TEXT NOT NULL
) STRICT;
CREATE TRIGGER never_changed BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER never_deleted BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
"""

OTHER_DATA, MOVED, ROLLED_BACK = "other data", "moved", "rolled back"
SAME_PEOPLE, OTHER_PEOPLE, SECOND_LEDGER = "same people", "other people", "second ledger"
TRAINING = "training"
WORDS = (OTHER_DATA, MOVED, ROLLED_BACK, SAME_PEOPLE, OTHER_PEOPLE, SECOND_LEDGER)
"""What a person may accept in so many words."""


def digest(x: Any, y: Any) -> str:
    """Return a digest of the rows of a data set, in whatever order and floating-point type they come."""
    features, targets = (np.asarray(part, np.float32).reshape(len(part), -1) for part in (x, y))
    table = np.ascontiguousarray(np.concatenate([features, targets], axis=1)) + np.float32(0)  # -0 is 0
    rows = sorted(hashlib.blake2b(row.data, digest_size=32).digest() for row in table)
    shape = f"{table.shape[0]} rows of {features.shape[1]} and {targets.shape[1]} columns "
    return hashlib.sha256(shape.encode() + b"".join(rows)).hexdigest()


class Ledger(storage.Closing):
    """An open ledger; use it in a `with` statement. No other process can open it meanwhile."""

    def __init__(self, path: Path, connection: sqlite3.Connection, book: Book, seen: witness.Witness):
        self._path, self._connection, self._book, self._witness = path, connection, book, seen
        self._process, self._file = os.getpid(), os.stat(path).st_ino

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        budget: Budget,
        data: str,
        *,
        unit: str = EXAMPLE,
        schema: str = "",
        public_rows: int | None = None,
        sketch: Sketch | None = None,
        accept: Collection[str] = (),
    ) -> Ledger:
        """Make the ledger of a data set.

        data: `digest(x, y)` of its rows. schema: hash of the feature schema that they were encoded by, if any.
        public_rows: the number of rows that is declared for ever. sketch: of the rows, to notice older ledgers.
        accept: one of these, if some of the rows have a ledger already: `same people`, whose older ledgers then pay for
            everything that is planned here too; `other people`, a person's word that the rows only look alike; `second
            ledger`, if the older one is lost: its spending is not counted, and no statement is a guarantee.
        """
        path, accepted = Path(path), _accepted(accept)
        one_of("unit", unit, (EXAMPLE, CLIENT))
        _check_budget(budget)
        with witness.creating():
            words = _about_others(witness.related(data, sketch or _NO_SKETCH), accepted)
            salt, identity = secrets.token_hex(32), secrets.token_hex(16)
            unfinished = path.with_name(f"{path.name}.unfinished")
            unfinished.unlink(missing_ok=True)  # of a process that was killed
            storage.require_none(path)
            connection = storage.create(unfinished, SCHEMA)
            try:
                seen = witness.Witness.create(identity, path.resolve(), salt)
            except BaseException:
                connection.close()
                unfinished.unlink(missing_ok=True)
                raise
            ledger = cls(unfinished, connection, Book(str(path)), seen)
            try:
                ledger._begin(identity, salt, data, unit, budget, schema, public_rows, words)
                if sketch is not None:
                    seen.remember(sketch)
                ledger._take_place(path)
            except BaseException:
                ledger._connection.close()
                seen.discard()
                ledger._path.unlink(missing_ok=True)
                raise
        return ledger

    def _take_place(self, path: Path) -> None:
        """Move from where the file was made to where it belongs: who is killed before leaves no ledger behind."""
        self._connection.close()
        self._witness.expect(self._book.head)
        try:
            storage.put_in_place(self._path, path)
        except FileExistsError:
            raise LedgerError(f"{path} exists already. Open it, or choose another name.") from None
        self._path = path
        self._connection = storage.lock(path)
        self._witness.see(self._book.head)

    def _begin(
        self,
        identity: str,
        salt: str,
        data: str,
        unit: str,
        budget: Budget,
        schema: str,
        public_rows: int | None,
        words: list[dict[str, Any]],
    ) -> None:
        print_of_data = witness.fingerprint(salt, data)
        self._witness.belongs_to(print_of_data)
        opening: dict[str, Any] = {
            "ledger": identity,
            "salt": salt,
            "fingerprint": print_of_data,
            "unit": unit,
            "schema": schema,
            "budget": {"epsilon": budget.epsilon, "delta": budget.delta, "accountant": budget.accountant},
        }
        if public_rows is not None:
            opening |= {"public_rows": public_rows}
        self._write((OPENED, opening), *((WORD, word) for word in words))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        data: str,
        *,
        schema: str = "",
        sketch: Sketch | None = None,
        accept: Collection[str] = (),
    ) -> Ledger:
        """Open the ledger of a data set.

        data: `digest(x, y)` of its rows. schema: hash of the feature schema that they were encoded by, if any.
        sketch: of the rows. If these changed, or the ledger was moved, older ledgers of the same people are noticed as
            in `create`; they then pay for what is planned here and not yet used.
        accept: what a person accepts in so many words, each of which is recorded: `other data` if the data changed,
        `moved` if the ledger comes from another machine, `rolled back` if an older copy took its place.
        """
        path, accepted = Path(path), _accepted(accept)
        connection = storage.lock(path)
        seen: witness.Witness | None = None
        try:
            book = _read(connection, path)
            opening = book.entries[0].body
            words: list[dict[str, Any]] = []
            others: list[dict[str, Any]] = []
            print_of_data = witness.fingerprint(opening["salt"], data)
            if (print_of_data, schema) != (book.fingerprint, book.schema):
                if OTHER_DATA not in accepted:
                    raise OtherData(_other_data(path, book, schema))
                words.append({"accepted": OTHER_DATA, "fingerprint": print_of_data, "schema": schema})
            seen = witness.Witness.open(opening["ledger"], path, book.head)
            if words or seen is None:
                others = _about_others(witness.related(data, sketch or _NO_SKETCH, opening["ledger"]), accepted)
            if seen is None:
                if MOVED not in accepted:
                    raise LedgerRolledBack(
                        f"Ledger {path} is not known on this machine, so that nobody can tell whether it is the newest "
                        f"copy. If you brought it here and it is, accept {MOVED!r}."
                    )
                seen = witness.Witness.create(opening["ledger"], path.resolve(), opening["salt"])
                seen.belongs_to(book.fingerprint)
                words.append({"accepted": MOVED})
            missing = seen.saw_more_than(book)
            if missing is not None:
                if ROLLED_BACK not in accepted:
                    raise LedgerRolledBack(
                        f"Ledger {path} was rolled back: it lacks entry {missing}, which existed. Restore the newest "
                        f"copy. To go on without what is lost, accept {ROLLED_BACK!r}; no statement of this ledger "
                        "will be a guarantee."
                    )
                caveat = f"the ledger was rolled back from entry {missing} to entry {book.head.number}"
                words.append({"accepted": ROLLED_BACK, "caveat": caveat})
            ledger = cls(path, connection, book, seen)
            for older in (older for word in others for older in word.get("older", ())):
                for event in book.planned:
                    ledger._have_paid(older, event, book.remaining(event), TRAINING)
            if words or others:
                ledger._append(*((WORD, word) for word in (*words, *others)))
            seen.see(book.head)
            seen.belongs_to(print_of_data)
            if sketch is not None:
                seen.remember(sketch)
            return ledger
        except BaseException:
            connection.close()
            if seen is not None:
                seen.close()
            raise

    @property
    def book(self) -> Book:
        """What the ledger holds."""
        return self._book

    @property
    def spent(self) -> Spent:
        """What the data has paid so far."""
        return self._book.spent

    def remaining(self, event: Hashable) -> int:
        """Return how often the event may still happen."""
        return self._book.remaining(event)

    def plan(
        self,
        event: Hashable,
        updates: int | None = None,
        purpose: str = TRAINING,
        *,
        independent: bool = False,
    ) -> int:
        """Plan that the event may happen so many times more, and return how often it may.

        updates: None for as many as the budget admits beside the other plans. Planning an event again without a number
        changes nothing.
        independent: a person's word that nothing released from this data had an influence on these settings. Plans made
        before are given up, as far as they were not used.
        """
        if updates is None and event in self._book.planned:
            return self.remaining(event)
        anew = bool(self._book.charged)
        if anew and self._book.budget.accountant != "filter" and not independent:
            released, accountant = sum(self._book.charged.values()), self._book.budget.accountant
            raise ChosenLate(
                f"{released} releases were made under the plans of {self._path}, and accountant {accountant!r} covers "
                "only settings that were fixed before them. If nothing that was released had an influence on the new "
                "ones, say independent=True; otherwise use accountant 'filter'."
            )
        already = self._book.charged if anew else self._book.planned
        most = self._book.budget.most_updates(event, already)
        wanted = most if updates is None else updates
        whole("updates", wanted, 0 if updates is None else 1)
        if wanted > most or wanted == 0:
            raise BudgetClosed(self._closed(event, max(wanted, 1), already))
        said = {"independent": True} if anew and independent else {}
        body = {"event": events.to_json(event), "updates": wanted, "purpose": purpose, "anew": anew, **said}
        for older in self._book.older:
            self._have_paid(older, event, wanted, purpose)
        self._append((PLAN, body))
        return self.remaining(event)

    def _have_paid(self, older: dict[str, str], event: Hashable, updates: int, purpose: str) -> None:
        """Have an older ledger of the same people pay for what the next entry here will plan or admit."""
        if updates > 0:
            with _of_same_people(**older) as ledger:
                bill = {"for": self._book.entries[0].body["ledger"], "entry": len(self._book.entries)}
                ledger._pay(event, updates, purpose, bill, self._book.unit, {bill["for"]})

    def _pay(
        self, event: Hashable, updates: int, purpose: str, bill: dict[str, Any], unit: str, asked: set[str]
    ) -> None:
        """Pay at once for all that a newer ledger of the same people plans; a second time it is paid already.

        Ledgers that are older still pay before, unless they were asked already.
        """
        asked = asked | {self._book.entries[0].body["ledger"]}
        for older in self._book.older:
            if older["ledger"] not in asked:
                with _of_same_people(**older) as ledger:
                    ledger._pay(event, updates, purpose, bill, unit, asked)
        charge = {"event": events.to_json(event), "purpose": purpose, "times": updates, **bill}
        if any(entry.kind == CHARGE and entry.body == charge for entry in self._book.entries):
            return
        if self._book.unit != unit:
            raise LedgerError(
                f"{self._path}, a ledger of the same people, is for one {self._book.unit}, not for one {unit}: it "
                "cannot pay for the new one. Use the same unit."
            )
        if updates > self._book.budget.most_updates(event, self._book.planned):
            raise BudgetClosed(
                f"Of {self._path}, a ledger of the same people: " + self._closed(event, updates, self._book.planned)
            )
        plan = {"event": charge["event"], "updates": updates, "purpose": purpose, "anew": False, "independent": True}
        self._append((PLAN, plan), (CHARGE, charge))

    def charge(self, event: Hashable, purpose: str = TRAINING) -> int:
        """Pay for one use of a planned event, durably, and return the entry's number; or raise `BudgetClosed`."""
        if self.remaining(event) <= 0:
            if event not in self._book.planned:
                raise LedgerError(f"Expected a planned event, got {event!r}. Use ledger.plan(event) first.")
            used = self._book.charged[event]
            if self._book.budget.spent({**self._book.charged, event: used + 1}) <= self._book.budget.epsilon:
                raise BudgetClosed(f"Planned {used} times and used as often: the plan of this event is closed.")
            raise BudgetClosed(self._closed(event, 1, self._book.charged))
        self._append((CHARGE, {"event": events.to_json(event), "purpose": purpose}))
        return self._book.head.number

    def close(self) -> None:
        """Let others open the ledger."""
        self._connection.close()
        self._witness.close()

    def _closed(self, event: Hashable, updates: int, already: dict[Any, int]) -> str:
        budget = self._book.budget
        total = {**already, event: already.get(event, 0) + updates}
        which = f"Update {total[event]}" if updates == 1 else f"{updates} updates"
        return (
            f"{which} would spend eps={budget.spent(total):.4g} of {budget.epsilon:g}"
            f"{' beside what is planned' if already is self._book.planned and already else ''}: budget closed."
        )

    def _append(self, *contents: tuple[str, dict[str, Any]]) -> None:
        """Write entries in one transaction, sync it, tell the witness."""
        self._write(*contents)
        self._witness.see(self._book.head)

    def _write(self, *contents: tuple[str, dict[str, Any]]) -> None:
        """Write entries in one transaction and sync it; only then do they count here."""
        self._require_own()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        previous, number, entries = self._book.link, len(self._book.entries), []
        for kind, body in contents:
            entries.append(Entry.after(previous, number, now, kind, body))
            previous, number = entries[-1].chain, number + 1
        rows = [(entry.number, entry.time, entry.kind, json.dumps(entry.body), entry.chain) for entry in entries]
        with storage.explained(self._path), self._connection:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
        for entry in entries:
            self._book.append(entry)

    def _require_own(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(f"Ledger {self._path} was opened by another process. Open it where it is used.")
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._file:
                return
        raise LedgerError(f"Ledger {self._path} was moved, replaced or deleted while it was open. Restore it.")


_NO_SKETCH = Sketch.of([])


def _about_others(related: list[witness.Related], accepted: set[str]) -> list[dict[str, Any]]:
    """Return what is recorded about older ledgers of some of the same rows, or raise `OtherData` to have it said."""
    if not related:
        return []
    found = ", ".join(f"{each.path} ({each.overlap})" for each in related)
    said = [word for word in (SAME_PEOPLE, OTHER_PEOPLE, SECOND_LEDGER) if word in accepted]
    if len(said) != 1:
        raise OtherData(
            f"Some of this data has a ledger already: {found}. Open that one, if it is the same data. If it is about "
            f"the same people, and nothing that was released about them had an influence on the new settings, accept "
            f"{SAME_PEOPLE!r}: the older ledger pays for everything too. If other people only look alike, accept "
            f"{OTHER_PEOPLE!r}. If the older ledger is lost, restore it or accept {SECOND_LEDGER!r}."
        )
    word: dict[str, Any] = {"accepted": said[0], "overlap": found}
    if said[0] == SAME_PEOPLE:
        word["older"] = [{"path": each.path, "ledger": each.ledger} for each in related]
    if said[0] == SECOND_LEDGER:
        word["caveat"] = "the data had a ledger before this one, whose spending is not counted here"
    return [word]


@contextlib.contextmanager
def _of_same_people(path: str, ledger: str) -> Iterator[Ledger]:
    """Open an older ledger to pay from it, without its rows. ledger: its identity."""
    if not os.path.isfile(path):
        raise OtherData(f"The older ledger of the same people, {path}, is not there. Restore it.")
    where = Path(path)
    connection = storage.lock(where)
    try:
        book = _read(connection, where)
        if book.entries[0].body["ledger"] != ledger:
            raise OtherData(f"{path} is not the older ledger of the same people, but another. Restore that one.")
        seen = witness.Witness.open(ledger, where, book.head)
    except BaseException:
        connection.close()
        raise
    if seen is None or seen.saw_more_than(book) is not None:
        connection.close()
        raise LedgerRolledBack(f"Ledger {path} is not the newest copy, or not of this machine. Restore it.")
    with Ledger(where, connection, book, seen) as opened:
        yield opened


def read(path: str | os.PathLike[str]) -> Book:
    """Read a ledger without opening it; works while another process has it open."""
    connection = storage.look(Path(path))
    with contextlib.closing(connection):
        return _read(connection, Path(path))


def verify_witness(book: Book) -> str:
    """Say whether the witness on this machine has seen nothing newer than the book, or raise `LedgerRolledBack`."""
    missing = witness.newest_missing(book)
    if missing is not None:
        raise LedgerRolledBack(f"Ledger {book.where} lacks entry {missing}, which its witness saw: an older copy.")
    if not witness.exists(book):
        return "No witness on this machine: whether this is the newest copy cannot be told here."
    return "The witness on this machine has seen nothing newer."


def _read(connection: sqlite3.Connection, path: Path) -> Book:
    def entries() -> Iterator[Entry]:
        for number, time, kind, body, chain in connection.execute("SELECT * FROM entries ORDER BY number"):
            yield Entry(number, time, kind, json.loads(body), chain)

    with storage.explained(path):
        try:
            return Book.read(entries(), str(path))
        except (ValueError, sqlite3.OperationalError) as error:
            raise sqlite3.DatabaseError(f"no readable entries ({error})") from error


def _other_data(path: Path, book: Book, schema: str) -> str:
    if schema != book.schema:
        return (
            f"The data of ledger {path} was encoded by feature schema {book.schema[:12] or 'none'}, got "
            f"{schema[:12] or 'none'}. Use the same schema file; if the federation changed it, accept {OTHER_DATA!r}."
        )
    return (
        f"Ledger {path} belongs to other data. Open it with the rows that it was made for; if the data "
        f"changed, accept {OTHER_DATA!r}."
    )


def _check_budget(budget: Budget) -> None:
    if not isinstance(budget, Budget) or budget.caveat:
        raise InputError(f"Expected a budget that is a guarantee, got {budget!r}.")
    if budget.all_of({}):
        raise InputError(f"Expected the whole budget of the data, got {budget!r}. Plan its events in the ledger.")
    if not isinstance(budget.delta, float):
        raise InputError(f"Expected delta as a number, got {budget.delta!r}. Use budget.fixed(rows).")


def _accepted(accept: Collection[str]) -> set[str]:
    words = {accept} if isinstance(accept, str) else set(accept)
    for word in words:
        one_of("accept", word, WORDS)
    return words
