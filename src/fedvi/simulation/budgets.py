"""Who may spend how much privacy in a simulated federation, and what was spent when.

Accounting is exact and takes a while, so that epsilons are computed when somebody asks for them. What stops a client is
a whole number, found before the run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from fedvi.checks import instance
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import Algorithm
from fedvi.privacy.budget import Budget, warn_if_few
from fedvi.privacy.events import NOT_PRIVATE, ROW, AnyEvent
from fedvi.privacy.ledger.statement import Spent

Budgets = Budget | Mapping[str, Budget] | Sequence[Budget]


@dataclasses.dataclass(frozen=True)
class ClientBudgets:
    """The events and budgets of all clients, in order.

    budgets: with fixed deltas. limited: whether they limit anything, or only say how to account.
    """

    names: tuple[str, ...]
    events: tuple[AnyEvent, ...]
    budgets: tuple[Budget, ...]
    unit: str
    limited: bool
    caveats: tuple[str, ...]

    def most_updates(self) -> list[float]:
        """Return how many updates each client may make."""
        if not self.limited:
            return [float("inf")] * len(self.names)
        most = [budget.most_updates(event) for event, budget in zip(self.events, self.budgets, strict=True)]
        if not any(most):
            first = self.budgets[0].spent({self.events[0]: 1})
            raise InputError(
                f"Update 1 of client {self.names[0]!r} would spend epsilon {first:.4g} of {self.budgets[0].epsilon:g}, "
                "and no other client can afford one either. Use more noise, fewer steps or a larger epsilon."
            )
        return list(most)

    def spent(self, client: int, updates: int) -> Spent:
        """Return what so many updates of one client have spent."""
        events = {self.events[client]: updates}
        return Spent.of(events, self.budgets[client], self.unit, limited=self.limited, caveats=self.caveats)

    def epsilon(self, client: int, updates: int) -> float:
        """Return the epsilon of so many updates of one client."""
        return self.budgets[client].spent({self.events[client]: updates})


def arrange_budgets(
    names: tuple[str, ...],
    public_rows: tuple[int, ...],
    algorithm: Algorithm,
    prior: GaussianFamily,
    most: tuple[float, ...],
    privacy: Budgets | None,
) -> tuple[tuple[Algorithm, ...], ClientBudgets | None]:
    """Return every client's algorithm, with its noise found if it was left open, and who may spend what.

    most: how many updates each client makes at most. No budgets if nothing is private and nothing was asked.
    """

    @functools.cache  # of thousands of clients, many are alike
    def fixed(budget: Budget, rows: int) -> Budget:
        return budget.fixed(rows)

    @functools.cache
    def arranged(limit: Budget | None, rows: int, updates: float) -> tuple[Algorithm, AnyEvent]:
        own = algorithm.calibrated(prior, limit, rows, updates)
        return own, own.event(prior, rows)

    of_rows = algorithm.unit == ROW
    units = public_rows if of_rows else (len(names),) * len(names)
    budgets = None if privacy is None else list(map(fixed, _one_per_client(names, privacy), units))
    if budgets is not None:
        warn_if_few(min(units), "rows of a client" if of_rows else "clients")
    limits: list[Budget] | list[None] = budgets or [None] * len(names)
    algorithms, events = zip(*map(arranged, limits, public_rows, most), strict=True)
    if budgets is None:
        if NOT_PRIVATE in events:
            return algorithms, None
        budgets = [fixed(Budget(1.0), count) for count in units]
    caveats = {algorithm.protection.caveat, *(budget.caveat for budget in budgets)} - {""}
    limited = privacy is not None
    return algorithms, ClientBudgets(names, events, tuple(budgets), algorithm.unit, limited, tuple(sorted(caveats)))


def _one_per_client(names: tuple[str, ...], privacy: Budgets) -> list[Budget]:
    if isinstance(privacy, Mapping):
        if set(privacy) != set(names):
            wrong = ", ".join(sorted(set(privacy) ^ set(names)))
            raise InputError(f"Expected one budget for every client by name, got none or too many for: {wrong}.")
        budgets = [privacy[name] for name in names]
    elif isinstance(privacy, Sequence):
        if len(privacy) != len(names):
            raise InputError(f"Expected one budget or {len(names)}, one per client, got {len(privacy)}.")
        budgets = list(privacy)
    else:
        budgets = [privacy] * len(names)
    for budget in budgets:
        instance("privacy", budget, Budget)
    return budgets
