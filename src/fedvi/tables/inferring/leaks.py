"""Columns that know the target: a copy, a count behind a yes or no, the time to the event, the date of the event.

A model with such a column predicts well and is of no use: when it is needed, the column is not there yet. Each column
is compared with the target by itself, in the rows that were kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedvi.tables.inferring.decisions import Question, Wishes
from fedvi.tables.inferring.summary import Summary
from fedvi.tables.inferring.vocabulary import is_duration, is_event
from fedvi.tables.parts import Part, Scaled
from fedvi.tables.reading.words import POINT, plain, takes

FEWEST = 20
"""Rows from which on a column is compared with the target, and rows of each class from which on a quarter of that."""

KNOWS, COPY, RANKS, TELLS = 0.99, 0.9999, 0.998, 0.85
"""Share of pairs of rows that a column puts right if it knows the target; correlation of a copy, and of its ranks;
share of rows that text tells, of those that nobody would guess."""


def find_leaks(
    columns: Sequence[Part], looked: Mapping[str, Summary], target: Summary, classes: tuple[str, ...], wishes: Wishes
) -> list[Question]:
    """Return a question for every column that knows the target. classes: of the target; empty for a number."""
    truth = _truth(target, classes)
    found = []
    for column in columns:
        name = column.name
        why = "" if name in wishes.keep else _why(_values(column, looked[name]), truth, bool(classes))
        if not why and name not in wishes.keep and classes and is_duration(name) and _is_event(target, classes):
            why = f"is named like the time until {target.name!r}, which nobody knows before"
        if why:
            found.append(
                Question(f"Column {name!r} {why}.", (f"--ignore {name!r}", f"--keep {name!r} (if it is known before)"))
            )
    return found


def _is_event(target: Summary, classes: tuple[str, ...]) -> bool:
    return any(map(is_event, (target.name, *classes)))


def _truth(target: Summary, classes: tuple[str, ...]) -> np.ndarray:
    """Return the target as numbers, NaN where it is missing; the second class is 1."""
    values = target.sampled
    if not classes:
        return values.astype(float)
    known = {value: float(at) for at, value in enumerate(classes)}
    return np.array([known.get(plain(str(value)), math.nan) for value in values.tolist()])


def _values(column: Part, summary: Summary) -> np.ndarray:
    """Return the rows that are kept: numbers if the column becomes some, as dates do, else text."""
    values = summary.sampled
    if values.dtype != object or not isinstance(column, Scaled):
        return values
    words = [word for word in set(values.tolist()) if word]
    known = {word: column.read(word, POINT) for word in words if takes(lambda each: column.read(each, POINT), word)}
    return np.array([known.get(word, math.nan) for word in values.tolist()])


def _why(values: np.ndarray, truth: np.ndarray, classes: bool) -> str:
    """Return in words what a column knows of the target; nothing, if it is not too much."""
    usable = ~np.isnan(truth)
    if np.count_nonzero(usable) < FEWEST:
        return ""
    values, truth = values[usable], truth[usable]
    is_text = values.dtype == object
    gaps = np.array([value is None for value in values.tolist()]) if is_text else np.isnan(values)
    if not classes:
        return "" if is_text else _correlated(values[~gaps], truth[~gaps])
    if _accuracy(gaps.astype(int), truth) >= TELLS and 0 < np.count_nonzero(gaps) < len(gaps):
        return "is filled in where the target is one class, and empty where it is the other, or nearly so"
    if not is_text:
        ordered = _ordered(values[~gaps], truth[~gaps])
        if ordered >= KNOWS:
            return f"puts {ordered:.1%} of all pairs of rows in the order of the target"
        values, truth = values[~gaps], truth[~gaps]
        if len(np.unique(values)) > 2:
            return ""
    known = {value: code for code, value in enumerate(dict.fromkeys(values.tolist()))}
    codes = np.array([known[value] for value in values.tolist()])
    if codes.max(initial=0) > len(codes) / 10:
        return ""
    right = _accuracy(codes, truth)
    return f"tells the target in {right:.1%} of the rows" if right >= TELLS else ""


def _accuracy(codes: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of rows that the likelier class of each code puts right; 0 if one class is hardly there."""
    if min(np.count_nonzero(truth), np.count_nonzero(truth == 0)) < FEWEST / 4:
        return 0.0
    ones = np.bincount(codes, truth)
    right = np.maximum(ones, np.bincount(codes) - ones).sum() / len(codes)
    usual = max(truth.mean(), 1 - truth.mean())
    return float((right - usual) / (1 - usual))  # what is better than to name the likelier class everywhere


def _ordered(values: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of pairs of a row of each class that are in one order, whichever; ties count half."""
    ones = truth == 1
    one, other = np.count_nonzero(ones), np.count_nonzero(~ones)
    if min(one, other) < FEWEST / 4:
        return 0.0
    larger = (_ranks(values)[ones].sum() - one * (one + 1) / 2) / (one * other)
    return float(max(larger, 1 - larger))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value; those that are the same share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def _correlated(values: np.ndarray, truth: np.ndarray) -> str:
    if len(values) < FEWEST or np.ptp(values) == 0 or np.ptp(truth) == 0:
        return ""
    if abs(np.corrcoef(values, truth)[0, 1]) >= COPY:
        return "is a copy of the target"
    one, other = _ranks(values), _ranks(truth)
    many = min(len(np.unique(values)), len(np.unique(truth))) > FEWEST
    same = many and abs(np.corrcoef(one, other)[0, 1]) >= RANKS
    return "puts rows in the order of the target, as a rounded or transformed copy does" if same else ""
