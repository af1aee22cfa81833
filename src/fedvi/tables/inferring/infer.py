"""A schema from a sample table: what every column becomes, and why.

Bounds, centres, scales and categories are read from the rows: use a table that is public or may be shown, or edit the
schema afterwards. What a table cannot tell is asked (`Unanswered`), never guessed in silence:

    what separates decimals, which comes first in dates, which class is the event, whether a column may know the target

All decisions are in the result, one for each column of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedvi.errors import InputError
from fedvi.tables.encode import Encoder
from fedvi.tables.inferring.days import decide_date, order_in
from fedvi.tables.inferring.decisions import LEFT_OUT, Decision, Question, Unanswered, Wishes
from fedvi.tables.inferring.features import decide
from fedvi.tables.inferring.leaks import find_leaks
from fedvi.tables.inferring.missing_codes import missing_codes
from fedvi.tables.inferring.summaries import Looked, look
from fedvi.tables.inferring.targets import decide_target
from fedvi.tables.interactions import Interaction
from fedvi.tables.reading.chunk import Chunk
from fedvi.tables.reading.decimals import either_way
from fedvi.tables.reading.source import Source, TableSource, open_table
from fedvi.tables.schema import Schema
from fedvi.tables.targets import BinaryTarget, NumberTarget
from fedvi.tables.typical import Typical

RIDGE, SAME = 1e-6, 0.9999
KEPT_BYTES = 256 << 20
"""Of encoded rows that are looked at, at most."""


@dataclass(frozen=True)
class Inferred:
    """A schema, what was decided about every column, what people should know, and how many rows were read.

    repeated: rows that agree with an earlier one in all columns that were looked at.
    """

    schema: Schema
    decisions: tuple[Decision, ...]
    said: tuple[str, ...]
    rows: int
    repeated: int

    def __repr__(self) -> str:
        left = sum(each.becomes == LEFT_OUT for each in self.decisions)
        return f"Inferred({self.schema!r} from {self.rows} rows, {left} columns left out)"

    def reason(self, column: str) -> str:
        """Return what a column became, and why."""
        found = next(each for each in self.decisions if each.name == column)
        return f"{found.becomes}: {found.reason}"


def infer_schema(
    source: Source,
    target: str | int,
    *,
    site_column: str | int | None = None,
    event: str | int | bool = "",
    ignore: Sequence[str | int] = (),
    keep: Sequence[str | int] = (),
    category: Sequence[str | int] = (),
    number: Sequence[str | int] = (),
    missing: Mapping[str, Sequence[object]] | None = None,
    dates: str = "",
    max_categories: int = 20,
    min_count: int = 2,
    splines: Sequence[str | int] = (),
    log1p: Sequence[str | int] = (),
    interactions: Sequence[str] = (),
    decimal: str = "",
) -> Inferred:
    """Return a schema for a table that may be shown, or raise `InputError`.

    target: the column to predict. event: its class whose probability is meant.
    site_column: the column that says which site a row belongs to; it is no feature. ignore: columns to leave out.
    keep: columns that stay although they know the target. category, number: columns of codes, and of numbers.
    missing: values that mean that nothing was measured, by column, such as {"age": [999]}.
    dates: "dmy" or "mdy", where 03/04/2024 leaves it open. decimal: "." or ",", where 45.123 leaves it open.
    max_categories: how many values of a text column are told apart. min_count: rows that a value must have to be one.
    splines, log1p: numbers that may have a curve, and whose logarithms are used.
    interactions: pairs of columns, such as "age:sex".

    >>> people = {"age": [20, 47, 70, 31], "sex": ["F", "M", "F", "M"], "died": ["no", "no", "yes", "no"]}
    >>> found = infer_schema(people, "died")
    >>> found.schema.features, found.schema.target.event
    (('(intercept)', 'age', 'sex=M'), 'yes')
    """
    said: dict[str, Any] = {"ignore": ignore, "keep": keep, "category": category, "number": number}
    said |= {"splines": splines, "log1p": log1p, "missing": missing or {}, "event": event}
    wishes = Wishes(**said, dates=dates, max_categories=max_categories, min_count=min_count)
    if isinstance(interactions, str):
        raise InputError(f"Expected a list of interactions, got {interactions!r}.")
    target, site_column = str(target), None if site_column is None else str(site_column)
    reader = open_table(source, decimal=decimal)
    own = [target] if site_column is None else [target, site_column]
    reader.require([*own, *wishes.named])
    for name in own:
        if name in wishes.ignore:
            raise InputError(f"Expected the target and the sites' column not to be ignored, got {name!r} as both.")
    if site_column == target:
        raise InputError(f"Expected another column of sites than the target, got {target!r} as both.")
    pairs = [_pair(text, reader) for text in interactions]
    left = _left_out(reader, wishes, site_column)
    names = [name for name in reader.columns if name not in left]
    looked = look(reader, names, wishes, target)
    questions: list[Question] = []
    for name, summary in looked.columns.items():
        if summary.is_total and name not in wishes.number:
            raise InputError(
                f"The last row of {reader.name} looks like totals: {summary.last:.10g} in column {name!r} is the sum "
                f"of all others. Delete that row. If it is none, say --number {name!r}."
            )
    wishes, looked = _without_codes(reader, looked, wishes, questions, target)
    decisions = left | _decided(reader, looked, target, wishes, questions)
    columns = [each.part for name, each in decisions.items() if each.part is not None and name != target]
    wanted = decisions[target].part
    classes = wanted.values if isinstance(wanted, BinaryTarget) else ()
    questions += find_leaks(columns, looked.columns, looked.columns[target], classes, wishes)
    if questions:
        raise Unanswered(questions)
    if not columns:
        why = " ".join(f"{each.name!r}: {each.reason}." for each in decisions.values() if each.part is None)
        raise InputError(f"Expected a column of {reader.name} to predict {target!r} from, got none. {why}")
    _check_wishes(wishes, decisions)
    dialect = replace(reader.dialect, encoding="" if reader.dialect.encoding == "utf-8" else reader.dialect.encoding)
    crossed = tuple(Interaction(pair) for pair in pairs)
    schema = Schema(tuple(columns), wanted, True, crossed, dialect, site_column or "")
    x, y = _kept_rows(schema, looked)
    schema = replace(schema, typical=Typical.of(x, y, schema))
    notes = (*reader.said, *_twins(schema, x))
    if isinstance(wanted, NumberTarget):
        schema = replace(schema, target=_with_residual_scale(wanted, x, y))
        decisions[target] = replace(decisions[target], part=schema.target)
    decided = tuple(decisions[name] for name in reader.columns)
    return Inferred(schema, decided, notes, looked.rows, looked.repeated)


def _twins(schema: Schema, x: np.ndarray) -> list[str]:
    """Return a line for every feature that says the same as another one."""
    moving = np.flatnonzero(np.ptp(x, axis=0) > 0)
    alike = np.abs(np.corrcoef(x[:, moving].T, dtype=np.float64)) if len(moving) > 1 else np.zeros((0, 0))
    pairs = zip(*np.nonzero(np.triu(alike, 1) > SAME), strict=True)
    named = ((schema.features[moving[one]], schema.features[moving[other]]) for one, other in pairs)
    return [f"{other!r} says the same as {one!r}: they share their effect. Leave one out." for one, other in named]


def _kept_rows(schema: Schema, looked: Looked) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that were kept, encoded; not so many of them that they would not fit into `KEPT_BYTES`."""
    columns = {name: looked.columns[name].column() for name in schema.reads()}
    chunk = Chunk("the sample", 0, len(looked.columns[schema.target.name].sampled), columns)
    most = max(KEPT_BYTES // (4 * schema.dim), 1)
    return Encoder(schema).encoded(chunk.part(0, min(chunk.rows, most))).rows


def _left_out(reader: TableSource, wishes: Wishes, site_column: str | None) -> dict[str, Decision]:
    """Return columns that are left out without a look at them."""
    found = {name: Decision(name, LEFT_OUT, "as you say") for name in wishes.ignore}
    found |= {name: Decision(name, LEFT_OUT, "the index of the frame") for name in reader.index}
    if site_column is not None:
        found[site_column] = Decision(site_column, "site", "it says which site a row belongs to")
    return found


def _without_codes(
    reader: TableSource, looked: Looked, wishes: Wishes, questions: list[Question], target: str
) -> tuple[Wishes, Looked]:
    """Look again at columns in which numbers such as 999 mean that nothing was measured."""
    codes = {
        name: values
        for name, summary in looked.columns.items()
        if name not in (*wishes.missing, *wishes.number) and (values := missing_codes(summary, questions))
    }
    if not codes:
        return wishes, looked
    names = list(looked.columns) if target in codes else list(codes)  # rows without a target count for no column
    wishes = replace(wishes, missing={**wishes.missing, **codes})
    return wishes, replace(looked, columns=looked.columns | look(reader, names, wishes, target).columns)


def _decided(
    reader: TableSource, looked: Looked, target: str, wishes: Wishes, questions: list[Question]
) -> dict[str, Decision]:
    """Return what every column becomes that was looked at."""
    for name, word in looked.undecided.items():
        questions.append(
            Question(
                f"Column {name!r} of {reader.name} holds numbers such as {either_way(word)}.",
                ("--decimal .", "--decimal ,"),
            )
        )
    usual = order_in(looked.columns)
    found = {}
    for name, summary in looked.columns.items():
        if name == target:
            others = [other for other in looked.columns if other != target]
            found[name] = decide_target(summary, reader.name, others, wishes, questions)
        else:
            found[name] = decide_date(summary, usual, wishes, questions) or decide(summary, wishes, questions)
        if summary.measured == 0:
            found[name] = replace(found[name], reason=found[name].reason + reader.if_empty)
    return found


def _pair(text: str, reader: TableSource) -> tuple[str, str]:
    """Return the two columns of an interaction such as "age:sex"; names may hold colons themselves."""
    parts = text.split(":")
    for cut in range(1, len(parts)):
        first, second = ":".join(parts[:cut]), ":".join(parts[cut:])
        if first in reader.columns and second in reader.columns:
            return first, second
    if len(parts) == 2:
        reader.require(parts)
    raise InputError(f"Expected an interaction as two columns with a colon between them, got {text!r}.")


def _check_wishes(wishes: Wishes, decisions: Mapping[str, Decision]) -> None:
    for name in (*wishes.splines, *wishes.log1p):
        if decisions[name].becomes != "number":
            raise InputError(
                f"Expected the name of a number for splines and log1p, got {name!r}: {decisions[name].becomes}, "
                f"{decisions[name].reason}."
            )


def _with_residual_scale(target: NumberTarget, x: np.ndarray, y: np.ndarray) -> NumberTarget:
    """Return the target with the standard deviation of what a ridge regression leaves, in the target's units."""
    x, y = x.astype(float), y.astype(float)
    weights = np.linalg.solve(x.T @ x + RIDGE * len(y) * np.eye(x.shape[1]), x.T @ y)
    left = float(np.mean(np.square(y - x @ weights)))
    scale = max(math.sqrt(left), 1e-3) * target.scale  # rows on a line say nothing about noise
    scale = max(scale, 1e-5 * (target.high - target.low))
    return replace(target, scale=round(scale, 2 - math.floor(math.log10(scale))))
