"""From tables to posteriors that predict: coverage, posterior files, what a fit spends, errors that name the place."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import stats
from scipy.special import expit

from fedvi.errors import InputError, ValuesClipped
from fedvi.families.messages import Messages
from fedvi.fitting import Fitted
from fedvi.fitting import fit as fitting
from fedvi.fitting.fit import fit
from fedvi.fitting.posterior_file import read_header
from fedvi.fitting.site_tables import read_sites
from fedvi.inference.questions import numbers_of
from fedvi.models import LinearRegression
from fedvi.privacy import epsilon as accounted
from fedvi.privacy.events import from_json
from fedvi.privacy.sampling import default_public_rows
from fedvi.tables import BinaryTarget, Category, Interaction, Number, NumberTarget, Schema, infer_schema
from fedvi.tables.encode import encode

DIM = 5
WEIGHTS = np.array([0.4, 1.0, -0.8, 0.5, 0.0, -0.3])
NUMBERS = tuple(Number(f"x{j}", -3, 3, 0, 1) for j in range(DIM))
OUTCOME = Schema(NUMBERS, BinaryTarget("y", ("no", "yes")))


def amount(scale: float) -> Schema:
    return Schema(NUMBERS, NumberTarget("y", -200, 200, 0, scale))


def simulated(seed: int, rows: int, binary: bool) -> tuple[dict[str, Any], np.ndarray]:
    """Return a table of three sites, and the log odds, or the expected y in units of 10."""
    rng = np.random.default_rng(seed)
    mixed = np.linalg.cholesky(np.full((DIM, DIM), 0.3) + 0.7 * np.eye(DIM))
    x = np.clip(rng.normal(size=(rows, DIM)) @ mixed.T, -3, 3)
    eta = WEIGHTS[0] + x @ WEIGHTS[1:]
    y = np.where(rng.random(rows) < expit(eta), "yes", "no") if binary else 10 * (eta + rng.normal(size=rows))
    site = np.array(["a", "b", "c"])[rng.choice(3, rows, p=[0.5, 0.3, 0.2])]
    return {**{f"x{j}": x[:, j] for j in range(DIM)}, "y": y, "site": site}, eta


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit(OUTCOME, simulated(0, 3000, binary=True)[0], site_column="site", seed=3)


@pytest.mark.parametrize("assumed", [10.0, 17.0, 6.0], ids=["right", "too large", "too small"])
def test_intervals_of_the_linear_model_cover_held_out_truths_whatever_noise_was_assumed(assumed: float) -> None:
    covered, estimated = [], []
    for seed in range(4):
        train, _ = simulated(seed, 3000, binary=False)
        test, _ = simulated(100 + seed, 2000, binary=False)
        result = fit(amount(assumed), train, site_column="site", seed=seed)
        found = result.predict(test, level=0.9)
        covered.append(np.mean((found.low <= test["y"]) & (test["y"] <= found.high)))
        assert isinstance(result.model, LinearRegression)
        estimated.append(assumed * np.sqrt(float(result.model.noise_variance)))
        assert result.evaluate(test)["rmse"] == pytest.approx(np.sqrt(np.mean((found.mean - test["y"]) ** 2)), rel=1e-4)
    assert 0.87 <= np.mean(covered) <= 0.93
    assert np.mean(estimated) == pytest.approx(10, rel=0.06)


def test_intervals_of_the_logistic_model_cover_true_probabilities() -> None:
    covered, weights = [], []
    for seed in range(5):
        result = fit(OUTCOME, simulated(seed, 3000, binary=True)[0], site_column="site", seed=seed)
        test, eta = simulated(100 + seed, 2000, binary=True)
        found = result.predict(test, level=0.9)
        covered.append(np.mean((found.low <= expit(eta)) & (expit(eta) <= found.high)))
        weights.append(
            [each.low <= true <= each.high for each, true in zip(result.coefficients(), WEIGHTS, strict=True)]
        )
    assert np.mean(covered) > 0.8
    assert np.mean(weights) > 0.8


def test_curves_and_interactions_are_found_and_kept_in_the_file(tmp_path: Path) -> None:
    """The truth bends at its knots and has another slope for each kind; a straight line misses both."""
    rng = np.random.default_rng(0)
    age, kind, gain = rng.uniform(0, 10, 4000), rng.choice(["p", "q"], 4000), rng.exponential(20, 4000).clip(0, 99)
    y = np.interp(age, [0, 3, 6, 10], [0, 4, 1, 2]) + 0.5 * age * (kind == "q") + 2 * np.log1p(gain)
    table = {"age": age, "kind": kind, "gain": gain, "y": y + rng.normal(0, 0.5, 4000), "site": kind}
    columns = (
        Number("age", 0, 10, 5, 3, knots=(0, 3, 6, 10)),
        Category("kind", ("p", "q")),
        Number("gain", 0, 99, 2.5, 1, transform="log1p"),
    )
    schema = Schema(columns, NumberTarget("y", -50, 50, 6, 0.5), interactions=(Interaction(("age", "kind")),))
    fit(schema, table, site_column="site", epsilon=None).save(tmp_path / "model")
    found = Fitted.load(tmp_path / "model")
    assert found.schema == schema
    assert [each.feature for each in found.coefficients()] == list(schema.features)
    np.testing.assert_allclose(found.predict(table).mean, y, atol=0.15)
    per_unit = dict(zip(schema.features[1:], schema.in_units(np.asarray(found.posterior.mean))[0], strict=True))
    line = {"age": 0.2, "age~[3]": 4 - 0.6, "age~[6]": 1 - 1.2, "kind=q": 0, "log1p(gain)": 2, "age:kind=q": 0.5}
    assert per_unit == pytest.approx(line, abs=0.1)


def test_fit_without_privacy_is_the_exact_posterior_of_the_pooled_rows() -> None:
    table, _ = simulated(1, 500, binary=False)
    result = fit(amount(10.0), table, site_column="site", epsilon=None)
    rows = encode(amount(10.0), table)
    x, y = rows.x.astype(float), np.asarray(rows.y, float)
    assert isinstance(result.model, LinearRegression)
    variance = float(result.model.noise_variance)
    precision = np.diag([1 / 100] + [1 / 10] * DIM) + x.T @ x / variance  # the intercept has a wide prior of its own
    mean = np.linalg.solve(precision, x.T @ y / variance)
    np.testing.assert_allclose(result.posterior.mean, mean, atol=1e-4)
    np.testing.assert_allclose(result.posterior.precision, precision, rtol=1e-4, atol=1e-3)
    assert variance == pytest.approx(np.sum((y - x @ mean) ** 2) / (len(y) - DIM - 1), rel=0.02)
    assert not any(site.events for site in result.sites)
    assert "not private" in result.statement
    assert result.converged
    assert "Arrived: one more step would move weights by" in result.convergence


def test_fit_of_two_classes_without_privacy_is_the_best_gaussian() -> None:
    """Oracle: at the optimum the expected gradient is zero, and the precision is the expected curvature."""
    table, _ = simulated(1, 400, binary=True)
    result = fit(OUTCOME, table, site_column="site", epsilon=None)
    rows = encode(OUTCOME, table)
    x, positive = rows.x.astype(float), np.asarray(rows.y, float) > 0
    before = np.diag([1 / 100] + [1.0] * DIM)
    draws = np.random.default_rng(0).multivariate_normal(
        result.posterior.mean, np.linalg.inv(result.posterior.precision), 20_000
    )
    p = expit(x @ draws.T)
    curvature = before + (x.T * (p * (1 - p)).mean(axis=1)) @ x
    slope = x.T @ (positive - p.mean(axis=1)) - before @ np.asarray(result.posterior.mean)
    assert np.abs(slope * np.asarray(result.posterior.std)).max() < 0.05
    np.testing.assert_allclose(result.posterior.precision, curvature, rtol=0.01, atol=0.5)


def test_fit_without_privacy_agrees_with_importance_sampling_of_the_posterior() -> None:
    table, _ = simulated(1, 150, binary=True)
    result = fit(OUTCOME, table, site_column="site", epsilon=None)
    rows = encode(OUTCOME, table)
    x, y = rows.x.astype(float), np.asarray(rows.y, float)
    mean, covariance = np.asarray(result.posterior.mean), np.linalg.inv(result.posterior.precision)
    wide = stats.multivariate_t(mean, covariance, df=8, seed=0)
    draws = wide.rvs(40_000)
    before = stats.norm.logpdf(draws, 0, [10.0] + [1.0] * DIM).sum(axis=1)
    log_weights = before - np.logaddexp(0, -y[:, None] * (x @ draws.T)).sum(axis=0) - wide.logpdf(draws)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    assert 1 / np.sum(weights**2) > 10_000  # as good as so many draws
    exact = weights @ draws
    std = np.sqrt(weights @ (draws - exact) ** 2)
    assert np.abs((mean - exact) / std).max() < 0.15
    np.testing.assert_allclose(result.posterior.std, std, rtol=0.1)


def test_same_seed_gives_the_same_file_and_another_seed_another(tmp_path: Path, fitted: Fitted) -> None:
    table, _ = simulated(0, 3000, binary=True)
    fitted.save(tmp_path / "one")
    fit(OUTCOME, table, site_column="site", seed=3).save(tmp_path / "two")
    fit(OUTCOME, table, site_column="site", seed=4).save(tmp_path / "three")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").read_bytes() != (tmp_path / "three").read_bytes()


def test_one_table_per_site_is_the_same_federation_as_a_site_column(fitted: Fitted) -> None:
    table, _ = simulated(0, 3000, binary=True)
    parts = {
        name: {key: column[table["site"] == name] for key, column in table.items() if key != "site"} for name in "abc"
    }
    assert np.array_equal(fit(OUTCOME, parts, seed=3).posterior.mean, fitted.posterior.mean)


@pytest.mark.parametrize("standardise", [False, True])
def test_no_site_spends_more_than_its_budget_statistics_included(standardise: bool) -> None:
    table, _ = simulated(0, 3000, binary=True)
    budgets = {"a": 0.5, "b": 1.0, "c": 2.0}
    result = fit(OUTCOME, table, site_column="site", epsilon=budgets, questions=20, standardise=standardise)
    for site in result.sites:
        events = {
            from_json({key: value for key, value in event.items() if key != "count"}): event["count"]
            for event in site.events
        }
        assert sum(events.values()) == 20 + standardise
        assert site.delta is not None
        spent = accounted(events, site.delta)  # anew, from the file's own words
        assert site.epsilon == pytest.approx(spent, rel=1e-6)
        assert 0.98 * budgets[site.name] < spent <= budgets[site.name]


def test_private_standardisation_finds_centres_and_scales_that_the_schema_has_wrong() -> None:
    rng = np.random.default_rng(0)
    rows = 20_000
    table = {
        "age": rng.normal(30, 5, rows),
        "dose": rng.normal(8, 0.5, rows),
        "y": rng.choice(["no", "yes"], rows),
        "site": rng.choice(["a", "b"], rows),
    }
    columns = (Number("age", 0, 100, 50, 20), Number("dose", 0, 10, 5, 2))
    schema = Schema(columns, BinaryTarget("y", ("no", "yes")))
    result = fit(schema, table, site_column="site", questions=5, standardise=True)
    age, dose = result.schema.columns
    assert isinstance(age, Number)
    assert isinstance(dose, Number)
    assert [age.centre, age.scale] == [pytest.approx(30, abs=0.5), pytest.approx(5, rel=0.2)]
    assert [dose.centre, dose.scale] == [pytest.approx(8, abs=0.05), pytest.approx(0.5, rel=0.3)]
    assert result.schema.digest != schema.digest
    assert {site.schema for site in result.sites} == {result.schema.digest}


def test_standardised_rows_are_those_that_the_new_schema_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = simulated(3, 400, binary=True)
    table["x0"][:100] = np.nan  # missing values are the new centre then, not the old one
    asked: list[Schema] = []

    def encoded(schema: Schema, *given: Any, **more: Any) -> Any:
        asked.append(schema)
        return read_sites(schema, *given, **more)

    monkeypatch.setattr(fitting, "read_sites", encoded)
    with pytest.warns(ValuesClipped, match="Column 'x0': 25 % of 400 values are missing"):
        result = fit(OUTCOME, table, site_column="site", questions=3, standardise=True)
    assert asked == [OUTCOME, result.schema]
    assert result.schema != OUTCOME


def test_standardisation_of_no_numbers_releases_nothing() -> None:
    table = {"c": ["p", "q"] * 20, "y": ["no", "no", "yes", "yes"] * 10, "site": ["a"] * 40}
    schema = Schema((Category("c", ("p", "q")),), BinaryTarget("y", ("no", "yes")))
    (site,) = fit(schema, table, site_column="site", questions=3, standardise=True).sites
    assert [event["count"] for event in site.events] == [3]


def test_posterior_is_what_is_read_out_of_all_answers(fitted: Fitted, tmp_path: Path) -> None:
    own, factors, prior, posterior = (getattr(fitted, name) for name in ("answered", "factors", "prior", "posterior"))
    assert isinstance(factors, Messages)
    assert factors.sums.shape == (3, own.plan.questions, numbers_of(DIM + 1, full=True))
    assert np.array_equal(factors.rows, np.tile([[site.rows] for site in fitted.sites], own.plan.questions))
    fitted.verify()
    fitted.save(tmp_path / "model.fedvi")
    Fitted.load(tmp_path / "model.fedvi").verify()

    def refused(**changes: Any) -> None:
        dataclasses.replace(fitted, **changes).save(tmp_path / "other.fedvi")
        with pytest.raises(InputError, match="that its answers give"):
            Fitted.load(tmp_path / "other.fedvi").verify()

    sums = np.array(factors.sums)
    sums[1, -1, 0] += 5 * np.sqrt(factors.noise[1, -1])
    refused(factors=Messages(sums, factors.noise, factors.rows))  # type: ignore[arg-type]
    refused(posterior=dataclasses.replace(posterior, precision=1.1 * posterior.precision))
    refused(prior=dataclasses.replace(prior, precision=np.full(DIM + 1, 100.0, np.float32)))
    refused(answered=dataclasses.replace(own, arrived=0.5 * own.arrived))


def test_a_fit_says_whether_it_has_arrived_and_warns_if_not(tmp_path: Path) -> None:
    table, _ = simulated(0, 3000, binary=True)
    for epsilon, words in ((None, "one more step would move weights by"), (8.0, "times what noise explains")):
        short = fit(
            OUTCOME,
            {**table, "y": np.where(table["x0"] > 0, "yes", "no")},
            site_column="site",
            epsilon=epsilon,
            questions=2,
        )
        assert short.converged is False
        assert short.convergence.startswith("Not arrived: ")
        assert words in short.convergence
        assert short.convergence in short.warnings[0]
        short.save(tmp_path / "model.fedvi")
        again = Fitted.load(tmp_path / "model.fedvi")
        assert (again.converged, again.convergence, again.warnings) == (False, short.convergence, short.warnings)
        enough = fit(OUTCOME, table, site_column="site", epsilon=epsilon)
        assert enough.converged
        assert enough.warnings == []


def test_saved_posterior_predicts_the_same_and_says_where_it_comes_from(tmp_path: Path, fitted: Fitted) -> None:
    path = tmp_path / "model.fedvi"
    fitted.save(path)
    again = Fitted.load(path)
    test, _ = simulated(7, 50, binary=True)
    for one, two in zip(fitted.predict(test).columns().values(), again.predict(test).columns().values(), strict=True):
        assert np.array_equal(one, two)
    assert (again.schema, again.sites, again.statement) == (fitted.schema, fitted.sites, fitted.statement)
    header = read_header(path)
    assert header["schema_hash"] == OUTCOME.digest
    assert {"fedvi", "jax", "numpy", "python"} <= header["versions"].keys()
    assert "simulation: seeded noise, not private" in header["privacy"]
    assert header["simulated"]
    assert again.simulated
    assert "seed" not in header["settings"]  # whoever has it can subtract the noise
    assert load_file(path)["posterior.natural_mean"].shape == (DIM + 1,)  # any reader of the format opens it


def rewritten(path: Path, change: Any) -> Path:
    """Write the file again with another header."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    outer = json.loads(raw[8 : 8 + size])
    inner = json.loads(outer["__metadata__"]["fedvi"])
    change(inner)
    outer["__metadata__"]["fedvi"] = json.dumps(inner)
    head = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + raw[8 + size :])
    return path


def test_private_fits_show_declared_rows_and_others_the_true_ones() -> None:
    table, _ = simulated(2, 300, binary=True)
    true = {name: int(np.sum(table["site"] == name)) for name in "abc"}
    private = fit(OUTCOME, table, site_column="site", questions=2)
    assert {site.name: site.rows for site in private.sites} == {name: default_public_rows(true[name]) for name in true}
    told = {"a": 160, "b": 90, "c": 60}
    said = fit(OUTCOME, table, site_column="site", questions=2, public_rows=told)
    assert {site.name: site.rows for site in said.sites} == told
    plain = fit(OUTCOME, table, site_column="site", questions=2, epsilon=None)
    assert {site.name: site.rows for site in plain.sites} == true
    raises("public_rows for the sites a, b, c", tables=table, public_rows={"a": 100})
    raises("which has", tables=table, public_rows={"a": 100, "b": 100, "c": 60})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.update(format=5), "format 5"),
        (lambda header: header.update(format=3), "format 3, and this fedvi reads format 4. Fit again"),
        (lambda header: header.update(schema_hash="0" * 64), "hash"),
        (lambda header: header.update(schema=header["schema"].replace("x0", "age")), "hash"),
        (lambda header: header.pop("sites"), "no 'sites'"),
        (lambda header: header["sites"].pop(), "the schema and the plan ask for"),
        (lambda header: header["answered"]["plan"].update(questions=13), "the schema and the plan ask for"),
        (lambda header: header["answered"]["plan"].update(covariance="diagonal"), "the schema and the plan ask for"),
        (lambda header: header["answered"]["plan"].update(covariance="none"), "covariance"),
        (lambda header: header["answered"]["plan"].pop("moments"), "moments"),
        (lambda header: header["answered"].pop("limit"), "no 'limit'"),
        (lambda header: header["answered"].update(noise_variance=float("nan")), "NaN"),
        (lambda header: header["answered"]["model"].update(kind="Oracle"), "Unknown value 'Oracle' of model.kind"),
        (lambda header: header["model"].update(kind="Oracle"), "Unknown value 'Oracle' of model.kind"),
        (lambda header: header["model"].update(predictive_link="magic"), "predictive_link"),
        (
            lambda header: header["families"].update(posterior="Wishart"),
            "Unknown value 'Wishart' of families.posterior",
        ),
    ],
)
def test_posterior_file_that_disagrees_with_itself_is_refused(
    change: Any, message: str, tmp_path: Path, fitted: Fitted
) -> None:
    path = tmp_path / "model.fedvi"
    fitted.save(path)
    with pytest.raises(InputError, match=message):
        Fitted.load(rewritten(path, change))


def test_damaged_posterior_files_are_refused(tmp_path: Path, fitted: Fitted) -> None:
    path = tmp_path / "model.fedvi"
    fitted.save(path)
    whole = path.read_bytes()
    for part in (b"", whole[:4], whole[:200], whole[:-8], whole[8:], b"\x80\x04K\x01."):
        path.write_bytes(part)
        with pytest.raises(InputError, match="damaged"):
            Fitted.load(path)
    changed = bytearray(whole)
    changed[-3:] = b"\x7f\x7f\x7f"  # the last number of the arrays becomes absurd
    path.write_bytes(changed)
    with pytest.raises(InputError, match="posterior"):
        Fitted.load(path).verify()
    with pytest.raises(InputError, match="got none"):
        Fitted.load(tmp_path / "nowhere.fedvi")
    with pytest.raises(InputError, match="Cannot write"):
        fitted.save(tmp_path / "no such directory" / "model.fedvi")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.fedvi"]


def test_predictions_lie_in_their_intervals_which_grow_with_the_level(fitted: Fitted) -> None:
    test, _ = simulated(5, 300, binary=True)
    narrow, wide = fitted.predict(test, level=0.5), fitted.predict(test, level=0.99)
    assert np.all((wide.low < narrow.low) & (narrow.low <= narrow.mean))
    assert np.all((narrow.mean <= narrow.high) & (narrow.high < wide.high))
    assert narrow.labels is not None
    assert np.array_equal(narrow.labels == "yes", narrow.mean > 0.5)
    del test["y"]  # rows to predict for have no target
    kept = fitted.predict(test, id_column="site")
    assert kept.ids is not None
    assert kept.ids.tolist() == test["site"].tolist()
    assert np.array_equal(kept.mean, narrow.mean)


def test_probability_and_interval_agree_with_draws_from_the_posterior(fitted: Fitted) -> None:
    test, _ = simulated(6, 20, binary=True)
    exported: Any = fitted.to_arviz(draws=20_000, chains=2, seed=1)
    draws = np.asarray(exported.posterior["weight"]).reshape(-1, DIM + 1)
    probability = expit(encode(OUTCOME, test, target=False).x @ draws.T)
    found = fitted.predict(test, level=0.9)
    np.testing.assert_allclose(found.mean, probability.mean(axis=1), atol=3e-3)
    np.testing.assert_allclose(found.low, np.quantile(probability, 0.05, axis=1), atol=6e-3)
    np.testing.assert_allclose(found.high, np.quantile(probability, 0.95, axis=1), atol=6e-3)


def test_draws_for_arviz_are_named_by_feature(fitted: Fitted) -> None:
    exported: Any = fitted.to_arviz(draws=500)
    weight = exported.posterior["weight"]
    assert weight.dims == ("chain", "draw", "feature")
    assert tuple(weight.coords["feature"].values) == OUTCOME.features
    np.testing.assert_allclose(weight.mean(("chain", "draw")), fitted.posterior.mean, atol=0.02)


def test_a_wide_prior_does_not_keep_a_linear_model_from_learning() -> None:
    """Under the prior, predictors of 15 weights vary 150 times as much as the noise."""
    rng = np.random.default_rng(7)
    weights, x = 0.6 * rng.normal(size=15), np.clip(rng.normal(size=(2000, 14)), -3, 3)
    y = weights[0] + x @ weights[1:] + rng.normal(size=2000)
    columns = tuple(Number(f"x{j}", -3, 3, 0, 1) for j in range(14))
    table = {**{f"x{j}": x[:, j] for j in range(14)}, "y": y, "site": rng.choice(["a", "b", "c"], 2000)}
    result = fit(Schema(columns, NumberTarget("y", -25, 25, 0, 1)), table, site_column="site", seed=0)
    assert float(np.max(result.posterior.std)) < 0.2
    assert np.abs((result.posterior.mean - weights) / result.posterior.std).max() < 4


def test_what_nobody_says_is_left_to_the_prior() -> None:
    table, _ = simulated(2, 3000, binary=True)
    table["level"] = np.where(np.arange(3000) % 2 == 0, "often", "usual")
    schema = dataclasses.replace(OUTCOME, columns=(*NUMBERS, Category("level", ("usual", "often", "never"))))
    found = {each.feature: each for each in fit(schema, table, site_column="site", seed=0).coefficients()}
    assert found["level=never"].std > 0.8
    assert found["level=often"].std < 0.4
    assert 0.1 < found["level=often"].evidence_kept < 1


def raises(message: str, **changes: Any) -> None:
    table, _ = simulated(0, 30, binary=True)
    arguments: dict[str, Any] = {"schema": OUTCOME, "tables": table, "site_column": "site", "questions": 2, **changes}
    with pytest.raises(InputError, match=message):
        fit(**arguments)


def test_wrong_fits_name_the_place_and_the_remedy(fitted: Fitted) -> None:
    table, _ = simulated(0, 30, binary=True)
    lonely = {**table, "site": np.array(["a"] * 29 + ["alone"])}
    raises("got 1 at site 'alone'.*--min-rows", tables=lonely)
    assert [site.name for site in fit(OUTCOME, lonely, site_column="site", questions=2, min_rows=2).sites] == ["other"]
    raises("Expected a site column, or the paths of several tables", site_column=None, tables=[table, table])
    raises("several files with different names", site_column=None, tables=["a/x.csv", "b/x.csv"])
    raises("one table for the site column", tables=["x.csv", "y.csv"])
    raises("Expected column 'ward'.*site", site_column="ward")
    raises("too many for: d", epsilon={"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0})
    raises("0 < epsilon", epsilon=0.0)
    raises("delta", delta=2.0)
    raises("delta", delta=0.0)  # not the default
    raises("budget to standardise by", epsilon=None, standardise=True)
    raises("questions", questions=1)
    raises("seed", seed=-1)
    raises("no such file", schema="nowhere.toml")
    with pytest.raises(InputError, match="level"):
        fitted.predict(table, level=1.0)


def test_results_are_shown_in_one_line(fitted: Fitted) -> None:
    for shown in (fitted, fitted.schema, fitted.predict_rows(np.ones((3, fitted.schema.dim)))):
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 200
    assert "3 rows" in repr(fitted.predict_rows(np.ones((3, fitted.schema.dim))))


@pytest.mark.parametrize("kind", ["lognormal", "t"])
@pytest.mark.parametrize("rows", [300, 1500])
def test_skewed_columns_arrive_where_statsmodels_is(kind: str, rows: int) -> None:
    """A whole Newton step is too long where a few rows are far from all others."""
    import statsmodels.api

    rng = np.random.default_rng(2)
    far = np.exp(rng.normal(0, 1.2, rows)) if kind == "lognormal" else rng.standard_t(2, rows)
    died = rng.random(rows) < 1 / (1 + np.exp(-0.3 * np.log(np.abs(far) + 0.01)))
    table = {"age": rng.normal(50, 10, rows).round(), "far": far, "died": np.where(died, "yes", "no")}
    found = infer_schema(table, "died").schema
    fitted = fit(found, table, epsilon=None, prior_sd=10.0, progress=False)
    assert fitted.converged, fitted.convergence
    scaled = [(table[c.name] - c.centre) / c.scale for c in found.columns if isinstance(c, Number)]
    right = statsmodels.api.Logit(died.astype(float), np.column_stack([np.ones(rows), *scaled])).fit(disp=0)
    assert np.max(np.abs(np.asarray(fitted.posterior.mean) - right.params) / right.bse) < 0.25
