"""fedvi's own method, through its public names: `simulate` on drawn tables, `fit` by a schema on real ones."""

from __future__ import annotations

import numpy as np

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.methods import Estimate, by_fit, covariance_of, prior_variances, sites_of
from benchmarks.honesty.tables import Drawn
from fedvi import Budget, Gaussian, LinearRegression, LogisticRegression, NoiseAwarePVI, simulate


def ours(cell: Cell, drawn: Drawn, seed: int) -> Estimate:
    """Return what fedvi says, and whether it says that it has arrived."""
    if not cell.drawn:
        return by_fit(cell, drawn, seed)
    variances = prior_variances(cell, drawn)
    result = simulate(
        sites_of(cell, drawn),
        LinearRegression() if cell.linear else LogisticRegression(),
        seed=seed,
        prior=Gaussian.from_moments(np.zeros(len(variances)), variances),
        algorithm=NoiseAwarePVI(),
        max_updates=14,
        privacy=None if cell.epsilon is None else Budget(cell.epsilon),
        feature_bound=4.0,
        progress=False,
    )
    return Estimate(np.asarray(result.posterior.mean, np.float64), covariance_of(result.posterior))
