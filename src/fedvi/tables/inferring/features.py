"""What a column of a sample becomes: a number, a date, a category, or nothing; and why.

    number     low, high   smallest and largest value, rounded outwards to two digits of their distance
               centre      mean, scale: standard deviation, to three digits
               knots       of splines: -2, -1, 0, 1, 2 scales from the centre, within the bounds
    date       the same, in days
    category   values      the most frequent ones, sorted; none that comes only once
               reference   the negative one of two ("no", "0", ...), else the most frequent
               missing     a feature of its own if a value is missing in the table, else the reference
               unknown     a feature of its own if some values have none, else the reference

Splines of a number with many zeros and a long tail are octaves: knots at its top, a half of it, a quarter, ..., and 0,
in log(1 + value).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.hats import SPREAD, octaves
from fedvi.tables.inferring.categories import IDENTIFIER_VALUES, decide_category, decide_text
from fedvi.tables.inferring.decisions import LEFT_OUT, Decision, Question, Wishes, listed
from fedvi.tables.inferring.summary import MOST_NUMERIC, Moments, Summary
from fedvi.tables.inferring.vocabulary import is_code, is_identifier
from fedvi.tables.numbers import LOG1P, Number
from fedvi.tables.reading.words import ABOVE, BELOW

FEW_NUMBERS = 12
"""So many whole numbers may be codes."""

TRUSTED_NUMERIC, FEW_WORDS = 0.8, 2
"""Share of numbers from which on text among them counts as missing; and different texts for which most is enough."""

WITH_UNIT = re.compile(r"[-+<>]?[\d.,]+ ?[^\W\d_]{1,6}(/[^\W\d_]{1,4})?")
"""A number with what it is measured in."""

LEAST_RANGE = 1e-100
"""Numbers that differ by less have squares that are no numbers."""

ZEROS_APART = 0.2
"""How far zeros are from all others if they may mean something else, as a share of the others' range."""

RUNNING = 5
"""Rows from which on numbers that rise by one are running numbers."""

MANY_ZEROS, LONG_TAIL = 0.2, 10
"""A number whose zeros are at least this share, and whose largest value is this many times the mean, has octaves."""


def decide(found: Summary, wishes: Wishes, questions: list[Question]) -> Decision:
    """Return what a column without dates becomes; what cannot be known is added to the questions."""
    name = found.name
    if found.measured == 0:
        return Decision(name, LEFT_OUT, "it holds no value")
    if name in wishes.category:
        return decide_category(found, wishes, ["as you say"])
    if name.startswith("unnamed ") and name not in wishes.number:
        return Decision(name, LEFT_OUT, "it has no name, as an index; name it to use it")
    if name in wishes.number and not found.numbers:
        raise InputError(f"Expected numbers in column {name!r}, which you say holds some, got {listed(found.counts)}.")
    if found.padded and name not in wishes.number:
        return decide_text(found, wishes, ["codes, which begin with 0"])
    numeric = found.numbers / found.measured
    trusted = numeric >= TRUSTED_NUMERIC or (numeric > MOST_NUMERIC and len(found.words) <= FEW_WORDS)
    if (trusted or name in wishes.number) and found.numbers:
        return _number_or_code(found, wishes, questions)
    measured = sum(count for value, count in found.counts.items() if WITH_UNIT.fullmatch(value))
    if measured > MOST_NUMERIC * found.measured and len(found.counts) > wishes.max_categories:
        example = next(filter(WITH_UNIT.fullmatch, found.counts))
        text = f"Column {name!r} holds numbers with a unit, such as {example!r}. Take the unit out of the table."
        questions.append(Question(text, (f"--ignore {name!r}", f"--category {name!r} all the same")))
        return Decision(name, LEFT_OUT, "numbers with a unit")
    if numeric <= MOST_NUMERIC or len(found.counts) <= wishes.max_categories:
        return decide_text(found, wishes, [f"{numeric:.0%} of the values are numbers"] if numeric else [])
    shown = listed((word for word, count in found.words.most_common(3) if count >= wishes.min_count), 3)
    questions.append(
        Question(
            f"Column {name!r} holds numbers in {numeric:.0%} of the rows, and {len(found.words)} different texts"
            f"{f', such as {shown}' if shown else ''}.",
            (f"--number {name!r}", f"--category {name!r}", f"--ignore {name!r}"),
        )
    )
    return Decision(name, LEFT_OUT, "numbers and texts")


def _number_or_code(found: Summary, wishes: Wishes, questions: list[Question]) -> Decision:
    name, values = found.name, distinct(found)
    if found.low == found.high:
        return Decision(name, LEFT_OUT, f"it is {found.low:g} in all rows")
    if found.high - found.low < LEAST_RANGE:
        return Decision(name, LEFT_OUT, f"its values differ by less than {LEAST_RANGE:g}: take another unit")
    if name not in wishes.number:
        if why := _identifies(found, values):
            return Decision(name, LEFT_OUT, f"{why}; if it is a number: --number {name!r}")
        if len(found.units) > 1:
            shown = ", ".join(f"{count:,} {unit or 'without a sign'}" for unit, count in found.units.items())
            questions.append(
                Question(
                    f"Column {name!r} holds numbers in different units: {shown}.",
                    (f"--number {name!r} (all count as they are)", f"--ignore {name!r}"),
                )
            )
        if found.is_whole and is_code(name):
            questions.append(
                Question(
                    f"Column {name!r} is named like a code, and holds {len(values)} whole numbers.",
                    (f"--category {name!r}", f"--number {name!r}"),
                )
            )
    return Decision(name, "number", "; ".join(_reasons(found, wishes, values)), _number(found, wishes))


def distinct(found: Summary) -> np.ndarray:
    """Return the distinct numbers in the rows that are kept of a column of numbers."""
    return np.unique(found.present)


def _identifies(found: Summary, values: np.ndarray) -> str:
    """Return why whole numbers look like identifiers; nothing, if they do not."""
    if not found.is_whole:
        return ""
    if found.is_running and found.measured >= RUNNING:
        return "a running number"
    sample, many = found.present, len(values) > IDENTIFIER_VALUES
    steps, unique = np.diff(sample), len(values) == len(sample)
    digits = {len(str(int(abs(value)))) for value in values[:1000]}
    mostly = 2 * len(values) > len(sample) or (many and len(digits) == 1 and min(digits) >= 4)
    if is_identifier(found.name) and (mostly or _restarts(steps)) and len(values) >= RUNNING:
        return f"{len(values):,} different whole numbers, named like an identifier"
    if not many or found.missing:
        return ""
    if unique and (np.all(steps > 0) or np.all(steps < 0)):
        return "whole numbers that all rise or all fall from row to row, as identifiers do"
    if unique and len(digits) == 1 and min(digits) >= 5:
        return f"different whole numbers of {min(digits)} digits, as identifiers have"
    runs = int(np.count_nonzero(steps)) + 1
    if runs == len(values) <= len(sample) / 2 and np.any(steps > 0) and np.any(steps < 0):
        return "the same whole number in rows that follow each other and nowhere else: it tells persons apart"
    return ""


def _restarts(steps: np.ndarray) -> bool:
    """Tell whether numbers count rows: they rise by one, and now and then begin anew."""
    return bool(np.all((steps == 1) | (steps < 0)) and np.mean(steps == 1) > 0.9) if len(steps) else False


def _reasons(found: Summary, wishes: Wishes, values: np.ndarray) -> list[str]:
    """Return what should be known about a column that becomes a number."""
    reasons = ["all values are numbers" if not found.words else f"{found.numbers / found.measured:.1%} are numbers"]
    if found.is_whole and 2 < len(values) <= FEW_NUMBERS and found.name not in wishes.number:
        shown = f"whole numbers from {found.low:g} to {found.high:g}"
        reasons = [f"{shown}; if they are codes: --category {found.name!r}"]
    if found.name in wishes.number:
        reasons.append("as you say")
    told, rest = [w for w, n in found.words.items() if n >= wishes.min_count], found.words.total()
    if found.words:
        rest -= sum(found.words[word] for word in told)
        texts = [listed(told)] * bool(told) + [f"other text in {rest:,} rows"] * bool(rest)
        reasons.append(f"missing, too: {' and '.join(texts)}")
    if gaps := wishes.missing.get(found.name):
        reasons.append(f"{', '.join(gaps)} means missing")
    if found.missing:
        reasons.append(f"missing in {found.missing:,} rows, which get a feature")
    if _zeros_apart(values):
        reasons.append(f"0 in {found.zeros:,} rows, apart from all others: --missing {found.name}=0, if it means that")
    if found.name in wishes.splines and _in_octaves(found):
        zeros = f"0 in {found.zeros:,} rows, with a long tail"
        reasons.append(f"{zeros}: its knots are octaves, in log(1 + value)")
    for side, word in ((BELOW, "below"), (ABOVE, "above")):
        if found.sides[side]:
            reasons.append(
                f"{found.sides[side]:,} values {word} a limit of detection count as the limit, with a feature"
            )
    return reasons


def _zeros_apart(values: np.ndarray) -> bool:
    """Tell whether zeros are far below all other numbers, as where nothing was measured."""
    if len(values) < IDENTIFIER_VALUES or values[0] != 0:
        return False
    return bool(values[1] > ZEROS_APART * (values[-1] - values[1]) and values[1] > np.diff(values[1:]).max())


def _number(found: Summary, wishes: Wishes) -> Number:
    low, high = bounds(found.low, found.high)
    words = tuple(sorted(word for word, count in found.words.items() if count >= wishes.min_count))
    more: dict[str, Any] = {
        "missing": "indicator" if found.missing or found.words else "centre",
        "missing_values": (*wishes.missing.get(found.name, ()), *words),
        "limits": tuple(found.sides),
    }
    curved = found.name in wishes.splines
    in_octaves = curved and _in_octaves(found)
    if found.name not in wishes.log1p and not in_octaves:
        number = Number(found.name, low, high, *found.moments.rounded(low, high), **more)
    elif found.low < 0:
        raise InputError(f"Expected no number below 0 in column {found.name!r} for log1p, got {found.low:g}.")
    else:
        low, logs = max(low, 0.0), Moments()
        logs.add(np.log1p(found.present))
        centre, scale = logs.rounded(math.log1p(low), math.log1p(high))
        number = Number(found.name, low, high, centre, scale, transform=LOG1P, **more)
    if not curved:
        return number
    if in_octaves:
        values = found.present
        inner = [knot for knot in octaves(high)[1:-1] if knot >= values[values > 0].min()]
        return replace(number, knots=(low, *(inner or [high / 2]), high))
    if len(found.distinct) <= 2:
        raise InputError(f"Expected more than two values in column {found.name!r} for splines: two are on a line.")
    return with_splines(number)


def _in_octaves(found: Summary) -> bool:
    many_zeros = found.low >= 0 and found.zeros >= MANY_ZEROS * found.measured
    return many_zeros and found.high >= LONG_TAIL * found.moments.mean


def with_splines(number: Number) -> Number:
    """Return a number with knots at -2, -1, 0, 1 and 2 scales from its centre, within its bounds; steps to 3 digits."""
    knots = number.centre + number.scale * np.array(SPREAD)
    knots = np.expm1(knots) if number.transform == LOG1P else knots
    digits = 2 - math.floor(math.log10(min(np.diff(knots))))
    shown = [round(float(knot), digits) for knot in knots]
    first, last = max(number.low, shown[0]), min(number.high, shown[-1])
    return replace(number, knots=(first, *(knot for knot in shown[1:-1] if first < knot < last), last))


def bounds(low: float, high: float) -> tuple[float, float]:
    """Return the smallest and largest number with as few digits as are needed."""
    step = math.floor(math.log10(high - low)) - 1
    return _outwards(low, step, math.floor), _outwards(high, step, math.ceil)


def _outwards(value: float, step: int, rounded: Callable[[float], int]) -> float:
    """Return the multiple of `10^step` that is next to a value, down or up.

    >>> _outwards(0.123, -2, math.ceil), _outwards(-1234.0, 2, math.floor)
    (0.13, -1300.0)
    """
    unit = 10.0**step
    nearest = round(value / unit)
    if not math.isclose(nearest * unit, value, rel_tol=1e-12):  # 0.3 / 0.1 is a little below 3
        nearest = rounded(value / unit)
    return round(nearest * unit, max(-step, 0))
