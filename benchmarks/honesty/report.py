"""What the cells come to: a row for each, and whether what was promised holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.honesty.scores import PARTS, Columns, coverage, mean_and_error, score_ratio, tables_in

LOW, HIGH = 0.85, 0.97
"""Coverage of 90 % intervals that a cell may have; two standard errors beyond is outside."""

MEAN_LOW, MEAN_HIGH = 0.88, 0.94
RATIO, WORST_RATIO = 0.6, 1.15
"""Interval score over that of the product as it was: geometric mean over cells, and the largest."""

SD_WITHIN, MEAN_WITHIN = 0.1, 0.15
"""How far a fit without privacy may be from NUTS: standard deviations relative, means in standard deviations."""

Cells = Mapping[str, Columns]
Rows = list[list[str]]


@dataclasses.dataclass(frozen=True)
class Outside:
    """A cell whose coverage is beyond the limits by more than two standard errors."""

    cell: str
    part: str
    coverage: float
    error: float
    flagged: float


def outside(cells: Cells) -> list[Outside]:
    """Return all coverages beyond their limits, with the share of tables whose fit said so itself."""
    found = []
    for name, columns in cells.items():
        for part in PARTS:
            mean, error = coverage(columns, part)
            if mean + 2 * error < LOW or mean - 2 * error > HIGH:
                found.append(Outside(name, part, mean, error, flagged(columns)))
    return found


def flagged(columns: Columns) -> float:
    """Return the share of tables whose fit says that it has not arrived, or is not to be trusted."""
    arrived = columns.get("arrived", [])
    return 1 - float(np.mean(arrived)) if arrived else 0.0


def agreement(cells: Cells, nuts: Cells) -> dict[str, tuple[float, float]]:
    """Return for cells without privacy how far the first table is from NUTS.

    Largest relative difference of standard deviations, largest difference of means in standard deviations.
    """
    found = {}
    for name in cells:
        if "eps=none" in name and name in nuts:
            ours, exact = cells[name]["first"], nuts[name]["first"]
            mean, sd, true_mean, true_sd = (np.array(part[key]) for part in (ours, exact) for key in ("mean", "sd"))
            found[name] = (float(np.max(np.abs(sd / true_sd - 1))), float(np.max(np.abs(mean - true_mean) / true_sd)))
    return found


def verdict(cells: Cells, before: Cells, nuts: Cells) -> dict[str, Any]:
    """Return the numbers that decide."""
    ratios = {name: score_ratio(cells[name], before[name]) for name in cells if name in before}
    others = [score_ratio(cells[name], before[name], "predictions") for name in ratios]
    worst = max(ratios, key=lambda name: ratios[name], default="")
    means = {
        part: float(np.mean([np.mean(columns[f"{part} covered"]) for columns in cells.values()])) for part in PARTS
    }
    errors = [coverage(columns, part)[1] for columns in cells.values() for part in PARTS]
    return {
        "cells": len(cells),
        "outside": [dataclasses.asdict(each) for each in outside(cells)],
        "mean_coverage": means,
        "largest_error": max(errors) if max(errors) < math.inf else None,
        "ratio": _geometric_mean(ratios.values()) if ratios else None,
        "ratio_of_predictions": _geometric_mean(others) if ratios else None,
        "worst_ratio": ratios.get(worst),
        "worst_cell": worst,
        "nuts": agreement(cells, nuts),
    }


def _geometric_mean(values: Iterable[float]) -> float:
    return math.exp(float(np.mean(np.log(list(values)))))


def lines(found: dict[str, Any]) -> list[str]:
    """Return the verdict in words."""
    said = [f"Outside {LOW:.0%} to {HIGH:.0%} by more than two standard errors: {len(found['outside'])}"]
    said += [
        f"  {each['cell']}, {each['part']}: {each['coverage']:.1%} +- {each['error']:.1%}, "
        f"{each['flagged']:.0%} of the fits said so"
        for each in found["outside"]
    ]
    means = ", ".join(f"{part} {value:.1%}" for part, value in found["mean_coverage"].items())
    said.append(f"Mean coverage over {found['cells']} cells: {means} (promised: {MEAN_LOW:.0%} to {MEAN_HIGH:.0%})")
    if found["largest_error"] is not None:
        said.append(f"Largest standard error: {found['largest_error']:.1%}")
    if found["ratio"] is not None:
        worst = f"largest {found['worst_ratio']:.2f} ({found['worst_cell']}; at most {WORST_RATIO})"
        said.append(f"Interval score over before: geometric mean {found['ratio']:.3f} (at most {RATIO}), {worst}")
        said.append(f"Interval score of predictions over before: geometric mean {found['ratio_of_predictions']:.3f}")
    if found["nuts"]:
        largest = [max(pair[at] for pair in found["nuts"].values()) for at in (0, 1)]
        said.append(
            f"Beside NUTS, {len(found['nuts'])} tables without privacy: standard deviations within {largest[0]:.1%} "
            f"(promised: {SD_WITHIN:.0%}), means within {largest[1]:.2f} of one (promised: {MEAN_WITHIN})"
        )
    said += [
        f"  apart from NUTS: {name}: {sd:.1%}, {mean:.2f}"
        for name, (sd, mean) in found["nuts"].items()
        if sd > SD_WITHIN or mean > MEAN_WITHIN
    ]
    return said


def short_rows(cells: Cells, before: Cells) -> Rows:
    """Return the rows of `cell_rows` without scores, for a terminal."""
    return [[row[at] for at in (0, 1, 2, 3, 4, 7)] for row in cell_rows(cells, before)]


def cell_rows(cells: Cells, before: Cells) -> Rows:
    """Return a row for every cell: coverage with its error, and scores beside the product as it was."""
    head = ["cell", "tables", "coefficients", "predictions", "flagged", "score", "log score", "over before"]
    rows = [[*head, "before, coefficients", "before, predictions"]]
    for name, columns in cells.items():
        old = before.get(name, {})
        rows.append(
            [
                name,
                str(tables_in(columns)),
                *(_percent(columns, part) for part in PARTS),
                f"{flagged(columns):.0%}" if "arrived" in columns else "",
                f"{np.mean(columns['weights interval']):.3g}",
                f"{np.mean(columns['weights log']):.2f}",
                f"{score_ratio(columns, old):.2f}" if tables_in(old) else "",
                *(_percent(old, part) if tables_in(old) else "" for part in PARTS),
            ]
        )
    return rows


def _percent(columns: Columns, part: str) -> str:
    mean, error = coverage(columns, part)
    return f"{100 * mean:.1f} ± {100 * error:.1f}"


def group_rows(cells: Cells, before: Cells) -> Rows:
    """Return coverage by kind of feature, on real tables."""
    names = ("numbers", "common levels", "rare levels", "intercept")
    rows = [["cell", *names, *(f"before, {name}" for name in names)]]
    for cell, columns in cells.items():
        if "groups" in columns:
            rows.append([cell, *(_group(of, name) for of in (columns, before.get(cell, {})) for name in names)])
    return rows


def _group(columns: Columns, name: str) -> str:
    values = columns.get("groups", {}).get(name)
    if values is None:
        return ""
    mean, error = mean_and_error(values)
    return f"{100 * mean:.0f} ± {100 * error:.0f}"


def baseline_rows(methods: Mapping[str, Cells], labels: Mapping[str, str]) -> Rows:
    """Return coverage and interval score of all methods on the cells that baselines have."""
    shared = set.intersection(
        *({name for name, columns in cells.items() if tables_in(columns)} for cells in methods.values())
    )
    rows = [["cell", *(f"{labels[name]}: {what}" for name in methods for what in ("coverage", "score"))]]
    for cell in next(iter(methods.values())):
        if cell in shared:
            line = [cell]
            for cells in methods.values():
                line += [_percent(cells[cell], "weights"), f"{np.mean(cells[cell]['weights interval']):.3g}"]
            rows.append(line)
    return rows
