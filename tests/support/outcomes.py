"""Run directories made up for tests of reports: realistic numbers, every kind of method, no training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.experiments import MethodResult, Results, RunResult

PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "A": {"pvi": (85.23, -0.3181), "global-vi": (85.21, -0.3184), "dp-pvi@0.50": (84.57, -0.3439),
          "dp-pvi@0.75": (84.78, -0.3372), "dp-pvi@1.00": (85.02, -0.3332)},
    "B": {"pvi": (85.15, -0.3216), "global-vi": (78.76, -0.7006), "dp-pvi@0.50": (84.43, -0.3379),
          "dp-pvi@0.75": (84.87, -0.3332), "dp-pvi@1.00": (84.94, -0.3323)},
    "C": {"pvi": (85.13, -0.3193), "global-vi": (53.96, -1.1997), "dp-pvi@0.50": (81.83, -0.4218),
          "dp-pvi@0.75": (82.38, -0.4130), "dp-pvi@1.00": (82.46, -0.4070)},
}  # fmt: skip
LABELS = {
    "pvi": "PVI",
    "global-vi": "Global VI",
    "dp-pvi": "DP-PVI, published rule",
    "dp-pvi-strict": "DP-PVI, strict budget",
    "fedvi": "fedvi, noise-aware",
}
CLIENTS = {f"small {n}": 976 + n for n in range(1, 6)} | {f"large {n}": 6837 + n for n in range(1, 6)}

RHOS, KAPPAS = (0.1, 0.5, 0.9), (-3.0, 0.0, 1.5)


@dataclass
class Rows:
    """Columns that grow row by row."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, **row: Any) -> None:
        for name, value in row.items():
            self.columns.setdefault(name, []).append(value)

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(values) for name, values in self.columns.items()}


@dataclass
class Run:
    """Everything that a run directory holds, while it is made up."""

    seeds: int
    rng: np.random.Generator
    results: dict[str, dict[str, MethodResult]] = field(default_factory=dict)
    history: Rows = field(default_factory=Rows)
    spending: Rows = field(default_factory=Rows)

    def add(self, partition: str, method: str, acc: float, ll: float, long: int, samples: int = 40) -> None:
        base, _, text = method.partition("@")
        epsilon = float(text) if text else None
        runs = []
        for seed in range(1, self.seeds + 1):
            last = max(int(long * self.rng.uniform(0.95, 1.05)), 3)
            final = acc + self.rng.normal(0, 0.08), ll + self.rng.normal(0, 0.001)
            moments = np.unique(np.concatenate([[0], np.geomspace(1, last, samples).round().astype(int)]))
            for moment in moments:
                left = math.exp(-12 * math.sqrt(moment / last))
                noise = self.rng.normal(0, 0.3 * left + 0.02)
                self.history.add(partition=partition, method=method, seed=seed, communications=int(moment),
                                 time=float(moment), accuracy=final[0] - (final[0] - 24) * left + noise,
                                 log_likelihood=final[1] - 0.5 * left + noise / 100)  # fmt: skip
            spent = self._spend(partition, method, seed, base, epsilon, last)
            runs.append(RunResult(seed=seed, acc=final[0], ll=final[1], communications=last, seconds=0.5, **spent))
        accs, lls = [run.acc or 0 for run in runs], [run.ll or 0 for run in runs]
        self.results.setdefault(partition, {})[method] = MethodResult(
            acc=(float(np.mean(accs)), float(np.std(accs))),
            ll=(float(np.mean(lls)), float(np.std(lls))),
            base=base,
            label=LABELS.get(base, base),
            epsilon=epsilon,
            swept={} if epsilon is None else {"privacy.epsilon": epsilon},
            partition={"kind": "PaperPartition"},
            statement="" if epsilon is None else f"Each client: ({epsilon:g}, 1e-05)-DP.\nSimulated: not private.",
            runs=runs,
        )

    def _spend(
        self, partition: str, method: str, seed: int, base: str, epsilon: float | None, last: int
    ) -> dict[str, Any]:
        none: dict[str, Any] = {"updates": {}, "epsilon": {}, "epsilon_pld": {}, "epsilon_proven": {}}
        if epsilon is None:
            return none | {"last_update": {}}
        found = none | {name: {} for name in (*none, "last_update")}
        for client, rows in CLIENTS.items():
            count = 30 if client.startswith("small") else 12
            end = int(last * (0.45 if client.startswith("small") else 0.99) * self.rng.uniform(0.95, 1))
            over = 1.06 if base == "dp-pvi" else 0.995
            for update, moment in enumerate(np.linspace(0, end, count + 1).round().astype(int)):
                value = epsilon * over * math.sqrt(update / count)
                self.spending.add(partition=partition, method=method, seed=seed, client=client, rows=rows,
                                  communications=int(moment), updates=update, epsilon=value)  # fmt: skip
            found["updates"][client] = count
            found["epsilon"][client] = epsilon * over
            found["epsilon_pld"][client] = epsilon * over * 0.97
            found["epsilon_proven"][client] = epsilon * over * (1.1 if base == "dp-pvi" else 1.0)
            found["last_update"][client] = end
        return found


def make(
    path: Path,
    *,
    partitions: tuple[str, ...] = ("A", "C"),
    epsilons: tuple[float, ...] = (0.1, 0.5, 1.0),
    seeds: int = 3,
    grid: bool = True,
    reference: bool = True,
    methods: tuple[str, ...] = tuple(LABELS),
) -> Results:
    """Return an outcome with made-up numbers near the published ones; the grid has invalid cells."""
    run = Run(seeds, np.random.default_rng(1))
    for partition in partitions:
        published = PUBLISHED[partition]
        for base in methods:
            if base in published:
                acc, ll = published[base]
                run.add(partition, base, acc, ll, 1_000 if base == "pvi" else 10_000)
                continue
            for epsilon in epsilons:
                acc, ll = published.get(
                    f"dp-pvi@{epsilon:.2f}", published["dp-pvi@0.50" if epsilon < 0.5 else "dp-pvi@1.00"]
                )
                drop = max(0.0, -math.log10(epsilon)) * {"dp-pvi": 2.5, "dp-pvi-strict": 3.0}.get(base, 1.2)
                long = int({"dp-pvi": 400, "dp-pvi-strict": 330}.get(base, 300) * (0.6 + 0.4 * epsilon))
                run.add(partition, f"{base}@{epsilon:.2f}", acc - drop * 0.3, ll - drop * 0.02, max(long, 20))
    skipped = {}
    if grid:
        for rho in RHOS:
            for kappa in KAPPAS:
                name = f"grid[rho={rho},kappa={kappa}]"
                if abs(kappa) * rho > 2.5:
                    skipped[name] = "Expected a fraction of at most 1, got 1.2."
                    continue
                harm = abs(kappa) * rho * 8
                run.add(name, "pvi", 85.1, -0.32, 100, samples=12)
                run.add(name, "global-vi", 85.2 - harm, -0.318 - harm / 30, 1_000, samples=12)
    config: dict[str, Any] = {"title": "DP-PVI on Adult", "seeds": list(range(1, seeds + 1))}
    config["command"] = "fedvi reproduce"
    if reference:
        config["reference"] = {
            name: {m: {"acc": [acc, 0.1], "ll": [ll, 0.001]} for m, (acc, ll) in PUBLISHED[name].items()}
            for name in partitions
        }
    return Results(
        path=path,
        config=config,
        results=run.results,
        history=run.history.arrays(),
        spending=run.spending.arrays(),
        skipped=skipped,
    )
