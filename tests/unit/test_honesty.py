"""The benchmark of honesty itself: scores against closed forms, a method of known coverage, tables, resuming."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, norm

from benchmarks.honesty import report, scores
from benchmarks.honesty.baselines import dp_sgd, gaussian_mu
from benchmarks.honesty.cells import FIRST, Cell, load_cells
from benchmarks.honesty.command import chosen, judged
from benchmarks.honesty.methods import Estimate, schema_of, sites_of, tables_of
from benchmarks.honesty.run import measure, read_results
from benchmarks.honesty.tables import Drawn, draw
from fedvi.tables.encode import encode

CELL = Cell("logistic", rows=200, epsilon=1.0, features=3, correlation=0.5)


def knowing(claimed: float) -> scores.Columns:
    """Return what is kept of a method whose errors are known, and that claims so many times its standard deviation."""
    columns: scores.Columns = {}
    rng = np.random.default_rng(1)
    spread = np.array([[1.0, 0.6, 0, 0], [0.6, 1, 0, 0], [0, 0, 4, 0], [0, 0, 0, 0.25]])
    drawn = draw(CELL, 0)
    for _ in range(1500):
        mean = rng.multivariate_normal(drawn.weights, spread)
        scores.add(columns, Estimate(mean, claimed**2 * spread, True, 1.0), drawn)
    return columns


def test_scores_are_their_definitions() -> None:
    mean, sd, truth = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 0.5]), np.array([0.3, -4.0, 3.5])
    found = scores.score(mean, sd, truth)
    low, high = norm.interval(0.9, mean, sd)
    beyond = np.where(truth < low, low - truth, np.where(truth > high, truth - high, 0))
    np.testing.assert_array_equal(found.covered, (low <= truth) & (truth <= high))
    np.testing.assert_allclose(found.interval, high - low + 2 / 0.1 * beyond)
    np.testing.assert_allclose(found.log, norm.logpdf(truth, mean, sd))
    np.testing.assert_allclose(found.ranks, norm.cdf(truth, mean, sd))


@pytest.mark.parametrize("claimed", [0.5, 1.0, 1.5])
def test_a_method_of_known_coverage_scores_as_it_should(claimed: float) -> None:
    columns = knowing(claimed)
    reach = norm.ppf(0.95) * claimed
    for part in scores.PARTS:
        mean, error = scores.mean_and_error(columns[f"{part} covered"])
        assert error < 0.01
        assert abs(mean - (norm.cdf(reach) - norm.cdf(-reach))) < 4 * error
    sds = np.array([1, 1, 2, 0.5])
    beyond = 2 * (norm.pdf(reach) - reach * norm.sf(reach))  # E max(|z| - reach, 0)
    assert np.mean(columns["weights interval"]) == pytest.approx(sds.mean() * (2 * reach + 20 * beyond), rel=0.04)
    expected = -0.5 / claimed**2 - np.log(claimed * sds).mean() - 0.5 * math.log(2 * math.pi)
    assert np.mean(columns["weights log"]) == pytest.approx(expected, abs=0.04)


def test_ranks_are_flat_if_and_only_if_the_posterior_is_right() -> None:
    def surprise(columns: scores.Columns) -> float:
        counts = np.array(columns["weights ranks"])
        expected = counts.sum() / scores.BINS
        return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), scores.BINS - 1))

    assert surprise(knowing(1.0)) > 1e-3
    assert surprise(knowing(0.8)) < 1e-6
    assert surprise(knowing(1.2)) < 1e-6


def test_cells_beyond_the_limits_are_found_with_what_the_fits_said() -> None:
    cells = {"right": knowing(1.0), "narrow": knowing(0.5), "wide": knowing(2.0)}
    cells["wide"]["arrived"] = [0] * len(cells["wide"]["arrived"])
    found = report.outside(cells)
    assert [(each.cell, each.part) for each in found] == [(n, p) for n in ("narrow", "wide") for p in scores.PARTS]
    assert [each.flagged for each in found] == [0, 0, 1, 1]
    said = report.verdict(cells, {"right": cells["wide"]}, {})
    assert said["ratio"] == said["worst_ratio"] == pytest.approx(scores.score_ratio(cells["right"], cells["wide"]))
    assert 0.6 < said["ratio"] < 0.75
    assert report.cell_rows(cells, {})[1][1] == "1500"


def test_a_cell_beyond_its_limits_fails_our_method_and_no_other() -> None:
    kept = {"cells": {"logistic n=300 d=3 corr=0 eps=1": knowing(0.5)}}
    results = {"methods": {"ours": kept, "dp-pvi": kept}}
    names = list(kept["cells"])
    assert judged(results, "ours", names)[2]
    assert not judged(results, "dp-pvi", names)[2]
    assert not judged({"methods": {"ours": {"cells": {names[0]: knowing(1.0)}}}}, "ours", names)[2]


def test_few_tables_condemn_no_cell() -> None:
    columns = knowing(0.8)
    few = {name: values[:4] if isinstance(values, list) else values for name, values in columns.items()}
    assert report.outside({"cell": columns})
    assert not report.outside({"cell": few})


def test_scores_are_compared_on_the_tables_that_both_have() -> None:
    one = {"weights covered": [1, 1, 1], "weights interval": [1.0, 2.0, 100.0]}
    other = {"weights covered": [1, 1], "weights interval": [2.0, 4.0]}
    assert scores.score_ratio(one, other) == 0.5


def test_distance_to_nuts_is_the_largest() -> None:
    ours = {"x eps=none": {"first": {"mean": [1.0, 2.0], "sd": [1.1, 0.5]}}, "x eps=1": {}}
    exact = {"x eps=none": {"first": {"mean": [1.2, 2.0], "sd": [1.0, 0.5]}}}
    ((sd, mean),) = report.agreement(ours, exact).values()
    assert (sd, mean) == pytest.approx((0.1, 0.2))


def test_tables_do_not_depend_on_budget_or_sites() -> None:
    other = draw(dataclasses.replace(CELL, epsilon=None, sites=10), 5)
    np.testing.assert_array_equal(draw(CELL, 5).y, other.y)
    np.testing.assert_array_equal(draw(CELL, 5).weights, other.weights)
    assert not np.array_equal(draw(CELL, 6).x, other.x)
    assert min(CELL.entropy(0)[0], CELL.entropy(3)[0]) >= FIRST
    assert [len(y) for _, y in sites_of(dataclasses.replace(CELL, sites=3), other).values()] == [67, 67, 66]


def test_features_are_correlated_and_outcomes_come_from_the_weights() -> None:
    drawn = draw(Cell("linear", rows=40_000, epsilon=None, features=2, correlation=0.5), 0)
    assert np.corrcoef(drawn.x[:, 1:].T)[0, 1] == pytest.approx(0.5, abs=0.03)
    found, (squares,), *_ = np.linalg.lstsq(drawn.x, drawn.y)
    np.testing.assert_allclose(found, drawn.weights, atol=0.03)
    assert squares / 40_000 == pytest.approx(drawn.noise_variance, rel=0.05)


def test_a_share_of_positives_is_met() -> None:
    drawn = draw(Cell("logistic", rows=20_000, epsilon=1.0, features=3, positives=0.05), 2)
    assert drawn.y.mean() == pytest.approx(0.05, abs=0.006)


@pytest.mark.parametrize("kind", ["diabetes", "patients", "adult"])
def test_features_of_real_tables_are_those_of_their_schema(kind: str) -> None:
    cell = next(cell for cell in load_cells().values() if cell.kind == kind)
    drawn = draw(dataclasses.replace(cell, rows=300, sites=1), 0)
    schema = schema_of(cell, drawn)
    x, _ = encode(schema, tables_of(dataclasses.replace(cell, sites=1), drawn)["site0"]).rows
    at = [schema.features.index(name) for name in drawn.features]
    np.testing.assert_allclose(x[:, at], drawn.x, atol=1e-5)
    assert {"numbers", "common levels", "intercept"} <= set(drawn.groups)


def test_cells_are_about_sixty_with_different_names_and_hold_the_grid() -> None:
    cells = load_cells()
    assert 60 <= len(cells) <= 75
    drawn = [cell for cell in cells.values() if cell.drawn]
    assert {cell.features for cell in drawn} == {3, 10, 30}
    assert {cell.correlation for cell in drawn} == {0, 0.5, 0.9}
    assert {cell.rows for cell in drawn} == {300, 3000, 30_000}
    assert {cell.epsilon for cell in cells.values()} == {0.1, 0.5, 1, 4, None}
    assert {cell.sites for cell in cells.values()} == {1, 10}
    assert any(cell.positives == 0.05 for cell in cells.values())
    assert 10 < len(chosen("dp-sgd", "", None, quick=False)[0]) < 25
    quick, tables = chosen("ours", "", 7, quick=True)
    assert len(quick) == 4
    assert set(tables.values()) == {7}


class Interrupted:
    """A method that is interrupted after so many tables."""

    def __init__(self, after: float) -> None:
        self.left = after

    def __call__(self, cell: Cell, drawn: Drawn, seed: int) -> Estimate:
        if self.left <= 0:
            raise KeyboardInterrupt
        self.left -= 1
        return Estimate(drawn.weights + 0.1 * seed, np.eye(len(drawn.weights)))


def test_an_interrupted_run_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    cells = {"a": CELL, "b": dataclasses.replace(CELL, correlation=0.0)}
    tables = dict.fromkeys(cells, 4)
    whole = measure("m", Interrupted(math.inf), cells, tables, tmp_path / "whole.json")
    path = tmp_path / "parts.json"
    with pytest.raises(KeyboardInterrupt):
        measure("m", Interrupted(5), cells, tables, path)
    kept = read_results(path)["methods"]["m"]["cells"]
    assert [scores.tables_in(columns) for columns in kept.values()] == [4, 1]
    resumed = measure("m", Interrupted(3), cells, tables, path)
    for results in (whole, resumed):
        for columns in results["methods"]["m"]["cells"].values():
            del columns["seconds"]
    assert resumed == whole
    assert read_results(tmp_path / "whole.json")["methods"]["m"]["cells"].keys() == cells.keys()


def test_results_of_another_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"format": 99, "methods": {}}')
    with pytest.raises(ValueError, match="format 1"):
        read_results(tmp_path / "x.json")


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-5), (4.0, 3e-6)])
def test_noise_of_the_bootstrap_is_what_accounting_asks_for(epsilon: float, delta: float) -> None:
    from dp_accounting import pld

    mu = gaussian_mu(epsilon, delta)
    event = pld.privacy_loss_distribution.from_gaussian_mechanism(1 / mu)
    assert event.get_epsilon_for_delta(delta) == pytest.approx(epsilon, rel=2e-3)


def test_bootstrap_finds_the_level_where_nothing_is_clipped_and_there_is_hardly_noise() -> None:
    cell = Cell("logistic", rows=20_000, epsilon=50.0, features=1)
    drawn = draw(cell, 3)
    y = (np.random.default_rng(0).random(cell.rows) < 0.7).astype(float)
    found = dp_sgd(cell, dataclasses.replace(drawn, x=np.ones((cell.rows, 2)) / 2, y=y), 0)
    assert found.mean.sum() / 2 == pytest.approx(math.log(0.7 / 0.3), abs=0.05)
    assert 0 < found.covariance.sum() < 0.1
