"""Methods that are judged: each gives a normal posterior of the weights of a drawn table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.tables import INTERCEPT, Drawn
from fedvi.fitting import fit as fitting
from fedvi.tables import BinaryTarget, Category, Number, NumberTarget, Schema


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a method says about the weights.

    arrived: whether it says that it has arrived; None if it says nothing. distance: T of its check.
    """

    mean: np.ndarray
    covariance: np.ndarray
    arrived: bool | None = None
    distance: float | None = None


Method = Callable[[Cell, Drawn, int], Estimate]


def by_fit(cell: Cell, drawn: Drawn, seed: int, **settings: Any) -> Estimate:
    """Return what `fedvi.fit` says, by a schema of the table's columns, in contrasts to the reference levels."""
    schema = schema_of(cell, drawn)
    fitted = fitting.fit(schema, tables_of(cell, drawn), epsilon=cell.epsilon, seed=seed, progress=False, **settings)
    contrasts = _contrasts(drawn, fitted.schema.features)
    mean = np.asarray(fitted.posterior.mean, np.float64)
    covariance = contrasts @ covariance_of(fitted.posterior) @ contrasts.T
    answered = getattr(fitted, "answered", None)  # older versions do not say whether they have arrived
    if answered is None:
        return Estimate(contrasts @ mean, covariance)
    return Estimate(
        contrasts @ mean, covariance, bool(answered.converged and answered.trusted), float(answered.arrived)
    )


def covariance_of(posterior: object) -> np.ndarray:
    """Return the covariance matrix of a normal posterior, mean-field or full."""
    found = getattr(posterior, "covariance", None)
    if found is None:
        return np.diag(np.asarray(posterior.std, np.float64) ** 2)  # type: ignore[attr-defined]
    return np.asarray(found() if callable(found) else found, np.float64)


def prior_variances(cell: Cell, drawn: Drawn) -> np.ndarray:
    """Return the variances that weights are drawn with; of a real table, 100 for the intercept, as in `fit`."""
    variances = np.full(len(drawn.features), 10.0 if cell.linear and not cell.drawn else 1.0)
    if not cell.drawn:
        variances[0] = 100.0
    return variances


def sites_of(cell: Cell, drawn: Drawn) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the rows of every site as models take them: classes as -1 and 1."""
    y = drawn.y if cell.linear else 2 * drawn.y - 1
    return {f"site{at}": (drawn.x[rows], y[rows]) for at, rows in enumerate(drawn.parts(cell.sites))}


def schema_of(cell: Cell, drawn: Drawn) -> Schema:
    """Return the public schema of a drawn table."""
    target = NumberTarget("y", -400, 400, 0, 1) if cell.linear else BinaryTarget("y", ("no", "yes"))
    if drawn.columns is None:
        return Schema(tuple(Number(name, -3, 3, 0, 1) for name in drawn.features[1:]), target)
    parts = list[Number | Category]()
    for name in drawn.columns.raw:
        if name in drawn.columns.units:
            centre, scale = drawn.columns.units[name]
            parts.append(Number(name, centre - 3 * scale, centre + 3 * scale, centre, scale))
        else:
            parts.append(Category(name, drawn.columns.levels[name], unknown="error", missing="error"))
    return Schema(tuple(parts), target)


def tables_of(cell: Cell, drawn: Drawn) -> dict[str, dict[str, np.ndarray]]:
    """Return the table of every site, by column."""
    if drawn.columns is None:
        columns = dict(zip(drawn.features[1:], drawn.x[:, 1:].T, strict=True))
    else:
        columns = {name: values[drawn.picked] for name, values in drawn.columns.raw.items()}
    columns["y"] = drawn.y if cell.linear else np.where(drawn.y > 0, "yes", "no")
    parts = drawn.parts(cell.sites)
    return {f"site{at}": {name: values[rows] for name, values in columns.items()} for at, rows in enumerate(parts)}


def _contrasts(drawn: Drawn, features: tuple[str, ...]) -> np.ndarray:
    """Return the matrix from weights of a fit, which may have one for a reference level too, to those of the table."""
    at = {name: index for index, name in enumerate(features)}
    levels = {} if drawn.columns is None else drawn.columns.levels
    references = {name: at[f"{name}={found[0]}"] for name, found in levels.items() if f"{name}={found[0]}" in at}
    matrix = np.zeros((len(drawn.features), len(features)))
    for row, name in enumerate(drawn.features):
        matrix[row, at[name]] = 1
        column = name.partition("=")[0]
        if name == INTERCEPT:
            matrix[row, list(references.values())] = 1
        elif column in references and "=" in name:
            matrix[row, references[column]] = -1
    return matrix
