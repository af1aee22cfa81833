"""The local problem in closed form, for models in which the likelihood of many rows is a Gaussian factor."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

import numpy as np

from fedvi.families.base import GaussianFamily
from fedvi.inference.local_problem import Draws, Problem
from fedvi.inference.rows import Rows
from fedvi.models.base import Conjugate, Model
from fedvi.privacy.mechanism import Mechanism
from fedvi.privacy.without_privacy import FullBatch
from fedvi.pytree import pytree

EXACT_AT_ONCE = 1024
"""Rows whose sufficient statistics are computed together."""


@pytree
class Exact:
    """The optimum of the local problem in closed form, for conjugate models such as `LinearRegression`."""

    needs: ClassVar[str] = "closed form"

    @property
    def mechanism(self) -> Mechanism:
        """All rows, and no privacy."""
        return FullBatch()

    @property
    def steps(self) -> int:
        """One."""
        return 1

    def with_noise(self, noise_multiplier: float) -> Self:  # noqa: ARG002
        """Return the same: nothing has noise."""
        return self

    def init(self, q: GaussianFamily) -> tuple[()]:  # noqa: ARG002
        """Nothing is kept between communications."""
        return ()

    def solve(self, problem: Problem, state: Any, model: Model, rows: Rows, draws: Draws) -> tuple[Any, Any, Any]:
        """Return the exact target factor; nothing has noise."""
        batch, conjugate = draws.batch(rows, 0), cast(Conjugate, model)  # `needs` has been checked
        statistics = batch.sum_over_rows(
            lambda some, mask: conjugate.sufficient_statistics(*batch.take(some)[:2], batch.scale * mask),
            min(EXACT_AT_ONCE, batch.mask.size),
        )
        best = problem.anchor.best_factor(*statistics)
        return (problem.base / problem.removed) * best, state, draws.privacy_noise

    def check(self, x: np.ndarray, where: str) -> None:
        """Any features will do."""
