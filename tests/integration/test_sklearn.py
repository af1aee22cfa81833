"""The estimators for scikit-learn: its own checks, and that they are the same fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fedvi.errors import InputError
from fedvi.fitting import Fitted
from fedvi.fitting.fit import fit
from fedvi.fitting.sklearn import FederatedLinearRegression, FederatedLogisticRegression


def rows(seed: int, count: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns with their own units, log odds, and sites."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(50, 12, count), rng.normal(0, 0.01, count)])
    return x, 0.8 * (x[:, 0] - 50) / 12 - 1.2 * x[:, 1] / 0.01, rng.choice(["north", "south"], count)


BOUNDS = ([14.0, -0.03], [86.0, 0.03])


def test_estimator_is_the_fit_of_the_same_table(tmp_path: Path) -> None:
    x, eta, sites = rows(0)
    y = np.where(np.random.default_rng(1).random(len(x)) < 1 / (1 + np.exp(-eta)), "ill", "fine")
    model = FederatedLogisticRegression(bounds=BOUNDS, random_state=5).fit(x, y, sites=sites)
    table = {"x0": x[:, 0], "x1": x[:, 1], "target": y, "site": sites}
    seed = int(np.random.RandomState(5).randint(np.iinfo(np.int32).max))
    assert "seed" not in model.fitted_.settings
    again = fit(model.fitted_.schema, table, site_column="site", seed=seed)
    assert np.array_equal(again.posterior.mean, model.fitted_.posterior.mean)
    assert [site.name for site in model.fitted_.sites] == ["north", "south"]
    assert all(site.epsilon is not None and site.epsilon <= 1 for site in model.fitted_.sites)
    assert "epsilon" in model.statement_

    labels, low, high = model.predict(x[:50], return_interval=True, level=0.8)
    probability = model.predict_proba(x[:50])
    assert np.array_equal(labels, model.predict(x[:50]))
    assert np.array_equal(labels == "ill", probability[:, 1] > 0.5)
    assert np.all((low <= probability[:, 1]) & (probability[:, 1] <= high))
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    scale = np.array([12.0, 0.01])
    np.testing.assert_allclose(model.coef_ * scale, [0.8, -1.2], atol=0.25)  # coefficients are in the columns' units
    np.testing.assert_allclose(model.intercept_ + model.coef_ @ [50.0, 0.0], 0, atol=0.25)

    model.fitted_.save(tmp_path / "model.fedvi")
    loaded = Fitted.load(tmp_path / "model.fedvi").predict({"x0": x[:50, 0], "x1": x[:50, 1]})
    np.testing.assert_allclose(loaded.mean, probability[:, 1], rtol=1e-6)


def test_intervals_of_the_regression_cover_held_out_truths() -> None:
    x, eta, sites = rows(2)
    rng = np.random.default_rng(3)
    y, (x_new, eta_new, _) = 100 + 20 * eta + 15 * rng.normal(size=len(x)), rows(4)
    y_new = 100 + 20 * eta_new + 15 * rng.normal(size=len(x_new))
    model = FederatedLinearRegression(bounds=BOUNDS, target_bounds=(-50.0, 250.0), delta="paper", random_state=0)
    mean, low, high = model.fit(x, y, sites=sites).predict(x_new, return_interval=True)
    assert 0.87 <= np.mean((low <= y_new) & (y_new <= high)) <= 0.93
    assert model.score(x_new, y_new) > 0.6
    np.testing.assert_allclose(mean, model.intercept_ + np.clip(x_new, *BOUNDS) @ model.coef_, rtol=1e-4)


def test_curves_and_products_of_columns_are_learnt() -> None:
    """The truth has a peak and a product; without them a fit says nothing, with them it is the truth."""
    rng = np.random.default_rng(7)
    x = rng.uniform(-3, 3, (3000, 2))
    y = 3 * np.abs(x[:, 0]).clip(0, 2) + x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=3000)
    settings: Any = {"epsilon": None, "target_bounds": (-20.0, 20.0), "random_state": 0}
    straight = FederatedLinearRegression(**settings).fit(x, y)
    bent = FederatedLinearRegression(**settings, splines=[0], interactions=[("x0", 1)]).fit(x, y)
    assert straight.features_ == ("x0", "x1")
    assert bent.features_ == ("x0", "x0~[-1]", "x0~[0]", "x0~[1]", "x1", "x0:x1")
    assert straight.score(x, y) < 0.05
    assert bent.score(x, y) > 0.98
    assert dict(zip(bent.features_, bent.coef_, strict=True)) == pytest.approx(
        {"x0": 0, "x0~[-1]": -3, "x0~[0]": -6, "x0~[1]": -3, "x1": 0, "x0:x1": 1}, abs=0.1
    )


def test_estimators_work_in_pipelines_and_cross_validation() -> None:
    x, eta, _ = rows(6, 600)
    y = (eta > 0).astype(int)
    standard = FunctionTransformer(lambda table: (table - [50, 0]) / [12, 0.01])
    scores = cross_val_score(make_pipeline(standard, FederatedLogisticRegression(random_state=0)), x, y, cv=2)
    assert scores.mean() > 0.8


def test_estimators_warn_if_they_have_not_arrived() -> None:
    x, eta, _ = rows(6, 600)
    y = (eta > 0).astype(int)  # separable: a Newton step or two do not lead there
    for epsilon in (None, 8.0):
        with pytest.warns(ConvergenceWarning, match="Not arrived"):
            model = FederatedLogisticRegression(epsilon, bounds=BOUNDS, questions=2, random_state=0).fit(x, y)
        assert not model.converged_
    noisy = (eta + np.random.default_rng(0).logistic(size=len(x)) > 0).astype(int)
    model = FederatedLogisticRegression(None, bounds=BOUNDS, random_state=0).fit(x, noisy)
    assert model.converged_
    assert model.fitted_.answered.plan.covariance == "full"
    private = FederatedLogisticRegression(bounds=BOUNDS, covariance="diagonal", random_state=0).fit(x, noisy)
    assert private.fitted_.answered.plan.covariance == "diagonal"
    with pytest.raises(InputError, match="covariance"):
        FederatedLogisticRegression(bounds=BOUNDS, covariance="none").fit(x, noisy)


def test_wrong_arguments_are_named() -> None:
    x, eta, sites = rows(0, 40)
    y = (eta > 0).astype(int)
    with pytest.raises(InputError, match="one site per row, 40"):
        FederatedLogisticRegression().fit(x, y, sites=sites[:-1])
    with pytest.raises(InputError, match="bounds"):
        FederatedLogisticRegression(bounds=(1.0, 1.0)).fit(x, y)
    with pytest.raises(InputError, match="bounds"):
        FederatedLogisticRegression(bounds=3.0).fit(x, y)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Expected a column by its name or number, one of x0, x1; got 2"):
        FederatedLogisticRegression(splines=[2]).fit(x, y)
    with pytest.raises(InputError, match="one of x0, x1; got 'x7'"):
        FederatedLogisticRegression(interactions=[("x0", "x7")]).fit(x, y)
    with pytest.raises(InputError, match="Only binary"):
        FederatedLogisticRegression().fit(x, np.arange(40) % 3)
    with pytest.raises(InputError, match="target_bounds"):
        FederatedLinearRegression(target_bounds=(0.0, np.inf)).fit(x, eta)
