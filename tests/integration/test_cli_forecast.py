"""`fedvi forecast` and `fedvi budget --schema`: what is shown before a budget is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

from fedvi.federation.settings import SiteSettings
from fedvi.inference import forecast
from fedvi.tables import BinaryTarget, Category, Number, Schema
from small_federation import description

SCHEMA = Schema((Number("age", 18, 98, 61, 15), Category("sex", ("F", "M"))), BinaryTarget("died", ("no", "yes")))


@pytest.fixture(autouse=True)
def schema_file(tmp_path: Path) -> None:
    """Put the schema where commands run."""
    SCHEMA.save(tmp_path / "s.toml")


def test_a_forecast_is_a_table_json_and_a_figure(run: Any) -> None:
    code, out, err = run("forecast", "s.toml", "--rows", "400,300", "--questions", "4", "--figure", "f.png")
    assert code == 0, err
    shown = " ".join(out.split())
    for words in ("log odds of died = yes, 2 sites, 700 rows", "sex=M", "twice the epsilon", "Nothing was spent"):
        assert words in shown
    height, width = matplotlib.image.imread("f.png").shape[:2]
    assert width > height > 300
    code, out, _ = run("forecast", "s.toml", "--rows", "400,300", "--questions", "4", "--json")
    found, again = json.loads(out), forecast(SCHEMA, [400, 300], 1.0, questions=4)
    assert [line["feature"] for line in found["features"]] == list(SCHEMA.features)
    assert [line["sd"] for line in found["features"]] == pytest.approx(again.sd.tolist())
    widths = {change["change"]: change["typical_half_width"] for change in found["changes"]}
    assert set(widths) >= {"as planned", "one more such site", "twice the epsilon", "if effects are half as large"}
    assert widths["twice the rows at every site"] < widths["as planned"]


def test_forecasts_without_an_intercept_and_with_other_priors(run: Any) -> None:
    Schema(SCHEMA.columns[:1], SCHEMA.target, False).save("none.toml")
    code, out, err = run("forecast", "none.toml", "--rows", "400", "--questions", "4")
    assert code == 0, err
    assert "nan" not in out
    narrow = json.loads(
        run("forecast", "s.toml", "--rows", "40", "--eps", ".1", "--prior", "age=0,0.05", "--questions", "4", "--json")[
            1
        ]
    )
    assert narrow["features"][1]["sd"] <= 0.05


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rows", "many"), "Expected --rows as whole numbers with commas between sites, got 'many'"),
        (("--rows", "400", "--eps", "1,2,3"), "Expected one epsilon, or one for each of 1 sites, got 3"),
        (("--rows", "400", "--event-share", "2"), "--event-share"),
        (("--rows", "400", "--prior", "age=0,1e-30"), "0.003 <= the standard deviation of the prior of age"),
        (("--rows", "400", "--figure", "f.txt"), "f.txt"),
    ],
)
def test_wrong_wishes_are_named(arguments: tuple[str, ...], said: str, run: Any) -> None:
    code, _, err = run("forecast", "s.toml", *arguments)
    assert (code, said in err) == (2, True), err


def test_a_budget_says_what_its_rows_will_tell(run: Any) -> None:
    code, out, err = run("budget", "--schema", "s.toml", "--rows", "400", "--eps", "1", "--updates", "14")
    assert code == 0, err
    assert "interval will reach" in out


def test_a_site_is_told_before_it_promises(tmp_path: Path) -> None:
    description().save(tmp_path / "north")
    settings = SiteSettings(tmp_path / "north", tmp_path / "rows.csv", tmp_path / "site.ledger", 1.0)
    assert settings.forecast.startswith("a typical 90% interval will reach ")
    assert "of the evidence" in settings.forecast
