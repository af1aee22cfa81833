"""A client's rows as private updates see them: on their grid, in a buffer whose size is public."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fedvi.checks import whole
from fedvi.errors import InputError
from fedvi.inference.rows import Rows, Table, check_feature_bound, roomy, usable_rows
from fedvi.models.base import Model
from fedvi.numerics import on_row_grid
from fedvi.privacy.ledger.overlap import rows_digest
from fedvi.privacy.sampling import most_rows


@dataclasses.dataclass(frozen=True)
class DeclaredRows:
    """A client's rows, on their grid, in a buffer whose size follows from the declared number.

    count: the true number of rows, which never leaves. public: the declared one.
    digest: of the rows as they came. noticed: what was done to them.
    """

    rows: Rows
    count: int
    public: int
    digest: str
    noticed: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, model: Model, feature_bound: float, declared: Callable[[int], int]) -> DeclaredRows:
        """Return the rows of a table. Nothing is refused because of what a row holds: it counts as nothing instead.

        declared: from the true number of rows to the declared one.
        """
        check_feature_bound(feature_bound)
        x, y, left_out = usable_rows(table, model, "the client's table")
        data = rows_digest(x, y)
        public = declared(len(x))
        whole("public_rows", public, 1)
        most = most_rows(public)
        if len(x) > most:
            raise InputError(
                f"Expected at most {most} rows for {public} declared ones, got more. Declare about as many as there "
                "are."
            )
        features, clipped = on_row_grid(x, feature_bound)
        told = [f"{left_out} rows hold what is no number, or a foreign label: they count as nothing"] * (left_out > 0)
        told += [f"{clipped} features are beyond {feature_bound:g} and count as that"] * (clipped > 0)
        return cls(Rows.of(features, y, feature_bound, roomy(most)), len(x), public, data, tuple(told))

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows themselves."""
        return np.asarray(self.rows.x)[: self.count], np.asarray(self.rows.y)[: self.count]
