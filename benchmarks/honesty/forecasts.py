"""How wide intervals were forecast, beside how wide those of fits are: on all cells, from public numbers alone.

A cell's public numbers are what a schema says that was inferred from another table of the same kind: bounds, scales and
what rows are typically like. What the event's share is nobody knows, unless the cell is defined by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.methods import schema_of, tables_of
from benchmarks.honesty.tables import draw
from fedvi.inference import Forecast, forecast
from fedvi.inference.reading.base import MOST_FULL
from fedvi.tables.encode import encode
from fedvi.tables.schema import INTERCEPT
from fedvi.tables.typical import Typical

SAMPLE = -1000
"""Number of the table that schemas come from: it is not among those that are fitted."""

FACTOR = 1.3
PROMISED = 0.9
"""In so many cells the median standard deviation of fits is within that factor of the forecast."""


def forecast_of(cell: Cell) -> Forecast:
    """Return what is forecast for a cell."""
    sample = draw(cell, SAMPLE)
    parts = tables_of(cell, sample)
    schema = schema_of(cell, sample)
    names = [*schema.reads()]
    whole = {name: np.concatenate([part[name] for part in parts.values()]) for name in names}
    encoded = encode(schema, whole)
    typical = dataclasses.replace(Typical.of(encoded.x, encoded.y, schema), event=cell.positives)
    covariance = "full" if cell.epsilon is not None and schema.dim <= MOST_FULL else "auto"
    return forecast(
        schema,
        [len(part[names[0]]) for part in parts.values()],
        cell.epsilon,
        typical=typical,
        covariance=covariance,
        prior_sd=1.0 if cell.drawn else None,  # the prior that drawn tables come from
        priors={INTERCEPT: (0.0, 1.0)} if cell.drawn else None,
    )


def compared(
    cells: Mapping[str, Cell], fits: Mapping[str, Any], show: Callable[[int, str], None]
) -> dict[str, tuple[float, float]]:
    """Return the forecast and the median standard deviation of the fits, by cell. fits: columns of results."""
    found = {}
    for number, (name, cell) in enumerate(cells.items()):
        show(number, name)
        if "sd" in fits.get(name, ()):
            found[name] = float(np.median(forecast_of(cell).sd)), float(np.median(fits[name]["sd"]))
    return found


def share_within(found: Mapping[str, tuple[float, float]]) -> float:
    """Return the share of cells in which forecast and fits differ by no more than the factor."""
    ratios = np.array([one / other for one, other in found.values()])
    return float(np.mean((ratios <= FACTOR) & (ratios >= 1 / FACTOR)))


def rows_of(found: Mapping[str, tuple[float, float]]) -> list[list[str]]:
    """Return a line for every cell, under a head."""
    lines = [[name, f"{one:.3g}", f"{other:.3g}", f"{one / other:.2f}"] for name, (one, other) in found.items()]
    return [["cell", "forecast sd", "median sd of fits", "ratio"], *lines]


KINDS = {"two classes, drawn": ("logistic",), "numbers, drawn": ("linear",)}
"""Of cells, by how their names begin; all others are real tables."""


def summary_of(found: Mapping[str, tuple[float, float]]) -> list[list[str]]:
    """Return a line for each kind of cells, under a head: how far forecasts were off."""
    ratios: dict[str, list[float]] = {**{kind: [] for kind in KINDS}, "real tables": []}
    for name, (one, other) in found.items():
        kind = next((kind for kind, starts in KINDS.items() if name.startswith(starts)), "real tables")
        ratios[kind].append(one / other)
    lines = [["cells", "number", f"within a factor of {FACTOR}", "smallest, median and largest ratio"]]
    for kind, own in {**ratios, "all": [ratio for each in ratios.values() for ratio in each]}.items():
        within = sum(1 / FACTOR <= ratio <= FACTOR for ratio in own)
        lines.append([kind, str(len(own)), str(within), f"{min(own):.2f}, {np.median(own):.2f}, {max(own):.2f}"])
    return lines
