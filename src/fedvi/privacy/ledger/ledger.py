"""The privacy ledger of one data set: everything that was ever released from it, paid before it was drawn.

    plan     settings and how often they may be used; checked against the budget by the accountant, once
    charge   one use, durably on disk before anything is drawn; a comparison of two whole numbers, no refunds

A ledger belongs to a data set, not to a run: all that is released from the data, training or preprocessing, is composed
in one account. The entry of a charge is committed and synced before `charge` returns, so that a process that is killed
at any instant has recorded at least what it released.

Accountants other than `filter` prove epsilon for settings that do not depend on what was released. So plans are made
before the first charge. Later ones need the accountant `filter`, or a person who confirms (`independent=True`) that
nothing released had an influence on them.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedvi.checks import one_of, whole
from fedvi.errors import BudgetClosed, ChosenLate, LedgerError, LedgerRolledBack, OtherData
from fedvi.files import Closing, fingerprint
from fedvi.privacy import events
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import CLIENT, ROW, AnyEvent
from fedvi.privacy.ledger import acknowledgements, witness
from fedvi.privacy.ledger.entries import (
    ACKNOWLEDGEMENT,
    CHARGE,
    DECLARED,
    OPENED,
    PLAN,
    SCHEMA,
    Book,
    OlderLedger,
    opening,
    read_book,
    write_entries,
)
from fedvi.privacy.ledger.locked import Locked
from fedvi.privacy.ledger.overlap import Sketch
from fedvi.privacy.ledger.statement import Spent

TRAINING = "training"
Olders = Sequence[OlderLedger]


class Ledger(Closing):
    """An open ledger; use it in a `with` statement. No other process can open it meanwhile."""

    def __init__(self, path: Path, database: Locked, book: Book, seen: witness.Witness):
        self._path, self._database, self._book, self._witness = path, database, book, seen
        self._process, self._file = os.getpid(), os.stat(path).st_ino

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        budget: Budget,
        data: str,
        *,
        unit: str = ROW,
        schema: str = "",
        public_rows: int | None = None,
        sketch: Sketch | None = None,
        accept: Collection[str] = (),
    ) -> Ledger:
        """Make the ledger of a data set.

        data: `rows_digest(x, y)`. schema: digest of the feature schema that they were encoded by, if any.
        public_rows: the number of rows that is declared for ever. sketch: of the rows, to notice older ledgers.
        accept: one of these, if some of the rows have a ledger already: `same people`, whose older ledgers then pay for
            everything that is planned here too; `other people`, if the rows only look alike; `second ledger`, if the
            older one is lost: its spending is not counted, and no statement is a guarantee.
        """
        path, accepted = Path(path), acknowledgements.confirmed(accept)
        one_of("unit", unit, (ROW, CLIENT))
        identity, key = secrets.token_hex(16), secrets.token_hex(32)
        body = opening(identity, key, data, unit, schema, budget, public_rows)
        with witness.creating(), contextlib.ExitStack() as undo:
            others = acknowledgements.of_other_ledgers(witness.related(data, sketch), accepted)
            entries = Book(str(path)).following((OPENED, body), *((ACKNOWLEDGEMENT, other) for other in others))
            for left in glob.glob(f".{glob.escape(path.name)}.*.unfinished*", root_dir=path.parent):
                (path.parent / left).unlink(missing_ok=True)  # of a process that was killed
            lock = undo.enter_context(witness.claim(identity, path))
            seen = witness.Witness.create(lock, identity, path.resolve(), key)
            undo.callback(seen.discard)
            seen.belongs_to(body["fingerprint"])
            if sketch is not None:
                seen.remember(sketch)
            seen.expect(entries[-1])  # before the ledger is in its place: who is killed between needs no witness
            database = Locked.create(path, SCHEMA, lambda made: write_entries(made, entries))
            undo.callback(path.unlink, missing_ok=True)
            undo.callback(database.close)
            book = read_book(database)
            if book.entries != entries:
                raise LedgerError(f"{path} holds something else than was written: take away what is left beside it.")
            seen.see(book.head)
            undo.pop_all()
        return cls(path, database, book, seen)

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

        data, schema: as in `create`. sketch: of the rows. If these changed, or the ledger was moved, older ledgers of
            the same people are noticed as there. They pay for what may still be used here; after a move, for all of it.
        accept: the warnings that a person confirms, each of which is recorded: `other data` if the data changed,
        `moved` if the ledger comes from another machine, `rolled back` if an older copy took its place.
        """
        path, accepted = Path(path), acknowledgements.confirmed(accept)
        with contextlib.ExitStack() as undo:
            lock, database, book = witness.claimed(path, undo)
            print_of_data = fingerprint(book.key, data)
            bodies = acknowledgements.of_other_data(path, book, print_of_data, schema, accepted)
            seen = witness.Witness.open(lock, book.identity, book.head)
            undo.enter_context(seen or contextlib.nullcontext())
            others, moved = [], seen is None
            if bodies or seen is None or seen.saw_nothing:  # its maker was killed; another may have been made meanwhile
                own = seen.first_sketch if seen is not None and seen.saw_nothing else None
                related = witness.related(data, sketch or own, book.identity)
                others = acknowledgements.of_other_ledgers(related, accepted)
            if seen is None:
                bodies += acknowledgements.of_move(path, accepted)
                seen = undo.enter_context(witness.Witness.create(lock, book.identity, path.resolve(), book.key))
                seen.belongs_to(book.fingerprint)
            lost = acknowledgements.of_rollback(path, book, seen.saw_more_than(book), accepted)
            ledger = cls(path, database, book, seen)
            found = [OlderLedger(**older) for body in others for older in body.get("older", ())]
            for caution in acknowledgements.of_a_newer_ledger(book.identity, lost):
                ledger._tell((*book.older, *found), functools.partial(Ledger._note, body=caution))
            for event, planned in book.planned.items():
                ledger._have_paid(found, event, planned if moved else book.remaining(event), TRAINING)
            seen.belongs_to(print_of_data)  # before the entry: from then on nobody is asked again
            if sketch is not None:
                seen.remember(sketch)
            if said := [*bodies, *lost, *others]:
                ledger._append(*((ACKNOWLEDGEMENT, body) for body in said))
            seen.see(book.head)
            undo.pop_all()
            return ledger

    @property
    def book(self) -> Book:
        """What the ledger holds."""
        return self._book

    @property
    def spent(self) -> Spent:
        """What the data has paid so far."""
        return self._book.spent

    def remaining(self, event: AnyEvent) -> int:
        """Return how often the event may still happen."""
        return self._book.remaining(event)

    def declare(self, public_rows: int) -> None:
        """Declare the number of rows for ever, if the ledger was made without one."""
        if self._book.public_rows is None:
            self._append((DECLARED, {"public_rows": public_rows}))

    def plan(
        self,
        event: AnyEvent,
        updates: int | None = None,
        purpose: str = TRAINING,
        *,
        independent: bool = False,
    ) -> int:
        """Plan that the event may happen so many times more, and return how often it may.

        updates: None for as many as the budget admits beside the other plans. Planning an event again without a number
        changes nothing.
        independent: a person confirms that nothing released from this data had an influence on these settings. Plans
        made before are given up, as far as they were not used.
        """
        if updates is None and event in self._book.planned:
            return self.remaining(event)
        anew = bool(self._book.charged)
        if anew and self._book.budget.accountant != "filter" and not independent:
            raise ChosenLate(self._book.late())
        already = self._book.charged if anew else self._book.planned
        most = self._book.budget.most_updates(event, already)
        wanted = most if updates is None else updates
        whole("updates", wanted, 0 if updates is None else 1)
        if wanted > most or wanted == 0:
            raise BudgetClosed(self._book.closed(event, max(wanted, 1), already))
        said = {"independent": True} if anew and independent else {}
        body = {"event": events.to_json(event), "updates": wanted, "purpose": purpose, "anew": anew, **said}
        self._have_paid(self._book.older, event, wanted, purpose)
        self._append((PLAN, body))
        return self.remaining(event)

    def _tell(self, olders: Olders, record: Callable[[Ledger], None], told: frozenset[str] = frozenset()) -> None:
        """Have older ledgers of the same people record something; those that are older still do so before."""
        told |= {self._book.identity}
        for older in (older for older in olders if older.ledger not in told):
            with _of_same_people(older) as ledger:
                ledger._tell(ledger._book.older, record, told)
                record(ledger)

    def _note(self, body: dict[str, Any]) -> None:
        """Record what happened to a newer ledger of the same people, once."""
        if all(entry.body != body for entry in self._book.acknowledgements):
            self._append((ACKNOWLEDGEMENT, body))

    def _have_paid(self, olders: Olders, event: AnyEvent, updates: int, purpose: str) -> None:
        """Have older ledgers of the same people pay for what the next entry here will plan or admit."""
        whose = {"for": self._book.identity, "entry": len(self._book.entries)}
        charge = {"event": events.to_json(event), "purpose": purpose, "times": updates, **whose}
        if updates > 0:
            self._tell(olders, lambda older: older._pay(event, updates, charge, self._book.unit))

    def _pay(self, event: AnyEvent, updates: int, charge: dict[str, Any], unit: str) -> None:
        """Pay at once for all that a newer ledger of the same people plans; a second time it is paid already."""
        if any(paid.kind == CHARGE and paid.body == charge for paid in self._book.entries):
            return
        if self._book.unit != unit:
            raise LedgerError(
                f"{self._path}, a ledger of the same people, is for one {self._book.unit}, not for one {unit}: it "
                "cannot pay for the new one. Use the same unit."
            )
        if updates > self._book.budget.most_updates(event, self._book.planned):
            closed = self._book.closed(event, updates, self._book.planned)
            raise BudgetClosed(f"Of {self._path}, a ledger of the same people: {closed}")
        plan = {name: charge[name] for name in ("event", "purpose")}
        plan |= {"updates": updates, "anew": False, "independent": True}
        self._append((PLAN, plan), (CHARGE, charge))

    def charge(self, event: AnyEvent, purpose: str = TRAINING) -> int:
        """Pay for one use of a planned event, durably, and return the entry's number; or raise `BudgetClosed`."""
        if self.remaining(event) <= 0:
            if event not in self._book.planned:
                raise LedgerError(f"Expected a planned event, got {event!r}. Use ledger.plan(event) first.")
            used = self._book.charged[event]
            if self._book.budget.spent({**self._book.charged, event: used + 1}) <= self._book.budget.epsilon:
                raise BudgetClosed(f"Planned {used} times and used as often: the plan of this event is closed.")
            raise BudgetClosed(self._book.closed(event, 1, self._book.charged))
        self._append((CHARGE, {"event": events.to_json(event), "purpose": purpose}))
        return self._book.head.number

    def close(self) -> None:
        """Let others open the ledger."""
        self._database.close()
        self._witness.close()

    def _append(self, *contents: tuple[str, dict[str, Any]]) -> None:
        """Write entries in one transaction and sync it; only then do they count here, and the witness is told."""
        self._require_own()
        entries = self._book.following(*contents)
        with self._database.transaction():
            write_entries(self._database, entries)
        for entry in entries:
            self._book.append(entry)
        self._witness.see(self._book.head)

    def _require_own(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(f"Ledger {self._path} was opened by another process. Open it where it is used.")
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._file:
                return
        raise LedgerError(f"Ledger {self._path} was moved, replaced or deleted while it was open. Restore it.")


@contextlib.contextmanager
def _of_same_people(older: OlderLedger) -> Iterator[Ledger]:
    """Open an older ledger to pay from it, without its rows."""
    path = Path(older.path)
    if not path.is_file():
        raise OtherData(f"The older ledger of the same people, {path}, is not there. Restore it.")
    with contextlib.ExitStack() as undo:
        lock, database, book = witness.claimed(path, undo)
        if book.identity != older.ledger:
            raise OtherData(f"{path} is not the older ledger of the same people, but another. Restore that one.")
        seen = witness.Witness.open(lock, older.ledger, book.head)
        undo.enter_context(seen or contextlib.nullcontext())
        if seen is None or seen.saw_more_than(book) is not None:
            raise LedgerRolledBack(f"Ledger {path} is not the newest copy, or not of this machine. Restore it.")
        yield Ledger(path, database, book, seen)


def read(path: str | os.PathLike[str]) -> Book:
    """Read a ledger without opening it; works while another process has it open."""
    with Locked.look(Path(path)) as database:
        return read_book(database)
