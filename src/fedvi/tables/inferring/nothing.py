"""Numbers that mean that nothing was measured, such as 999: far beyond all others, and written for that."""

from __future__ import annotations

import re

import numpy as np

from fedvi.tables.inferring.decisions import Question
from fedvi.tables.inferring.summary import Summary

CODES = re.compile(r"-?(9{1,6}[789]|8{3,6}|7{3,6}|9+[.]9+)|-[1789]|9")
"""What people write for a missing value."""


FEWEST = 20
"""Rows from which on such a number is looked for."""


def missing_codes(found: Summary, questions: list[Question]) -> tuple[str, ...]:
    """Return such numbers of a column; where they are not far enough from the others, it is asked."""
    sample = found.sampled
    if found.measured < FEWEST or not found.numbers or sample.dtype == object:
        return ()
    values = np.unique(np.append(sample[~np.isnan(sample)], [found.low, found.high]))
    is_code = np.array([CODES.fullmatch(f"{value:.10g}") is not None for value in values])
    others = values[~is_code]
    if len(others) < 2:
        return ()
    low, high = float(others[0]), float(others[-1])
    sure, asked = list[str](), list[str]()
    for code in values[is_code & ((values < min(low, 0)) | (values > high))].tolist():
        gap = max(low - code, code - high)
        if gap > high - low and abs(code) > 9:
            sure.append(f"{code:.10g}")
        elif np.count_nonzero(sample == code) > 1 and (
            gap > max((high - low) / 4, 1) or (code == -1 and found.is_whole and len(others) > 2)
        ):
            asked.append(f"{code:.10g}")
    if asked:
        name, shown = found.name, " and ".join(asked)
        answers = (f"--missing {name}={','.join(asked)} (nothing was measured)", f"--number {name!r}")
        text = f"Column {name!r} holds {shown} in some rows, and from {low:g} to {high:g} in all others."
        questions.append(Question(text, answers))
    return tuple(sure)
