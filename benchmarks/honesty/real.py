"""Features of real tables: numbers in public units, categories with a reference level.

UCI Adult comes with fedvi, `breast cancer` and `diabetes` with scikit-learn, `fair` and `randhie` with statsmodels,
`patients` is the example table.
Units of a number are its mean and standard deviation, rounded to two digits; values beyond three units are cut.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

RARE = 0.02
"""A level that fewer rows have is rare."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """A real table: its columns as they are, how they are scaled, and the features that come out.

    raw: numbers or text by name. units: centre and scale of numbers. levels: of categories, the reference first.
    groups: of every feature, `numbers`, `common levels` or `rare levels`.
    """

    raw: Mapping[str, np.ndarray]
    units: Mapping[str, tuple[float, float]]
    levels: Mapping[str, tuple[str, ...]]
    x: np.ndarray
    features: tuple[str, ...]
    groups: tuple[str, ...]


@cache
def real_columns(name: str) -> Columns:
    """Return the features of a real table by its name."""
    return _columns(_TABLES[name]())


def _columns(raw: dict[str, np.ndarray]) -> Columns:
    blocks, features, groups = [], list[str](), list[str]()
    units, levels = dict[str, tuple[float, float]](), dict[str, tuple[str, ...]]()
    for name, values in raw.items():
        if values.dtype.kind == "U":
            found, counts = np.unique(values, return_counts=True)
            order = np.argsort(-counts, kind="stable")  # the most frequent level is the reference
            levels[name] = tuple(map(str, found[order]))
            for at in order[1:]:
                blocks.append((values == found[at]).astype(float))
                features.append(f"{name}={found[at]}")
                groups.append("rare levels" if counts[at] < RARE * len(values) else "common levels")
        else:
            units[name] = _rounded(values.mean()), _rounded(values.std())
            blocks.append(np.clip((values - units[name][0]) / units[name][1], -3, 3))
            features.append(name)
            groups.append("numbers")
    return Columns(raw, units, levels, np.column_stack(blocks), tuple(features), tuple(groups))


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def _adult() -> dict[str, np.ndarray]:
    from fedvi.datasets.adult import load_adult

    columns = load_adult().columns
    numbers = {name: columns[name].astype(float) for name in ("age", "education-num", "hours-per-week")}
    texts = {name: np.char.replace(columns[name].astype(str), "?", "unknown") for name in _ADULT_LEVELS}
    return {**numbers, **texts}


_ADULT_LEVELS = ("sex", "marital-status", "race", "workclass")


def _breast_cancer() -> dict[str, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer()
    return {str(name): column for name, column in zip(loaded.feature_names, loaded.data.T, strict=True)}


def _diabetes() -> dict[str, np.ndarray]:
    from sklearn.datasets import load_diabetes

    loaded = load_diabetes(scaled=False)
    numbers = dict(zip(loaded.feature_names, loaded.data.T, strict=True))
    sex = np.where(numbers.pop("sex") > 1.5, "2", "1")
    return {**numbers, "sex": sex}


def _fair() -> dict[str, np.ndarray]:
    from statsmodels.datasets import fair

    data = fair.load_pandas().data
    texts = ("occupation", "occupation_husb")
    numbers = ("rate_marriage", "age", "yrs_married", "children", "religious", "educ")
    levels = {name: data[name].astype(int).astype(str).to_numpy().astype(str) for name in texts}
    return {**{name: data[name].to_numpy(float) for name in numbers}, **levels}


def _randhie() -> dict[str, np.ndarray]:
    from statsmodels.datasets import randhie

    data = randhie.load_pandas().data
    health = np.select([data["hlthg"] == 1, data["hlthf"] == 1, data["hlthp"] == 1], ["good", "fair", "poor"], "best")
    numbers = {name: data[name].to_numpy(float) for name in ("lncoins", "lpi", "fmde", "physlm", "disea")}
    return {**numbers, "idp": np.where(data["idp"] == 1, "yes", "no"), "health": health.astype(str)}


def _patients() -> dict[str, np.ndarray]:
    with (Path(__file__).parents[2] / "examples" / "patients.csv").open() as file:
        rows = list(csv.DictReader(file))
    numbers = ("age", "blood_pressure", "creatinine", "earlier_stays")
    values = {name: np.array([row[name] for row in rows]) for name in (*numbers, "sex", "smoker")}
    return {name: _filled(column) if name in numbers else column for name, column in values.items()}


def _filled(column: np.ndarray) -> np.ndarray:
    known = np.array([float(value) for value in column if value])
    return np.array([float(value) if value else known.mean() for value in column])


_TABLES: dict[str, Callable[[], dict[str, np.ndarray]]] = {
    "adult": _adult,
    "breast cancer": _breast_cancer,
    "diabetes": _diabetes,
    "fair": _fair,
    "patients": _patients,
    "randhie": _randhie,
}
