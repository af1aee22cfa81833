"""What once gave new users a wrong answer without a word, or refused their tables for a wrong reason."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api

from fedvi import Budget, CustomModel, Schema, fit, infer_schema, simulate
from fedvi.compiling import jnp
from fedvi.errors import InputError, ValuesClipped
from fedvi.tables import BinaryTarget, Category, Number, NumberTarget, open_table
from fedvi.tables.encode import encode
from ugly import MINUS, ugly

FEDVI = [sys.executable, "-c", "from fedvi.cli import main; main()"]

Run = Callable[..., tuple[int, str, str]]


def people(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """A small table of patients, whose outcome depends on age and dose."""
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(20, 90, rows), rng.normal(5, 2, rows).round(2)
    eta = 0.05 * (age - 55) + 0.5 * (dose - 5)
    died = np.where(rng.random(rows) < 1 / (1 + np.exp(-eta)), "yes", "no")
    sex = rng.choice(["F", "M"], rows)
    return pd.DataFrame({"age": age, "dose": dose, "sex": sex, "hospital": rng.choice(["a", "b"], rows), "died": died})


def made(run: Run, table: pd.DataFrame, *options: str, name: str = "t.csv") -> Schema:
    """Return the schema that the command makes of a table."""
    table.to_csv(name, index=False)
    code, _, err = run("schema", "infer", name, "--target", "died", "--out", "s.toml", "--force", *options)
    assert code == 0, err
    return Schema.load("s.toml")


# Wrong answers without a word.


@pytest.mark.parametrize(
    "changed",
    [
        lambda frame: frame.assign(dose=frame["dose"].where(frame["age"] != 50)).dropna(),
        lambda frame: frame[frame["age"] % 3 > 0],
        lambda frame: frame.sample(frac=0.5, random_state=0),
        lambda frame: frame.assign(person=range(5000, 5300)).set_index("person"),
        lambda frame: frame.set_index(pd.MultiIndex.from_arrays([frame.index // 7, frame.index % 7])),
    ],
)
def test_the_index_of_a_frame_is_no_feature(changed: Callable[[pd.DataFrame], pd.DataFrame], tmp_path: Path) -> None:
    frame = changed(people())
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        schema = infer_schema(source, "died", site_column="hospital").schema
        assert [column.name for column in schema.columns] == ["age", "dose", "sex"]
    fitted = fit(schema, frame, questions=3, progress=False)
    assert len(fitted.predict(people(seed=1).drop(columns="died")).mean) == 300  # a fresh table can be predicted


def test_a_running_number_is_noticed_and_left_out(run: Run) -> None:
    table = people().sort_values("died").reset_index(drop=True)
    table.insert(0, "Lfd. Nr.", range(1, len(table) + 1))
    table["case"] = np.random.default_rng(0).permutation(np.arange(400_000, 400_300))
    schema = made(run, table, "--site-column", "hospital")
    assert [column.name for column in schema.columns] == ["age", "dose", "sex"]
    _, out, _ = run("schema", "infer", "t.csv", "--target", "died", "--out", "s.toml", "--force", "--json")
    reasons = {each["column"]: each["reason"] for each in json.loads(out)["decisions"]}
    assert reasons["Lfd. Nr."].startswith("a running number")
    assert reasons["case"].startswith("300 different whole numbers, named like an identifier")
    assert made(run, table, "--number", "Lfd. Nr.", "--keep", "Lfd. Nr.").columns[0].name == "Lfd. Nr."


@pytest.mark.parametrize("words", [("nein", "ja"), ("gutartig", "bösartig"), ("censored", "dead")])
def test_the_event_is_the_class_that_people_mean_and_everything_names_it(words: tuple[str, str], run: Run) -> None:
    table = people(1500)
    table["died"] = np.where(table["died"] == "yes", words[1], words[0])
    schema = made(run, table, "--site-column", "hospital")
    assert f'event = "{words[1]}"' in Path("s.toml").read_text(encoding="utf-8")
    assert run("fit", "s.toml", "t.csv", "--not-private", "--out", "m.fedvi")[0] == 0
    code, out, _ = run("inspect", "m.fedvi", "--json")
    slopes = {each["feature"]: each["mean"] for each in json.loads(out)["coefficients"]}
    assert (code, slopes["age"] > 0, slopes["dose"] > 0) == (0, True, True)  # no sign is turned
    assert f"log odds of died = {words[1]}" in " ".join(run("inspect", "m.fedvi")[1].split())
    rows = list(csv.DictReader(io.StringIO(run("predict", "m.fedvi", "t.csv")[1])))
    assert {row["event"] for row in rows} == {words[1]}
    assert all((float(row["probability"]) > 0.5) == (row["prediction"] == words[1]) for row in rows)
    other = made(run, table, "--site-column", "hospital", "--event", words[0])
    assert isinstance(other.target, BinaryTarget)
    assert (other.target.event, other.digest != schema.digest) == (words[0], True)


@pytest.mark.filterwarnings("default::fedvi.errors.ValuesClipped")
def test_values_that_are_clipped_or_unknown_are_counted_and_warned_about(run: Run) -> None:
    made(run, people(), "--site-column", "hospital")
    assert run("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--questions", "3")[0] == 0
    other = people(seed=1).assign(dose=lambda frame: 88.4 * frame["dose"])  # in other units
    other.loc[:4, "sex"] = "D"
    other.to_csv("new.csv", index=False)
    code, out, err = run("predict", "m.fedvi", "new.csv")
    assert (code, len(out.splitlines())) == (0, 301)
    assert "Warning: Column 'dose': 99.7 % of 300 values are beyond the bounds of the schema" in err
    assert "Is it in the same unit?" in err
    assert "sex 5 (1.67 %)" in err
    assert "Column 'sex'" not in err  # few: a note, no warning
    assert "counts" not in Path("m.fedvi").read_bytes().decode("latin-1").replace("counts for", "")
    code, _, err = run("fit", "s.toml", "new.csv", "--out", "n.fedvi", "--questions", "3")
    assert code == 0
    assert "Warning: Column 'dose': 99.7 % of 300 values are beyond" in err
    for command in (("predict", "m.fedvi", "new.csv"), ("fit", "s.toml", "new.csv", "--out", "o.fedvi")):
        code, out, err = run(*command, "--strict")
        assert (code, out) == (2, "")
        assert "in row 1 of column 'dose' of new.csv" in err
    assert run("schema", "check", "s.toml", "new.csv", "--strict")[0] == 2
    with pytest.warns(ValuesClipped, match="Column 'dose'"):
        fit("s.toml", other, questions=3, progress=False)


def test_scikit_learn_warns_about_clipped_columns() -> None:
    from fedvi.sklearn import FederatedLogisticRegression

    x = np.random.default_rng(0).normal(size=(200, 2))
    y = x[:, 0] + np.random.default_rng(1).normal(size=200) > 0
    model = FederatedLogisticRegression(None, random_state=0).fit(x, y)
    with pytest.warns(ValuesClipped, match="Column 'x1': 9.* of 200 values are beyond"):
        model.predict(x * [1, 100])


def log_likelihood(w: Any, x: Any, y: Any) -> Any:
    rate = jnp.log(x @ w)
    return y * rate - jnp.exp(rate)


def test_a_likelihood_that_is_nan_is_refused_with_its_line() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(200, 2)), rng.poisson(1.0, 200).astype(float)
    for privacy in (None, Budget(1.0, 1e-4)):
        with pytest.raises(InputError) as refused:
            simulate({"a": table}, CustomModel(log_likelihood), seed=0, max_updates=2, privacy=privacy, progress=False)
        assert "got NaN for 200 of 200 rows under the prior" in str(refused.value)
        assert f"of {__file__}: rate = jnp.log(x @ w)" in str(refused.value)


def test_without_privacy_a_linear_fit_has_the_standard_errors_of_ordinary_least_squares() -> None:
    data = statsmodels.api.datasets.randhie.load_pandas().data
    schema = infer_schema(data, "mdvis", number=["mdvis"]).schema
    fitted = fit(schema, data, epsilon=None, progress=False)
    x = np.column_stack([np.ones(len(data)), *((data[c.name] - c.centre) / c.scale for c in schema.columns)])  # type: ignore[attr-defined]
    right = statsmodels.api.OLS(data["mdvis"], x).fit()
    assert isinstance(schema.target, NumberTarget)
    sds = np.asarray(fitted.posterior.std) * schema.target.scale
    np.testing.assert_allclose(sds, right.bse, rtol=1e-3)


def test_a_prior_that_decides_is_marked_and_can_be_chosen(run: Run) -> None:
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer(as_frame=True)
    table = loaded.data.iloc[:, :4].assign(died=np.where(loaded.target == 0, "yes", "no"))
    made(run, table)
    assert run("fit", "s.toml", "t.csv", "--not-private", "--out", "m.fedvi")[0] == 0
    assert "* The prior decides" in run("inspect", "m.fedvi")[1]
    code, out, err = run(
        *("fit", "s.toml", "t.csv", "--not-private", "--out", "n.fedvi", "--prior-sd", "100"),
        *("--prior", "mean texture=0.5,0.003"),
    )
    assert code == 0, err
    wide = {each["feature"]: each for each in json.loads(run("inspect", "n.fedvi", "--json")[1])["coefficients"]}
    narrow = {each["feature"]: each for each in json.loads(run("inspect", "m.fedvi", "--json")[1])["coefficients"]}
    assert wide["mean radius"]["std"] > 3 * narrow["mean radius"]["std"]
    assert narrow["mean radius"]["prior_decides"]
    assert not wide["mean radius"]["prior_decides"]
    assert wide["mean texture"]["mean"] == pytest.approx(0.5, abs=0.005)
    assert "The prior decides 1 of 5 coefficients: mean texture." in out


def test_45_123_is_asked_for_and_999_and_below_detection_are_read(run: Run) -> None:
    table = people()
    table["sales"] = [f"{45 + number * 7 % 300}.{45 + number * 7 % 300:03d}" for number in range(300)]
    table.to_csv("t.csv", index=False, sep=";")
    infer = ("schema", "infer", "t.csv", "--target", "died", "--out", "s.toml", "--force", "--ignore", "dose")
    code, _, err = run(*infer)
    assert code == 2
    assert "'45.045', which is 45.045 if a point separates decimals, and 45045 if a comma does" in err
    assert "Say --decimal . or --decimal ,." in err
    for decimal, high in ((".", 350), (",", 350_000)):
        assert run(*infer, "--decimal", decimal)[0] == 0
        sales = next(column for column in Schema.load("s.toml").columns if column.name == "sales")
        assert isinstance(sales, Number)
        assert (sales.high, Schema.load("s.toml").dialect.decimal) == (high, decimal)
    table = people()
    table["crp"] = np.where(table["age"] % 5 == 0, "<0.6", table["dose"].abs().astype(str))
    table.loc[::20, "age"] = 999
    crp = next(c for c in made(run, table, "--keep", "crp").columns if c.name == "crp")
    age = next(c for c in Schema.load("s.toml").columns if c.name == "age")
    assert isinstance(crp, Number)
    assert isinstance(age, Number)
    assert (crp.limits, crp.features) == (("<",), ("crp", "crp is below its limit"))
    assert (age.missing_values, age.missing, age.high < 100) == (("999",), "indicator", True)


def test_codes_are_asked_for_and_columns_that_know_the_target_too(run: Run) -> None:
    table = people()
    table["icd_code"] = np.random.default_rng(0).choice([410, 411, 428], 300)
    table["survival_days"] = np.where(table["died"] == "yes", np.random.default_rng(1).integers(1, 364, 300), 365)
    table["copy"] = np.where(table["died"] == "yes", 1, 0)
    table["date of death"] = np.where(table["died"] == "yes", "2024-03-04", "")
    table.to_csv("t.csv", index=False)
    infer = ("schema", "infer", "t.csv", "--target", "died", "--out", "s.toml")
    code, _, err = run(*infer)
    assert code == 2
    assert "'icd_code' is named like a code" in err
    for name in ("survival_days", "copy"):
        assert f"Column '{name}'" in err
        assert f"--ignore '{name}' or --keep '{name}'" in err
    code, _, err = run(*infer, "--category", "icd_code", "--ignore", "survival_days,copy,date of death")
    assert code == 0, err
    assert "icd_code=411" in Schema.load("s.toml").features


def test_a_value_that_comes_once_is_not_copied_into_the_schema(run: Run) -> None:
    table = people()
    table["job"] = np.random.default_rng(0).choice(["nurse", "clerk"], 300)
    table.loc[7, "job"] = "prime minister"
    made(run, table)
    assert "prime" not in Path("s.toml").read_text()
    assert "job=other" in Schema.load("s.toml").features
    made(run, table, "--min-count", "200")
    assert not any(feature.startswith("job") for feature in Schema.load("s.toml").features)


def test_force_replaces_regular_files_only_and_writes_into_others(run: Run, tmp_path: Path) -> None:
    made(run, people())
    os.mkfifo("pipe")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "real.toml").write_text("old")
    Path("link.toml").symlink_to("kept/real.toml")
    infer = ("schema", "infer", "t.csv", "--target", "died", "--force", "--out")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    assert run(*infer, "pipe")[0] == 0
    assert reader.communicate(timeout=30)[0] == Path("s.toml").read_text()
    assert Path("pipe").is_fifo()
    assert run(*infer, "link.toml")[0] == 0
    assert Path("link.toml").is_symlink()
    assert (tmp_path / "kept" / "real.toml").read_text() == Path("s.toml").read_text()
    assert run(*infer, "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()
    if Path("/dev/full").exists():
        code, _, err = run(*infer, "/dev/full")
        assert (code, "No space left on device" in err) == (1, True)


def test_sites_whose_names_differ_in_case_or_blanks_are_refused_and_repeated_rows_told(run: Run) -> None:
    table = people()
    table.loc[::2, "hospital"] = "A"
    made(run, table, "--site-column", "hospital")
    code, _, err = run("fit", "s.toml", "t.csv", "--out", "m.fedvi")
    assert (code, "got 'A' and 'a': if they are one site, it would have two budgets" in err) == (2, True)
    with pytest.raises(InputError, match="differ in more than how they are written, got 'St Mary' and 'st  mary'"):
        fit("s.toml", {"St Mary": people(), "st  mary": people(seed=1)}, progress=False)
    twice = pd.concat([people(), people().head(25)])
    twice.to_csv("twice.csv", index=False)
    before = len(people()) - len(people().drop(columns="hospital").drop_duplicates())
    told = f"Rows that agree with an earlier one in all columns: {25 + before} of 325."
    assert told in run("fit", "s.toml", "twice.csv", "--out", "m.fedvi", "--questions", "3")[2]
    assert told in run("schema", "check", "s.toml", "twice.csv", "--site-column", "hospital")[2]
    code, out, _ = run(
        "schema", "infer", "twice.csv", "--target", "died", "--site-column", "hospital", "--out", "u.toml", "--json"
    )
    assert (code, json.loads(out)["repeated_rows"]) == (0, 25 + before)


# Tables that were not read, or for a wrong reason.


def test_decimal_commas_are_numbers_and_said_once(run: Run) -> None:
    table = people().assign(dose=lambda frame: frame["dose"].map(lambda value: f"{value:.2f}".replace(".", ",")))
    table["large"] = [f"{1000 + row}.{row % 1000:03d},5" for row in range(300)]
    table["large"] = table["large"].str.replace("1", "1.", n=1)
    table.to_csv("t.csv", index=False, sep=";")
    code, _, err = run("schema", "infer", "t.csv", "--target", "died", "--out", "s.toml")
    assert code == 0, err
    schema = Schema.load("s.toml")
    assert schema.dialect.decimal == ","
    assert [type(column) for column in schema.columns] == [Number, Number, Category, Category, Number]
    encoded = encode(schema, "t.csv")
    dose = schema.columns[1]
    assert isinstance(dose, Number)
    np.testing.assert_allclose(encoded.x[:, 2] * dose.scale + dose.centre, people()["dose"], rtol=1e-5)


def test_an_index_without_a_name_is_left_out_and_said(run: Run) -> None:
    people().to_csv("t.csv")  # with its index, as pandas does unless it is told otherwise
    code, out, _ = run("schema", "infer", "t.csv", "--target", "died", "--out", "s.toml", "--json")
    assert code == 0
    first = json.loads(out)["decisions"][0]
    assert (first["column"], first["becomes"]) == ("unnamed 1", "left out")
    assert run("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--questions", "3")[0] == 0


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig", "mac_roman", "cp850"])
def test_encodings_are_guessed_said_and_remembered(encoding: str, run: Run) -> None:
    table = people().assign(sex=lambda frame: frame["sex"].map({"F": "weiblich", "M": "männlich"}))
    table = table.rename(columns={"dose": "Größe"})
    table.to_csv("t.csv", index=False, encoding=encoding)
    code, _, err = run("schema", "infer", "t.csv", "--target", "died", "--site-column", "hospital", "--out", "s.toml")
    assert code == 0, err
    assert Schema.load("s.toml").features == ("(intercept)", "age", "Größe", "sex=weiblich") or (
        Schema.load("s.toml").features == ("(intercept)", "age", "Größe", "sex=männlich")
    )
    guessed = encoding in ("cp1252", "mac_roman", "cp850")
    assert ("The text is read as" in err) == guessed
    assert (
        Schema.load("s.toml").dialect.encoding
        == (encoding.replace("_", "-") if "mac" in encoding else encoding) * guessed
    )
    assert run("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--questions", "3")[0] == 0
    assert run("predict", "m.fedvi", "t.csv", "--out", "p.csv")[0] == 0
    assert run("schema", "check", "s.toml", "t.csv")[0] == 0


def test_dates_become_days_or_are_refused_for_one_reason(run: Run) -> None:
    table = people()
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(np.arange(300) % 200, "D")
    table["admitted"] = days.strftime("%Y-%m-%d")
    table["seen"] = days.strftime("%d/%m/%Y")
    table["short"] = days.strftime("%d.%m.%y")
    table["time"] = "12:30"
    table.loc[0, "time"] = "7:15"
    schema = made(run, table, "--site-column", "hospital")
    assert [column.name for column in schema.columns] == ["age", "dose", "sex", "admitted", "seen"]
    encoded = encode(schema, "t.csv")
    at = schema.features.index("admitted")
    for name in ("admitted", "seen"):
        column = next(each for each in schema.columns if each.name == name)
        assert isinstance(column, Number)
        found = encoded.x[:, schema.features.index(name)] * column.scale + column.centre
        np.testing.assert_allclose(found, 8401 + np.arange(300) % 200, atol=0.01)  # days since 2000-01-01
    frame = table.assign(admitted=days)  # as a data frame has them
    np.testing.assert_allclose(encode(schema, frame).x[:, at], encoded.x[:, at])
    table["open"] = "03/04/2023"
    table.loc[::2, "open"] = "05/06/2023"
    table.drop(columns="seen").to_csv("o.csv", index=False)
    code, _, err = run("schema", "infer", "o.csv", "--target", "died", "--out", "o.toml")
    assert (code, "Column 'open' holds dates such as '0" in err, "--dates dmy" in err) == (2, True, True)
    assert run("schema", "infer", "o.csv", "--target", "died", "--out", "o.toml", "--dates", "mdy")[0] == 0
    opened = next(column for column in Schema.load("o.toml").columns if column.name == "open")
    assert isinstance(opened, Number)
    assert opened.high - opened.low == 63  # from 4 March to 6 May


def test_dashes_minus_signs_and_blanks_between_thousands_are_understood(run: Run) -> None:
    table = people()
    table["change"] = [f"{MINUS if row % 2 else ''}{row / 7:.2f}" for row in range(300)]
    table["count"] = [f"{1000 * row:,}".replace(",", "\N{NARROW NO-BREAK SPACE}") for row in range(300)]
    table["share"] = [f"{row / 3:.1f}%" if row % 9 else "-" for row in range(300)]
    schema = made(run, table, "--site-column", "hospital", "--number", "count")
    columns = {column.name: column for column in schema.columns if isinstance(column, Number)}
    assert (columns["change"].low, columns["count"].high) == (-43.0, 300_000.0)
    assert (columns["share"].missing, columns["share"].high) == ("indicator", 100.0)


def test_rows_without_a_site_go_where_they_are_told(run: Run) -> None:
    table = people()
    table.loc[:40, "hospital"] = None
    made(run, table, "--site-column", "hospital")
    code, _, err = run("fit", "s.toml", "t.csv", "--out", "m.fedvi")
    assert (code, "say which site they belong to: --nameless other" in err) == (2, True)
    code, out, err = run("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--nameless", "other", "--json", "--not-private")
    assert code == 0, err
    assert {site["name"]: site["rows"] for site in json.loads(out)["sites"]}["other"] == 41


def test_a_table_without_a_site_column_is_a_federation_of_one(run: Run) -> None:
    schema = made(run, people().drop(columns="hospital"))
    assert run("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--questions", "3")[0] == 0
    alone = fit(schema, people().drop(columns="hospital"), questions=3, progress=False)
    assert [site.name for site in alone.sites] == ["all"]
    columns = {name: values.to_numpy() for name, values in people().items()}
    assert [site.name for site in fit(schema, columns, questions=3, progress=False).sites] == ["all"]


def test_the_site_column_is_no_feature_and_need_not_be_said_twice(run: Run) -> None:
    schema = made(run, people(), "--site-column", "hospital")
    assert [column.name for column in schema.columns] == ["age", "dose", "sex"]
    code, out, _ = run("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--questions", "3", "--json")
    assert code == 0
    assert [site["name"] for site in json.loads(out)["sites"]] == ["a", "b"]


def test_the_identifier_keeps_its_name_and_may_be_a_column_of_the_schema(run: Run) -> None:
    made(run, people(), "--site-column", "hospital")
    assert run("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--questions", "3")[0] == 0
    for name in ("hospital", "age", "sex"):
        code, out, err = run("predict", "m.fedvi", "t.csv", "--id", name)
        assert code == 0, err
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [row[name] for row in rows] == people()[name].astype(str).tolist()
    code, _, err = run("predict", "m.fedvi", "t.csv", "--id", "ward")
    assert (code, "Expected column 'ward' in t.csv" in err) == (2, True)


def test_columns_may_have_numbers_for_names() -> None:
    table = pd.DataFrame({0: np.arange(60) % 7, 1: np.arange(60) % 11, 2: np.arange(60) % 2})
    schema = infer_schema(table, target=2, keep=[0], number=[1]).schema
    assert [column.name for column in schema.columns] == ["0", "1"]


def test_a_workbook_is_read_and_several_sheets_are_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pd.ExcelWriter("book.xlsx") as book:
        people().to_excel(book, sheet_name="2023", index=False)
        people(seed=1).to_excel(book, sheet_name="2024", index=False)
    infer = ("schema", "infer", "book.xlsx", "--target", "died", "--site-column", "hospital", "--out", "s.toml")
    code, _, err = run(*infer)
    assert (code, "Expected the sheet of book.xlsx to read, one of '2023', '2024'. Name it by --sheet." in err) == (
        2,
        True,
    )
    assert run(*infer, "--sheet", "2024")[0] == 0
    schema = Schema.load("s.toml")
    assert schema.dialect.sheet == "2024"
    people(seed=1).to_csv("same.csv", index=False)
    np.testing.assert_array_equal(encode(schema, "book.xlsx").x, encode(schema, "same.csv").x)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match=r"Reading book\.xlsx needs python-calamine\. Install it with"):
        open_table("book.xlsx")


# Small things.


def test_no_output_that_cannot_be_written_ends_in_a_traceback(tmp_path: Path) -> None:
    people().to_csv(tmp_path / "t.csv", index=False)

    def ran(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*FEDVI, *arguments], cwd=tmp_path, text=True, timeout=300, stderr=subprocess.PIPE, **how)

    devnull = {"stdout": subprocess.DEVNULL}
    assert ran("schema", "infer", "t.csv", "--target", "died", "--out", "s.toml", **devnull).returncode == 0
    assert ran("fit", "s.toml", "t.csv", "--out", "m.fedvi", "--questions", "3", **devnull).returncode == 0
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run([*FEDVI, "inspect", "m.fedvi"], cwd=tmp_path, capture_output=True, env=latin, timeout=300)
    assert shown.returncode == 0
    assert b"-o-" in shown.stdout
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            for command in (("predict", "m.fedvi", "t.csv"), ("inspect", "m.fedvi")):
                failed = ran(*command, stdout=full)
                assert failed.returncode == 1
                assert failed.stderr.splitlines()[-1] == "Error: Cannot write the output: No space left on device."
    table = ran("ledger", "show", "t.csv", **devnull)
    assert table.returncode == 1
    assert "Expected a file of fedvi, such as a ledger, at t.csv" in table.stderr
    assert "If it is something else, such as a table, give the right path" in table.stderr
    refused = ran("report", ".", **devnull)
    assert (refused.returncode, "got '.'. Finish" in refused.stderr) == (2, True)


def test_data_of_an_experiment_are_found_beside_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedvi.experiments.config import Experiment

    (tmp_path / "study").mkdir()
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "study" / "rows.npz", x=rng.normal(size=(60, 2)), y=rng.integers(0, 2, 60))
    text = 'model = "LogisticRegression"\n[data]\nkind = "Npz"\npath = "rows.npz"\n'
    text += '[partition.one]\nkind = "Iid"\nclients = 2\n[method.pvi]\nalgorithm = "PVI"\ncommunications = 2\n'
    (tmp_path / "study" / "own.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    config = Experiment.load("study/own.toml").config
    assert config["data"]["path"] == str(tmp_path / "study" / "rows.npz")
    ran = subprocess.run(
        [*FEDVI, "simulate", "study/own.toml", "--out", "runs"], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    copied = Path("copied.toml")
    copied.write_bytes(Path("runs/config.toml").read_bytes())  # it runs again wherever it is
    assert Experiment.load(copied).config == config


def test_real_tables_of_statsmodels_are_read_as_they_are() -> None:
    """No table that is clean already is changed or refused."""
    data = statsmodels.api.datasets.anes96.load_pandas().data
    schema = infer_schema(data, "vote").schema
    assert [type(column) for column in schema.columns] == [Number] * 10
    with warnings.catch_warnings():
        assert not any(encode(schema, data).counts.clipped.values())
    assert ugly("anes96").answers["target"] == "vote"
