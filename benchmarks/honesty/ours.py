"""fedvi's own method, through its public names: `simulate` on drawn tables, `fit` by a schema on real ones."""

from __future__ import annotations

import numpy as np

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.methods import Estimate, by_fit, covariance_of, prior_variances, sites_of
from benchmarks.honesty.tables import Drawn
from fedvi import Budget, FullGaussian, LinearRegression, LogisticRegression, NoiseAwarePVI, simulate
from fedvi.inference import Answers
from fedvi.inference.reading.base import MOST_FULL
from fedvi.privacy import FullBatch


def ours(cell: Cell, drawn: Drawn, seed: int) -> Estimate:
    """Return what fedvi says with full covariance, where there are no more columns than `auto` would allow."""
    return read(cell, drawn, seed, "full" if len(drawn.features) <= MOST_FULL else "auto")


def default(cell: Cell, drawn: Drawn, seed: int) -> Estimate:
    """Return what fedvi says if it chooses the covariance itself: a diagonal where noise hides the rest."""
    return read(cell, drawn, seed, "auto")


def read(cell: Cell, drawn: Drawn, seed: int, covariance: str) -> Estimate:
    """Return what fedvi says, and whether it says that it has arrived and is to be trusted."""
    if not cell.drawn:
        return by_fit(cell, drawn, seed, covariance=covariance)
    variances = prior_variances(cell, drawn)
    solver = Answers(FullBatch()) if cell.epsilon is None else Answers()
    result = simulate(
        sites_of(cell, drawn),
        LinearRegression() if cell.linear else LogisticRegression(),
        seed=seed,
        prior=FullGaussian.from_moments(np.zeros(len(variances)), np.diag(variances)),
        algorithm=NoiseAwarePVI(solver, covariance=covariance, intercept=True, bound=4.0),
        privacy=None if cell.epsilon is None else Budget(cell.epsilon),
        feature_bound=4.0,
        progress=False,
    )
    arrived = bool(result.converged and result.asked.trusted)
    mean = np.asarray(result.posterior.mean, np.float64)
    return Estimate(mean, covariance_of(result.posterior), arrived, float(result.asked.arrived))
