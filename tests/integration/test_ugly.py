"""Real tables in ugly dialects: infer, check, fit and predict, by the answer key in support/answers.toml."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi.errors import InputError
from fedvi.tables import Category, Number, Schema, infer_schema, open_table
from fedvi.tables.encode import encode
from fedvi.tables.inferring.decisions import Unanswered
from fedvi.tables.inferring.infer import Inferred
from fedvi.tables.reading.source import Dialect
from fedvi.tables.targets import BinaryTarget, NumberTarget
from ugly import ANSWERS, Ugly, ugly

AT_LEAST = 0.95
"""Share of all columns that must become what the key says."""


def options_of(answers: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the key as arguments."""
    given: dict[str, Any] = {}
    for option, value in zip(answers["options"][::2], answers["options"][1::2], strict=True):
        given.setdefault(option.removeprefix("--"), []).append(value)
    return given | ({"event": given["event"][0]} if "event" in given else {})


def named(answers: dict[str, Any]) -> dict[str, str]:
    """Return what columns should become; those without a name are called by their place."""
    return {name or f"unnamed {at}": becomes for at, (name, becomes) in enumerate(answers["columns"].items(), 1)}


def inferred(table: Ugly, path: Path) -> tuple[Inferred, list[str]]:
    """Return the schema, once all columns that know the target are left out, and which ones were asked for."""
    target, options = table.answers["target"], options_of(table.answers)
    asked: list[str] = []
    try:
        return infer_schema(path, target, **options), asked
    except Unanswered as questions:
        asked = [question.text.split("'")[1] for question in questions.questions]
    return infer_schema(path, target, ignore=asked, **options), asked


def became(found: Inferred, asked: list[str]) -> dict[str, str]:
    """Return what each column became, in the words of the key."""
    kinds = {}
    for each in found.decisions:
        missing = isinstance(each.part, Number) and each.part.missing == "indicator"
        limits = isinstance(each.part, Number) and each.part.limits
        extra = ", limits" if limits else ", missing" if missing else ""
        kinds[each.name] = "asked" if each.name in asked else each.becomes + extra
    return kinds


@pytest.mark.parametrize("name", ANSWERS)
def test_columns_hold_what_was_in_them_before(name: str, tmp_path: Path) -> None:
    """Every number, date and class of the table before it was spoiled is in the encoded rows."""
    table = ugly(name)
    path = table.write(tmp_path)
    found, _ = inferred(table, path)
    encoded = encode(found.schema, path)
    rows = len(next(iter(table.truth.values())))
    assert (encoded.counts.rows, encoded.counts.foreign, encoded.counts.unusable) == (
        rows,
        dict.fromkeys(encoded.counts.foreign, 0),
        0,
    )
    assert not any(encoded.counts.clipped.values())
    features = dict(zip(found.schema.features, encoded.x.T, strict=True))
    for column in found.schema.columns:
        truth = table.truth[column.name]
        if isinstance(column, Number):
            gaps = np.isnan(truth)
            values = features[column.name] * column.scale + column.centre
            np.testing.assert_allclose(values[~gaps], truth[~gaps], rtol=1e-5, atol=1e-5 * column.scale)
            if gaps.any():
                np.testing.assert_array_equal(features[f"{column.name} is missing"], gaps)
            if column.name in table.below:
                np.testing.assert_array_equal(features[f"{column.name} is below its limit"], table.below[column.name])
        else:
            assert isinstance(column, Category)
            for feature in column.features:
                level = feature.removeprefix(f"{column.name}=")
                expected = truth == ("" if level == "missing" else level)
                if level == "other":
                    expected = ~np.isin(truth, [*column.values, ""])
                np.testing.assert_array_equal(features[feature], expected)
    target, y = found.schema.target, encoded.y
    assert y is not None
    if isinstance(target, BinaryTarget):
        assert target.event == table.answers["event"]
        np.testing.assert_array_equal(y, np.where(table.truth[target.name] == target.event, 1, -1))
    else:
        assert isinstance(target, NumberTarget)
        np.testing.assert_allclose(y * target.scale + target.centre, table.truth[target.name], rtol=1e-5)


def test_columns_become_what_the_key_says(tmp_path: Path) -> None:
    wrong, total = [], 0
    for name in ANSWERS:
        table = ugly(name)
        found, asked = inferred(table, table.write(tmp_path))
        kinds = became(found, asked)
        assert list(kinds) == list(named(table.answers))
        wrong += [(name, c, k, kinds[c]) for c, k in named(table.answers).items() if kinds[c] != k]
        total += len(kinds)
        assert set(asked) == {column for column, kind in named(table.answers).items() if kind == "asked"}
    assert total > 100
    assert len(wrong) <= (1 - AT_LEAST) * total, wrong


def test_dialects_are_told_and_remembered_in_the_schema(tmp_path: Path) -> None:
    found, _ = inferred(ugly("fair"), ugly("fair").write(tmp_path))
    assert (found.schema.dialect.encoding, found.schema.dialect.decimal) == ("cp1252", ",")
    assert found.said == (
        "The text is read as cp1252 (if 'Religiosität' is spelled right). If that is wrong, give --encoding.",
        "Below the rows, left out: 'Quelle: Redbook 1974'.",
    )
    again = Schema.from_toml(found.schema.to_toml())
    assert again == found.schema
    assert "\n[dialect]  # how tables are written; " in found.schema.to_toml()
    assert "Barolo" in infer_schema(ugly("wine").write(tmp_path), "alcohol").schema.to_toml()
    utf16, _ = inferred(ugly("rossi"), ugly("rossi").write(tmp_path))
    assert utf16.schema.dialect.encoding == ""  # its byte order mark says it to whoever reads the file


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("wine", "cultivar", "the target, has 3 classes: 'Barbera', 'Barolo', 'Grignolino'. fedvi has models for two"),
        ("randhie", "visits", "the target, looks like counts: whole numbers from 0 to 77, 0 in 31% of the rows."),
        ("rossi", "week", "the target, looks like the time to an event, beside 'arrest'."),
        ("lung", "time", "the target, looks like the time to an event, beside 'death', 'status'."),
        ("anes96", "educ", "the target, holds 7 whole numbers, 1, 2, 3, 4, 5, ...: classes, grades or counts?"),
    ],
)
def test_targets_without_a_model_are_named_as_what_they_are(
    name: str, target: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        infer_schema(ugly(name).write(tmp_path), target)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_ugly_table_goes_all_the_way_without_an_edit(name: str, tmp_path: Path, run: Any) -> None:
    """The commands, with the answers to what they ask: infer, check, fit, predict."""
    table = ugly(name)
    path = table.write(tmp_path).name

    infer = ["schema", "infer", path, "--target", table.answers["target"], "--out", "s.toml", *table.answers["options"]]
    code, out, err = run(*infer)
    asked = [column for column, kind in table.answers["columns"].items() if kind == "asked"]
    if asked:
        assert code == 2
        assert all(f"--ignore '{column}'" in err for column in asked)
        code, out, err = run(*infer, *(part for column in asked for part in ("--ignore", column)))
    assert code == 0, err
    if "event" in table.answers:
        assert f"the event is {table.answers['event']}" in " ".join(out.replace("│", " ").split())
    code, out, err = run("schema", "check", "s.toml", path)
    assert code == 0, err
    assert "Warning" not in err
    code, out, err = run("fit", "s.toml", path, "--not-private", "--out", "m.fedvi")
    assert code == 0, err
    code, out, err = run("predict", "m.fedvi", path)
    assert code == 0, err
    predictions = list(csv.DictReader(io.StringIO(out)))
    assert len(predictions) == len(next(iter(table.truth.values())))
    if "event" in table.answers:
        assert {row["event"] for row in predictions} == {table.answers["event"]}
        true = table.truth[table.answers["target"]] == table.answers["event"]
        found = np.array([float(row["probability"]) for row in predictions])
        assert found[true].mean() > found[~true].mean() + 0.02  # the right way round


def test_a_site_reads_an_ugly_table_without_a_guess(tmp_path: Path) -> None:
    """By the schema alone: encoding and decimals are told by it, and nothing else is looked at."""
    table = ugly("fair")
    path = table.write(tmp_path)
    schema = inferred(table, path)[0].schema
    reader = open_table(path, schema.dialect, private=True)
    encoded = encode(schema, reader, private=True)
    rows = len(table.truth["Alter"])
    assert encoded.y is not None
    np.testing.assert_array_equal(encoded.x[:rows], encode(schema, path).x)
    assert np.isnan(encoded.y[rows:]).all()  # the note below the rows: a row that counts as nothing
    assert len(encoded.x) == rows + 1
    guessless = dataclasses.replace(schema, dialect=Dialect(decimal=","))
    with pytest.raises(InputError, match=r"got Auswertung.*It is read as utf-8; if that is wrong, give --encoding"):
        encode(guessless, path, private=True)
