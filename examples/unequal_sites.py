"""Unequal sites: small sites see almost only one class, large ones the other. Which algorithm copes?

Small sites communicate often and large ones rarely, as in the paper. Partitioned VI remembers each site's contribution
as a factor; global VI follows the site that communicates most; the committee machine communicates once.

    python examples/unequal_sites.py [PICTURE]
"""

import sys

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

from fedvi import PVI, LogisticRegression, simulate
from fedvi.inference import Algorithm, CentralisedVI, Committee, GlobalVI
from fedvi.simulation import Asynchronous, EventDriven, RoundRobin, Schedule

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DIM = 10
COMMUNICATIONS = 1000
METHODS: dict[str, tuple[Algorithm, Schedule, int]] = {
    "PVI, asynchronous": (PVI(), Asynchronous(), COMMUNICATIONS),
    "PVI, stale updates": (PVI(), EventDriven(), COMMUNICATIONS),
    "global VI": (GlobalVI(), Asynchronous(), COMMUNICATIONS),
    "committee": (Committee(), RoundRobin(), 10),
    "rows pooled": (CentralisedVI(), RoundRobin(), 2),
}
COLOURS = ["#0072B2", "#56B4E9", "#D55E00", "#CC79A7", "black"]


def make_rows(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with labels -1 and +1."""
    x = np.column_stack([np.ones(rows), rng.normal(size=(rows, DIM - 1))])
    probability = 1 / (1 + np.exp(-x @ np.linspace(1.5, -1.5, DIM)))
    return x, np.where(rng.random(rows) < probability, 1.0, -1.0)


def make_sites(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return five small sites with mostly positive rows, and five large ones with the rest."""
    x, y = make_rows(rng, 6000)
    positive, negative = np.flatnonzero(y > 0), np.flatnonzero(y < 0)
    small = [np.append(positive[i * 190 : (i + 1) * 190], negative[i * 10 : (i + 1) * 10]) for i in range(5)]
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), np.concatenate(small)))
    rows = {f"small {i}": s for i, s in enumerate(small)} | {f"large {i}": s for i, s in enumerate(np.split(rest, 5))}
    return {name: (x[index], y[index]) for name, index in rows.items()}


def main(picture: str = "unequal_sites.png") -> None:
    """Run every method, print a table and draw the curves."""
    rng = np.random.default_rng(0)
    sites, test = make_sites(rng), make_rows(rng, 4000)
    table = Table("method", "updates", "accuracy", "log-likelihood", "calibration error")
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, (algorithm, schedule, communications)), colour in zip(METHODS.items(), COLOURS, strict=True):
        result = simulate(
            sites,
            LogisticRegression(),
            seed=1,
            algorithm=algorithm,
            schedule=schedule,
            communications=communications,
            test=test,
            evaluate_every=10,
        )
        last = result.history.records[-1]
        scores = (f"{100 * last['accuracy']:.2f} %", f"{last['log_likelihood']:.4f}", f"{last['ece']:.4f}")
        table.add_row(name, str(communications), *scores)
        if communications == COMMUNICATIONS:
            axes.plot(result.history["communications"], result.history["log_likelihood"], color=colour, label=name)
        else:
            axes.axhline(last["log_likelihood"], color=colour, ls="--", label=name)
    Console().print(table)
    axes.set_xscale("symlog", linthresh=10)
    axes.set(xlabel="communications", ylabel="log-likelihood of test rows", xlim=(0, COMMUNICATIONS))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=130)
    Console().print(f"Picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
