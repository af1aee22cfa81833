"""Commands that make and check a schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedvi.cli.main import app
from fedvi.tables import BinaryTarget, Number, Schema
from schema_samples import sample


def schema_command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["schema", *arguments])


def test_commands_make_and_check_a_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(sample())
    frame.to_csv(tmp_path / "sample.csv", index=False)
    options = ("infer", "sample.csv", "--target", "died", "--out", "schema.toml", "--ignore", "days")
    made = schema_command(*options)
    assert made.exit_code == 0, made.output
    warning = "Bounds, scales and categories come from sample.csv. Make sure that this table is public or may be shown"
    assert made.stderr.count(warning) == 1
    schema = Schema.load(tmp_path / "schema.toml")
    assert schema.digest in made.stdout
    assert "fedvi schema check schema.toml TABLE" in made.stdout
    again = schema_command(*options)
    assert "Expected a new file, got schema.toml, which exists. Use --force" in str(again.exception)
    forced = schema_command(*options, "--force", "--json")
    assert json.loads(forced.stdout)["features"] == list(schema.features)

    frame.loc[3, "age"], frame.loc[4, "ward"] = 130, "Z"
    frame.to_csv(tmp_path / "clinic.csv", index=False)
    checked = schema_command("check", "schema.toml", "clinic.csv", "--site-column", "ward", "--json")
    counts = json.loads(checked.stdout)
    assert (counts["rows"], counts["digest"]) == (400, schema.digest)
    assert counts["clipped"] == {"admitted": 0, "age": 1, "weight": 0}
    assert (counts["unknown"], counts["repeated"]) == ({"ward": 1, "died": 0}, 0)
    assert counts["sites"] == frame["ward"].value_counts().to_dict()
    assert counts["classes"] == frame["died"].value_counts().to_dict()
    shown = schema_command("check", "schema.toml", "clinic.csv")
    assert f"The table fits schema {schema.digest}" in shown.stdout

    frame.loc[7, "died"] = "perhaps"
    frame.to_csv(tmp_path / "clinic.csv", index=False)
    command = [
        sys.executable,
        "-c",
        "from fedvi.cli import main; main()",
        "schema",
        "check",
        "schema.toml",
        "clinic.csv",
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0
    assert "Note: Rows without a target that can be used, left out: 1 of 400." in told.stderr
    refused = subprocess.run([*command, "--strict"], capture_output=True, text=True, timeout=300)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "Error: Expected a number from 18 to 95 in row 4 of column 'age' of clinic.csv, got 130. Correct it, or widen"
    )
    assert refused.stderr.count("\n") == 1


def test_commands_offer_splines_logarithms_and_interactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(sample() | {"a,b": range(400)}).to_csv(tmp_path / "sample.csv", index=False)
    options = (
        "infer",
        "sample.csv",
        "--target",
        "died",
        "--out",
        "schema.toml",
        "--splines",
        "age,weight",
        "--splines",
    )
    more = (
        "a,b",
        "--log1p",
        "age,days",
        "--interaction",
        "age:ward,weight:days",
        "--interaction",
        "ward:days",
        "--keep",
        "days",
        "--number",
        "a,b",
        "--json",
    )
    made = schema_command(*options, *more)
    assert made.exit_code == 0, made.output
    schema = Schema.load(tmp_path / "schema.toml")
    assert json.loads(made.stdout)["features"] == list(schema.features)
    assert [each.name for each in schema.interactions] == ["age:ward", "weight:days", "ward:days"]
    numbers = {column.name: column for column in schema.columns if isinstance(column, Number)}
    assert [name for name, column in numbers.items() if column.knots] == ["age", "weight", "a,b"]
    assert [name for name, column in numbers.items() if column.transform == "log1p"] == ["age", "days"]
    assert schema_command("check", "schema.toml", "sample.csv").exit_code == 0
    again = ("--keep", "days", "--number", "a,b", "--force")
    shown = schema_command(*options, "days", "--interaction", "age:ward", *again)
    assert "age:ward" in shown.stdout
    assert "interaction" in shown.stdout
    refused = schema_command(*options, "ward", *again)
    assert "Expected the name of a number for splines and log1p, got 'ward': category," in str(refused.exception)


def test_a_schema_of_others_imports_nothing_that_a_site_has_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a module that lies beside the schema, or in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    schema = Schema((Number("age", 0, 120, 50, 20),), BinaryTarget("died", ("no", "yes"))).to_toml()
    (tmp_path / "schema.toml").write_text(schema.replace('"number"', '"sent_along:Age"'))
    (tmp_path / "clinic.csv").write_text("age,died\n30,no\n60,yes\n")
    code = "from fedvi.tables import Number\n\nopen('imported', 'w').close()\n\n\nclass Age(Number):\n    pass\n"
    (tmp_path / "sent_along.py").write_text(code)
    refused = schema_command("check", "schema.toml", "clinic.csv")
    assert "Refused columns[1] (age).kind = 'sent_along:Age'" in str(refused.exception)
    assert not (tmp_path / "imported").exists()
    allowed = schema_command("check", "schema.toml", "clinic.csv", "--kind", "sent_along:Age", "--json")
    assert json.loads(allowed.stdout)["missing"] == {"age": 0, "died": 0}
