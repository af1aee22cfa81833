"""Features: references, hats, logarithms and interactions span what they should, and mean what their names say."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvi.errors import InputError
from fedvi.families import Gaussian
from fedvi.inference.spec import Prior, default_spec
from fedvi.privacy import Budget
from fedvi.tables import BinaryTarget, Category, Column, Interaction, Number, NumberTarget, Schema, infer_schema
from fedvi.tables.encode import encode
from fedvi.tables.hats import hats, octaves
from fedvi.tables.inferring.features import with_splines
from fedvi.tables.standardise import Standardisation

Y = BinaryTarget("y", ("0", "1"))
KNOTS = st.lists(st.floats(-100, 100), min_size=3, max_size=8, unique=True).map(sorted)


def made(columns: Any, table: dict[str, Any], *crossed: tuple[str, str], intercept: bool = True) -> np.ndarray:
    schema = Schema(columns, Y, intercept, tuple(map(Interaction, crossed)))
    return encode(schema, table, target=False).x.astype(float)


def same_span(one: np.ndarray, two: np.ndarray) -> bool:
    both = np.concatenate([one, two], axis=1)
    ranks = {np.linalg.matrix_rank(part, tol=1e-4) for part in (one, two, both)}
    return len(ranks) == 1


# Hats


@given(KNOTS, st.lists(st.floats(-200, 200), min_size=1))
def test_hats_are_from_0_to_1_and_sum_to_1_and_two_at_most_are_not_0(knots: list[float], values: list[float]) -> None:
    found = hats(np.array(values), np.array(knots))
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.count_nonzero(found, axis=1).max() <= 2
    inside = np.clip(values, knots[0], knots[-1])
    np.testing.assert_allclose(found @ knots, inside, atol=1e-9 * max(1, *map(abs, knots)))  # flat beyond the ends


@given(KNOTS)
def test_hats_are_1_at_their_own_knot_alone(knots: list[float]) -> None:
    assert np.array_equal(hats(np.array(knots), np.array(knots)), np.eye(len(knots)))


def test_octaves_double() -> None:
    knots = octaves(1e5)
    assert (knots[0], knots[1], knots[-1]) == (0, 1562.5, 1e5)
    assert {after / knot for knot, after in pairwise(knots[1:])} == {2.0}


@pytest.mark.parametrize("transform", ["none", "log1p"])
def test_a_line_and_inner_hats_are_all_curves_that_are_straight_between_knots(transform: str) -> None:
    """And no feature is a combination of others: with the intercept there are as many of them as knots."""
    values = np.linspace(0, 80, 400)
    knots = (0.0, 10.0, 30.0, 60.0, 80.0)
    x = made([Number("v", 0, 80, 2, 1, transform=transform, knots=knots)], {"v": values})
    log = np.log1p if transform == "log1p" else np.asarray
    curves = hats(log(values), log(np.array(knots)))
    assert x.shape[1] == len(knots) == np.linalg.matrix_rank(x)
    assert same_span(x, curves)


def test_hats_of_a_missing_number_are_those_of_its_centre() -> None:
    column = Number("v", 0, 10, 4, 2, missing="indicator", knots=(0, 3, 6, 10))
    x = made([column], {"v": [None, 4.0]})
    assert x[0, :-1].tolist() == x[1, :-1].tolist()
    assert x[:, -1].tolist() == [1, 0]


# References


@given(
    st.lists(st.sampled_from(["a", "b", "c", "zz", None]), min_size=40, max_size=60),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["reference", "other"]),
    st.sampled_from(["reference", "missing", "other"]),
)
def test_a_reference_spans_what_all_levels_do(words: list[Any], reference: str, unknown: str, missing: str) -> None:
    """An intercept and all levels but one are an intercept and all levels; and no feature is a sum of others."""
    words = [*words, "a", "b", "c", "zz", None]
    column = Category("c", ("a", "b", "c"), unknown, missing, reference)
    x = made([column], {"c": words})
    counted = [{None: missing, "zz": unknown}.get(word, word) for word in words]
    counted = [reference if word == "reference" else word for word in counted]
    levels = sorted(set(counted))
    whole = np.array([[1.0, *(word == level for level in levels)] for word in counted])
    assert f"c={reference}" not in column.features
    assert x.shape[1] == np.linalg.matrix_rank(x) == len(levels)
    assert same_span(x, whole)


def test_values_that_nobody_listed_are_harmless_by_default() -> None:
    column = Category("c", ("a", "b"))
    assert not column.refuses
    assert made([column], {"c": ["b", "zz", None, "a"]})[:, 1].tolist() == [1, 0, 0, 0]


# Interactions


ROWS = st.fixed_dictionaries(
    {
        "age": st.floats(-10, 130),
        "dose": st.floats(0, 9) | st.none(),
        "sex": st.sampled_from(["F", "M", "X", None]),
        "ward": st.sampled_from(["A", "B", "C"]),
    }
)
COLUMNS = (
    Number("age", 0, 120, 50, 20, knots=(10, 50, 90)),
    Number("dose", 0, 8, 1, 0.5, missing="indicator", transform="log1p"),
    Category("sex", ("F", "M"), unknown="other", missing="missing"),
    Category("ward", ("A", "B", "C"), reference="B"),
)


@given(st.lists(ROWS, min_size=1, max_size=30), st.permutations(["age", "dose", "sex", "ward"]))
def test_interactions_are_products_of_the_features_of_two_columns(rows: list[dict[str, Any]], names: list[str]) -> None:
    table = {name: [row[name] for row in rows] for name in names}
    pairs = tuple(Interaction((names[i], names[j])) for i in range(4) for j in range(i))
    schema = Schema(COLUMNS, Y, interactions=pairs)
    x = dict(zip(schema.features, encode(schema, table, target=False).x.T, strict=True))
    crossed = [name for name in schema.features if ":" in name]
    assert len(crossed) == 1 + 3 + 2 + 3 + 2 + 6
    for name in crossed:
        one, two = name.split(":")
        np.testing.assert_array_equal(x[name], x[one] * x[two])
        assert "~" not in name
        assert "is missing" not in name
    assert max(np.abs(column).max() for column in x.values()) <= schema.bound


@given(st.lists(ROWS, min_size=3, max_size=20), st.integers(0, 1000), st.booleans())
def test_coefficients_in_units_predict_what_weights_do(rows: list[dict[str, Any]], seed: int, intercept: bool) -> None:
    """The line in people's units, with products of values as they are in the table, is the line in x."""
    pairs = (Interaction(("age", "dose")), Interaction(("sex", "age")), Interaction(("sex", "ward")))
    schema = Schema(COLUMNS, NumberTarget("y", -100, 100, 3, 2), intercept, pairs)
    table = {name: [row[name] for row in rows] for name in rows[0]}
    x = encode(schema, table, target=False).x.astype(float)
    weights = np.random.default_rng(seed).normal(size=schema.dim)
    coefficients, constant = schema.in_units(weights)
    named = dict(zip(schema.features, x.T, strict=True))
    named["age"] = np.clip(table["age"], 0, 120)
    gaps = np.array([value is None for value in table["dose"]])
    measured = np.log1p(np.clip([0.0 if value is None else value for value in table["dose"]], 0, 8))
    named["log1p(dose)"] = np.where(gaps, 1.0, measured)
    names = schema.features[int(intercept) :]
    values = [math.prod(named[part] for part in name.split(":")) for name in names]
    np.testing.assert_allclose(coefficients @ np.array(values) + constant, 3 + 2 * (x @ weights), rtol=1e-4, atol=1e-3)


ANYTHING = st.sampled_from(["", "NA", "inf", "-inf", "1e300", "-7", "0", "3.25", "text", "M", "A", "other", "missing"])


@given(st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING, ANYTHING), min_size=1, max_size=12))
def test_at_a_site_no_row_is_refused_and_each_depends_on_itself_alone(rows: list[tuple[str, ...]]) -> None:
    """To the last bit: a row alone is encoded as it is among others, whatever they hold."""
    pairs = (Interaction(("age", "dose")), Interaction(("sex", "age")), Interaction(("sex", "ward")))
    schema = Schema(COLUMNS, Y, interactions=pairs)

    def encoded(some: list[tuple[str, ...]]) -> np.ndarray:
        table = dict(zip(("age", "dose", "sex", "ward"), map(list, zip(*some, strict=True)), strict=True))
        return encode(schema, table, target=False, strict=False).x

    whole = encoded(rows)
    assert np.all(np.isfinite(whole))
    assert np.abs(whole).max() <= schema.bound
    assert np.array_equal(whole, np.concatenate([encoded([row]) for row in rows]))


# The prior


def test_the_intercept_has_a_wide_prior_of_its_own() -> None:
    schema = Schema(COLUMNS, Y)
    prior = default_spec(schema, [1000], [Budget(1.0, 1e-5)]).prior
    np.testing.assert_allclose(prior.std, [10.0, *[1.0] * (schema.dim - 1)])
    bare = default_spec(Schema(COLUMNS, Y, intercept=False), [1000], [Budget(1.0, 1e-5)]).prior
    np.testing.assert_allclose(bare.std, 1.0)
    wide = default_spec(schema, [1000], [Budget(1.0, 1e-5)], prior_sd=20.0).prior
    np.testing.assert_allclose(wide.std, 20.0)
    line = default_spec(Schema(COLUMNS, NumberTarget("y", 0, 1, 0.5, 1)), [1000], None).prior
    np.testing.assert_allclose(line.std, [10.0, *[math.sqrt(10)] * (schema.dim - 1)], rtol=1e-6)


def test_kinds_of_features_may_have_variances_of_their_own() -> None:
    schema = Schema(COLUMNS, Y, interactions=(Interaction(("sex", "ward")),))
    prior = Prior("Gaussian", 1.0, intercept=100.0, levels=0.25, hats=0.5).over(schema.dim, schema.layout)
    variances = dict(zip(schema.features, np.square(np.asarray(prior.std)), strict=True))
    wanted = {"(intercept)": 100, "age": 1, "age~[50]": 0.5, "dose is missing": 0.25, "sex=M:ward=C": 0.25}
    assert {name: variances[name] for name in wanted} == pytest.approx(wanted)
    assert np.array_equal(Prior().over(3).std, Gaussian.standard(3).std)


# Private scales


def test_scales_of_logarithms_are_learnt_in_logarithms() -> None:
    """Without noise, new centres and scales are mean and standard deviation of log(1 + value); knots stay."""
    rng = np.random.default_rng(0)
    gain = np.exp(rng.normal(3, 0.8, 4000)).clip(0, 900)
    schema = Schema(
        (Category("c", ("a", "b")), Number("gain", 0, 1000, 1, 3, transform="log1p", knots=(0, 20, 1000))), Y
    )
    standard = Standardisation.of(schema)
    encoded = encode(schema, {"gain": gain, "c": ["a"] * 4000}, target=False)
    assert schema.features[standard.features[0]] == "log1p(gain)"
    total = standard.vectors(encoded.x, np.zeros(4000)).sum(axis=0)
    new = number(standard.schema(schema, *standard.scales(total, 4000, 0.0)).columns[1])
    assert list(new.knots) == [0, 20, 1000]
    assert new.centre == pytest.approx(np.log1p(gain).mean(), abs=0.01)
    assert new.scale == pytest.approx(np.log1p(gain).std(), rel=0.01)


# What infer makes of wishes


def wishes() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    gain = np.where(rng.random(600) < 0.8, 0, np.exp(rng.normal(6, 1.5, 600)).round()).clip(0, 9999)
    return {
        "age": rng.normal(40, 12, 600).clip(18, 90).round(),
        "gain": gain,
        "sex": rng.choice(["F", "M"], 600),
        "smoker": rng.choice(["yes", "no"], 600, p=[0.8, 0.2]),
        "town": rng.choice(["York", "Bath", ""], 600, p=[0.3, 0.6, 0.1]),
        "two": rng.integers(0, 2, 600),
        "debt": rng.normal(0, 1, 600),
        "y": rng.integers(0, 2, 600),
    }


def number(column: Column) -> Number:
    assert isinstance(column, Number)
    return column


def test_infer_offers_splines_logarithms_and_interactions() -> None:
    table = wishes()
    found = infer_schema(table, "y", splines=["age", "gain"], log1p=["two"], interactions=["age:sex", "town:smoker"])
    columns = {column.name: column for column in found.schema.columns}
    age, gain, two = (number(columns[name]) for name in ("age", "gain", "two"))
    inner = [round(age.centre + step * age.scale, 1) for step in (-1, 0, 1)]
    assert age.knots == (max(18, round(age.centre - 2 * age.scale, 1)), *inner, round(age.centre + 2 * age.scale, 1))
    assert gain.transform == two.transform == "log1p"
    assert gain.centre == pytest.approx(np.log1p(table["gain"]).mean(), abs=0.01)
    assert gain.scale == pytest.approx(np.log1p(table["gain"]).std(), abs=0.01)
    least = table["gain"][table["gain"] > 0].min()
    assert gain.knots == (0, *(knot for knot in octaves(gain.high)[1:] if knot >= least))
    assert "its knots are octaves" in found.reason("gain")
    town, smoker = columns["town"], columns["smoker"]
    assert town == Category("town", ("Bath", "York"), missing="missing", reference="Bath")  # the most frequent
    assert smoker == Category("smoker", ("no", "yes"), reference="no")
    assert "missing in" in found.reason("town")
    assert "which get a feature" in found.reason("town")
    assert found.schema.features[-3:] == ("age:sex=" + ("M" if columns["sex"].features == ("sex=M",) else "F"),
                                          "town=York:smoker=yes", "town=missing:smoker=yes")  # fmt: skip
    again = Schema.from_toml(found.schema.to_toml())
    assert again == found.schema
    encode(again, table)


@pytest.mark.parametrize("column", [Number("year", 1900, 2030, 1995, 7), Number("tiny", 0, 1e-3, 2e-4, 1e-4)])
def test_knots_are_apart_however_far_from_zero_they_are(column: Number) -> None:
    bent = with_splines(column)
    inner = [column.centre + step * column.scale for step in (-1, 0, 1)]
    assert list(bent.knots[1:-1]) == pytest.approx(inner)
    assert bent.knots[0] == pytest.approx(max(column.low, column.centre - 2 * column.scale))
    assert with_splines(replace(column, low=column.centre)).knots[:2] == pytest.approx(inner[1:])


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"splines": ["agee"]}, "Expected column 'agee' in the dictionary.*Did you mean 'age'"),
        ({"splines": ["sex"]}, "Expected the name of a number for splines and log1p, got 'sex'"),
        ({"splines": ["two"]}, "Expected more than two values in column 'two' for splines"),
        ({"log1p": ["debt"]}, "Expected no number below 0 in column 'debt' for log1p, got -"),
        ({"interactions": ["age"]}, "Expected an interaction as two columns with a colon between them, got 'age'"),
        ({"interactions": ["age:sax"]}, "Expected column 'sax' in the dictionary"),
        ({"interactions": ["age:y"]}, "Expected the name of a column in the interaction age:y, got 'y'"),
    ],
)
def test_wishes_that_cannot_be_are_refused(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        infer_schema(wishes(), "y", **wish)
