"""The clients of a simulated federation: their rows, laid out once for all runs that share them, and their budgets.

Accounting is exact and takes a while, so that epsilons are computed when somebody asks for them. What stops a client is
a whole number, found before the run.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedvi.checks import instance, registered, whole
from fedvi.errors import InputError, ValuesClipped
from fedvi.families.base import GaussianFamily
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import check_solver
from fedvi.inference.rows import (
    DEFAULT_FEATURE_BOUND,
    CheckedTable,
    ClientRows,
    Table,
    check_feature_bound,
    check_tables,
    lay_out,
)
from fedvi.models.base import Model
from fedvi.models.finite import check_finite, is_proven
from fedvi.numerics import on_row_grid
from fedvi.privacy.budget import Budget, warn_if_few
from fedvi.privacy.events import NOT_PRIVATE, ROW, AnyEvent
from fedvi.privacy.ledger.statement import Spent
from fedvi.privacy.sampling import most_rows

PublicRows = Mapping[str, int] | Sequence[int]
Budgets = Budget | Mapping[str, Budget] | Sequence[Budget]


@dataclasses.dataclass(frozen=True, eq=False)
class Clients:
    """Clients by name, their numbers of rows, true and declared, and all rows in one buffer."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    public_rows: tuple[int, ...]
    rows: ClientRows

    def check_model(self, model: Model, q: GaussianFamily, where: str) -> None:
        """Raise `InputError` if the model gives NaN for a row under q, and say in which line. where: which q it is."""
        if not is_proven(model):
            x, y = (np.asarray(part)[: sum(self.sizes)] for part in (self.rows.x, self.rows.y))
            check_finite(model, q, x, y, where)

    @functools.cached_property
    def digest(self) -> str:
        """A digest of all rows."""
        return digest(*(np.asarray(part)[: sum(self.sizes)] for part in (self.rows.x, self.rows.y)))


def digest(*arrays: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the arrays' bytes."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()[:16]


def lay_out_clients(
    clients: Mapping[str, Table] | Sequence[Table],
    model: Model,
    algorithms: Sequence[Algorithm],
    public_rows: PublicRows | None = None,
    feature_bound: float = DEFAULT_FEATURE_BOUND,
) -> list[Clients]:
    """Return the clients that each algorithm runs with; algorithms that take the same rows share them.

    public_rows: that clients declare, by name or in order; None for the true numbers. feature_bound: of features, a
    power of two. Where an algorithm protects rows, they are clipped to it and put on their grid.
    """
    for name, value, kind in (("model", model, Model), *(("algorithm", each, Algorithm) for each in algorithms)):
        instance(name, value, kind)
        registered(name, value)
    check_feature_bound(feature_bound)
    tables = check_tables(clients, model)
    declared = _declared(tables, public_rows)
    on_grid = _on_grid(tables, feature_bound) if any(each.solver.mechanism.private for each in algorithms) else tables
    arranged: dict[int, tuple[bool, dict[str, CheckedTable]]] = {}
    for algorithm in algorithms:
        private = algorithm.solver.mechanism.private
        if id(algorithm) not in arranged:
            chosen = on_grid if private else tables
            check_solver(algorithm.solver, model)
            for name, (x, _) in chosen.items():
                algorithm.solver.check(x, f"client {name!r}")
            arranged[id(algorithm)] = private, algorithm.arrange(chosen)
    laid_out: dict[Any, Clients] = {}
    for private, rows in arranged.values():
        if id(rows) not in laid_out:
            laid_out[id(rows)] = _laid_out(rows, declared, feature_bound if private else 0.0)
    return [laid_out[id(arranged[id(algorithm)][1])] for algorithm in algorithms]


def _laid_out(tables: dict[str, CheckedTable], declared: Mapping[str, int], feature_bound: float) -> Clients:
    sizes = tuple(len(x) for x, _ in tables.values())
    public = tuple(declared.get(name, size) for name, size in zip(tables, sizes, strict=True))
    return Clients(tuple(tables), sizes, public, lay_out(tables, feature_bound))


def _on_grid(tables: dict[str, CheckedTable], bound: float) -> dict[str, CheckedTable]:
    rounded = {name: on_row_grid(x, bound) for name, (x, _) in tables.items()}
    clipped = {name: count for name, (_, count) in rounded.items() if count}
    if clipped:
        worst = max(clipped, key=lambda name: clipped[name])
        warnings.warn(
            f"{sum(clipped.values())} features beyond {bound:g} were clipped to it, most of them ({clipped[worst]}) of "
            f"client {worst!r}. Scale the columns by public numbers to about one, or say feature_bound.",
            ValuesClipped,
            stacklevel=5,
        )
    return {name: (rounded[name][0], y) for name, (_, y) in tables.items()}


def _declared(tables: dict[str, CheckedTable], public_rows: PublicRows | None) -> dict[str, int]:
    """Return the declared number of rows of every client by name."""
    sizes = {name: len(x) for name, (x, _) in tables.items()}
    if public_rows is None:
        return sizes
    if len(public_rows) != len(sizes) or (isinstance(public_rows, Mapping) and set(public_rows) != set(sizes)):
        raise InputError(f"Expected public_rows for the clients {', '.join(sizes)}, got {public_rows}.")
    values = [public_rows[name] for name in sizes] if isinstance(public_rows, Mapping) else list(public_rows)
    declared = dict(zip(sizes, values, strict=True))
    for name, rows in declared.items():
        whole("public_rows", rows, 1)
        if sizes[name] > most_rows(rows):
            raise InputError(
                f"Expected at least as many public_rows that {most_rows(rows)}, a tenth more, is enough for client "
                f"{name!r}, which has {sizes[name]}."
            )
    return declared


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


def fixed_budgets(
    names: tuple[str, ...], public_rows: tuple[int, ...], algorithm: Algorithm, privacy: Budgets | None
) -> list[Budget] | None:
    """Return every client's budget with its delta; None if there is none."""
    if privacy is None:
        return None
    fixed = functools.cache(Budget.fixed)  # of thousands of clients, many are alike
    of_rows = algorithm.protection.unit == ROW
    units = public_rows if of_rows else (len(names),) * len(names)
    budgets = list(map(fixed, _one_per_client(names, privacy), units))
    warn_if_few(min(units), "rows of a client" if of_rows else "clients")
    return budgets


def arrange_budgets(
    names: tuple[str, ...],
    public_rows: tuple[int, ...],
    algorithm: Algorithm,
    prior: GaussianFamily,
    most: tuple[float, ...],
    budgets: list[Budget] | None,
) -> tuple[tuple[Algorithm, ...], ClientBudgets | None]:
    """Return every client's algorithm, with its noise found if it was left open, and who may spend what.

    most: how many updates each client makes at most. budgets: with fixed deltas; None if nothing was asked. Then
    nothing is limited, and if nothing is private nothing is said either.
    """

    @functools.cache
    def arranged(limit: Budget | None, rows: int, updates: float) -> tuple[Algorithm, AnyEvent]:
        own = algorithm.calibrated(prior, limit, rows, updates)
        return own, own.event(prior, rows)

    limits: list[Budget] | list[None] = budgets or [None] * len(names)
    algorithms, events = zip(*map(arranged, limits, public_rows, most), strict=True)
    limited = budgets is not None
    if budgets is None:
        if NOT_PRIVATE in events:
            return algorithms, None
        budgets = fixed_budgets(names, public_rows, algorithm, Budget(1.0)) or []
    caveats = {algorithm.protection.caveat, *(budget.caveat for budget in budgets)} - {""}
    return algorithms, ClientBudgets(
        names, events, tuple(budgets), algorithm.protection.unit, limited, tuple(sorted(caveats))
    )


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
