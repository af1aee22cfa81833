"""Cells: kinds of tables with budgets, read from cells.toml."""

from __future__ import annotations

import dataclasses
import tomllib
import zlib
from functools import cached_property
from pathlib import Path

FILE = Path(__file__).with_name("cells.toml")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A kind of table with a budget.

    kind: `logistic` or `linear` for tables that are drawn as a whole, else the name of a real table.
    features: without the constant; of a real table, 0. epsilon: of every site; None without privacy.
    positives: share of positive rows that the intercept is set for; None for an intercept from the prior.
    tables: how many are drawn. baselines: whether private baselines are measured too.
    """

    kind: str
    rows: int
    epsilon: float | None
    features: int = 0
    correlation: float = 0.0
    sites: int = 1
    positives: float | None = None
    tables: int = 100
    baselines: bool = False

    @property
    def drawn(self) -> bool:
        """Whether the features are drawn too."""
        return self.kind in ("logistic", "linear")

    @property
    def linear(self) -> bool:
        """Whether the target is a number."""
        return self.kind in ("linear", "diabetes")

    @cached_property
    def shape(self) -> str:
        """What decides its tables."""
        shape = f"{self.kind} n={self.rows}"
        if self.drawn:
            shape += f" d={self.features} corr={self.correlation:g}"
        return shape + (f" positives={self.positives:g}" if self.positives else "")

    @cached_property
    def name(self) -> str:
        """Shape, budget and sites."""
        privacy = "none" if self.epsilon is None else f"{self.epsilon:g}"
        return f"{self.shape} eps={privacy}" + (f" sites={self.sites}" if self.sites > 1 else "")

    def entropy(self, number: int) -> list[int]:
        """Return what the table of this number is drawn from."""
        return [FIRST + number, zlib.crc32(self.shape.encode())]


FIRST = 100_000
"""The first seed; settings were chosen on seeds below 1,000."""

QUICK = (
    "logistic n=300 d=3 corr=0 eps=1",
    "logistic n=300 d=3 corr=0 eps=none",
    "logistic n=3000 d=10 corr=0.9 eps=1",
    "linear n=300 d=3 corr=0 eps=1",
)
QUICK_TABLES = 20
"""What is measured quickly: cells, and tables of each."""


def load_cells(path: Path = FILE) -> dict[str, Cell]:
    """Return the cells of a TOML file by name."""
    found = {}
    for group in tomllib.loads(path.read_text())["cells"]:
        beside = group.pop("baselines", ())
        for epsilon in group.pop("epsilon"):
            cell = Cell(**group, epsilon=epsilon or None, baselines=epsilon in beside)
            found[cell.name] = cell
    return found
