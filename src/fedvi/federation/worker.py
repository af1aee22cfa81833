"""What of a site needs its rows: the client that answers questions, and what its ledger says was spent on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedvi.federation import wire
from fedvi.federation.description import Description
from fedvi.inference.local_problem import Public
from fedvi.inference.private_client import PrivateClient, declared_rows
from fedvi.inference.rows import CheckedTable
from fedvi.privacy.budget import Budget
from fedvi.privacy.events import to_json
from fedvi.privacy.ledger.entries import Book
from fedvi.privacy.ledger.overlap import Sketch


def open_worker(
    description: Description,
    table: CheckedTable,
    budget: Budget,
    ledger: Path,
    accept: tuple[str, ...] = (),
    public_rows: int | None = None,
    sketch: Callable[[bytes], Sketch] | None = None,
) -> PrivateClient:
    """Open the client that answers a federation's questions with these rows, and its ledger."""
    spec, declared = description.spec, declared_rows(ledger, len(table[0]), public_rows)
    return PrivateClient.open(
        ledger,
        table,
        spec.model,
        spec.algorithm,
        Public(spec.prior, cast(Any, np.float32(len(description.sites))), cast(Any, np.float32(description.rows))),
        budget.fixed(declared),
        public_rows=declared,
        feature_bound=description.schema.feature_bound,
        updates=spec.updates,
        schema=description.schema.digest,
        purpose=purpose(description),
        sketch=sketch,
        accept=accept,
    )


def purpose(description: Description) -> str:
    """Return what the ledger says that releases are for: which federation."""
    return f"federation {description.name} {description.digest[:16]}"


def declared(book: Book, what_for: str) -> wire.Declared:
    """Return what a site says about itself: its declared rows, and what these have paid for this purpose."""
    own = book.by_purpose.get(what_for, {})
    events = tuple({**to_json(event), "count": count} for event, count in list(own.items())[: wire.MOST_EVENTS])
    epsilon = book.budget.spent(own) if own else 0.0
    return wire.Declared(book.public_rows or 0, epsilon, book.budget.epsilon, float(book.budget.delta), events)
