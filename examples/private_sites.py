"""Private sites: four hospitals, each with its own privacy budget, learn one model by DP-PVI.

It shows what privacy costs in predictions, and what each site spends when. It is a simulation: its noise is seeded, so
nothing here is private. Real sites use `PrivateClient` with a ledger (docs/privacy.md).

    python examples/private_sites.py [PICTURE]
"""

import sys

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

from fedvi import PVI, Budget, LogisticRegression, simulate
from fedvi.inference import GradientSteps
from fedvi.privacy import PoissonGaussian
from fedvi.simulation import Paced, Result

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DIM = 8
ROWS = {"north": 4000, "south": 3000, "east": 1500, "west": 800}
OWN_BUDGETS = {"north": Budget(1.0), "south": Budget(0.5), "east": Budget(1.0), "west": Budget(0.5)}
PRIVATE = PVI(GradientSteps(25, 0.1, PoissonGaussian(noise_multiplier=5.0, clip_norm=1.0)))
COLOURS = {"north": "#0072B2", "south": "#E69F00", "east": "#009E73", "west": "#CC79A7"}


def make_rows(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with labels -1 and +1."""
    x = np.column_stack([np.ones(rows), rng.normal(size=(rows, DIM - 1))])
    probability = 1 / (1 + np.exp(-x @ np.linspace(1.2, -1.2, DIM)))
    return x, np.where(rng.random(rows) < probability, 1.0, -1.0)


def main() -> None:
    """Run the federation with several budgets, print the table, draw the picture."""
    rng = np.random.default_rng(0)
    sites = {name: make_rows(rng, rows) for name, rows in ROWS.items()}
    test = make_rows(rng, 5000)

    def federation(privacy: Budget | dict[str, Budget] | None) -> Result:
        algorithm, communications = (PVI(), 200) if privacy is None else (PRIVATE, None)
        return simulate(
            sites,
            LogisticRegression(),
            seed=1,
            algorithm=algorithm,
            schedule=Paced(),
            privacy=privacy,
            communications=communications,
            test=test,
            evaluate_every=10,
        )

    runs = {
        "no privacy": federation(None),
        "epsilon 1 everywhere": federation(Budget(1.0)),
        "epsilon 0.5 everywhere": federation(Budget(0.5)),
        "epsilon 0.2 everywhere": federation(Budget(0.2)),
        "every site its own": federation(OWN_BUDGETS),
    }
    table = Table(
        "budget", "accuracy", "log-likelihood", *ROWS, title="Four sites: epsilon spent, at each site's delta"
    )
    for name, result in runs.items():
        last = result.history.records[-1]
        spent = [f"{result.privacy[site].epsilon:.3f}" if result.privacy else "-" for site in ROWS]
        table.add_row(name, f"{last['accuracy']:.1%}", f"{last['log_likelihood']:.4f}", *spent)
    Console(width=120).print(table)
    print(runs["every site its own"].statement.splitlines()[0])
    draw(runs, sys.argv[1] if len(sys.argv) > 1 else "private_sites.png")


def draw(runs: dict[str, Result], path: str) -> None:
    """Draw what privacy costs, and who spends it when."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    styles = ["black", "#0072B2", "#56B4E9", "#D55E00"]
    for (name, result), colour in zip(list(runs.items())[:4], styles, strict=True):
        history = result.history
        ends = [len(history.records) - 2]
        left.plot(
            history["communications"][1:], history["log_likelihood"][1:], "-o", color=colour, label=name, markevery=ends
        )
    left.set(
        xlabel="communications", ylabel="log-likelihood of test rows", title="What privacy costs, until the budget ends"
    )
    left.legend(frameon=False)
    history = runs["every site its own"].history
    for name, colour in COLOURS.items():
        style = "--" if name in ("east", "west") else "-"
        right.plot(history["communications"], history.epsilon(name), style, color=colour, label=name)
        right.axhline(OWN_BUDGETS[name].epsilon, color="#999999", lw=0.8, ls=":")
    right.set(
        xlabel="communications", ylabel="epsilon spent", title="Every site stops at its own budget", ylim=(0, 1.05)
    )
    right.legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
