"""Whether fits without questions have arrived: the Newton decrement, by formulas of its own, and what results say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from fedvi import PVI, Budget, CustomModel, FullGaussian, Gaussian, LinearRegression, LogisticRegression, simulate
from fedvi.inference import Exact, GradientSteps
from fedvi.inference.arrival import newton_decrement
from fedvi.inference.rows import Rows
from fedvi.privacy import FullBatch, FullBatchGaussian

DIM = 3
PRIOR_VARIANCE = 4.0


def rows_of(seed: int, count: int = 200, binary: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, DIM))
    eta = x @ [0.5, -1.0, 0.2]
    return x, np.where(rng.random(count) < expit(eta), 1.0, -1.0) if binary else eta + rng.normal(size=count)


def moments() -> tuple[np.ndarray, np.ndarray]:
    root = np.array([[0.2, 0.0, 0.0], [0.1, 0.15, 0.0], [-0.05, 0.1, 0.3]])
    return np.array([0.3, -0.7, 0.4]), root @ root.T


@pytest.mark.parametrize("full", [True, False])
def test_the_decrement_is_that_of_a_newton_step(full: bool) -> None:
    x, y = rows_of(0)
    mean, covariance = moments()
    covariance = covariance if full else np.diag(np.diag(covariance))
    family: Any = FullGaussian if full else Gaussian
    q = family.from_moments(mean, covariance if full else np.diag(covariance))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    spread = np.sqrt(np.einsum("ni,ij,nj->n", x, covariance, x))
    expected = expit((x @ mean)[:, None] + spread[:, None] * nodes) @ (weights / weights.sum())
    slope = x.T @ ((y > 0) - expected) - mean / PRIOR_VARIANCE
    found = newton_decrement(
        LogisticRegression(), family.standard(DIM, PRIOR_VARIANCE), q, Rows.of(x, y, room=256), 200
    )
    assert found == pytest.approx(np.sqrt(slope @ covariance @ slope / DIM), rel=1e-3)


def test_the_decrement_of_an_own_model_is_its_distance_in_standard_deviations() -> None:
    x, y = rows_of(1, binary=False)
    model = CustomModel(lambda w, row, target: -0.5 * (target - row @ w) ** 2)
    covariance = np.linalg.inv(x.T @ x + np.eye(DIM) / PRIOR_VARIANCE)
    best, root = covariance @ x.T @ y, np.linalg.cholesky(covariance)
    prior, rows = FullGaussian.standard(DIM, PRIOR_VARIANCE), Rows.of(x, y)
    for distance in (0.0, 0.5, 2.0):
        q = FullGaussian.from_moments(best + distance * root @ [1.0, 1.0, 1.0], covariance)
        assert newton_decrement(model, prior, q, rows, 200) == pytest.approx(distance, abs=0.01)


def test_results_say_whether_they_have_arrived() -> None:
    tables = {name: rows_of(seed) for seed, name in enumerate(("a", "b"))}
    steps: Any = {"model": LogisticRegression(), "seed": 0, "progress": False}
    algorithm = PVI(GradientSteps(20, 0.5, FullBatch()))
    early = simulate(tables, algorithm=algorithm, communications=1, **steps)
    late = simulate(tables, algorithm=algorithm, communications=60, **steps)
    assert (early.converged, late.converged) == (False, True)
    assert early.convergence.startswith("Not arrived: one more step would move weights by ")
    assert late.convergence.startswith("Arrived: ")
    line = {name: rows_of(seed, binary=False) for seed, name in enumerate(("a", "b"))}
    exact = PVI(Exact(), damping=1.0)
    steps |= {"model": LinearRegression(), "prior": FullGaussian.standard(DIM)}
    arrived = simulate(line, algorithm=exact, max_updates=1, **steps).arrived
    assert arrived is not None
    assert arrived[0] < 0.01


def test_private_results_without_questions_do_not_know() -> None:
    algorithm = PVI(GradientSteps(2, 0.5, FullBatchGaussian(None, 1.0)))
    result = simulate(
        [rows_of(0)], LogisticRegression(), seed=0, algorithm=algorithm, max_updates=2, privacy=Budget(1.0)
    )
    assert result.converged is None
    assert "Not known" in result.convergence


def test_rows_beyond_the_count_are_not_looked_at() -> None:
    x, y = rows_of(2)
    q, prior = Gaussian.standard(DIM), Gaussian.standard(DIM)
    rows = Rows.of(x, y)
    some = newton_decrement(LogisticRegression(), prior, q, rows, 120)
    assert some == pytest.approx(
        newton_decrement(LogisticRegression(), prior, q, Rows.of(x[:120], y[:120]), 120), rel=1e-4
    )
    assert some != pytest.approx(newton_decrement(LogisticRegression(), prior, q, rows, 200), rel=0.01)
