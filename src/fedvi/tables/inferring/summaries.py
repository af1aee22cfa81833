"""Summaries of the columns of a table that may be shown: what a schema is inferred from.

The table is read once, or twice where the first block of rows did not tell whether a column holds numbers. Beside sums
over all rows, some rows are kept whole (`SAMPLE`, at equal distances), to look at columns together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from fedvi.tables.inferring.decisions import Wishes
from fedvi.tables.inferring.summary import DASHES, MOST_NUMERIC, PADDED, Summary
from fedvi.tables.reading.chunk import AS_IT_IS, NUMBER, TEXT, Chunk, Kind, Text
from fedvi.tables.reading.decimals import look_at, written_numbers
from fedvi.tables.reading.source import TableSource, ahead
from fedvi.tables.reading.words import (
    COMMA,
    MISSING,
    POINT,
    number_or_limit,
    numbers_in,
    plain,
    takes,
)
from fedvi.tables.repeats import Repeats

SAMPLE = 10_000
"""Rows that are kept whole, about."""


ENOUGH = 2000
"""Words of a column that tell whether it holds numbers, about."""


@dataclass(frozen=True)
class Looked:
    """Summaries of all columns by name.

    undecided: columns whose numbers leave open what separates decimals, with an example.
    repeated: rows that agree with an earlier one.
    """

    columns: dict[str, Summary]
    rows: int
    repeated: int
    undecided: dict[str, str] = field(default_factory=dict)


def look(reader: TableSource, names: Sequence[str], wishes: Wishes, target: str) -> Looked:
    """Return summaries of columns. target: rows without it count for no other column.

    What separates decimals in the table's numbers is found first, and said in the reader's dialect.
    """
    names = list(dict.fromkeys([*names, target]))
    with closing(reader.chunks(dict.fromkeys(names, AS_IT_IS))) as chunks:
        first = next(chunks)
    words = {name: first.text(name).values for name in names if isinstance(first.columns[name], Text)}
    listed = {name for name in words if first.text(name).listed and name not in wishes.number}
    texts = wishes.category
    numeric = {
        name
        for name, found in words.items()
        if name not in texts and name not in listed and _share_of_numbers(found) > MOST_NUMERIC
    }
    undecided = dict[str, str]()
    if not (reader.decided or reader.dialect.decimal):
        found_decimals = look_at(written_numbers(first, numeric), reader.delimiter)
        undecided, reader.decided = found_decimals.asked, True
        reader.said += found_decimals.said
        reader.dialect = reader.dialect.with_given(decimal=found_decimals.decimal)
    decimal = reader.dialect.decimal
    padded = {name for name in numeric if any(word[0] == "0" and PADDED.fullmatch(word) for word in words[name])}
    kinds: dict[str, Kind] = {name: TEXT if name in texts or name in words else NUMBER for name in names}
    kinds |= dict.fromkeys(numeric, AS_IT_IS)
    kinds |= {name: NUMBER for name in numeric - padded if _are_plain(words[name][:1000], decimal)}
    found = {name: Summary(name, wishes.missing.get(name, ()), padded=name in padded) for name in names}
    repeats = Repeats()
    rows, without = 0, 0
    step, numbers = 1, {name for name in names if name in numeric or kinds[name] == NUMBER}
    with closing(reader.chunks(kinds)) as chunks, closing(ahead(chunks)) as coming:
        for whole in coming:
            repeats.add(whole, names)
            rows += whole.rows
            known = _with_value(whole, target, found[target].nothing)
            chunk = whole if known.all() else whole.only(known)
            without += whole.rows - chunk.rows
            for name, summary in found.items():
                summary.take(chunk, step, numbers=name in numbers)
            while sum(map(len, found[names[0]].sample)) > 2 * SAMPLE:
                step *= 2
                for summary in found.values():
                    summary.sample = [summary.sampled[::2]]
    again = [name for name, summary in found.items() if summary.counts and kinds[name] == NUMBER and name not in texts]
    lost = [name for name in again if found[name].numbers <= MOST_NUMERIC * found[name].measured]
    if lost:  # the first rows held numbers, most others do not
        found |= look(reader, lost, replace(wishes, category=tuple(lost), number=()), target).columns
    else:
        found[target].rows, found[target].missing = rows, found[target].missing + without
    for summary in found.values():
        summary.restore_signs()
    return Looked(found, rows, repeats.count, undecided)


def _with_value(chunk: Chunk, target: str, nothing: tuple[str, ...]) -> np.ndarray:
    """Return which rows have a target."""
    column = chunk.columns[target]
    if not isinstance(column, Text):
        return ~np.isnan(column) & ~np.isin(column, numbers_in(nothing))
    gaps = [code for code, word in enumerate(column.values) if word in MISSING or plain(word) in nothing]
    if any(word.startswith("+") for word in column.values):
        gaps = [code for code in gaps if column.values[code] not in DASHES]
    return ~np.isin(column.codes, [-1, *gaps])


def _are_plain(words: Sequence[str], decimal: str) -> bool:
    """Tell whether Arrow understands these numbers, or words for a missing one."""
    if decimal == COMMA:
        return all(("." not in word and takes(float, word.replace(",", "."))) or word in MISSING for word in words)
    return all(takes(float, word) or word in MISSING for word in words)


def _is_numeric(text: str) -> bool:
    return text in MISSING or takes(lambda each: number_or_limit(each, POINT), text)


def _share_of_numbers(words: Sequence[str]) -> float:
    """Return the share of words that are numbers, by some of them at equal distances."""
    some = words[:: max(len(words) // ENOUGH, 1)]
    return sum(map(_is_numeric, some)) / max(len(some), 1)
