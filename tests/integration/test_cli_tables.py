"""From a CSV to predictions on the command line: the README's own commands, and errors that name place and remedy."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedvi.cli.main import main
from fedvi.fitting import Fitted
from fedvi.tables import BinaryTarget, Category, Number, Schema

ROOT = Path(__file__).parents[2]
FEDVI = [sys.executable, "-c", "from fedvi.cli import main; main()"]

SCHEMA = Schema(
    (Number("age", 0, 100, 50, 20, missing="error"), Category("sex", ("F", "M"), unknown="error", missing="error")),
    BinaryTarget("died", ("no", "yes")),
).to_toml()
ROWS = "age,sex,died,site\n" + "".join(
    f"{30 + row},{'FM'[row % 2]},{('no', 'yes')[row % 3 % 2]},{'ab'[row % 2]}\n" for row in range(40)
)


def readme_commands() -> list[list[str]]:
    """Return the commands of the README's section about tables."""
    section = (ROOT / "README.md").read_text().split("## Your own table")[1]
    lines = section.split("```bash\n")[1].split("```")[0].splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def test_readme_leads_from_a_csv_to_predictions_with_intervals(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = readme_commands()
    assert len(commands) == 5
    ran: dict[str, str] = {}
    for command in commands:
        assert command[0] == "fedvi"
        done = subprocess.run([*FEDVI, *command[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        ran[command[1]] = done.stdout
    assert re.search(r"east +│ +600 │ +14 │ 0\.99\d\d of 1 │ +1e-05", ran["fit"])
    assert "not private" in ran["fit"]
    predictions = list(csv.DictReader(io.StringIO(ran["predict"])))
    assert [row["patient"] for row in predictions] == [f"P{number:02}" for number in range(1, 13)]
    assert {row["event"] for row in predictions} == {"yes"}
    for row in predictions:
        assert 0 <= float(row["low"]) <= float(row["probability"]) <= float(row["high"]) <= 1
        assert row["prediction"] == ("yes" if float(row["probability"]) > 0.5 else "no")
    assert "earlier_stays" in ran["inspect"]
    assert "Epsilon" in ran["inspect"]

    reader = subprocess.Popen(
        [*FEDVI, "predict", "model.fedvi", "examples/patients.csv"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    reader.stdout.readline()
    reader.stdout.close()  # as head does
    assert reader.stderr.read() == b""
    reader.stderr.close()
    assert reader.wait(60) == 0


class Here:
    """The command line in this process, in a directory with a schema and a table."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.directory, self.monkeypatch, self.capsys = directory, monkeypatch, capsys
        monkeypatch.chdir(directory)
        (directory / "schema.toml").write_text(SCHEMA)
        (directory / "table.csv").write_text(ROWS)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, output and errors."""
        self.monkeypatch.setattr(sys, "argv", ["fedvi", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self.capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    def fit(self, *more: str) -> tuple[int, str, str]:
        return self(
            "fit", "schema.toml", "table.csv", "--site-column", "site", "--out", "model", "--questions", "3", *more
        )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("age,sex", "Age,sex", "Expected column 'age' in table.csv, got Age, sex, died, site. Did you mean 'Age'?"),
        ("\n33,M,", "\n33,X,", "in row 4 of column 'sex' of table.csv, got 'X'"),
        ("\n33,M,", "\nold,M,", "Expected a number in row 4 of column 'age' of table.csv, got 'old'"),
        ("\n33,M,", "\n,M,", "in row 4 of column 'age' of table.csv, got none"),
        ("\n33,M,no,b", "\n33,M,no,alone", "got 1 at site 'alone'"),
        (ROWS, "", "Expected a header in table.csv, got an empty file"),
        (ROWS, "age,sex,died,site\n", "Expected rows in table.csv, got only a header"),
        ("\n33,M,", "\n33,M\udcff,", "in row 4 of column 'sex' of table.csv, got 'Mÿ'"),
    ],
)
def test_wrong_tables_give_one_line_that_names_the_place(here: Here, old: str, new: str, message: str) -> None:
    assert old in ROWS
    (here.directory / "table.csv").write_bytes(ROWS.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    code, out, err = here.fit()
    assert (code, out) == (2, "")
    assert re.fullmatch(r"Error: [^\n]*\n", err)
    assert message in err
    assert not (here.directory / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--eps", "1", "--not-private"), "Expected --eps or --not-private, got both"),
        (("--eps", "0"), "0 < epsilon"),
        (("--site-column", "ward"), "Expected column 'ward' in table.csv"),
        (("--test", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_wrong_options_are_named(here: Here, arguments: tuple[str, ...], message: str) -> None:
    code, _, err = here.fit(*arguments)
    assert code == 2
    assert re.fullmatch(r"Error: [^\n]*\n", err)
    assert message in err
    assert not (here.directory / "model").exists()


def test_all_missing_column_and_three_classes_are_refused_when_a_schema_is_inferred(here: Here) -> None:
    (here.directory / "gone.csv").write_text("a,y\n" + ",\n" * 30)
    code, _, err = here("schema", "infer", "gone.csv", "--target", "y", "--out", "new.toml")
    assert code == 2
    assert "'y'" in err
    (here.directory / "three.csv").write_text("a,y\n" + "".join(f"{row},{'pqr'[row % 3]}\n" for row in range(30)))
    code, _, err = here("schema", "infer", "three.csv", "--target", "y", "--out", "new.toml")
    assert code == 2
    assert re.search(r"'y'.*(three|3)", err)
    assert not (here.directory / "new.toml").exists()


def test_fit_predict_and_inspect_agree_and_overwrite_nothing(here: Here) -> None:
    code, out, _ = here.fit("--json", "--test", "table.csv", "--seed", "4")
    assert code == 0
    plain = json.loads(out)
    assert [site["name"] for site in plain["sites"]] == ["a", "b"]
    assert {"accuracy", "ece"} <= plain["scores"].keys()
    code, _, err = here.fit()
    assert code == 2
    assert "--force" in err
    assert here.fit("--force", "--not-private")[0] == 0
    assert not any(site.events for site in Fitted.load("model").sites)

    assert here("predict", "model", "table.csv", "--out", "predictions.csv", "--level", "0.8")[0] == 0
    rows = list(csv.DictReader((here.directory / "predictions.csv").read_text().splitlines()))
    assert len(rows) == 40
    assert list(rows[0]) == ["prediction", "event", "probability", "low", "high"]
    code, _, err = here("predict", "model", "table.csv", "--out", "predictions.csv")
    assert (code, "--force" in err) == (2, True)
    (here.directory / "bad.csv").write_text("age,sex\n30,F\nx,F\n")
    code, _, err = here("predict", "model", "bad.csv", "--out", "other.csv")
    assert code == 2
    assert "row 2 of column 'age' of bad.csv" in err
    assert not list(here.directory.glob("other*"))

    plain = json.loads(here("inspect", "model", "--json")[1])
    assert plain["converged"]
    assert plain["answered"]["plan"]["covariance"] == "full"
    assert here.fit("--force", "--covariance", "diagonal", "--eps", "100")[0] == 0
    out = " ".join(here("inspect", "model")[1].split())
    assert "Covariance: diagonal, read out of 3 questions, 1 of them about moments" in out
    assert "Warning: Intervals are not to be trusted" in out
    code, out, err = here.fit("--force", "--not-private", "--covariance", "diagonal")
    assert (code, "without privacy it is always full" in err) == (2, True)
    fitted = Fitted.load("model")
    narrow: Any = dataclasses.replace(fitted.posterior, precision=2 * fitted.posterior.precision)  # type: ignore[type-var]
    dataclasses.replace(fitted, posterior=narrow).save("narrow")
    code, _, err = here("inspect", "narrow")
    assert (code, "Expected the posterior that its answers give" in err) == (2, True)
    code, out, _ = here("inspect", "model", "--json", "--arviz", "draws.nc")
    plain = json.loads(out)
    assert code == 0
    assert {each["feature"] for each in plain["coefficients"]} == {"(intercept)", "age", "sex=M"}
    assert (here.directory / "draws.nc").stat().st_size > 10_000
    assert here("inspect", "model", "--figure", "figure.svg")[0] == 0
    assert "<svg" in (here.directory / "figure.svg").read_text()
    assert "PNG, SVG" in " ".join(here("inspect", "--help")[1].split())


@pytest.mark.parametrize(
    ("code", "imported"),
    [
        ("import fedvi.tables, fedvi.cli.schema", []),
        ("from fedvi.tables.encode import encode; from fedvi.tables import Schema", []),
        ("from fedvi import infer_schema; infer_schema('t.csv', 'y')", ["pyarrow"]),
    ],
)
def test_tables_need_neither_jax_nor_pandas(tmp_path: Path, code: str, imported: list[str]) -> None:
    (tmp_path / "t.csv").write_text("x,z,y\n1,a,no\nNA,b,yes\n3,,no\n")
    code += "; import sys; print([name for name in ('jax', 'pandas', 'pyarrow', 'scipy') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == repr(imported)
