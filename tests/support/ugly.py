"""Eight real tables as people export them, each in a dialect of its own, and what was in them before.

What the columns should become is in answers.toml.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import tomllib
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that are only asked for their tables
    import sklearn.datasets
    import statsmodels.api

MINUS, NO_BREAK = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"
EPOCH = datetime.date(2000, 1, 1)

DATA = Path(__file__).with_name("data")
"""Rossi's convicts and the North Central Cancer Treatment Group's patients, as lifelines has them."""


@dataclasses.dataclass(frozen=True)
class Ugly:
    """A table as it was exported.

    content: of the file, whose name ends with `suffix`. truth: the values of columns with a meaning, NaN or an empty
    text where there is none; dates as days since the first of January 2000. below: where a value is below detection.
    """

    name: str
    suffix: str
    content: bytes
    truth: dict[str, np.ndarray]
    below: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Write the file into a folder."""
        path = folder / f"{self.name}{self.suffix}"
        path.write_bytes(self.content)
        return path

    @property
    def answers(self) -> dict[str, Any]:
        """What the key says about it."""
        return ANSWERS[self.name]


ANSWERS = tomllib.loads(Path(__file__).with_name("answers.toml").read_text(encoding="utf-8"))


def text_file(
    columns: dict[str, Sequence[object]], delimiter: str, encoding: str, before: str = "", after: str = ""
) -> bytes:
    """Return a text file. before, after: lines above the header and below the rows."""

    def cell(value: object) -> str:
        text = str(value)
        return '"' + text.replace('"', '""') + '"' if delimiter in text or '"' in text else text

    lines = [delimiter.join(map(cell, row)) for row in (list(columns), *zip(*columns.values(), strict=True))]
    return (before + "\r\n".join(lines) + "\r\n" + after).encode(encoding)


def comma(value: float) -> str:
    """Return a number as Germans write it, nothing for NaN."""
    return "" if np.isnan(value) else f"{value:.10g}".replace(".", ",")


def where(condition: Any, yes: str, no: str) -> list[str]:
    """Return one of two words per row."""
    return [str(word) for word in np.where(condition, yes, no)]


def days(dates: Sequence[datetime.date | None]) -> np.ndarray:
    """Return days since the first of January 2000."""
    return np.array([np.nan if date is None else (date - EPOCH).days for date in dates], float)


def some_days(rng: np.random.Generator, rows: int, first: datetime.date, span: int) -> list[datetime.date]:
    """Return dates at random."""
    return [first + datetime.timedelta(days=int(day)) for day in rng.integers(0, span, rows)]


def fair() -> Ugly:
    """From Excel in German: Windows' encoding, semicolons, decimal commas, title and source, sorted by outcome."""
    data = statsmodels.api.datasets.fair.load_pandas().data.sort_values("affairs").reset_index(drop=True)
    jobs = ["Studentin", "Landwirtschaft", "Büro", "Lehrerin, Künstlerin", "Geschäftsführung", "Akademikerin"]
    names = {
        "Zufriedenheit": "rate_marriage",
        "Alter": "age",
        "Ehejahre": "yrs_married",
        "Kinder": "children",
        "Religiosität": "religious",
        "Bildung": "educ",
    }
    truth: dict[str, Any] = {name: data[old].to_numpy() for name, old in names.items()}
    columns: dict[str, Any] = {"Lfd. Nr.": range(1, len(data) + 1)}
    columns |= {name: [comma(value) for value in values] for name, values in truth.items()}
    columns["Beruf"] = [jobs[int(code) - 1] for code in data["occupation"]]
    columns["Beruf des Mannes"] = data["occupation_husb"].astype(int).tolist()
    columns["Umfang"] = [comma(round(value, 2)) for value in data["affairs"]]
    columns["Affäre"] = where(data["affairs"] > 0, "ja", "nein")
    truth |= {name: np.array(columns[name], str) for name in ("Beruf", "Beruf des Mannes", "Affäre")}
    before = "Auswertung Ehebefragung;;;;;;;;;;\r\n;;;;;;;;;;\r\n"
    after = "Quelle: Redbook 1974;;;;;;;;;;\r\n"
    return Ugly("fair", ".csv", text_file(columns, ";", "cp1252", before, after), truth)


def anes96() -> Ugly:
    """By pandas, with its index, then a spreadsheet: byte order mark, dollars, thousands, 999, Unicode minus."""
    data = statsmodels.api.datasets.anes96.load_pandas().data
    rng, rows = np.random.default_rng(1996), len(data)
    parties = ["Strong Democrat", "Weak Democrat", "Leaning Democrat", "Independent"]
    parties += ["Leaning Republican", "Weak Republican", "Strong Republican"]
    from_dollars = [0, 3, 5, 7, 9, 10, 11, 12, 13, 14, 15, 17, 20, 22, 25, 30, 35, 40, 45, 50, 60, 75, 90, 105]
    dates = some_days(rng, rows, datetime.date(1996, 9, 3), 60)
    age = data["age"].to_numpy().copy()
    age[rng.random(rows) < 0.04] = np.nan
    watched = data["TVnews"].to_numpy().copy()
    watched[rng.random(rows) < 0.03] = np.nan
    truth: dict[str, Any] = {name: data[name].to_numpy() for name in ("selfLR", "ClinLR", "DoleLR", "educ")}
    truth |= {"TVnews": watched, "age": age, "population": 1000 * data["popul"].to_numpy(), "interview": days(dates)}
    truth["income"] = 1000.0 * np.array([from_dollars[int(code) - 1] for code in data["income"]])
    truth["logpopul"] = data["logpopul"].to_numpy().round(6)
    truth["PID"] = np.array([parties[int(code)] for code in data["PID"]])
    truth["vote"] = np.array(where(data["vote"] == 1, "Dole", "Clinton"))
    asked = ["talked about taxes", "door was opened by a neighbour", "very short", "did not want to say why"]
    columns: dict[str, Any] = {
        "": range(rows),
        "respondent": [f"R{code:05d}" for code in rng.permutation(90_000)[:rows]],
        "interview": [f"{date.isoformat()} {rng.integers(9, 20):02d}:{rng.integers(0, 60):02d}" for date in dates],
        "population": [f"{value:,.0f}" for value in truth["population"]],
        "TVnews": ["-" if np.isnan(value) else f"{value:.0f}" for value in watched],
        **{name: [f"{value:.0f}" for value in truth[name]] for name in ("selfLR", "ClinLR", "DoleLR")},
        "PID": truth["PID"],
        "age": ["999" if np.isnan(value) else f"{value:.0f}" for value in age],
        "educ": [f"{value:.0f}" for value in truth["educ"]],
        "income": [f"${value:,.0f}" for value in truth["income"]],
        "logpopul": [f"{value:.6f}".replace("-", MINUS) for value in truth["logpopul"]],
        "comment": [f"{asked[row % 4]}, {rng.integers(1, 99)} minutes, then {asked[row % 3]}" for row in range(rows)],
        "vote": truth["vote"],
    }
    return Ugly("anes96", ".csv", text_file(columns, ",", "utf-8-sig"), truth)


def randhie() -> Ugly:
    """Tabs, Windows' encoding, percent signs, truth values, postal codes, several rows of one person."""
    data = statsmodels.api.datasets.randhie.load_pandas().data
    rng, rows = np.random.default_rng(1974), len(data)
    people = np.repeat(rng.permutation(np.arange(125_000, 190_000))[:rows], 5)[:rows]
    sites = ["45402", "98101", "01420", "01301", "29401", "29440"]
    truth: dict[str, Any] = {name: data[name].to_numpy().astype(float) for name in ("fmde", "physlm", "disea")}
    truth |= {name: data[name].to_numpy().astype(float) for name in ("hlthg", "hlthf", "hlthp")}
    truth["coinsurance"] = np.expm1(data["lncoins"].to_numpy()).round(0)
    truth["incentive"] = np.exp(data["lpi"].to_numpy()).round(2)
    truth["idp"] = np.array(where(data["idp"] == 1, "true", "false"))
    truth["zip"] = np.array(sites)[rng.integers(0, 6, rows)]
    truth["visited"] = np.array(where(data["mdvis"] > 0, "Y", "N"))
    columns: dict[str, Any] = {
        "person": people,
        "visits": data["mdvis"],
        "zip": truth["zip"],
        "coinsurance": [f"{value:.0f} %" for value in truth["coinsurance"]],
        "idp": where(data["idp"] == 1, "True", "False"),
        "incentive": [f"{value:,.2f} $" for value in truth["incentive"]],
        **{name: truth[name] for name in ("fmde", "physlm", "disea")},
        **{name: data[name] for name in ("hlthg", "hlthf", "hlthp")},
        "visited": truth["visited"],
    }
    after = f"{rows} rows, © RAND\r\n"
    return Ugly("randhie", ".tsv", text_file(columns, "\t", "cp1252", after=after), truth)


def rossi() -> Ugly:
    """`Unicode text` of Excel: UTF-16 and tabs; dates as in Germany; words for yes and no."""
    data = pd.read_csv(DATA / "rossi.csv")
    rng, rows = np.random.default_rng(1980), len(data)
    released = some_days(rng, rows, datetime.date(1971, 10, 1), 400)
    again = [
        day + datetime.timedelta(weeks=int(week)) if arrest else None
        for day, week, arrest in zip(released, data["week"], data["arrest"], strict=True)
    ]
    words = {"fin": ("yes", "no"), "race": ("black", "other"), "wexp": ("yes", "no")}
    words |= {"mar": ("married", "not married"), "paro": ("yes", "no"), "arrest": ("yes", "no")}
    truth: dict[str, Any] = {name: np.array(where(data[name] == 1, *pair)) for name, pair in words.items()}
    truth |= {name: data[name].to_numpy().astype(float) for name in ("age", "prio")} | {"released": days(released)}
    columns: dict[str, Any] = {
        "convict": [f"MD-{code}" for code in rng.permutation(9000)[:rows] + 1000],
        "released": [f"{day:%d.%m.%Y}" for day in released],
        "week": data["week"],
        "rearrested on": ["" if day is None else f"{day:%d.%m.%Y}" for day in again],
        **{name: truth[name] for name in ("fin",)},
        "age": data["age"],
        **{name: truth[name] for name in ("race", "wexp", "mar", "paro")},
        "prio": data["prio"],
        "arrest": truth["arrest"],
    }
    return Ugly("rossi", ".csv", text_file(columns, "\t", "utf-16"), truth)


def lung() -> Ugly:
    """By R, with row names: NA, a dash for missing, American dates, Unicode minus, institutions as codes."""
    data = pd.read_csv(DATA / "lung.csv")
    rng, rows = np.random.default_rng(1994), len(data)
    born = [
        datetime.date(1988 - int(age), int(month), int(day))
        for age, month, day in zip(data["age"], rng.integers(1, 13, rows), rng.integers(1, 29, rows), strict=True)
    ]
    start = some_days(rng, rows, datetime.date(1988, 1, 1), 300)
    death = [
        day + datetime.timedelta(days=int(time)) if status else None
        for day, time, status in zip(start, data["time"], data["status"], strict=True)
    ]
    numbers = ("age", "ph.ecog", "ph.karno", "pat.karno", "meal.cal", "wt.loss")
    truth: dict[str, Any] = {name: data[name].to_numpy().astype(float) for name in numbers} | {"born": days(born)}
    truth["inst"] = np.array(["" if np.isnan(code) else f"{code:.0f}" for code in data["inst"]])
    truth["sex"] = np.array(where(data["sex"] == 1, "male", "female"))
    truth["status"] = np.array(where(data["status"] == 1, "dead", "censored"))

    def written(name: str, missing: str = "NA") -> list[str]:
        return [missing if np.isnan(value) else f"{value:.0f}" for value in data[name]]

    columns: dict[str, Any] = {
        "": range(1, rows + 1),
        "inst": written("inst"),
        "time": data["time"],
        "death": ["NA" if day is None else f"{day:%m/%d/%Y}" for day in death],
        "born": [f"{day:%m/%d/%Y}" for day in born],
        "age": data["age"],
        "sex": truth["sex"],
        **{name: written(name) for name in ("ph.ecog", "ph.karno", "pat.karno")},
        "meal.cal": ["-" if np.isnan(value) else f"{value:,.0f}" for value in data["meal.cal"]],
        "wt.loss": [text.replace("-", MINUS) for text in written("wt.loss")],
        "status": truth["status"],
    }
    return Ugly("lung", ".csv", text_file(columns, ",", "utf-8"), truth)


def breast_cancer() -> Ugly:
    """A laboratory's export: decimal commas, no-break spaces between thousands, `<` below detection, case numbers."""
    loaded = sklearn.datasets.load_breast_cancer(as_frame=True)
    data, rng = loaded.data, np.random.default_rng(1995)
    truth: dict[str, Any] = {name: data[name].to_numpy().copy() for name in data}
    below = {name: values == 0 for name, values in truth.items() if (values == 0).any()}
    columns: dict[str, Any] = {"Fallnummer": rng.permutation(np.arange(842_000, 926_000))[: len(data)]}
    for name, values in truth.items():
        texts = [f"{value:,.10g}".replace(",", NO_BREAK).replace(".", ",") for value in values]
        if name in below:
            values[below[name]] = 0.001
            texts = ["<0,001" if under else text for text, under in zip(texts, below[name], strict=True)]
        columns[name] = texts
    columns["Diagnose"] = where(loaded.target == 0, "bösartig", "gutartig")
    truth["Diagnose"] = np.array(columns["Diagnose"])
    return Ugly("breast_cancer", ".csv", text_file(columns, ";", "utf-8-sig"), truth, below)


def wine() -> Ugly:
    """A workbook with a title, an empty line, real dates, and a source below the rows."""
    loaded = sklearn.datasets.load_wine(as_frame=True)
    data, rng = loaded.data, np.random.default_rng(1988)
    bottled = some_days(rng, len(data), datetime.date(1986, 3, 1), 500)
    truth: dict[str, Any] = {name: data[name].to_numpy() for name in data} | {"bottled": days(bottled)}
    truth["cultivar"] = np.array(["Barolo", "Grignolino", "Barbera"])[loaded.target.to_numpy()]
    frame = pd.DataFrame({"bottle": range(1, len(data) + 1), "bottled": bottled, **data, "cultivar": truth["cultivar"]})
    file = io.BytesIO()
    with pd.ExcelWriter(file, engine="openpyxl") as book:
        frame.to_excel(book, sheet_name="Wines", index=False, startrow=2)
        sheet = book.sheets["Wines"]
        sheet.cell(1, 1, "Chemical analysis of wines, 1988")
        sheet.cell(len(frame) + 5, 1, "Source: M. Forina, Genoa")
    return Ugly("wine", ".xlsx", file.getvalue(), truth)


def diabetes() -> Ugly:
    """Bars between values, decimal commas, `k.A.` for missing, postal codes, a column that never changes."""
    loaded = sklearn.datasets.load_diabetes(as_frame=True, scaled=False)
    data, rng = loaded.data, np.random.default_rng(2004)
    visits = some_days(rng, len(data), datetime.date(1999, 2, 1), 900)
    truth: dict[str, Any] = {name: data[name].to_numpy().copy() for name in data} | {"visit": days(visits)}
    truth["s1"][rng.random(len(data)) < 0.05] = np.nan
    truth["sex"] = np.array([f"{code:.0f}" for code in data["sex"]])
    truth["PLZ"] = np.array(["01067", "04109", "06108", "10115", "20095", "80331", "99084"])[
        rng.integers(0, 7, len(data))
    ]
    truth["progression"] = loaded.target.to_numpy()
    columns: dict[str, Any] = {
        "patient": [f"{code:08x}-{row:04x}" for row, code in enumerate(rng.integers(0, 2**32, len(data)))],
        "PLZ": truth["PLZ"],
        "visit": [f"{day:%d.%m.%Y}" for day in visits],
        "age": [comma(value) for value in truth["age"]],
        "sex": truth["sex"],
        **{name: [comma(value) or "k.A." for value in truth[name]] for name in data if name not in ("age", "sex")},
        "protocol": ["B-2"] * len(data),
        "progression": [f"{value:.0f}" for value in truth["progression"]],
    }
    return Ugly("diabetes", ".csv", text_file(columns, "|", "utf-8"), truth)


TABLES: tuple[Callable[[], Ugly], ...] = (fair, anes96, randhie, rossi, lung, breast_cancer, wine, diabetes)


@cache
def ugly(name: str) -> Ugly:
    """Return the table of this name."""
    return next(make for make in TABLES if make.__name__ == name)()
