"""What was promised and what was spent, for people to read."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Any

from fedvi.privacy import accounting
from fedvi.privacy.accounting import ADD_OR_REMOVE, SUBSTITUTE
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import ROW, describe

SIMULATION = "simulation: seeded noise, not private"
"""What every artefact of a simulation says."""

ACCOUNTED_BY = {
    "pld": "privacy loss distributions",
    "rdp": "Rényi differential privacy",
    "moments": "the moments accountant with orders 1 to 32",
    "filter": "a Rényi filter of one fixed order, valid for settings chosen along the way",
}


@dataclasses.dataclass(frozen=True)
class Spent:
    """What one client has spent: epsilon, with everything without which the number means nothing.

    epsilon_max: of the client's budget; None if it had none.
    epsilon_substitute: the epsilon of the same events if one unit is exchanged for another; None if the accountant is a
        filter, which knows only adding and removing.
    unit: what is protected: one `row`, or the whole `client`.
    caveats: what keeps this from being a guarantee.
    notes: what people said or accepted along the way.
    """

    events: tuple[tuple[Any, int], ...]
    updates: int
    epsilon: float
    epsilon_max: float | None
    epsilon_substitute: float | None
    delta: float
    unit: str
    accountant: str
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    relation: str = ADD_OR_REMOVE

    def __repr__(self) -> str:
        of = "" if self.epsilon_max is None else f" of {self.epsilon_max:g}"
        spent = f"epsilon {rounded_up(self.epsilon)}{of} at delta {self.delta:g}"
        return f"Spent({spent}, per {self.unit}, {self.updates} updates, by {self.accountant})"

    @classmethod
    def of(
        cls,
        events: Mapping[Any, int],
        budget: Budget,
        unit: str,
        *,
        limited: bool = True,
        caveats: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> Spent:
        """Return what these events have spent of a budget; without `limited` the budget only says how to account."""
        delta, released = float(budget.delta), budget.all_of(events)
        return cls(
            events=tuple(released.items()),
            updates=sum(events.values()),
            epsilon=budget.spent(events),
            epsilon_max=budget.epsilon if limited else None,
            epsilon_substitute=None
            if budget.accountant == "filter"
            else accounting.epsilon(released, delta, "pld", SUBSTITUTE),
            delta=delta,
            unit=unit,
            accountant=budget.accountant,
            caveats=caveats,
            notes=notes,
        )

    def statement(self, holder: str, public_rows: int | None = None) -> str:
        """Return the promise in plain words.

        holder: names whose data it is about. public_rows: the number of rows that was declared for it.
        """
        row = self.unit == ROW
        unit = "one row" if row else "everything that the client holds"
        there = "one row was there" if row else "the client sent more than noise"
        relation = "one row is added or removed" if row else "the client takes part, or sends noise alone"
        exchange = "one row" if row else "all of the client's data"
        lines = [
            f"Protected: {unit}. Whoever sees everything that was released can hardly tell whether {there}, whatever "
            "else they know.",
            f"Spent: epsilon {rounded_up(self.epsilon)} at delta {self.delta:g}, if {relation}.",
        ]
        if public_rows is not None:
            lines.append(
                f"The declared number of rows, {public_rows}, is public. The promise is about tables for which it is "
                "declared; the true number is not released."
            )
        if self.epsilon_substitute is not None:
            lines.append(f"Epsilon {rounded_up(self.epsilon_substitute)} if {exchange} is exchanged for other data.")
        if self.epsilon_max is not None:
            most = f"epsilon {self.epsilon_max:g}"
            lines.append(f"Never more than {most}, even if the time of stopping depended on what was released.")
        lines.append(
            f"Accounted by {ACCOUNTED_BY[self.accountant]}; the distance of drawn noise from real normals is included."
        )
        lines += [f"Released: {count} x {describe(event, self.unit)}." for event, count in self.events if count]
        lines += [] if any(count for _, count in self.events) else ["Released: nothing."]
        lines += [f"Confirmed by a person: {note}." for note in self.notes]
        lines += [f"NOT A GUARANTEE: {caveat}." for caveat in self.caveats]
        wrapped = [textwrap.fill(line, 98, initial_indent="  ", subsequent_indent="    ") for line in lines]
        return "\n".join([f"Privacy of {holder}", *wrapped])


def rounded_up(epsilon: float) -> str:
    """Return epsilon to four digits, rounded up, as a promise must be."""
    if epsilon == float("inf"):
        return "infinite"
    return "0" if epsilon == 0 else f"{-(-epsilon * 1e4 // 1) / 1e4:.4f}"
