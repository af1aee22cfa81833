"""Warnings about a ledger, and what is recorded when a person confirms one by its name.

other data      the rows changed            moved          the ledger comes from another machine
rolled back     an older copy took its place; no statement is a guarantee any more
same people     some rows have a ledger already: the older one pays for everything too
other people    the rows only look alike    second ledger  the older one is lost; no statement is a guarantee
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedvi.checks import one_of
from fedvi.errors import LedgerRolledBack, OtherData
from fedvi.privacy.ledger.entries import Book
from fedvi.privacy.ledger.witness import Related

OTHER_DATA, MOVED, ROLLED_BACK = "other data", "moved", "rolled back"
SAME_PEOPLE, OTHER_PEOPLE, SECOND_LEDGER = "same people", "other people", "second ledger"
WARNINGS = (OTHER_DATA, MOVED, ROLLED_BACK, SAME_PEOPLE, OTHER_PEOPLE, SECOND_LEDGER)

Body = dict[str, Any]  # what is recorded of a confirmation


def confirm(name: str) -> str:
    """Return how to confirm a warning, for messages."""
    return f"say --accept {name!r} (accept={name!r} in Python)"


def confirmed(accept: Collection[str]) -> set[str]:
    """Return the names of the warnings that a person confirms."""
    names = {accept} if isinstance(accept, str) else set(accept)
    for name in names:
        one_of("accept", name, WARNINGS)
    return names


def of_other_data(path: Path, book: Book, fingerprint: str, schema: str, accepted: set[str]) -> list[Body]:
    """Return what is recorded if the data or its schema changed, or raise `OtherData` to ask."""
    if (fingerprint, schema) == (book.fingerprint, book.schema):
        return []
    if OTHER_DATA in accepted:
        return [{"accepted": OTHER_DATA, "fingerprint": fingerprint, "schema": schema}]
    if schema != book.schema:
        raise OtherData(
            f"The data of ledger {path} was encoded by feature schema {book.schema[:12] or 'none'}, got "
            f"{schema[:12] or 'none'}. Use the same schema file; if the federation changed it, {confirm(OTHER_DATA)}."
        )
    raise OtherData(
        f"Ledger {path} belongs to other data. Open it with the rows that it was made for; if the data "
        f"changed, {confirm(OTHER_DATA)}."
    )


def of_move(path: Path, accepted: set[str]) -> list[Body]:
    """Return what is recorded if this machine does not know the ledger, or raise `LedgerRolledBack` to ask."""
    if MOVED in accepted:
        return [{"accepted": MOVED}]
    raise LedgerRolledBack(
        f"Ledger {path} is not known on this machine, so that nobody can tell whether it is the newest copy. If you "
        f"brought it here and it is, {confirm(MOVED)}."
    )


def of_rollback(path: Path, book: Book, missing: int | None, accepted: set[str]) -> list[Body]:
    """Return what is recorded if the book lacks an entry that existed, or raise `LedgerRolledBack` to ask."""
    if missing is None:
        return []
    if ROLLED_BACK in accepted:
        caveat = f"the ledger was rolled back from entry {missing} to entry {book.head.number}"
        return [{"accepted": ROLLED_BACK, "caveat": caveat}]
    raise LedgerRolledBack(
        f"Ledger {path} was rolled back: it lacks entry {missing}, which existed. Restore the newest copy. To go on "
        f"without what is lost, {confirm(ROLLED_BACK)}; no statement of this ledger will be a guarantee."
    )


def of_a_newer_ledger(identity: str, bodies: list[Body]) -> list[Body]:
    """Return what an older ledger of the same people records of the caveats of a newer one, for which it pays."""
    return [
        {**body, "for": identity, "caveat": f"of a newer ledger of the same people: {body['caveat']}"}
        for body in bodies
    ]


def of_other_ledgers(related: list[Related], accepted: set[str]) -> list[Body]:
    """Return what is recorded about older ledgers of some of the same rows, or raise `OtherData` to ask."""
    if not related:
        return []
    found = ", ".join(f"{each.path} ({each.overlap})" for each in related)
    chosen = [name for name in (SAME_PEOPLE, OTHER_PEOPLE, SECOND_LEDGER) if name in accepted]
    if len(chosen) != 1:
        raise OtherData(
            f"Some of this data has a ledger already: {found}. Open that one, if it is the same data. If it is about "
            "the same people, and nothing that was released about them had an influence on the new settings, "
            f"{confirm(SAME_PEOPLE)}: the older ledger pays for everything too. If other people only look alike, "
            f"{confirm(OTHER_PEOPLE)}. If the older ledger is lost, restore it or {confirm(SECOND_LEDGER)}."
        )
    body: Body = {"accepted": chosen[0], "overlap": found}
    if chosen[0] == SAME_PEOPLE:
        body["older"] = [{"path": each.path, "ledger": each.ledger} for each in related]
    if chosen[0] == SECOND_LEDGER:
        body["caveat"] = "the data had a ledger before this one, whose spending is not counted here"
    return [body]
