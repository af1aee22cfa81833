"""Forecasts: the answers that they expect, and how wide the intervals of real fits are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from answering import answer, linear, logistic
from fedvi import LinearRegression, LogisticRegression, fit
from fedvi.errors import InputError
from fedvi.families.full import FullGaussian
from fedvi.families.mean_field import Gaussian
from fedvi.inference import forecast
from fedvi.inference.forecasting import expected_answer
from fedvi.inference.question import Question
from fedvi.pytree import tree_map
from fedvi.tables import BinaryTarget, Category, Number, NumberTarget, Schema, infer_schema
from fedvi.tables.encode import encode
from fedvi.tables.typical import Typical, loadings

COLUMNS = (Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1), Category("c", ("p", "q", "r")))
TWO = Schema(COLUMNS, BinaryTarget("y", ("no", "yes")))
LINE = Schema(COLUMNS, NumberTarget("y", -40, 40, 0, 1))


def asked(full: bool, moments: float, extra: float) -> Question:
    rng = np.random.default_rng(3)
    q: Any = FullGaussian.from_moments(rng.normal(size=4) / 4, 0.05 * np.eye(4))
    q = q if full else Gaussian.from_moments(rng.normal(size=4) / 4, 0.05)
    whitening = np.eye(4) + 0.1 * rng.normal(size=(4, 4)) if full else 0.5 + rng.random(4)
    numbers = [np.float64(each) for each in (2.0, 1.0, 0.4, extra, moments, 1.3)]
    question = Question(np.zeros(4), whitening, q, *numbers)  # type: ignore[arg-type]
    return tree_map(lambda leaf: np.asarray(leaf, np.float64), question)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("moments", [0.0, 1.0])
@pytest.mark.parametrize("binary", [True, False])
def test_expected_answers_are_the_mean_of_answers_over_outcomes(full: bool, moments: float, binary: bool) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(400, 4)), np.array([0.3, -0.7, 0.5, 1.0])
    question = asked(full, moments, 0.0 if binary else 0.5)
    model = LogisticRegression() if binary else LinearRegression()
    draws = [
        (rng.random(400) < expit(x @ w)).astype(float) if binary else x @ w + rng.normal(size=400) for _ in range(1500)
    ]
    found = np.array([answer(question, (x, y), logistic if binary else linear) for y in draws])
    errors = found.std(0) / np.sqrt(len(draws))
    expected = expected_answer(model, question, x, w)
    assert np.all(np.abs(expected - found.mean(0)) <= 5 * errors + 1e-5)


def table(rows: int, seed: int, binary: bool) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    columns = {
        "a": a,
        "b": 0.6 * a + 0.8 * rng.normal(size=rows),
        "c": rng.choice(list("pqr"), rows, p=[0.6, 0.3, 0.1]),
    }
    eta = rng.normal() * columns["a"] + rng.normal() * columns["b"] + rng.normal() * (columns["c"] == "q")
    noise = rng.normal(size=rows)
    return columns | {"y": np.where(rng.random(rows) < expit(eta), "yes", "no") if binary else eta + noise}


@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("binary", [True, False])
def test_intervals_of_fits_are_as_wide_as_forecast(binary: bool, epsilon: float | None) -> None:
    """By what a sample of other people says; the median over fits, for every coefficient."""
    schema = TWO if binary else LINE
    sample = encode(schema, table(5000, 99, binary))
    known = dataclasses.replace(Typical.of(sample.x, sample.y, schema), event=None)
    ahead = forecast(dataclasses.replace(schema, typical=known), [1200, 800], epsilon, prior_sd=1.0)
    stds = []
    for seed in range(7):
        rows = table(2000, seed, binary)
        sites = {"n": {k: v[:1200] for k, v in rows.items()}, "s": {k: v[1200:] for k, v in rows.items()}}
        found = fit(schema, sites, epsilon=epsilon, seed=seed, prior_sd=1.0, progress=False)
        stds.append(np.asarray(found.posterior.std))
    ratio = ahead.sd / np.median(stds, axis=0)
    assert np.all((ratio > 1 / 1.5) & (ratio < 1.5)), ratio
    assert 1 / 1.3 < np.median(ratio) < 1.3
    assert (ahead.covariance, ahead.questions) == ("full", 14 if epsilon else 20)
    assert np.all(ahead.kept == 1) == (epsilon is None)


def test_more_rows_sites_and_epsilon_make_intervals_narrower() -> None:
    planned = forecast(TWO, [500, 500], 0.5, draws=3)
    for more in (
        forecast(TWO, [1000, 1000], 0.5, draws=3),
        forecast(TWO, [500] * 4, 0.5, draws=3),
        forecast(TWO, [500, 500], [1.0, 1.0], draws=3),
        forecast(TWO, [500, 500], 0.5, draws=3, effects=0.3),
    ):
        assert more.typical() < planned.typical()
    assert forecast(TWO, [500, 500], None).typical() < planned.typical()
    assert planned.evidence < 0.5
    lines = planned.table(0.8)
    assert [line["feature"] for line in lines] == list(TWO.features)
    assert lines[1]["half_width"] == pytest.approx(1.2816 * lines[1]["sd"], rel=1e-3)
    assert lines[1]["ratio"] == pytest.approx(np.exp(lines[1]["half_width"]))
    assert planned.in_words("odds ratio").startswith("a typical 90% interval will reach ")
    few = forecast(TWO, [30], 0.1, draws=1)
    assert all(line["prior_decides"] for line in few.table()[1:])


def test_a_diagonal_plan_is_forecast_too() -> None:
    found = forecast(TWO, [2000], 1.0, covariance="diagonal", draws=1)
    assert (found.covariance, found.questions) == ("diagonal", 30)
    assert "diagonal" in found.reason
    assert np.all((found.sd > 0.01) & (found.sd < 1.1 * found.prior))


def test_wrong_forecasts_name_the_value() -> None:
    for message, arguments in {
        "at least one site": ((), 1.0),
        "rows to be a whole number of at least 2, got 1": ((1, 10), 1.0),
        "epsilon": ((10,), -1.0),
    }.items():
        with pytest.raises(InputError, match=message):
            forecast(TWO, *arguments)


# What rows are like.


def test_typical_rows_have_the_squares_and_own_shares_of_the_sample() -> None:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(20_000, 1))
    x = np.column_stack([np.ones(20_000), factor * [0.9, 0.7, -0.5, 0.0] + rng.normal(size=(20_000, 4)) * 0.5])
    schema = Schema(tuple(Number(name, -9, 9, 0, 1) for name in "abcd"), BinaryTarget("y", ("no", "yes")))
    known = Typical.of(x, np.where(x[:, 1] > 0.5, 1, -1), schema)
    assert known.event == pytest.approx(np.mean(x[:, 1] > 0.5), abs=1e-3)
    rows = known.rows(40_000, 9.0, intercept=True)
    again = Typical.of(rows, None, schema)
    np.testing.assert_allclose(again.squares, known.squares, rtol=0.05)
    np.testing.assert_allclose(again.own[1:], known.own[1:], rtol=0.08)
    exact = np.linalg.inv(np.cov(x[:, 1:].T))
    np.testing.assert_allclose(known.own[1:], 1 / (np.diag(exact) * np.diag(np.cov(x[:, 1:].T))), rtol=5e-3)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_a_guess_has_equal_correlations(correlation: float) -> None:
    schema = Schema(tuple(Number(name, -4, 4, 0, 1) for name in "abcdef"), BinaryTarget("y", ("no", "yes")))
    found = loadings(np.array(Typical.guess(schema, correlation).own[1:]))
    np.testing.assert_allclose(found**2, correlation, atol=1e-4)


def test_a_schema_keeps_what_its_sample_was_like_and_its_hash_does_not_depend_on_it() -> None:
    schema = infer_schema(table(600, 1, binary=True), "y").schema
    assert schema.typical is not None
    assert Schema.from_toml(schema.to_toml()) == schema
    bare = dataclasses.replace(schema, typical=None)
    assert bare.digest == schema.digest
    assert forecast(bare, [500], 1.0, draws=1).features == schema.features
    text = schema.to_toml()
    for old, new, message in (
        ("event = 0.", "event = 7.", "0 <= typical.event <= 1"),
        ('"a" = [', '"z" = [', "mean, square and own share of each feature"),
        ("[typical.features]", "[typical.others]", "Expected typical to have event and features"),
    ):
        with pytest.raises(InputError, match=message):
            Schema.from_toml(text.replace(old, new, 1))
