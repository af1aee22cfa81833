"""Schemas: what they mean, how they are written, how they are found, and the commands for them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvi.errors import InputError
from fedvi.tables import (
    BinaryTarget,
    Category,
    Interaction,
    Number,
    NumberTarget,
    Schema,
    infer_schema,
)
from fedvi.tables.encode import encode
from fedvi.tables.reading import arrow_tables, csv_tables
from fedvi.tables.reading.words import plain
from own_columns import Log, Steps
from schema_samples import sample

AGE = Number("age", 0, 120, 52, 17)


SEX = Category("sex", ("F", "M"))


DIED = BinaryTarget("died", ("no", "yes"))


DAYS = NumberTarget("days", 0, 60, 7, 4.5)


SCHEMA = Schema((AGE, SEX), DIED)


TOML = """
format = 2
[target]
name = "died"
kind = "category"
values = ["no", "yes"]
[[columns]]
name = "age"
kind = "number"
low = 0
high = 120
centre = 52
scale = 17
[[columns]]
name = "sex"
kind = "category"
values = ["F", "M"]
"""


CROSSED = '[[interactions]]\nof = ["age", "sex"]\n'


def test_features_follow_columns_and_policies() -> None:
    columns = (
        Number("age", 0, 120, 52, 17, missing="indicator"),
        Category("sex", ("F", "M"), unknown="error", missing="error"),
        Category("ward", ("A",), unknown="error", missing="missing"),
        Category("drug", ("x", "y", "z"), unknown="other", missing="missing", reference="y"),
        Number("dose", 0, 1, 0.5, 1, missing="error"),
        Number("gain", 0, 64, 1, 2, "indicator", transform="log1p", knots=(0, 16, 32.5, 64)),
    )
    crossed = (("age", "drug"), ("gain", "dose"), ("ward", "drug"))
    features = (
        "(intercept)",
        *("age", "age is missing"),
        "sex=M",
        "ward=missing",
        *("drug=x", "drug=z", "drug=other", "drug=missing"),
        "dose",
        *("log1p(gain)", "gain~[16]", "gain~[32.5]", "gain is missing"),
        *("age:drug=x", "age:drug=z", "age:drug=other", "age:drug=missing"),
        "log1p(gain):dose",
        *(f"ward=missing:drug={level}" for level in ("x", "z", "other", "missing")),
    )
    schema = Schema(columns, DIED, interactions=tuple(map(Interaction, crossed)))
    assert (schema.features, schema.dim) == (features, len(features))
    assert schema.exclusive == ((3,), (4,), (5, 6, 7, 8), (19, 20, 21, 22))
    kinds = ["intercept", "number", *["level"] * 7, "number", "number", "hat", "hat", "level", *["number"] * 5]
    assert list(schema.layout.kinds) == [*kinds, *["level"] * 4]
    assert schema.bound == pytest.approx(68 / 17)
    bare = Schema(columns, DIED, False, schema.interactions)
    assert bare.features == features[1:]
    assert bare.exclusive == ((2,), (3,), (4, 5, 6, 7), (18, 19, 20, 21))
    assert not bare.layout.intercept


def test_scales_can_be_exchanged() -> None:
    schema = Schema((AGE, SEX), DAYS)
    other = schema.with_scales({"age": (40, 12.5), "days": (8, 3)})
    assert other == Schema((Number("age", 0, 120, 40, 12.5), SEX), NumberTarget("days", 0, 60, 8, 3))
    assert other.digest != schema.digest
    assert schema.with_scales({}).digest == schema.digest
    with pytest.raises(InputError, match=r"one of age, days; got 'agee'. Did you mean 'age'\?"):
        schema.with_scales({"agee": (1, 1)})
    with pytest.raises(InputError, match=r"Expected the centre of column 'age' within \[0.0, 120.0\], got 130.0"):
        schema.with_scales({"age": (130, 1)})


def test_digest_is_the_same_on_all_machines() -> None:
    assert SCHEMA.digest == "5428ea3a8873c23ab8e1158a66e672dda178c60ffe7ec098ed384ac3f30d1cbc"


def test_digest_depends_on_every_field_and_on_nothing_else() -> None:
    assert Schema.from_toml(TOML).digest == SCHEMA.digest
    shuffled = TOML.replace('kind = "number"\nlow = 0\n', 'low = -0.0 # years\n\nkind   = "number"\n')
    assert Schema.from_toml("# a comment\n" + shuffled).digest == SCHEMA.digest
    digests = {SCHEMA.digest, Schema((AGE, SEX), DIED, intercept=False).digest, Schema((SEX, AGE), DIED).digest}
    digests |= {Schema((AGE, SEX), DIED, True, (Interaction(of),)).digest for of in (("age", "sex"), ("sex", "age"))}
    count = 5
    others: dict[Any, dict[str, Any]] = {
        AGE: {
            "name": "years",
            "low": -1,
            "high": 121,
            "centre": 53,
            "scale": 18,
            "missing": "error",
            "knots": (0, 1, 2),
            "limits": ("<",),
        }
        | {"transform": "log1p"},
        SEX: {"name": "gender", "values": ("M", "F"), "unknown": "error", "missing": "error", "reference": "M"},
        DIED: {"name": "dead", "values": ("yes", "no")},
        DAYS: {"name": "nights", "low": 1, "high": 61, "centre": 8, "scale": 5},
    }
    for part, changes in others.items():
        changes["missing_values"] = ("9",)
        assert set(changes) | {"event"} == {field.name for field in dataclasses.fields(part)} | {"event"}
        for field, value in changes.items():
            logs = {"centre": 3, "scale": 1} if field == "transform" else {}
            event = {"event": ""} if part == DIED else {}
            new = dataclasses.replace(part, **{field: value} | logs | event)
            parts = [new if old == part else old for old in (AGE, SEX)]
            target = new if isinstance(new, BinaryTarget | NumberTarget) else DIED
            digests.add(Schema(tuple(parts), target).digest)
            count += 1
    assert len(digests) == count


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text == text.strip())


FINITE = st.floats(-1e300, 1e300)


@st.composite
def numbers(draw: st.DrawFn, kind: type, name: str) -> Any:
    low, centre, high = sorted(draw(st.lists(FINITE, min_size=3, max_size=3, unique=True)))
    more: dict[str, Any] = {}
    if kind is Number:
        more["missing"] = draw(st.sampled_from(["centre", "indicator", "error"]))
        more["knots"] = (low, centre, high) if draw(st.booleans()) else ()
        if low >= 0 and draw(st.booleans()):
            more["transform"], centre = "log1p", float(np.log1p(centre))
    scale = draw(st.floats(max(1e-300, (high / 1e6 - low / 1e6) * 1.001), 1e300))
    return kind(name, low, high, centre, scale, **more)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    target, *names = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    words = NAMES.filter(lambda text: text not in ("other", "missing") and plain(text) == text)
    unknown, missing = (
        st.sampled_from(["reference", "other", "error"]),
        st.sampled_from(["reference", "missing", "other"]),
    )

    def category(name: str) -> Category:
        values = tuple(draw(st.lists(words, min_size=2, unique=True)))
        return Category(name, values, draw(unknown), draw(missing), draw(st.sampled_from(values)))

    columns = [draw(numbers(Number, name)) if draw(st.booleans()) else category(name) for name in names]
    crossed = [Interaction((names[0], other)) for other in names[1:] if draw(st.booleans())]
    two = st.lists(words, min_size=2, max_size=2, unique=True)
    to_predict = BinaryTarget(target, tuple(draw(two))) if draw(st.booleans()) else draw(numbers(NumberTarget, target))
    try:
        return Schema(tuple(columns), to_predict, draw(st.booleans()), tuple(crossed))
    except InputError:  # names that look like features of others
        return SCHEMA


@given(schemas())
def test_a_schema_survives_being_written_and_read(schema: Schema) -> None:
    again = Schema.from_toml(schema.to_toml())
    assert again == schema
    assert again.digest == schema.digest


def test_files_are_read_and_written_with_comments(tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "schema.toml")
    text = (tmp_path / "schema.toml").read_text()
    assert Schema.load(tmp_path / "schema.toml") == SCHEMA
    assert text.startswith("# Feature schema: ")
    assert 'values = ["no", "yes"]\nevent = "yes"  # the class whose probability is predicted\n' in text
    assert (
        'name = "age"\nkind = "number"\nlow = 0.0\nhigh = 120.0\ncentre = 52.0\nscale = 17.0\nmissing = "centre"\n'
        'transform = "none"\nknots = []  # in the column\'s own units\n' in text
    )
    assert 'missing = "reference"\nreference = "F"  # has no feature: all others are compared to it\n' in text


def test_values_may_be_written_as_numbers_and_truth_values() -> None:
    schema = Schema.from_toml(TOML.replace('["no", "yes"]', "[0, 1]").replace('["F", "M"]', "[false, true, 2.0, 2.5]"))
    assert schema.target == BinaryTarget("died", ("0", "1"))
    assert schema.columns[1] == Category("sex", ("false", "true", "2", "2.5"))
    text = TOML.replace('["F", "M"]', "[false, true, 2.0]\nreference = 2")
    assert Schema.from_toml(text).features == ("(intercept)", "age", "sex=false", "sex=true")


def test_a_new_kind_is_one_class_that_the_file_names(tmp_path: Path) -> None:
    """A column of steps and a target of logarithms: files, digests and encoding know them by their class alone."""
    schema = Schema((Steps("age", 40, 60, 50, 20), SEX), Log("days", 1, 60, 7, 4.5))
    schema.save(tmp_path / "schema.toml")
    text = (tmp_path / "schema.toml").read_text()
    assert 'name = "age"\nkind = "own_columns:Steps"\nlow = 40.0\n' in text
    again = Schema.load(tmp_path / "schema.toml")
    assert again == schema
    assert again.digest == schema.digest
    assert schema.digest != Schema((Number("age", 40, 60, 50, 20), SEX), schema.target).digest
    encoded = encode(again, {"age": [30, 50, 70], "sex": ["F", "M", "F"], "days": [1, 10, 100]})
    assert encoded.x[:, 1:3].tolist() == [[0, 0], [1, 0], [1, 1]]
    assert encoded.y is not None
    np.testing.assert_allclose(encoded.y, np.log([1, 10, 100]), rtol=1e-6)
    assert again.target.decode(*np.log([[10.0], [9.0], [11.0]])).mean == pytest.approx(10)
    for kind, message in (
        ("own_columns:Logg", r"target \(days\)\.kind, got none. Did you mean 'Log'"),
        ("own_columns:Steps", r"the schema: Expected the target to be a Target, got Steps"),
        ("own_columns:np", r"Expected target \(days\)\.kind to be a target, a class with the method encode"),
    ):
        with pytest.raises(InputError, match=message):
            Schema.from_toml(text.replace("own_columns:Log", kind))
    kinds = ["own_columns:Log", "own_columns:Steps"]
    assert Schema.load(tmp_path / "schema.toml", kinds) == schema
    for allowed, refused in zip(kinds, (r"columns\[1\] \(age\)", r"target \(days\)"), strict=True):
        with pytest.raises(InputError, match=rf"Refused {refused}\.kind = 'own_columns:.*policy file"):
            Schema.load(tmp_path / "schema.toml", [allowed])


def test_own_columns_are_found_in_a_file_beside_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_it.py").write_text("from fedvi.tables import Number\n\n\nclass Age(Number):\n    pass\n")
    (tmp_path / "schema.toml").write_text(TOML.replace('"number"', '"beside_it:Age"'))
    with pytest.raises(InputError, match="Cannot import 'beside_it'"):  # allowed by others, but not from this folder
        Schema.load(tmp_path / "schema.toml", ["beside_it:Age"])
    SCHEMA.save(tmp_path / "plain.toml")
    Schema.load(tmp_path / "plain.toml")
    assert str(tmp_path) not in sys.path  # nor is the folder of a schema that names no column of its own
    assert type(Schema.load(tmp_path / "schema.toml").columns[0]).__name__ == "Age"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 2", "format = ", "Expected TOML in here: Invalid value"),
        ("format = 2", "format = 4", "here: Expected format = 3, got 4: made by another version of fedvi"),
        ("format = 2", "format = 1", "got 1: made by an older fedvi, whose categories had no reference. Make it anew"),
        ("format = 2", "", "here: Expected key format in the schema, got target, columns"),
        ("format = 2", "format = 2\nintercpt = true", "Unknown key intercpt; .* Did you mean 'intercept'"),
        ("format = 2", "format = 2\nintercept = 1", "Expected intercept to be true or false, got 1"),
        ("high", "hgih", r"here: Unknown key columns\[1\] \(age\).hgih; .* Did you mean 'high'\?"),
        ("high = 120\n", "", r"here: Expected columns\[1\] \(age\).high, got name, low, centre"),
        ('kind = "number"\n', "", r"Expected columns\[1\] \(age\).kind to be one of number, date, category, or"),
        ('kind = "number"', 'kind = "numbr"', r"Unknown value 'numbr' of columns\[1\] .* mean 'number'"),
        ("high = 120", "high = 0", r"columns\[1\] \(age\): Expected low < high for column 'age', got 0.0 and 0.0"),
        ("centre = 52", "centre = 121", r"Expected the centre of column 'age' within \[0.0, 120.0\], got 121.0"),
        ("scale = 17", "scale = 0", "Expected scale > 0 for column 'age', got 0.0"),
        ("scale = 17", "scale = 1e-9", "at most 1e.06 scales between low and high of column 'age'"),
        ("scale = 17", "scale = inf", "Expected scale of column 'age' to be a finite number, got inf"),
        ("scale = 17", "scale = true", "Expected scale of column 'age' to be a finite number, got True"),
        ("scale = 17", 'scale = "17"', "Expected scale of column 'age' to be a finite number, got '17'"),
        ("scale = 17", 'scale = 17\nmissing = "zero"', "missing of column 'age' to be one of centre, indicator, error"),
        ('["F", "M"]', '["F", "F"]', "Expected every value of column 'sex' once, got 'F' and 'F'"),
        ('["F", "M"]', "[1, '1.0']", "Expected every value of column 'sex' once, got '1' and '1.0'"),
        ('["F", "M"]', '["F", ""]', "Expected values of column 'sex' without blanks around them and not empty, got ''"),
        ('["F", "M"]', '["F", " M"]', "without blanks around them and not empty, got ' M'"),
        ('["F", "M"]', "[]", "Expected at least one of the values of column 'sex', got none"),
        ('["F", "M"]', '"FM"', "Expected a list of values of column 'sex', got 'FM'"),
        ('["F", "M"]', '["F", ["M"]]', r"Expected the values of column 'sex' to be texts, got \('M',\)"),
        ('["F", "M"]', '["F", "other"]\nunknown = "other"', "no value 'other' of column 'sex': it names the feature"),
        ('["F", "M"]', '["F", "missing"]\nmissing = "missing"', "no value 'missing' of column 'sex': it names"),
        ('["F", "M"]', '["F"]\nunknown = "drop"', "unknown of column 'sex' to be one of reference, other, error, got"),
        (
            '["F", "M"]',
            '["F"]\nmissing = "drop"',
            "missing of column 'sex' to be one of reference, missing, other, error",
        ),
        ('["F", "M"]', '["F", "M"]\nreference = "X"', "reference of column 'sex' to be one of F, M, got 'X'"),
        ('["F", "M"]', '["F"]', "Expected two values of column 'sex', or a feature for others, got only 'F'"),
        (
            "scale = 17",
            'scale = 17\ntransform = "log"',
            "transform of column 'age' to be one of none, log1p, got 'log'",
        ),
        (
            "scale = 17",
            'scale = 17\ntransform = "log1p"',
            r"the centre of column 'age' within \[0.0, 4.79.*\], got 52.0",
        ),
        ("low = 0", 'low = -1\ntransform = "log1p"', "Expected low >= 0 for column 'age', whose values become log"),
        ("scale = 17", "scale = 17\nknots = [1, 2]", "at least three increasing knots of column 'age' from 0 to 120"),
        ("scale = 17", "scale = 17\nknots = [1, 2, 2]", r"or none, got \(1, 2, 2\)"),
        ("scale = 17", "scale = 17\nknots = [1, 2, 121]", r"or none, got \(1, 2, 121\)"),
        ("scale = 17", "scale = 17\nknots = [-1, 2, 3]", r"or none, got \(-1, 2, 3\)"),
        ("scale = 17", "scale = 17\nknots = [1, nan, 3]", r"or none, got \(1, nan, 3\)"),
        ("scale = 17", 'scale = 17\nknots = ["1", 2, 3]', r"or none, got \('1', 2, 3\)"),
        ("scale = 17", "scale = 17\nknots = 5", "or none, got 5"),
        (CROSSED, '[[interactions]]\nof = ["age", "sxe"]', "in the interaction age:sxe, got 'sxe'. Did you mean 'sex'"),
        (CROSSED, '[[interactions]]\nof = ["age"]', r"the names of two columns in an interaction, got \['age'\]"),
        (CROSSED, '[[interactions]]\nof = ["age", "age"]', "Expected the names of two columns in an interaction"),
        (CROSSED, '[[interactions]]\nof = "age:sex"', "two columns in an interaction, got 'age:sex'"),
        (CROSSED, '[[interactions]]\nfo = ["age", "sex"]', r"Unknown key interactions\[1\].fo; allowed: of"),
        (CROSSED, CROSSED + '[[interactions]]\nof = ["sex", "age"]', "every interaction once, got sex:age twice"),
        (CROSSED, '[interactions]\nof = ["age", "sex"]', r"Expected interactions to be tables, each with the line \["),
        ('["no", "yes"]', '["no", "yes", "so"]', "Expected two values of target 'died', got 3: no, yes, so"),
        ('name = "died"', 'name = "age"', "Expected the target not to be among the columns, got 'age' in both"),
        ('name = "sex"', 'name = "age"', "Expected every column once, got 'age' twice"),
        ('name = "sex"', 'name = ""', "Expected the name of a column without blanks around it, got ''"),
        ('name = "age"', 'name = "sex=M"', "Expected every feature once, got 'sex=M' twice"),
        (TOML[TOML.index("[[columns]]") :], "", "here: Expected key columns in the schema, got format, target"),
        (TOML[TOML.index("[[columns]]") :], "[columns]\n", "Expected columns to be tables, each with the line"),
        ("format = 2", "format = 2\ncolumns = []\n[other]\n", "Expected TOML in here: "),
    ],
)
def test_wrong_schemas_are_refused(old: str, new: str, message: str) -> None:
    text = TOML + CROSSED if old == CROSSED else TOML
    assert old in text
    with pytest.raises(InputError, match=message) as caught:
        Schema.from_toml(text.replace(old, new, 1), "here")
    assert "\n" not in str(caught.value)


def test_schemas_without_columns_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected at least one column, got none"):
        Schema((), DIED)
    with pytest.raises(
        InputError,
        match=r"Cannot read .*none.toml: expected a schema, as fedvi schema infer makes one there, got no such",
    ):
        Schema.load(tmp_path / "none.toml")
    with pytest.raises(InputError, match=r"Cannot read .* as a schema, .*Is a directory"):
        Schema.load(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"Cannot read .*utf-8"):
        Schema.load(tmp_path / "bytes.toml")
    with pytest.raises(InputError, match=r"Cannot write .*schema.toml.: No such file or directory"):
        SCHEMA.save(tmp_path / "no" / "schema.toml")


def test_columns_are_found_with_bounds_scales_values_and_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sample()
    found = infer_schema(table, "died", ignore=["days"], max_categories=3)
    admitted, age, weight, ward = found.schema.columns
    assert isinstance(age, Number)
    assert (age.low, age.high, age.missing) == (18, 95, "centre")
    assert (age.centre, age.scale) == (round(np.mean(table["age"]), 1), round(np.std(table["age"]), 1))
    assert isinstance(weight, Number)
    assert (weight.low, weight.high, weight.missing) == (60, 91, "indicator")
    assert admitted.shown.startswith("2024-01-01 to 2024-01-28, centre 2024-01-14, scale 8")
    common = max("ABC", key=list(table["ward"]).count)
    assert ward == Category("ward", ("A", "B", "C"), unknown="other", reference=common)
    assert found.schema.target == DIED
    assert (found.rows, found.repeated) == (400, 0)
    assert [each.name for each in found.decisions] == list(table)
    for name, reason in {
        "id": "left out: 400 different values in 400 rows, as identifiers have; if they are classes: --category 'id'",
        "admitted": "date: all values are dates",
        "age": "number: all values are numbers",
        "weight": "number: all values are numbers; missing in 8 rows, which get a feature",
        "country": "left out: it is 'NL' in all rows",
        "zero": "left out: it is 0 in all rows",
        "empty": "left out: it holds no value",
        "ward": "category: 4 different values; the 3 most frequent ones are told apart, all others count as 'other'",
        "days": "left out: as you say",
        "died": "target: the event is yes: by its name; --event changes it",
    }.items():
        assert found.reason(name) == reason
    path = tmp_path / "t.csv"
    frame = pd.DataFrame(table)
    frame.to_csv(path, index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(arrow_tables, "CHUNK_ROWS", 7)
    for source in (path, tmp_path / "t.parquet", frame):
        again = infer_schema(source, "died", ignore=["days"], max_categories=3)
        assert again.decisions == found.decisions
        assert dataclasses.replace(again.schema, dialect=found.schema.dialect) == found.schema
    assert set(encode(found.schema, path).counts.clipped.values()) == {0}


def test_scale_of_a_number_to_predict_is_that_around_the_line() -> None:
    table = sample()
    found = infer_schema(table, "days", ignore=["died"])
    target = found.schema.target
    assert isinstance(target, NumberTarget)
    features = encode(found.schema, table).x.astype(float)
    fitted = features @ np.linalg.lstsq(features, table["days"], rcond=None)[0]
    assert target.scale == pytest.approx(np.std(table["days"] - fitted), rel=5e-3)
    assert target.scale < 0.3 * np.std(table["days"])
    assert target.centre == pytest.approx(np.mean(table["days"]), abs=0.01)
    exact = infer_schema({"x": [1.0, 2, 3, 4], "y": [2.0, 4, 6, 8]}, "y").schema.target
    assert isinstance(exact, NumberTarget)
    assert exact.scale > 0


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0, 1, 1], ("0", "1")),
        ([1.0, -1.0, 1.0], ("-1", "1")),
        ([True, False, True], ("false", "true")),
        (["yes", "no", "no"], ("no", "yes")),
        (["Y", "N", "N"], ("N", "Y")),
        (["absent", "Present", "absent"], ("absent", "Present")),
        (["ja", "nein", "ja"], ("nein", "ja")),
        (["bösartig", "gutartig", "gutartig"], ("gutartig", "bösartig")),
        (["censored", "dead", "dead"], ("censored", "dead")),
        ([2, 1, 2], ("1", "2")),
        (pd.Categorical(["a", "b", "a"], ["b", "a"]), ("b", "a")),
        (pd.Categorical(["a", "b", "a"], ["a", "b"], ordered=True), ("a", "b")),
        (pl.Series(["a", "b", "a"], dtype=pl.Enum(["b", "a"])), ("b", "a")),
    ],
)
def test_the_event_follows_from_names_numbers_and_order(values: Any, wanted: tuple[str, str]) -> None:
    frame = pl.DataFrame if isinstance(values, pl.Series) else pd.DataFrame
    table = frame({"x": [1, 2, 3], "y": values})
    assert infer_schema(table, "y").schema.target == BinaryTarget("y", wanted)
    assert infer_schema(table, "y", event=wanted[0]).schema.target == BinaryTarget("y", wanted, event=wanted[0])


@pytest.mark.parametrize("values", [[">50K", "<=50K", ">50K"], ["b", "a", None], pd.Categorical(["a", "b", "a"])])
def test_the_event_is_asked_for_if_nothing_tells(values: Any) -> None:
    table = pd.DataFrame({"x": [1, 2, 3], "y": values})
    with pytest.raises(InputError, match=r"1\. The target 'y' has the classes .* Which .* Say --event '.*' or --event"):
        infer_schema(table, "y")
    target = infer_schema(table, "y", event=values[0]).schema.target
    assert target.unit == f"log odds of y = {values[0]}"
    with pytest.raises(InputError, match=r"Expected --event to be '.*' or '.*', the classes of 'y', got 'c'"):
        infer_schema(table, "y", event="c")


def test_text_late_in_a_table_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 64)
    path = tmp_path / "t.csv"
    rows = "".join(f"{row % 7},{row * row % 97},{row % 2}\n" for row in range(300))
    path.write_text("x,z,y\n" + rows + "high,1,1\n")
    found = infer_schema(path, "y")
    assert [type(column) for column in found.schema.columns] == [Number, Number]
    assert found.reason("x").endswith("; missing, too: other text in 1 rows")
    assert encode(found.schema, path).counts.foreign["x"] == 1
    path.write_text("x,z,y\n" + rows + "".join(f"high {row % 3},{row},1\n" for row in range(400)))
    assert infer_schema(path, "y").schema.columns[0] == Category(
        "x", (*"0123456", "high 0", "high 1", "high 2"), reference="high 0"
    )


def test_the_value_other_is_counted_as_other() -> None:
    found = infer_schema({"x": ["other", "a", "b", "a", "b"], "y": [0, 1, 0, 1, 1]}, "y")
    assert found.schema.columns == (Category("x", ("a", "b"), unknown="other"),)
    encoded = encode(found.schema, {"x": ["other"], "y": [0]})
    assert encoded.x.tolist() == [[1, 0, 1]]
    assert encoded.counts.unknown["x"] == 0


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (17, 90, (17, 90)),
        (0.1234, 0.3, (0.12, 0.3)),
        (-1234, 98765, (-2000, 99000)),
        (0.1, 0.7, (0.1, 0.7)),
        (1.1e-9, 3.33e-8, (1e-9, 3.4e-8)),
        (1_000_001, 1_000_009, (1_000_001, 1_000_009)),
        (-5e15, 7.77e20, (-1e19, 7.8e20)),
    ],
)
def test_bounds_are_rounded_outwards(low: float, high: float, wanted: tuple[float, float]) -> None:
    (column,) = infer_schema({"x": [low, high, high], "y": [0, 1, 0]}, "y").schema.columns
    assert isinstance(column, Number)
    assert (column.low, column.high) == wanted
    assert column.low <= low < high <= column.high


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": [1, 2], "y": ["a", "a"]}, "Expected two classes or different numbers in column 'y' .* got only 'a'"),
        ({"x": [1, 2], "y": [3, 3]}, "got only '3'. Take a table with both"),
        (
            {"x": [1, 2, 3], "y": ["a", "b", "c"]},
            "has 3 classes: 'a', 'b', 'c'. fedvi has models for two classes and for numbers so far",
        ),
        ({"x": [1, 2], "y": [None, None]}, "Expected values in column 'y' of the dictionary, the target, got none"),
        (
            {"x": [1, 1], "y": [0, 1]},
            "Expected a column of the dictionary to predict 'y' from, got none. 'x': it is 1",
        ),
        (
            {"x": [1, np.inf], "y": [0, 1]},
            "Expected a number below 1e.100 in row 2 of column 'x' of the dictionary, got inf",
        ),
        ({"x": [1, 2]}, "Expected column 'y' in the dictionary, got x"),
        ({"x": [], "y": []}, "Expected rows in the dictionary, got only a header with 2 columns"),
    ],
)
def test_tables_without_a_schema_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        infer_schema(table, "y")


def test_wrong_settings_of_infer_are_refused() -> None:
    with pytest.raises(InputError, match="Expected column 'z' in the dictionary, got x, y"):
        infer_schema({"x": [1], "y": [1]}, "y", ignore=["z"])
    with pytest.raises(InputError, match="the target and the sites' column not to be ignored, got 'y' as both"):
        infer_schema({"x": [1], "y": [1]}, "y", ignore=["y"])
    with pytest.raises(InputError, match="max_categories to be a whole number of at least 1, got 0"):
        infer_schema({"x": [1], "y": [1]}, "y", max_categories=0)


def test_rows_without_a_target_are_noted_and_not_used() -> None:
    table = sample()
    days = table["days"].copy()
    found = infer_schema(table | {"days": [None, *days[1:]]}, "days", ignore=["died"])
    assert found.reason("days") == "target: a number; missing in 1 rows, which are left out"
    assert isinstance(found.schema.target, NumberTarget)
    assert 0.4 < found.schema.target.scale < 0.6
