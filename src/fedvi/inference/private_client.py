"""A client that trusts nobody: neither the server, nor other clients, nor the wire.

    charge the ledger  ->  draw from a CSPRNG  ->  compute  ->  Release with its event

This order is kept in one place, `PrivateClient.update`. What is wrong with the request is found before the charge; an
update that the budget does not cover is never drawn nor computed.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.checks import instance, whole
from fedvi.compiling import jax
from fedvi.errors import ChosenLate, InputError
from fedvi.families.base import GaussianFamily
from fedvi.files import Closing
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Public, check_solver
from fedvi.inference.rows import DEFAULT_FEATURE_BOUND, DeclaredRows, Table
from fedvi.inference.update import ClientState, Release, check_request, checked_update, draw, init_client
from fedvi.models.base import Model
from fedvi.privacy.budget import Budget, warn_if_few
from fedvi.privacy.events import NOT_PRIVATE, ROW, AnyEvent
from fedvi.privacy.ledger.acknowledgements import MOVED, OTHER_DATA
from fedvi.privacy.ledger.ledger import Ledger, read
from fedvi.privacy.ledger.overlap import Sketch
from fedvi.privacy.ledger.witness import machine_key
from fedvi.privacy.sampling import System, default_public_rows
from fedvi.privacy.sums import BoundedSum


@dataclasses.dataclass(eq=False, repr=False)
class PrivateClient(Closing):
    """A client with its rows, its ledger and its state; made by `open`, used in a `with` statement.

    event: what one update does to the rows.
    remaining: how many updates the ledger still admits.
    """

    _rows: DeclaredRows
    _model: Model
    _algorithm: Algorithm
    _public: Public
    _schema: str
    _purpose: str
    ledger: Ledger
    state: ClientState

    def __post_init__(self) -> None:
        self.event: AnyEvent = self._algorithm.event(self._public.prior, self._rows.public)

    @classmethod
    def open(
        cls,
        ledger: str | os.PathLike[str],
        table: Table,
        model: Model,
        algorithm: Algorithm,
        public: Public,
        budget: Budget,
        *,
        public_rows: int | None = None,
        feature_bound: float = DEFAULT_FEATURE_BOUND,
        updates: int | None = None,
        sums: Sequence[BoundedSum] = (),
        schema: str = "",
        purpose: str = "training",
        sketch: Callable[[bytes], Sketch] | None = None,
        state: ClientState | None = None,
        accept: Collection[str] = (),
    ) -> PrivateClient:
        """Check the rows, open their ledger (or make it), and plan as many updates as the budget admits.

        public_rows: that the client declares, once and for all. Default: two digits of the true number, rounded down,
            which depends on the table; better is a number that you would declare with or without any one person.
        feature_bound: features beyond this power of two are clipped to it.
        updates: how many to find the noise for, if the algorithm leaves it open.
        sums: what `release_sum` will be asked for beside updates, each once; the budget pays for all of it.
        schema: hash of the feature schema that encoded the table; every release carries it.
        purpose: what the ledger says that updates are for.
        sketch: from the machine's key to a sketch of the raw table (`fedvi.privacy.ledger.overlap`), to notice that
            the same people have a ledger already; None to make one of `table`.
        state: of the client when it last worked in the same federation, to go on from there; None to begin anew.
        accept: the ledger's warnings that a person confirms; see `Ledger.open`.
        """
        instance("budget", budget, Budget)
        if updates is not None:
            whole("updates", updates, 1)
        algorithm = jax.tree.map(_own, algorithm)
        if sums:
            _check_rows_are_the_unit(algorithm.protection.unit)
        exists = Path(ledger).exists()
        rows = DeclaredRows.of(table, model, feature_bound, lambda count: declared_rows(ledger, count, public_rows))
        check_solver(algorithm.solver, model)
        algorithm.solver.check(np.asarray(rows.rows.x), "the client's table")
        of_rows = algorithm.protection.unit == ROW
        units = rows.public if of_rows else int(public.clients)
        warn_if_few(units, "rows" if of_rows else "clients")
        fixed = budget.fixed(units)
        beside: Mapping[Any, int] = collections.Counter(part.event for part in sums)
        rest = fixed.beside(beside) if beside else fixed
        most = float("inf") if updates is None else updates
        algorithm = algorithm.calibrated(public.prior, rest, rows.public, most)
        _check_guarantee(algorithm, public.prior, rows.public)
        _check_backend()

        def sketched() -> Sketch:
            key = machine_key()
            return Sketch.of_arrays(*rows.table, key) if sketch is None else sketch(key)

        if exists:
            changed = sketched() if OTHER_DATA in accept or MOVED in accept else None
            opened = Ledger.open(ledger, rows.digest, schema=schema, sketch=changed, accept=accept)
        else:
            opened = Ledger.create(
                ledger,
                fixed,
                rows.digest,
                unit=algorithm.protection.unit,
                schema=schema,
                public_rows=rows.public,
                sketch=sketched(),
                accept=accept,
            )
        try:
            _check_same(opened, fixed, algorithm.protection.unit)
            opened.declare(rows.public)
            kept = init_client(algorithm, public.prior) if state is None else state
            client = cls(rows, model, algorithm, public, schema, purpose, opened, kept)
            _plan_beside(opened, beside, client.event)
            opened.plan(client.event)
        except BaseException:
            opened.close()
            raise
        return client

    @property
    def noticed(self) -> tuple[str, ...]:
        """What the people who have the rows should know about them. It stays with them.

        The rows are looked at when it is asked for: nothing else that the client does depends on it.
        """
        return self._rows.noticed_by(self._model, self._public.prior)

    @property
    def public_rows(self) -> int:
        """The number of rows that the client declares."""
        return self._rows.public

    @property
    def remaining(self) -> int:
        """How many updates may still be made."""
        return self.ledger.remaining(self.event)

    def check(self, q: Any) -> None:
        """Raise unless q, or a question, may be looked at. Nothing is charged, and no row is looked at."""
        self._algorithm.check_sent(q, float(self._rows.rows.feature_bound))

    def update(self, q: Any) -> Release:
        """Make one private update of what the server sent, q or a question, or raise `BudgetClosed`."""
        self.check(q)
        check_request(self._algorithm, self._public, q, self.state)
        if self._algorithm.event(self._public.prior, self._rows.public) != self.event:
            raise InputError("Expected the settings that the client was opened with, got others: they were changed.")
        self.ledger.charge(self.event, self._purpose)
        counts = self._rows.count, self._rows.public
        draws = draw(self._algorithm, self._model, self._public, *counts, System())
        given = self._algorithm, self._model, self._public, q, self.state, self._rows.rows, draws
        self.state, release = checked_update(*given)
        return dataclasses.replace(release, event=self.event, schema=self._schema)

    def release_sum(
        self,
        part: BoundedSum,
        vectors: Callable[[np.ndarray, np.ndarray], np.ndarray],
        purpose: str,
        *,
        average: bool = False,
    ) -> np.ndarray:
        """Release a private sum of `vectors(x, y)`, one vector of length at most one per row, or raise `BudgetClosed`.

        Each vector must depend on its own row alone, also in how it is rounded: elementwise operations do, matrix
        products do not. purpose: what the ledger says that it was for.
        average: see `BoundedSum.release`.
        """
        _check_rows_are_the_unit(self.ledger.book.unit)
        self.ledger.charge(part.event, purpose)
        summands = np.asarray(vectors(*self._rows.table), np.float64)
        if summands.shape != (self._rows.count, part.numbers):
            raise InputError(f"Expected a vector of {part.numbers} numbers for each row, got shape {summands.shape}.")
        return part.release(summands, self._rows.public, System(), average=average)

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


def declared_rows(ledger: str | os.PathLike[str], count: int, public_rows: int | None) -> int:
    """Return the number of rows to declare: the one that the ledger was made with, else the given, else the default."""
    declared = read(ledger).public_rows if Path(ledger).exists() else None
    if declared is None:
        return default_public_rows(count) if public_rows is None else public_rows
    if public_rows not in (None, declared):
        raise InputError(f"Expected the number of rows that the ledger was made with, {declared}, got {public_rows}.")
    return declared


def _check_backend() -> None:
    """Raise unless private sums are computed where the argument for them holds: in doubles of the processor."""
    if jax.default_backend() != "cpu":
        raise InputError(
            f"Expected private updates on the CPU, got JAX's backend {jax.default_backend()!r}. Set JAX_PLATFORMS=cpu."
        )


def _own(setting: Any) -> Any:
    """Return a copy that nobody else can change: what was checked and planned for is what is used."""
    return np.array(setting) if isinstance(setting, np.ndarray) else setting


def _plan_beside(ledger: Ledger, beside: Mapping[Any, int], update: AnyEvent) -> None:
    """Plan the sums, all of them before anything was released."""
    if update in beside:
        raise InputError("Expected sums with other noise than updates have, got the same. Give the sum a little more.")
    new = {event: times for event, times in beside.items() if event not in ledger.book.planned}
    if new and ledger.book.charged:
        raise ChosenLate("Expected the sums that were planned when the ledger was made, got others. Ask for the same.")
    for event, times in new.items():
        ledger.plan(event, times, "statistics")


def _check_rows_are_the_unit(unit: str) -> None:
    if unit != ROW:
        raise InputError(f"Expected a ledger that protects single rows for private sums over rows, got one {unit}.")


def _check_guarantee(algorithm: Algorithm, prior: GaussianFamily, public_rows: int) -> None:
    caveat = algorithm.protection.caveat
    if algorithm.event(prior, public_rows) == NOT_PRIVATE or caveat:
        raise InputError(
            "Expected an algorithm with a guarantee of privacy, got "
            f"{caveat or 'one that adds no noise'}. Use PoissonGaussian(...)."
        )


def _check_same(ledger: Ledger, budget: Budget, unit: str) -> None:
    if ledger.book.budget != budget or ledger.book.unit != unit:
        raise InputError(
            f"Expected the ledger's own budget and unit, {ledger.book.budget} for one {ledger.book.unit}, got {budget} "
            f"for one {unit}. A ledger's budget is fixed when it is made."
        )
