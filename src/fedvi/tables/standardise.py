"""Private standardisation: centres and scales of columns from bounded means and variances, paid for by every site.

A column has public bounds, and u in [-1, 1] is the value between them. With k columns every site releases, once,

    sum_i (u_i, u_i^2 - 1/2) / sqrt(1.25 k)         a vector of length at most one per row (`fedvi.privacy.sums`)

The sums of all sites, divided by the public number of rows, give centre and scale; everything after the release is
post-processing. Where noise drowns them they stay near those of the schema, of which a centre is thought to be off by
about one scale, and a scale by a factor of about 1.6. What is missing counts as the schema's centre. Rows are then
encoded anew, by the new schema.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from fedvi.tables.numbers import Number
from fedvi.tables.schema import Schema

NARROWEST = 1 / 40
"""Least scale of a column, as a part of the distance between its bounds: noise alone must not blow a column up."""

LOG_SPREAD = 0.5
"""Standard deviation of the logarithm of a scale around the schema's, before anything is seen."""


@dataclasses.dataclass(frozen=True)
class Standardisation:
    """Numbers of a schema to standardise. features: where they are in x. low, high: their bounds in the units of x."""

    columns: tuple[Number, ...]
    features: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, schema: Schema) -> Standardisation:
        """Return that of all numbers of a schema; columns of other classes stay as they are."""
        columns = zip(schema.columns, schema.first, strict=True)
        found = [(column, at) for column, at in columns if type(column) is Number]
        numbers, where = tuple(column for column, _ in found), np.array([at for _, at in found], int)
        low, high = (
            np.array([(column.ends[side] - column.centre) / column.scale for column in numbers]) for side in (0, 1)
        )
        return cls(numbers, where, low, high)

    def vectors(self, x: Float[np.ndarray, "n d"], y: np.ndarray) -> Float[np.ndarray, "n k2"]:
        """Return what is summed over rows. Every operation is elementwise: no row depends on another."""
        with np.errstate(over="ignore"):
            unit = 2 * (x[:, self.features].astype(np.float64) - self.low) / (self.high - self.low) - 1
        unit = np.clip(unit, -1, 1)
        return np.concatenate([unit, unit**2 - 0.5], axis=1) / math.sqrt(1.25 * max(len(self.columns), 1))

    def scales(self, total: np.ndarray, rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and scale of every column in the units of x, from the sum over all sites.

        noise: standard deviation of the noise in it.
        """
        per_row = math.sqrt(1.25 * max(len(self.columns), 1)) / rows
        mean, square = np.split(total * per_row, 2)
        error, half = noise * per_row, (self.high - self.low) / 2
        mean = np.clip(mean, -1, 1)
        variance = np.clip(square + 0.5 - mean**2, (2 * NARROWEST) ** 2, 1)
        believed = 1 / (1 + (error * half) ** 2)
        believed_scale = LOG_SPREAD**2 / (LOG_SPREAD**2 + (error / (2 * variance)) ** 2)
        centre = np.clip(believed * (self.low + (mean + 1) * half), self.low, self.high)
        return centre, (np.sqrt(variance) * half) ** believed_scale

    def schema(self, schema: Schema, centre: np.ndarray, scale: np.ndarray) -> Schema:
        """Return the schema with these centres and scales, which are in units of x under the old one."""
        found = {}
        for column, c, s in zip(self.columns, centre, scale, strict=True):
            low, high = column.ends
            within = min(max(column.centre + column.scale * float(c), low), high)
            found[column.name] = (within, column.scale * float(s))
        return schema.with_scales(found)
