"""Measure how honest the intervals of fits are on simulated tables, and write the table into docs/tables.md.

    python -m scripts.publish_coverage [--seeds N]

Every row of the table: that many federations of three sites at epsilon 1, each judged on 2,000 new rows.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np
from scipy.special import expit

from fedvi.console import markdown
from fedvi.fitting.fit import fit
from fedvi.tables import BinaryTarget, Number, NumberTarget, Schema
from scripts.documents import DOCS, with_tables

DOCUMENT = DOCS / "tables.md"
HEAD = ["model", "rows", "features", "correlation", "ε", "predictions", "coefficients"]
TEST_ROWS = 2000


@dataclasses.dataclass(frozen=True)
class Case:
    """A kind of table: so many rows and features, all pairs of them correlated by so much.

    assumed: noise of y that the schema says; in truth it is 1.
    """

    binary: bool
    rows: int
    features: int
    correlation: float
    epsilon: float | None = 1.0
    assumed: float = 1.0

    @property
    def schema(self) -> Schema:
        """The schema of the table."""
        columns = tuple(Number(f"x{j}", -3, 3, 0, 1) for j in range(self.features))
        target = BinaryTarget("y", ("no", "yes")) if self.binary else NumberTarget("y", -25, 25, 0, self.assumed)
        return Schema(columns, target)

    def table(self, rng: np.random.Generator, rows: int, weights: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        """Return a table, and the truth that intervals are to hold: probabilities, or y itself."""
        together = np.full((self.features, self.features), self.correlation)
        np.fill_diagonal(together, 1)
        x = np.clip(rng.normal(size=(rows, self.features)) @ np.linalg.cholesky(together).T, -3, 3)
        eta = weights[0] + x @ weights[1:]
        y = np.where(rng.random(rows) < expit(eta), "yes", "no") if self.binary else eta + rng.normal(size=rows)
        columns = {f"x{j}": x[:, j] for j in range(self.features)}
        return {**columns, "y": y, "site": rng.choice(["a", "b", "c"], rows)}, expit(eta) if self.binary else y

    def measure(self, seed: int) -> tuple[float, float]:
        """Return the parts of 90 % intervals that hold the truth: of predictions, and of coefficients."""
        rng = np.random.default_rng(seed)
        weights = 0.6 * rng.normal(size=self.features + 1)
        train, _ = self.table(rng, self.rows, weights)
        test, truth = self.table(rng, TEST_ROWS, weights)
        fitted = fit(self.schema, train, site_column="site", epsilon=self.epsilon, seed=seed, progress=False)
        found, scale = fitted.predict(test), 1.0 if self.binary else self.assumed
        inside = [
            each.low <= true <= each.high for each, true in zip(fitted.coefficients(), weights / scale, strict=True)
        ]
        return float(np.mean((found.low <= truth) & (truth <= found.high))), float(np.mean(inside))


CASES = (
    Case(False, 600, 8, 0.3),
    Case(False, 6_000, 8, 0.3),
    Case(False, 6_000, 8, 0.3, assumed=2.0),
    Case(False, 6_000, 30, 0.3),
    Case(False, 6_000, 8, 0.9),
    Case(True, 600, 8, 0.3),
    Case(True, 6_000, 8, 0.3),
    Case(True, 60_000, 8, 0.3),
    Case(True, 6_000, 30, 0.3),
    Case(True, 6_000, 8, 0.8),
    Case(True, 6_000, 8, 0.3, epsilon=None),
    Case(True, 6_000, 8, 0.8, epsilon=None),
    Case(False, 2_000, 14, 0.5),  # from here on: kinds that no setting was chosen by
    Case(True, 2_000, 14, 0.5),
    Case(True, 15_000, 20, 0.15),
)


def row(case: Case, seeds: int) -> list[str]:
    """Return a line of the table."""
    predictions, coefficients = np.mean([case.measure(seed) for seed in range(seeds)], axis=0)
    model = "logistic" if case.binary else "linear" + (f", noise assumed {case.assumed:g}" if case.assumed != 1 else "")
    private = "not private" if case.epsilon is None else f"{case.epsilon:g}"
    cells = (model, f"{case.rows:,}", str(case.features), f"{case.correlation:g}", private)
    return [*cells, f"{predictions:.0%}", f"{coefficients:.0%}"]


def main() -> None:
    """Measure all cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    lines = [HEAD]
    for case in CASES:
        lines.append(row(case, seeds))
        print(*lines[-1], sep="  ", flush=True)
    DOCUMENT.write_text(with_tables(DOCUMENT, {"coverage": markdown(lines, left=len(HEAD))}))


if __name__ == "__main__":
    main()
