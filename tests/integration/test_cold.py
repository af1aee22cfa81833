"""Tables that once gave wrong answers without a word, as somebody saw who came to them cold."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

from fedvi import Schema, fit, infer_schema
from fedvi.errors import InputError, ValuesClipped
from fedvi.tables import BinaryTarget, Category, Column, Counts, Number, open_table
from fedvi.tables.encode import encode, encode_chunks
from fedvi.tables.inferring.decisions import Unanswered
from fedvi.tables.numbers import Date
from fedvi.tables.reading.chunk import NUMBER, Chunk, Kind

ROWS = 400


def people(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    cost = rng.integers(300, 9000, ROWS)
    died = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-(cost - 4000) / 2000)), "yes", "no")
    crp = rng.lognormal(1, 0.5, ROWS).round(2)
    return pd.DataFrame({"cost": cost, "crp": crp, "sex": rng.choice(["F", "M"], ROWS), "died": died})


def dots(values: Any) -> list[str]:
    return [f"{value:,}".replace(",", ".") for value in values]


def asked(table: Any, *words: str, target: str = "died", **given: Any) -> None:
    """Check that a question is asked in which these words are."""
    with pytest.raises(InputError) as refused:
        infer_schema(table, target, **given)
    for word in words:
        assert word in str(refused.value)


# What separates decimals.


def test_thousands_in_a_table_to_score_are_asked_about(tmp_path: Path) -> None:
    schema = infer_schema(people()[["cost", "sex", "died"]], "died").schema
    table = people(1)[["cost", "sex", "died"]].assign(cost=dots(people(1)["cost"]))
    path = tmp_path / "new.csv"
    table.to_csv(path, sep=";", index=False)
    for source in (path, table):
        with pytest.raises(InputError, match=r"which is [\d.]+ if a point separates decimals, and \d+ if a comma"):
            encode(schema, source)
    right = encode(schema, people(1))
    np.testing.assert_array_equal(encode(schema, open_table(path, decimal=",")).x, right.x)
    fitted = fit(schema, people(), epsilon=None, progress=False)
    with pytest.raises(InputError, match="--decimal"):
        fitted.predict(path)
    with pytest.raises(InputError, match="--decimal"):
        fitted.evaluate(path)


def test_a_table_that_tells_is_read_as_it_says_whatever_the_schema_was_made_from(tmp_path: Path) -> None:
    german = people().assign(cost=dots(people()["cost"]), crp=[str(c).replace(".", ",") for c in people()["crp"]])
    german.to_csv(tmp_path / "de.csv", sep=";", index=False)
    schema = infer_schema(tmp_path / "de.csv", "died", decimal=",").schema
    assert schema.dialect.decimal == ","
    english = people(1).assign(cost=[f"{cost:,}" for cost in people(1)["cost"]])
    english.to_csv(tmp_path / "en.csv", index=False)
    reader = open_table(tmp_path / "en.csv", schema.dialect)
    np.testing.assert_array_equal(encode(schema, reader).x, encode(schema, people(1)).x)
    assert any("'.' between decimals, other than the schema says" in line for line in reader.said)


def test_a_column_that_looks_like_thousands_is_asked_about_though_others_have_decimals(tmp_path: Path) -> None:
    table = people().assign(cost=dots(people()["cost"]))  # 628, 3.457 beside 8.1
    table.to_csv(tmp_path / "t.csv", sep=";", index=False)
    asked(tmp_path / "t.csv", "Column 'cost'", "Say --decimal . or --decimal ,.")
    told = table.assign(crp=[str(c).replace(".", ",") for c in table["crp"]], k=[f"{c:.3f}" for c in table["crp"]])
    told.loc[:, "k"] = "5.126"
    told.loc[::2, "k"] = "6.204"
    told.to_csv(tmp_path / "u.csv", sep=";", index=False)
    found = infer_schema(tmp_path / "u.csv", "died")
    assert any("'6.204' of column 'k' as 6204" in line for line in found.said)  # as others tell, and said


# What rows decide bounds and scales.


def test_rows_without_a_target_decide_no_bounds() -> None:
    table = people()
    total = pd.DataFrame({"cost": [table["cost"].sum()], "crp": [1e6], "sex": [None], "died": [None]})
    found = infer_schema(pd.concat([table, total], ignore_index=True), "died")
    assert found.schema == infer_schema(table, "died").schema
    assert found.rows == ROWS + 1
    assert "missing in 1 rows" in found.reason("died")


def test_a_last_row_with_totals_is_refused() -> None:
    table = people()
    total = pd.DataFrame({"cost": [table["cost"].sum()], "crp": [5.0], "sex": ["F"], "died": ["no"]})
    table = pd.concat([table, total], ignore_index=True)
    asked(table, "looks like totals", "in column 'cost'", target="crp")
    assert infer_schema(table, "died", number=["cost"]).schema is not None


# Dates.


def test_the_order_of_day_and_month_is_never_assumed() -> None:
    days = pd.date_range("2023-01-01", periods=ROWS).strftime("%Y-%m-%d")
    schema = infer_schema(people().assign(seen=days), "died", ignore=["cost"]).schema
    date = next(column for column in schema.columns if isinstance(column, Date))
    assert date.order == ""
    american = people().assign(seen="03/04/2023")
    with pytest.raises(InputError, match="the schema does not say which comes first, and there is '03/04/2023'"):
        encode(schema, american)
    american.loc[1:, "seen"] = days[1:]
    counts = encode(schema, american).counts
    assert counts.foreign["seen"] == 1
    assert "for example '03/04/2023' in row 1" in counts.lines({})[1][-1]
    told = encode(schema, people().assign(seen="25/04/2023"))  # that can be one thing only
    assert told.counts.foreign["seen"] == 0


@pytest.mark.parametrize("never", ["9999-12-31", "1900-01-01", "0000-00-00"])
def test_dates_that_mean_none_are_missing(never: str) -> None:
    days = pd.Series(pd.date_range("2023-01-01", periods=ROWS).strftime("%Y-%m-%d"))
    found = infer_schema(people().assign(seen=days.where(days.index % 10 > 0, never)), "died")
    date = next(column for column in found.schema.columns if isinstance(column, Date))
    assert date.missing == "indicator"
    assert date.scale < 200


# Codes and classes.


@pytest.mark.parametrize("code", [-1, 99.9, 999.9, -9])
def test_numbers_that_mean_nothing_are_noticed(code: float) -> None:
    age = pd.Series(np.random.default_rng(0).integers(18, 81, ROWS).astype(float))
    table = people().assign(age=age.where(age.index % 12 > 0, code)).drop(columns="cost")
    unsure = code in (-1, -9, 99.9)  # not far enough from the others
    if unsure:
        with pytest.raises(Unanswered, match=f"--missing age={code:.10g}"):
            infer_schema(table, "died")
    found = infer_schema(table, "died", missing={"age": [code]} if unsure else None)
    column = next(c for c in found.schema.columns if c.name == "age")
    assert isinstance(column, Number)
    assert column.missing_values == (f"{code:.10g}",)


def test_targets_with_a_code_for_unknown_name_the_remedy() -> None:
    table = people()
    asked(table.assign(died=np.where(table.index % 9 == 0, "unknown", table["died"])), "--missing died=")
    codes = (table["died"] == "yes").astype(int)
    for code in (-1, 9):
        coded = table.assign(died=codes.where(codes.index % 9 > 0, code))
        asked(coded, "classes, grades or counts?", "--missing died=")
        found = infer_schema(coded, "died", missing={"died": [code]}).schema
        assert isinstance(found.target, BinaryTarget)
        assert encode(found, coded).counts.unusable == (coded["died"] == code).sum()
    gaps = table.assign(died=codes.where(codes.index % 9 > 0))  # 0, 1 and nothing
    assert isinstance(infer_schema(gaps, "died").schema.target, BinaryTarget)


def test_dashes_beside_plus_signs_are_results() -> None:
    protein = np.random.default_rng(0).choice(["-", "+", "++", ""], ROWS)
    column = next(
        c for c in infer_schema(people().assign(protein=protein), "died").schema.columns if c.name == "protein"
    )
    assert isinstance(column, Category)
    assert (column.values, column.missing) == (("+", "++", "-"), "missing")
    signs = people().assign(died=np.where(people()["died"] == "yes", "+", "-"))
    found = infer_schema(signs, "died", event="+").schema
    y = encode(found, signs).y
    assert y is not None
    np.testing.assert_array_equal(y > 0, signs["died"] == "+")


def test_categories_of_numbers_are_categories() -> None:
    codes = np.random.default_rng(0).choice([30, 10, 20], ROWS)
    plain = people().assign(c=pd.Categorical(codes))
    ordered = people().assign(c=pd.Categorical(codes, [30, 10, 20], ordered=True))
    for table, values in ((plain, ("10", "20", "30")), (ordered, ("30", "10", "20"))):
        column = next(c for c in infer_schema(table, "died").schema.columns if c.name == "c")
        assert isinstance(column, Category)
        assert column.values == values


def test_columns_of_several_types_are_read() -> None:
    mixed = people()
    mixed["cost"] = mixed["cost"].astype(object)
    mixed.loc[3, "cost"] = "unknown"
    column = next(c for c in infer_schema(mixed, "died").schema.columns if c.name == "cost")
    assert isinstance(column, Number)
    assert encode(infer_schema(mixed, "died").schema, mixed).counts.foreign["cost"] == 1
    with pytest.raises(InputError, match="astype"):
        infer_schema(people().assign(c=pd.cut(people()["cost"], 4)), "died")


def test_units_are_asked_about() -> None:
    cost = people()["cost"].astype(str)
    asked(people().assign(cost=np.where(cost.index % 2 == 0, cost + " €", "$" + cost)), "different units", "200 €")
    asked(people().assign(cost=np.where(cost.index % 2 == 0, cost + " %", cost)), "200 without a sign")
    asked(people().assign(cost=cost + " kg"), "numbers with a unit, such as")
    formula = people().assign(cost='="' + cost + '"')
    np.testing.assert_array_equal(
        encode(infer_schema(people(), "died").schema, formula).x,
        encode(infer_schema(people(), "died").schema, people()).x,
    )


# What people should know.


def test_gaps_that_the_schema_does_not_expect_are_warned_about() -> None:
    schema = infer_schema(people(), "died").schema
    table = people(1)
    table.loc[::2, "sex"] = None
    table["cost"] = table["cost"].where(table.index % 3 > 0)
    fitted = fit(schema, people(), questions=3, progress=False)
    with pytest.warns(ValuesClipped) as warned:
        fitted.predict(table)
    texts = [str(each.message) for each in warned]
    assert any("Column 'sex': 50 % of 400 values are missing, and count as" in text for text in texts)
    assert any("Column 'cost': 33.5 % of 400 values are missing" in text for text in texts)
    with pytest.warns(ValuesClipped, match="Column 'cost'"):
        fitted.evaluate(people().assign(cost=lambda frame: 88 * frame["cost"]))


def test_columns_that_say_the_same_and_values_in_other_letters_are_said() -> None:
    table = people().assign(copy=lambda frame: 1.8 * frame["cost"] + 32)
    table.loc[::4, "sex"] = table.loc[::4, "sex"].str.lower()
    found = infer_schema(table, "died")
    assert any("'copy' says the same as 'cost'" in line for line in found.said)
    assert "differ in capital letters only" in found.reason("sex")


def test_copies_of_a_number_to_predict_are_asked_about_however_they_are_written() -> None:
    table = people()
    for copy in (table["crp"].round(1), np.log(table["crp"]), table["crp"].rank()):
        asked(table.assign(other=copy), "Column 'other'", "of the target", "--ignore 'other'", target="crp")


@pytest.mark.parametrize(("duration", "event"), [("T", "E"), ("t", "status"), ("nachbeobachtung", "gestorben")])
def test_times_to_an_event_are_known_by_more_names(duration: str, event: str) -> None:
    rng = np.random.default_rng(0)
    table = (
        people().drop(columns="died").assign(**{duration: rng.integers(1, 300, ROWS), event: rng.integers(0, 2, ROWS)})
    )
    asked(table, f"Column '{duration}' is named like the time until '{event}'", target=event)
    asked(table, "looks like the time to an event", target=duration)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (np.arange(1, ROWS + 1).astype(object), "Lfd. Nr."),
        (np.tile(np.arange(1, 101), 4), "nr"),
        (np.random.default_rng(0).permutation(40 * ROWS)[:ROWS], "patient_id"),
    ],
)
def test_more_identifiers_are_noticed(column: np.ndarray, name: str) -> None:
    table = people().assign(**{name: column})
    if column.dtype == object:
        table.loc[7, name] = None
    assert infer_schema(table, "died").reason(name).startswith("left out: ")
    few = people().head(40).assign(**{name: range(1, 41)})
    assert infer_schema(few, "died").reason(name).startswith("left out: ")


def test_a_utf8_table_is_read_as_such_whatever_the_schema_was_made_from(tmp_path: Path) -> None:
    table = people().assign(ward=np.random.default_rng(0).choice(["Gynäkologie", "Chirurgie"], ROWS))
    table.to_csv(tmp_path / "old.csv", index=False, encoding="cp1252")
    schema = infer_schema(tmp_path / "old.csv", "died").schema
    assert schema.dialect.encoding == "cp1252"
    table.to_csv(tmp_path / "new.csv", index=False)
    reader = open_table(tmp_path / "new.csv", schema.dialect)
    assert not any(encode(schema, reader).counts.unknown.values())
    assert any("is UTF-8, not cp1252 as the schema says" in line for line in reader.said)
    wrong = encode(schema, open_table(tmp_path / "new.csv", schema.dialect, encoding="cp1252"))  # as they say
    assert wrong.counts.unknown["ward"] > 0


def test_scikit_learn_refuses_rows_without_a_site() -> None:
    from fedvi.sklearn import FederatedLogisticRegression

    x = np.random.default_rng(0).normal(size=(40, 2))
    for nameless in (None, np.nan):
        sites = np.array(["a"] * 39 + [nameless], object)
        with pytest.raises(InputError, match="the name of a site for every row, got none for row 40"):
            FederatedLogisticRegression(1.0).fit(x, x[:, 0] > 0, sites=sites)


def test_priors_so_wide_that_rows_decide_all_arrive() -> None:
    """Few rows that a line separates nearly: the curvature vanishes where a step leads too far."""
    import statsmodels.api

    data = statsmodels.api.datasets.spector.load_pandas().data
    schema = infer_schema(data, "GRADE").schema
    fitted = fit(schema, data, epsilon=None, prior_sd=100.0, progress=False)
    assert fitted.converged
    assert isinstance(Schema.from_toml(schema.to_toml()), Schema)


# Types of cells, and what is given from Python.


@pytest.mark.parametrize("kind", ["a frame", "Parquet", "CSV", "a dictionary"])
def test_classes_with_three_decimals_keep_their_names(kind: str, tmp_path: Path) -> None:
    table = people().assign(dose=np.tile([1.125, 2.375, 4.5], ROWS)[:ROWS])
    table["grade"] = np.where(table["died"] == "yes", 2.375, 1.125)
    path = tmp_path / ("t.parquet" if kind == "Parquet" else "t.csv")
    table.to_parquet(path) if kind == "Parquet" else table.to_csv(path, index=False)
    source: Any = {"a frame": table, "a dictionary": dict(table.items())}.get(kind, path)
    schema = infer_schema(source, "grade", category=["dose"], ignore=["died"]).schema
    dose = next(column for column in schema.columns if isinstance(column, Category) and column.name == "dose")
    assert dose.values == ("1.125", "2.375", "4.5")
    assert isinstance(schema.target, BinaryTarget)
    assert schema.target.values == ("1.125", "2.375")
    assert Schema.from_toml(schema.to_toml()) == schema
    for other in (table, path):
        encoded = encode(schema, other)
        assert (encoded.counts.unusable, encoded.counts.unknown["dose"]) == (0, 0)


@pytest.mark.parametrize("several_types", [False, True])
def test_floats_in_a_frame_are_floats_whatever_separates_decimals_in_its_texts(several_types: bool) -> None:
    rng = np.random.default_rng(0)
    doses = rng.choice([1.125, 2.375, 4.25], ROWS)
    limits = np.where(rng.random(ROWS) < 0.2, "<0,5", "").astype(object)
    table = people()[["sex", "died"]].assign(
        share=[f"{value:.1f}".replace(".", ",") for value in rng.random(ROWS)],
        dose=pd.Categorical(doses),
    )
    if several_types:
        table["mixed"] = [limit or float(dose) for limit, dose in zip(limits, doses, strict=True)]
    schema = infer_schema(table, "died", number=["dose"]).schema
    assert several_types or schema.dialect.decimal == ","
    encoded = encode(schema, table)
    for column in schema.columns:
        if isinstance(column, Number) and column.name != "share":
            found = encoded.x[:, schema.features.index(column.name)] * column.scale + column.centre
            expected = np.where(limits == "", doses, 0.5) if column.name == "mixed" else doses
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not any(encoded.counts.clipped.values())


@dataclasses.dataclass(frozen=True)
class Plain(Column):
    """A column of one's own: numbers as they are."""

    name: str
    bound: float = 5000.0
    shown: str = "numbers"

    @property
    def reads(self) -> dict[str, Kind]:
        return {self.name: NUMBER}

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, chunk: Chunk, counts: Counts) -> np.ndarray:
        return chunk.numbers(self.name)[0][:, None]


def test_an_own_column_is_read_with_the_tables_decimals(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("steps;died\n12,5;no\n1.234;yes\n2.000;no\n7,25;yes\n")
    schema = Schema((Plain("steps"),), BinaryTarget("died", ("no", "yes")))
    np.testing.assert_allclose(encode(schema, path).x[:, 1], [12.5, 1234, 2000, 7.25])


def test_one_column_of_several_types_changes_no_other_column_of_a_frame() -> None:
    rng = np.random.default_rng(0)
    table = people().assign(
        stage=pd.Categorical(rng.choice(["low", "mid", "high"], ROWS), ["low", "mid", "high"], ordered=True),
        mixed=[row if row % 2 else pd.NA if row % 3 else str(row) for row in range(ROWS)],
    )
    schema = infer_schema(table, "died", number=["mixed"]).schema
    stage = next(column for column in schema.columns if column.name == "stage")
    assert isinstance(stage, Category)
    assert (stage.values, stage.reference) == (("low", "mid", "high"), "low")
    table["mixed"] = [{} if row == 7 else value for row, value in enumerate(table["mixed"])]
    with pytest.raises(InputError, match="column 'mixed' of the pandas DataFrame: cells of type dict"):
        infer_schema(table, "died")
    large = {"x": [2**70, *range(99)], "died": ["no", "yes"] * 50}  # too large for a number of 64 bits
    (column,) = infer_schema(large, "died", number=["x"]).schema.columns
    assert isinstance(column, Number)
    assert column.high >= 2.0**70


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"missing": {"cost": "999"}}, "Expected a list of missing_values of column 'cost', got '999'."),
        ({"missing": {"cost": 999}}, "Expected a list of missing_values of column 'cost', got 999."),
        ({"category": "cost"}, "Expected a list of columns for category, got 'cost'."),
        ({"interactions": "cost:sex"}, "Expected a list of interactions, got 'cost:sex'."),
    ],
)
def test_a_text_is_no_list(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        infer_schema(people(), "died", **given)
    assert str(refused.value) == message


def test_dates_at_the_ends_of_the_calendar_and_a_wish_that_dates_contradict() -> None:
    table = people()
    days = pd.Timestamp("2020-01-15") + pd.to_timedelta(np.arange(ROWS), "D")
    table["seen"] = days.strftime("%m/%d/%Y")
    table["left"] = ["0001-01-01", *days.strftime("%Y-%m-%d")[1:]]
    table["until"] = ["9999-12-25", *days.strftime("%Y-%m-%d")[1:]]
    table["compact"] = [20249999, *(int(day) for day in days.strftime("%Y%m%d")[1:])]
    found = infer_schema(table, "died", dates="dmy")
    columns = {column.name: column for column in found.schema.columns if isinstance(column, Date)}
    assert columns["seen"].order == "mdy"  # as its days beyond the twelfth say
    assert columns["left"].missing_values == ("0001-01-01",)
    assert columns["until"].high <= (datetime.date.max - datetime.date(2000, 1, 1)).days
    assert columns["compact"].missing == "indicator"
    assert "all but 1 values are dates" in found.reason("compact")
    encoded = encode(found.schema, table)
    assert not any(encoded.counts.clipped.values())


def test_the_only_sheet_of_a_workbook_may_have_any_name(tmp_path: Path) -> None:
    people().to_excel(tmp_path / "one.xlsx", sheet_name="Tabelle1", index=False)
    people().to_excel(tmp_path / "other.xlsx", sheet_name="Sheet1", index=False)
    schema = infer_schema(tmp_path / "one.xlsx", "died").schema
    np.testing.assert_array_equal(encode(schema, tmp_path / "one.xlsx").x, encode(schema, tmp_path / "other.xlsx").x)
    pd.DataFrame({"": [], " ": [], "only a note here": []}).to_excel(tmp_path / "note.xlsx", index=False)
    with pytest.raises(InputError):
        infer_schema(tmp_path / "note.xlsx", "died")


def test_a_table_of_a_site_is_the_same_in_chunks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    people().to_csv(path, index=False)
    with path.open("a") as file:
        file.write("see the protocol,,,\n")
    schema = infer_schema(people(), "died").schema
    whole = encode(schema, path, private=True).x
    assert len(whole) == ROWS + 1
    np.testing.assert_array_equal(np.concatenate([part.x for part in encode_chunks(schema, path, private=True)]), whole)


def test_identifiers_are_copied_to_the_letter(tmp_path: Path) -> None:
    table, words = people().head(6), ["TRUE", "1.0", "1.00", "NA", "-", "007"]
    table.assign(person=words).to_csv(tmp_path / "new.csv", index=False)
    fitted = fit(infer_schema(people(), "died").schema, people(), questions=3, progress=False)
    assert fitted.predict(tmp_path / "new.csv", id_column="person").ids.tolist() == words  # type: ignore[union-attr]


def test_what_separates_decimals_is_said_once_and_truly(tmp_path: Path) -> None:
    table = people()[["sex", "died"]].assign(x=[f"{1 + row / 1000:.3f}" for row in range(ROWS)])
    table.loc[5, "x"] = "999.000"
    table.to_csv(tmp_path / "t.csv", index=False)
    said = [line for line in infer_schema(tmp_path / "t.csv", "died", keep=["x"]).said if "Numbers are read" in line]
    assert len(said) == 1
    assert "as commas between values tell" in said[0]


# Numbers, dates and wishes that were taken without a word.

RANGES: dict[str, tuple[int, int]] = {"0-59": (0, 60), "10-69": (10, 70), "0-20": (0, 21), "0-100": (0, 101)}


@pytest.mark.parametrize("code", [-9, -8, -1, 77, 88, 99])
@pytest.mark.parametrize("name", RANGES)
def test_codes_for_missing_are_noticed_in_every_range(name: str, code: int) -> None:
    rng = np.random.default_rng(0)
    score = rng.integers(*RANGES[name], ROWS)
    score[rng.random(ROWS) < 0.11] = code
    table = people().assign(score=score)
    try:
        found = infer_schema(table, "died", number=["cost"])
    except Unanswered as open_questions:
        (question,) = open_questions.questions
        assert question.text.startswith(f"Column 'score' holds {code} in {np.count_nonzero(score == code)} rows")
        assert question.answers[0].startswith(f"--missing score={code} ")
    else:
        assert f"{code} means missing" in found.reason("score")


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.poisson(3, ROWS),
        lambda rng: rng.geometric(0.4, ROWS),
        lambda rng: rng.integers(1, 8, ROWS),
        lambda rng: rng.integers(1, 10, ROWS),
        lambda rng: rng.integers(-9, 10, ROWS),
        lambda rng: rng.integers(-99, 100, ROWS),
        lambda rng: np.clip(rng.normal(60, 18, ROWS).round(), 18, 99),
        lambda rng: rng.lognormal(2, 1, ROWS).round(1) * (rng.random(ROWS) < 0.5),
        lambda rng: rng.negative_binomial(1, 0.3, ROWS),
    ],
)
def test_numbers_that_mean_themselves_are_not_asked_about(draw: Any) -> None:
    found = infer_schema(people().assign(score=draw(np.random.default_rng(1))), "died", number=["cost"])
    assert "means missing" not in found.reason("score")


def test_zeros_apart_from_all_other_numbers_are_said() -> None:
    weight = np.where(np.arange(ROWS) % 9 == 0, 0, np.random.default_rng(0).normal(70, 10, ROWS).round(1))
    reason = infer_schema(people().assign(weight=weight), "died").reason("weight")
    assert "0 in 45 rows, apart from all others: --missing weight=0, if it means that" in reason


def test_a_target_with_a_code_for_missing_is_read_without_those_rows() -> None:
    table = people().assign(died=np.where(np.arange(ROWS) % 10 == 0, 99, np.arange(ROWS) % 3 % 2))
    found = infer_schema(table, "died")
    assert isinstance(found.schema.target, BinaryTarget)
    assert found.schema.target.values == ("0", "1")
    assert "missing in 40 rows, which are left out" in found.reason("died")
    assert encode(found.schema, table).counts.unusable == 40


def test_dates_of_a_table_are_read_as_it_writes_them_or_refused() -> None:
    days = pd.date_range("2023-01-01", periods=ROWS)
    schema = infer_schema(people().assign(seen=days.strftime("%m/%d/%Y")), "died", ignore=["cost"]).schema
    right = encode(schema, people().assign(seen=days)).x
    with pytest.raises(InputError, match="the schema says 'mdy', and there is '13/01/2023'"):
        encode(schema, people().assign(seen=days.strftime("%d/%m/%Y")))
    np.testing.assert_array_equal(encode(schema, people().assign(seen=days.strftime("%d.%m.%Y"))).x, right)
    exchanged = [f"{day:%Y-%d-%m}" if day.day <= 12 else f"{day:%m/%d/%Y}" for day in days]  # as a spreadsheet does
    asked(people().assign(seen=exchanged), "dates of two kinds", "--ignore 'seen' or --keep 'seen'", ignore=["cost"])
    asked(
        people().assign(seen=[*days.strftime("%Y-%m-%d")[:-40], *["2023-02-30"] * 40]),
        "Column 'seen' holds dates, and other words such as '2023-02-30'",
        ignore=["cost"],
    )
    short = infer_schema(people().assign(seen=days.strftime("%d-%b-%y")), "died", ignore=["cost"])
    assert "dates with two digits for the year" in short.reason("seen")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"number": ["sex"]}, "Expected numbers in column 'sex', which you say holds some, got 'M', 'F'."),
        ({"ignore": ["cost"], "keep": ["cost"]}, "Expected a column to be ignored or used, got cost as both."),
        ({"log1p": ["seen"]}, "Expected the name of a number for splines and log1p, got 'seen': date, all"),
        ({"dates": "ymd"}, "Expected dates to be one of dmy, mdy, got 'ymd'."),
    ],
)
def test_wishes_that_cannot_be_followed_are_refused(given: dict[str, Any], message: str) -> None:
    table = people().assign(seen=pd.date_range("2023-01-01", periods=ROWS).strftime("%Y-%m-%d"))
    with pytest.raises(InputError) as refused:
        infer_schema(table, "died", **given)
    assert str(refused.value).startswith(message)


def test_what_a_command_is_told_and_cannot_use_is_refused(tmp_path: Path) -> None:
    table = people().assign(site=np.tile(["a", "b"], ROWS // 2))
    schema = infer_schema(table, "died", site_column="site").schema
    with pytest.raises(InputError, match="another column of sites than the target, got 'died' as both"):
        fit(schema, table, site_column="died")
    with pytest.raises(InputError, match="Expected a column of sites for rows that name none, which go to 'other'"):
        fit(schema, {"a": table, "b": people(1)}, nameless="other")
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match="Expected a workbook for the sheet 'x'"):
        open_table(tmp_path / "t.csv", sheet="x")


def test_an_event_is_asked_for_where_its_name_and_the_order_disagree() -> None:
    table = people().assign(died=lambda frame: pd.Categorical(frame["died"], ["yes", "no"]))
    asked(table, "Which of them is the event?")
    table["died"] = pd.Categorical(table["died"], ["no", "yes"])
    assert "the event is yes" in infer_schema(table, "died").reason("died")
    table["died"] = np.where(people()["died"] == "yes", "severe", "mild")
    table["died"] = pd.Categorical(table["died"], ["severe", "mild"], ordered=True)
    assert "the event is mild" in infer_schema(table, "died").reason("died")


def test_columns_that_nearly_know_the_target_are_asked_about() -> None:
    rng = np.random.default_rng(0)
    dead = people()["died"] == "yes"
    often = rng.random(ROWS) < 0.96
    left = np.where(dead & often, "expired", rng.choice(["home", "rehab"], ROWS))
    asked(people().assign(left=left), "Column 'left' tells the target in")
    asked(people().assign(again=np.where(often, dead, ~dead).astype(int)), "Column 'again' tells the target in")
    asked(people().assign(crp=people()["crp"].where(~(dead & often))), "is filled in where the target is one class")


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("1,23,456.5", "2,34,567.5"), 123456.5),
        (("'72.25", "'73.5"), 72.25),
        (("72\N{MIDDLE DOT}25", "73\N{MIDDLE DOT}5"), 72.25),
        (("\N{FULLWIDTH DIGIT SEVEN}\N{FULLWIDTH FULL STOP}\N{FULLWIDTH DIGIT FIVE}", "8"), 7.5),
    ],
)
def test_numbers_of_other_countries_are_read(words: tuple[str, str], number: float) -> None:
    table = people().assign(x=[words[row % 2] for row in range(ROWS)])
    schema = infer_schema(table, "died", ignore=["cost"]).schema
    (x,) = (column for column in schema.columns if column.name == "x")
    assert isinstance(x, Number)
    found = encode(schema, table).x[0, schema.features.index("x")] * x.scale + x.centre
    assert found == pytest.approx(number, rel=1e-5)


def test_ages_above_a_limit_are_beyond_it_and_dipsticks_are_words() -> None:
    table = people().assign(age=[f"{20 + row % 70}" if row % 10 else "90+" for row in range(ROWS)])
    table["urine"] = np.random.default_rng(0).choice(["neg", "1+", "2+", "3+"], ROWS)
    schema = infer_schema(table, "died").schema
    age, urine = (next(column for column in schema.columns if column.name == name) for name in ("age", "urine"))
    assert isinstance(age, Number)
    assert age.limits == (">",)
    assert isinstance(urine, Category)


def test_workbooks_with_truth_values_among_numbers_and_durations(tmp_path: Path) -> None:
    table = people().assign(smokes=[[True, 1, False, 0][row % 4] for row in range(ROWS)])
    table["smokes"] = table["smokes"].astype(object)
    table.to_excel(tmp_path / "t.xlsx", index=False)
    smokes = next(c for c in infer_schema(tmp_path / "t.xlsx", "died").schema.columns if c.name == "smokes")
    assert isinstance(smokes, Category)
    assert smokes.values == ("false", "true")
    book = openpyxl.Workbook()
    sheet = book.active
    for row in [("long", "died"), *((datetime.timedelta(minutes=row), "no") for row in range(30))]:
        sheet.append(row)
    book.save(tmp_path / "d.xlsx")
    with pytest.raises(InputError, match=r"column 'long' of .*d\.xlsx: cells of type timedelta"):
        infer_schema(tmp_path / "d.xlsx", "died")


def test_numbers_too_small_to_be_squared_are_left_out() -> None:
    table = people().assign(tiny=np.random.default_rng(0).random(ROWS) * 1e-200)
    assert "differ by less than 1e-100" in infer_schema(table, "died").reason("tiny")
