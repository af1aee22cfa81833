"""Numbers that mean that nothing was measured, such as 999: apart from all others, or far more frequent.

far beyond all others     it is one, and said
apart, and repeated       asked
within, but a spike       asked
"""

from __future__ import annotations

import re

import numpy as np

from fedvi.tables.inferring.decisions import Question
from fedvi.tables.inferring.summary import Summary

CODES = re.compile(r"-?(9{0,7}[789]|8{2,6}|7{2,6}|9{2,8}|9+[.]9+)|-1")
"""What people write for a missing value."""

FEWEST = 20
"""Rows from which on such a number is looked for."""

SMALL = 100
"""Numbers below that mean something else too often: nobody is sure of them if they come once."""

SPIKE, SPIKE_SHARE, MANY = 3, 0.02, 20
"""A number is a spike if it is that many times as frequent as any other, in such a share of rows, of so many values."""


def missing_codes(found: Summary, questions: list[Question]) -> tuple[str, ...]:
    """Return such numbers of a column; where it is not sure, it is asked."""
    values, counts = np.unique(found.present, return_counts=True)
    if found.measured < FEWEST or not len(values):
        return ()
    count = dict(zip(values.tolist(), counts.tolist(), strict=True))
    for end in (found.low, found.high):
        count.setdefault(end, 1)
    codes = [value for value in count if CODES.fullmatch(f"{value:.10g}")]
    others = sorted(count.keys() - set(codes))
    if len(others) < 2:
        return ()
    steps = np.diff(others)
    low, high = _with_neighbours(others[0], others[-1], codes, float(steps.max()))
    usual = float(np.mean([count[value] for value in others]))
    sure, asked = list[float](), list[float]()
    for code in sorted(codes):
        gap, often = max(low - code, code - high), count[code]
        if gap > high - low and abs(code) > 9 and (often > 1 or abs(code) >= SMALL):
            sure.append(code)
        elif gap > 0 and often > 1:
            apart = gap > steps.max() and often >= usual / 5
            negative = code == -1 and low >= 0 and found.is_whole and len(others) > 2
            asked += [code] * (apart or negative or gap > max((high - low) / 4, 1))
        elif gap <= 0 and abs(code) > 9 and _is_spike(code, count):
            asked.append(code)
    if asked:
        name, shown = found.name, " and ".join(f"{code:.10g}" for code in asked)
        answers = (
            f"--missing {name}={','.join(f'{c:.10g}' for c in asked)} (nothing was measured)",
            f"--number {name!r}",
        )
        text = f"Column {name!r} holds {shown} in {sum(count[code] for code in asked):,} rows"
        inside = low <= asked[0] <= high
        text += ", far more often than any other." if inside else f", and from {low:g} to {high:g} in all others."
        questions.append(Question(text, answers))
    return tuple(f"{code:.10g}" for code in sure)


def _with_neighbours(low: float, high: float, codes: list[float], step: float) -> tuple[float, float]:
    """Return the range of numbers that are no codes, and of those codes that follow them without a gap."""
    for code in sorted(codes):
        if high < code <= high + step:
            high = code
    for code in sorted(codes, reverse=True):
        if low - step <= code < low and (code >= 0 or low < 0):
            low = code
    return low, high


def _is_spike(code: float, count: dict[float, int]) -> bool:
    most = max(often for value, often in count.items() if value != code)
    return count[code] >= max(SPIKE * most, SPIKE_SHARE * sum(count.values())) and len(count) > MANY
