"""Where the rows of an experiment come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from fedvi.checks import in_range, one_of
from fedvi.datasets.adult import paper_split, validation_split
from fedvi.errors import InputError
from fedvi.inference.rows import Table


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Rows to distribute over clients, rows to test on (or None), and columns to partition by."""

    train: Table
    test: Table | None
    columns: Mapping[str, np.ndarray] | None


class Source(Protocol):
    """Where the rows of an experiment come from."""

    def load(self) -> Dataset:
        """Return the rows."""


@dataclasses.dataclass(frozen=True)
class AdultData:
    """UCI Adult as in the paper.

    part: `test` to learn from the training rows and measure on the test rows; `validation` to hold out a fifth of the
        training rows instead and leave the test rows alone, for choosing settings.
    """

    part: str = "test"

    def __post_init__(self) -> None:
        one_of("part", self.part, ("test", "validation"))

    def load(self) -> Dataset:
        """Return the rows."""
        split = paper_split() if self.part == "test" else validation_split()
        return Dataset(split.train, split.test, split.columns)


@dataclasses.dataclass(frozen=True)
class NpzData:
    """A NumPy file with arrays `x` and `y`, and maybe `x_test` and `y_test`.

    test_fraction: of the rows, to hold out for testing if the file has no test rows; 0 for none.
    seed: of the choice of these rows.
    """

    path: str
    test_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        in_range("test_fraction", self.test_fraction, 0, 0.9)

    def load(self) -> Dataset:
        """Return the rows, or raise `InputError` if the file has none."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in ("x", "y", "x_test", "y_test") if name in file.files}
        except (OSError, ValueError) as error:
            raise InputError(f"Cannot read {self.path!r} as a NumPy .npz file: {error}") from None
        if not {"x", "y"} <= arrays.keys():
            raise InputError(f"Expected arrays x and y in {self.path!r}, got {', '.join(arrays) or 'none of them'}.")
        x, y = arrays["x"], arrays["y"]
        if "x_test" in arrays and "y_test" in arrays:
            return Dataset((x, y), (arrays["x_test"], arrays["y_test"]), None)
        order = np.random.default_rng(self.seed).permutation(len(x))
        held_out, kept = np.split(order, [round(self.test_fraction * len(x))])
        return Dataset((x[kept], y[kept]), (x[held_out], y[held_out]) if len(held_out) else None, None)
