"""Columns of dates: which they are, and in which order day and month stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice

import numpy as np

from fedvi.tables.inferring.decisions import LEFT_OUT, Decision, Question, Wishes, listed
from fedvi.tables.inferring.features import bounds
from fedvi.tables.inferring.summary import Moments, Summary
from fedvi.tables.numbers import FIRST_DAY, LAST_DAY, Date, day_of
from fedvi.tables.reading.words import OPEN, ORDERS, SHORT_YEAR, is_time, order_of, parse_date, takes

MOSTLY = 0.95
"""Share of a column's values from which on it is what most of them are."""

NO_DATES = frozenset(
    """0001-01-01 1899-12-30 1899-12-31 1900-01-01 1970-01-01 2999-12-31 9999-12-30 9999-12-31
    01.01.1900 01/01/1900 01.01.1970 01/01/1970 31.12.9999 31/12/9999 12/31/9999""".split()
)
"""Dates that people write where there is none."""

ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")

FAR = 3650.0
"""Days between such a date and all others, twice at least."""

COMPACT = 19_000_101, 21_001_231
"""Whole numbers between these may be dates without anything between year, month and day."""


def order_in(columns: Mapping[str, Summary]) -> str:
    """Return the order of day and month that the dates of all columns tell; nothing, if they do not or disagree."""
    found = {order_of(word) for summary in columns.values() for word in summary.counts} & set(ORDERS)
    return found.pop() if len(found) == 1 else ""


def decide_date(found: Summary, usual: str, wishes: Wishes, questions: list[Question]) -> Decision | None:
    """Return what a column of dates or times becomes; None for another. usual: order in other columns of the table."""
    counts = found.counts or _compact(found)
    if not counts or found.name in (*wishes.category, *wishes.number):
        return None
    if _mostly(counts, is_time):
        return Decision(found.name, LEFT_OUT, "times of the day; make numbers of them, if they matter")
    if _mostly(counts, lambda text: SHORT_YEAR.fullmatch(text) is not None):
        return Decision(found.name, LEFT_OUT, "dates with two digits for the year; write four, if they matter")
    if not _mostly(counts, is_date):
        _ask_if_some(found, questions)
        return None
    if _exchanged(counts) and found.name not in wishes.keep:
        questions.append(
            Question(
                f"Column {found.name!r} holds dates of two kinds: in all of one the day is at most 12, in all of the "
                "other it is more. So a spreadsheet reads dates whose day and month it takes for each other.",
                (f"--ignore {found.name!r}", f"--keep {found.name!r} (all are right)"),
            )
        )
    orders = {order_of(word) for word in counts} - {""}
    told = orders & set(ORDERS)
    if len(told) == 2:
        return Decision(found.name, LEFT_OUT, "dates of which some have the month first and some the day")
    order = next(iter(told), wishes.dates or usual)
    if not order and OPEN in orders:
        questions.append(
            Question(
                f"Column {found.name!r} holds dates such as {next(w for w in counts if order_of(w) == OPEN)!r}.",
                ("--dates dmy (the day comes first)", "--dates mdy (the month)"),
            )
        )
    return _dated(found, counts, order if orders else wishes.dates, wishes)


def is_date(text: str) -> bool:
    """Tell whether a text is a date, in one order or the other."""
    return any(takes(partial(parse_date, order=order), text) for order in ORDERS)


def _ask_if_some(found: Summary, questions: list[Question]) -> None:
    """Ask about a column in which more than half of the values are dates, but not nearly all."""
    others = [word for word in islice(found.counts, 10_000) if not is_date(word)]
    if len(others) < min(len(found.counts), 10_000) / 2 and not found.numbers:
        some = ",".join(others[:3])
        questions.append(
            Question(
                f"Column {found.name!r} holds dates, and other words such as {listed(others, 3)}.",
                (f"--ignore {found.name!r}", f"--missing {found.name}={some} (all of them: no date)"),
            )
        )


def _exchanged(counts: Counter[str]) -> bool:
    """Tell whether all dates of a spreadsheet's own have a day up to 12, and all that stayed text have none."""
    own = [int(word[8:10]) for word in counts if ISO_DATE.fullmatch(word[:10])]
    text = [order_of(word) for word in counts if not ISO_DATE.fullmatch(word[:10])]
    return len(own) >= 5 and max(own) <= 12 and len(text) >= 5 and all(order in ORDERS for order in text)


def _compact(found: Summary) -> Counter[str]:
    """Return whole numbers such as 20240131 as words; nothing, if they are others."""
    if not (found.is_whole and found.numbers and COMPACT[0] <= found.low <= found.high <= COMPACT[1]):
        return Counter()
    return Counter(f"{number:.0f}" for number in found.present)


def _mostly(counts: Counter[str], holds: Callable[[str], bool]) -> bool:
    """Tell whether something holds for most values; the first ones tell whether to look further."""
    if 2 * sum(map(holds, islice(counts, 50))) < min(len(counts), 50):
        return False
    return sum(count for value, count in counts.items() if holds(value)) >= MOSTLY * counts.total()


def _unreal(days: Mapping[str, float]) -> list[str]:
    """Return dates that people write where there is none, if they are far from all others."""
    real = [day for word, day in days.items() if word[:10] not in NO_DATES]
    if not real:
        return []
    low, high = min(real), max(real)
    return [
        word
        for word, day in days.items()
        if word[:10] in NO_DATES and max(low - day, day - high) > max(high - low, FAR) / 2
    ]


def _dated(found: Summary, counts: Counter[str], order: str, wishes: Wishes) -> Decision:
    def read(text: str) -> float:
        return parse_date(text, order)

    known = {word: read(word) for word in counts if takes(read, word)}
    unreal = _unreal(known)
    real = [word for word in known if word not in unreal]
    days = np.repeat([known[word] for word in real], [counts[word] for word in real])
    if days.min() == days.max():
        return Decision(found.name, LEFT_OUT, f"it is {day_of(days[0])} in all rows")
    moments = Moments()
    moments.add(days)
    low, high = bounds(days.min(), days.max())
    low, high = max(low, FIRST_DAY), min(high, LAST_DAY)
    gaps = sum(counts[word] for word in unreal)
    others = counts.total() - len(days) - gaps
    missing = "indicator" if found.missing or others or gaps else "centre"
    nothing = (*wishes.missing.get(found.name, ()), *unreal)
    date = Date(found.name, low, high, *moments.rounded(low, high), missing, order=order, missing_values=nothing)
    reasons = ["all values are dates" if not others else f"all but {others:,} values are dates"]
    if unreal:
        reasons.append(f"{listed(unreal)} in {gaps:,} rows means missing, which get a feature")
    if found.missing:
        reasons.append(f"missing in {found.missing:,} rows, which get a feature")
    return Decision(found.name, "date", "; ".join(reasons), date)
