"""A client that trusts nobody: neither the server, nor other clients, nor the wire.

    charge the ledger  ->  draw from a CSPRNG  ->  compute  ->  Release with its event

This order is kept in one place, `PrivateClient.update`. What is wrong with the request is found before the charge; an
update that the budget does not cover is never drawn nor computed.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Collection, Hashable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedvi.checks import instance, whole
from fedvi.data import Site, Table, check_table
from fedvi.errors import InputError
from fedvi.gaussian import GaussianFamily
from fedvi.local.algorithm import Algorithm
from fedvi.local.calibration import calibrated
from fedvi.local.client import ClientState, Release, check_request, draw, init_client, update
from fedvi.local.problem import Public
from fedvi.models import Model
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import NOT_PRIVATE
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
            for event, times in beside.items():
                if event not in opened.book.planned:
                    opened.plan(event, times, "statistics")
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

        Each vector must depend on its own row alone. purpose: what the ledger says that it was for.
        """
        self.ledger.charge(part.event, purpose)
        summands = np.asarray(vectors(*map(np.asarray, (self._site.x, self._site.y))))
        return part.release(summands, secure_generator().standard_normal((summands.shape[1],)))

    def transform_rows(self, transform: Callable[[np.ndarray], np.ndarray], schema: str) -> None:
        """Go on with rows `transform(x)`, as encoded by a schema with this hash; each must depend on its own row alone.

        For private standardisation: the ledger stays with the rows as they were when it was made.
        """
        x = np.asarray(transform(np.asarray(self._site.x)))
        checked, _ = check_table((x, self._site.y), self._model, "the transformed rows")
        self._site, self._schema = dataclasses.replace(self._site, x=jnp.asarray(checked)), schema

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


def _own(setting: Any) -> Any:
    """Return a copy that nobody else can change: what was checked and planned for is what is used."""
    return np.array(setting) if isinstance(setting, np.ndarray) else setting


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
