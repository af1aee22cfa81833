"""What the target of a sample becomes.

    two values        a class; the event is the one that is named, the second one in an order that somebody gave, the
                      one whose name says so, or the larger of two numbers
    more numbers      a number; its scale is the standard deviation of the residuals of a ridge regression (in `infer`)

Classes of three and more, counts and times to an event are named as such and refused: there is no model for them yet.
"""

from __future__ import annotations

from collections.abc import Collection

from fedvi.checks import near
from fedvi.errors import InputError
from fedvi.tables.inferring.decisions import Decision, Question, Wishes, listed
from fedvi.tables.inferring.features import LEAST_RANGE, bounds, distinct
from fedvi.tables.inferring.summary import MOST_NUMERIC, Summary
from fedvi.tables.inferring.vocabulary import event_of, is_duration, is_event
from fedvi.tables.reading.words import plain
from fedvi.tables.targets import BinaryTarget, NumberTarget, Target

MOST_CLASSES, FEW = 10, 3
"""So many different whole numbers may be classes, and so few are some even if numbers between them are not there."""

ZEROS = 0.02
"""Share of zeros from which on whole numbers are counts."""

NOT_YET = "fedvi has models for two classes and for numbers so far."


def decide_target(
    found: Summary, table: str, others: Collection[str], wishes: Wishes, questions: list[Question]
) -> Decision:
    """Return the target, or raise `InputError`. others: names of the other columns."""
    name = found.name
    if found.measured == 0:
        raise InputError(f"Expected values in column {name!r} of {table}, the target, got none.")
    numeric = found.numbers > MOST_NUMERIC * found.measured and name not in wishes.category
    if numeric and found.words and len(found.words) > 2:
        raise InputError(
            f"Expected two classes or numbers in column {name!r} of {table}, the target, got numbers and "
            f"{len(found.words)} different texts. Correct them, or leave such rows out."
        )
    values = [plain(repr(value)) for value in sorted(found.distinct)] if numeric else sorted(found.counts)
    reasons = [f"missing in {found.missing:,} rows, which are left out"] if found.missing else []
    if len(values) == 1:
        raise InputError(
            f"Expected two classes or different numbers in column {name!r} of {table}, the target, got only "
            f"{values[0]!r}. Take a table with both."
        )
    if len(values) == 2:
        two, why = _two_classes(found, (values[0], values[1]), wishes, questions)
        return Decision(name, "target", "; ".join([why, *reasons]), two)
    if wishes.event:
        raise InputError(f"Expected two classes in column {name!r} of {table} for --event, got {listed(values)}.")
    if not numeric:
        _refuse_classes(found, table)
    if name not in wishes.number:
        _refuse_what_is_no_number(found, table, others)
    if found.high - found.low < LEAST_RANGE:
        raise InputError(f"Expected numbers that differ by {LEAST_RANGE:g} in column {name!r}: take another unit.")
    low, high = bounds(found.low, found.high)
    number = NumberTarget(
        name, low, high, *found.moments.rounded(low, high), missing_values=wishes.missing.get(name, ())
    )
    return Decision(name, "target", "; ".join(["a number", *reasons]), number)


def _two_classes(
    found: Summary, values: tuple[str, str], wishes: Wishes, questions: list[Question]
) -> tuple[Target, str]:
    """Return the target, and why this class is the event."""
    if wishes.event and wishes.event not in values:
        raise InputError(
            f"Expected --event to be {values[0]!r} or {values[1]!r}, the classes of {found.name!r}, got "
            f"{wishes.event!r}.{near(wishes.event, values)}"
        )
    ordered = tuple(value for value in found.ordered if value in values)
    if wishes.event:
        event, why = wishes.event, "as you say"
    elif ordered and event_of(values) in ("", ordered[-1]):
        event, why = ordered[-1], "the last one in the table's own order"
    elif found.numbers:
        event, why = values[1], "the larger one"
    elif not ordered and (event := event_of(values)):
        why = "by its name"
    else:
        event, why = values[1], ""
        shown = " and ".join(map(repr, values))
        question = f"The target {found.name!r} has the classes {shown}. Which of them is the event?"
        questions.append(Question(question, tuple(f"--event {value!r}" for value in values)))
    target = BinaryTarget(found.name, values, event=event, missing_values=wishes.missing.get(found.name, ()))
    return target, f"the event is {event}: {why}; --event changes it"


def _refuse_classes(found: Summary, table: str) -> None:
    name, values = found.name, sorted(found.counts)
    alike = len({value.casefold() for value in values}) == 2
    remedy = "They differ in capital letters: write them alike" if alike else "Join classes until two are left"
    raise InputError(
        f"Column {name!r} of {table}, the target, has {len(values)} classes: {listed(values)}. {NOT_YET} {remedy}, or "
        f"choose another target. If one of them means that nothing is known, name it: --missing {name}=CLASS."
    )


def _refuse_what_is_no_number(found: Summary, table: str, others: Collection[str]) -> None:
    """Raise `InputError` for a time to an event, counts, and classes with numbers for names."""
    name, values = found.name, distinct(found)
    plainly = f"To treat it as a plain number all the same, say --number {name!r}."
    events = [other for other in others if is_event(other)]
    if is_duration(name) and events:
        raise InputError(
            f"Column {name!r} of {table}, the target, looks like the time to an event, beside {listed(events)}. "
            f"{NOT_YET} {plainly}"
        )
    if not found.is_whole:
        return
    steps = len(values) == found.high - found.low + 1 and found.low in (-1, 0, 1)
    if len(values) <= MOST_CLASSES and (steps or (len(values) == FEW and found.measured > MOST_CLASSES)):
        raise InputError(
            f"Column {name!r} of {table}, the target, holds {len(values)} whole numbers, {listed(values)}: classes, "
            f"grades or counts? {NOT_YET} If one of them means that nothing is known, name it: --missing "
            f"{name}=NUMBER. {plainly}"
        )
    if found.low == 0 and found.zeros >= ZEROS * found.measured:
        raise InputError(
            f"Column {name!r} of {table}, the target, looks like counts: whole numbers from 0 to {found.high:g}, 0 in "
            f"{found.zeros / found.measured:.0%} of the rows. {NOT_YET} {plainly}"
        )
