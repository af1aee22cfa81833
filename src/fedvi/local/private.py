"""A client that trusts nobody: neither the server, nor other clients, nor the wire.

    charge the ledger  ->  draw from a CSPRNG  ->  compute  ->  Release with its event

This order is kept in one place, `PrivateClient.update`. What is wrong with the request is found before the charge; an
update that the budget does not cover is never drawn nor computed.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedvi.checks import instance, whole
from fedvi.data import Site, Table, check_table
from fedvi.errors import ChosenLate, InputError
from fedvi.gaussian import GaussianFamily
from fedvi.local.algorithm import Algorithm
from fedvi.local.calibration import calibrated
from fedvi.local.client import ClientState, Release, check_request, draw, init_client, update
from fedvi.local.problem import Public
from fedvi.models import Model
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import EXAMPLE, NOT_PRIVATE
from fedvi.privacy.ledger import Ledger, digest
from fedvi.privacy.randomness import secure_generator
from fedvi.privacy.storage import Closing
from fedvi.privacy.sums import BoundedSum


class PrivateClient(Closing):
    """A client with its rows, its ledger and its state; made by `open`, used in a `with` statement.

    event: what one update does to the rows.
    remaining: how many updates the ledger still admits.
    """

    def __init__(
        self, site: Site, model: Model, algorithm: Algorithm, public: Public, ledger: Ledger, schema: str = ""
    ):
        self._schema = schema
        self._site, self._model, self._algorithm, self._public = site, model, algorithm, public
        self._rows = int(site.size)
        _check_guarantee(algorithm, self._rows)
        self.ledger = ledger
        self.event: Hashable = algorithm.event(self._rows)
        if ledger.book.unit != algorithm.unit:
            raise InputError(f"Expected a ledger for one {algorithm.unit}, got one for one {ledger.book.unit}.")
        self.state: ClientState = init_client(algorithm, public.prior)

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
        updates: int | None = None,
        sums: Sequence[BoundedSum] = (),
        schema: str = "",
        state: ClientState | None = None,
        accept: Collection[str] = (),
    ) -> PrivateClient:
        """Check the rows, open their ledger (or make it), and plan as many updates as the budget admits.

        updates: how many to find the noise for, if the algorithm leaves it open.
        sums: what `release_sum` will be asked for beside updates, each once; the budget pays for all of it.
        schema: hash of the feature schema that encoded the table; every release carries it.
        state: of the client when it last worked in the same federation, to go on from there; None to begin anew.
        accept: what a person accepts in so many words; see `Ledger.open`.
        """
        instance("budget", budget, Budget)
        if updates is not None:
            whole("updates", updates, 1)
        algorithm = jax.tree.map(_own, algorithm)
        if sums:
            _check_rows_are_the_unit(algorithm.unit)
        x, y = check_table(table, model, "the client's table")
        algorithm.solver.check(model, x, "the client's table")
        rows, data = len(x), digest(x, y)
        fixed = budget.fixed(rows, algorithm.unit)
        beside = collections.Counter(part.event for part in sums)
        rest = fixed.beside(beside) if beside else fixed
        algorithm = calibrated(algorithm, rest, rows, float("inf") if updates is None else updates)
        _check_guarantee(algorithm, rows)
        if Path(ledger).exists():
            opened = Ledger.open(ledger, data, schema=schema, accept=accept)
        else:
            opened = Ledger.create(ledger, fixed, data, unit=algorithm.unit, schema=schema, accept=accept)
        try:
            _check_same(opened, fixed, algorithm.unit)
            site = Site(jnp.asarray(x), jnp.asarray(y), jnp.int32(0), jnp.int32(rows))
            client = cls(site, model, algorithm, public, opened, schema)
            client.state = client.state if state is None else state
            _plan_beside(opened, beside, client.event)
            opened.plan(client.event)
        except BaseException:
            opened.close()
            raise
        return client

    @property
    def remaining(self) -> int:
        """How many updates may still be made."""
        return self.ledger.remaining(self.event)

    def update(self, q: GaussianFamily) -> Release:
        """Make one private update of the posterior q, or raise `BudgetClosed`."""
        check_request(self._algorithm, self._public, q, self.state, self._site)
        if self._algorithm.event(self._rows) != self.event:
            raise InputError("Expected the settings that the client was opened with, got others: they were changed.")
        self.ledger.charge(self.event)
        draws = draw(self._algorithm, self._model, self._public.prior, self._rows, secure_generator())
        self.state, release = update(self._algorithm, self._model, self._public, q, self.state, self._site, draws)
        return dataclasses.replace(release, event=self.event, schema=self._schema)

    def release_sum(
        self, part: BoundedSum, vectors: Callable[[np.ndarray, np.ndarray], np.ndarray], purpose: str
    ) -> np.ndarray:
        """Release a private sum of `vectors(x, y)`, one vector of length at most one per row, or raise `BudgetClosed`.

        Each vector must depend on its own row alone, also in how it is rounded: elementwise operations do, matrix
        products do not (`fedvi.local.width.rows_at`). purpose: what the ledger says that it was for.
        """
        _check_rows_are_the_unit(self.ledger.book.unit)
        self.ledger.charge(part.event, purpose)
        summands = np.asarray(vectors(*map(np.asarray, (self._site.x, self._site.y))), np.float64)
        if summands.shape[0] != self._rows:
            raise InputError(f"Expected one vector for each of {self._rows} rows, got {summands.shape[0]}.")
        return part.release(summands, secure_generator().standard_normal((summands.shape[1],)))

    def encode_anew(self, x: ArrayLike, schema: str) -> None:
        """Go on with the same rows, in the same order, as encoded by another schema with this hash.

        For private standardisation, whose schema comes from what was released: the ledger stays with the rows as they
        were when it was made. Nothing is refused for what rows hold, which could be asked for by choosing a schema.
        """
        rows = np.asarray(x, np.float32)
        if rows.shape != self._site.x.shape:
            raise InputError(f"Expected the same rows and features, {self._site.x.shape}, got {rows.shape}.")
        finite = jnp.asarray(np.where(np.isfinite(rows), rows, 0), self._site.x.dtype)
        self._site, self._schema = dataclasses.replace(self._site, x=finite), schema

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


def _own(setting: Any) -> Any:
    """Return a copy that nobody else can change: what was checked and planned for is what is used."""
    return np.array(setting) if isinstance(setting, np.ndarray) else setting


def _plan_beside(ledger: Ledger, beside: Mapping[Hashable, int], update: Hashable) -> None:
    """Plan the sums, all of them before anything was released."""
    if update in beside:
        raise InputError("Expected sums with other noise than updates have, got the same. Give the sum a little more.")
    new = {event: times for event, times in beside.items() if event not in ledger.book.planned}
    if new and ledger.book.charged:
        raise ChosenLate("Expected the sums that were planned when the ledger was made, got others. Ask for the same.")
    for event, times in new.items():
        ledger.plan(event, times, "statistics")


def _check_rows_are_the_unit(unit: str) -> None:
    if unit != EXAMPLE:
        raise InputError(f"Expected a ledger that protects single rows for private sums over rows, got one {unit}.")


def _check_guarantee(algorithm: Algorithm, rows: int) -> None:
    caveat = algorithm.solver.mechanism.caveat
    if algorithm.event(rows) == NOT_PRIVATE or caveat:
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
