"""Columns of text: categories, and what is left out as free text or identifiers."""

from __future__ import annotations

from fedvi.tables.columns import GAP, OTHER, REFERENCE, Category
from fedvi.tables.inferring.decisions import LEFT_OUT, Decision, Wishes, listed
from fedvi.tables.inferring.summary import Summary
from fedvi.tables.inferring.vocabulary import NEGATIVES, is_identifier

IDENTIFIER_VALUES = 50
"""Different values from which on a column may hold identifiers."""

SENTENCE = 3
"""Words of a value, on average, from which on a column with many values is free text."""


def decide_text(found: Summary, wishes: Wishes, reasons: list[str]) -> Decision:
    """Return what a column of text becomes. reasons: what is known of it so far."""
    name, many = found.name, len(found.counts)
    rows = f"{'more than ' if found.overflown else ''}{many} different values in {found.measured:,} rows"
    words = sum(len(value.split()) * count for value, count in found.counts.items()) / max(found.counts.total(), 1)
    if many > wishes.max_categories and words >= SENTENCE:
        return Decision(name, LEFT_OUT, f"free text: {rows}; if they are classes: --category {name!r}")
    if found.overflown or (many > IDENTIFIER_VALUES and (many > found.measured / 2 or is_identifier(name))):
        return Decision(name, LEFT_OUT, f"{rows}, as identifiers have; if they are classes: --category {name!r}")
    return decide_category(found, wishes, reasons)


def decide_category(found: Summary, wishes: Wishes, reasons: list[str]) -> Decision:
    """Return the category of a column of codes or words; a column that is the same in all rows is left out."""
    name, extras = found.name, (OTHER, *((GAP,) if found.missing else ()))
    values = sorted((value for value in found.counts if value not in extras), key=lambda v: (-found.counts[v], v))
    if len(found.counts) == 1 and not found.missing:
        return Decision(name, LEFT_OUT, f"it is {next(iter(found.counts))!r} in all rows")
    known = [value for value in values if found.counts[value] >= wishes.min_count]
    if not known:
        return Decision(name, LEFT_OUT, f"no value comes {wishes.min_count} times")
    kept = known[: wishes.max_categories]
    reasons = [*reasons, f"{len(found.counts)} different values"]
    if len(known) > len(kept):
        reasons.append(f"the {len(kept)} most frequent ones are told apart, all others count as {OTHER!r}")
    if len(values) > len(known):
        reasons.append(
            f"{len(values) - len(known)} of them come fewer than {wishes.min_count} times and count as {OTHER!r}"
        )
    if found.missing:
        reasons.append(f"missing in {found.missing:,} rows, which get a feature")
    twins = [value for value in kept if any(value != other and value.lower() == other.lower() for other in kept)]
    if twins:
        reasons.append(f"{listed(sorted(twins))} differ in capital letters only: write them alike if they are the same")
    others = OTHER in found.counts or len(values) > len(kept)
    if len(kept) == 1 and not others and not found.missing:
        return Decision(name, LEFT_OUT, f"it is {kept[0]!r} in all rows")
    part = Category(
        name,
        tuple(value for value in found.ordered if value in kept) or tuple(sorted(kept)),
        reference=_reference(found, kept),
        unknown=OTHER if others else REFERENCE,
        missing=GAP if found.missing else REFERENCE,
        missing_values=wishes.missing.get(name, ()),
    )
    return Decision(name, "category", "; ".join(reasons), part)


def _reference(found: Summary, kept: list[str]) -> str:
    """Return what others are compared to: the first value in an order, the negative one of two, the commonest."""
    ordered = [value for value in found.ordered if value in kept]
    negative = [value for value in kept if len(kept) == 2 and value.lower() in {*NEGATIVES, "n", "f"}]
    return (ordered or negative or kept)[0]
