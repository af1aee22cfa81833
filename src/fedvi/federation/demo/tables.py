"""UCI Adult over four sites, as the sites' own CSV files, and a public test set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedvi.datasets.adult import load_adult, paper_split
from fedvi.datasets.partitions import DirichletLabels
from fedvi.federation.description import Description
from fedvi.tables.columns import Number
from fedvi.tables.infer import infer_schema
from fedvi.tables.schema import Schema
from fedvi.tables.targets import BinaryTarget

SITES = ("east", "north", "south", "west")
TEST = "test.csv"
LEFT_OUT = ("fnlwgt", "education")
"""A weight of the census, and what education-num says as a number."""


def adult_description(folder: Path, epsilon: float, updates: int, seed: int) -> Description:
    """Write SITE.csv for every site and test.csv, and return the federation.

    Sites differ in size and in how many of their people earn much.
    """
    adult, split = load_adult(), paper_split()
    columns = {name: np.where(column == "?", "unknown", column) for name, column in adult.columns.items()}
    columns["income"] = np.where(adult.target > 0, ">50K", "<=50K")
    train = {name: column[split.train_rows] for name, column in columns.items()}
    schema = infer_schema(train, target="income", ignore=LEFT_OUT).schema  # the table is public
    parts = DirichletLabels(clients=len(SITES), concentration=2.0, seed=seed).split(split.train[1])
    for site, rows in zip(SITES, parts.values(), strict=True):
        write_csv(folder / f"{site}.csv", {name: column[rows] for name, column in train.items()})
    write_csv(folder / TEST, {name: column[split.test_rows] for name, column in columns.items()})
    return Description("adult", SITES, schema, len(split.train_rows), updates=updates, epsilon=epsilon)


def tiny_description(folder: Path, updates: int, sites: tuple[str, ...] = SITES, rows: int = 50) -> Description:
    """Write tables with which an update is next to no work, two numbers and a few rows; return the federation."""
    schema = Schema((Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1)), BinaryTarget("y", ("no", "yes")))
    for number, site in enumerate(sites):
        rng = np.random.default_rng(number)
        numbers = {name: rng.normal(size=rows).round(3) for name in ("a", "b")}
        write_csv(folder / f"{site}.csv", {**numbers, "y": np.where(numbers["a"] > numbers["b"], "yes", "no")})
    return Description("tiny", sites, schema, rows * len(sites), updates=updates)


def write_csv(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Write a table."""
    import pyarrow as pa
    from pyarrow import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    csv.write_csv(pa.table({name: pa.array(column.tolist()) for name, column in columns.items()}), path)
