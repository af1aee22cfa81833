"""Three hospitals: breast-cancer data split by site, one private model, and what each prediction is worth.

The measurements are those that scikit-learn ships. Their ranges are taken as publicly known; the hospitals spend
epsilon 1 each. A simulation: its noise is seeded, so nothing here is private.

    python examples/three_hospitals.py [PICTURE]
"""

import sys

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer

from fedvi import fit, infer_schema

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TEST = 169


def main() -> None:
    """Fit with several budgets, print the table, draw the picture."""
    data = load_breast_cancer(as_frame=True)
    rng = np.random.default_rng(0)
    table = data.data.assign(
        diagnosis=np.where(data.target == 1, "benign", "malignant"),
        hospital=rng.choice(["north", "south", "east"], len(data.data), p=[0.45, 0.35, 0.2]),
    ).sample(frac=1, random_state=0)
    train, test = table[TEST:], table[:TEST]
    schema = infer_schema(table, target="diagnosis", site_column="hospital").schema

    fits = {
        name: fit(schema, train, epsilon=epsilon, seed=1)
        for name, epsilon in {"not private": None, "epsilon 3": 3.0, "epsilon 1": 1.0, "epsilon 0.3": 0.3}.items()
    }
    shown = Table(
        "budget", "accuracy", "log-likelihood", "ECE", "mean width of 90 % intervals", title="Three hospitals"
    )
    for name, fitted in fits.items():
        scores, found = fitted.evaluate(test), fitted.predict(test)
        numbers = (scores["accuracy"], scores["log_likelihood"], scores["ece"], np.mean(found.high - found.low))
        shown.add_row(name, f"{numbers[0]:.1%}", *(f"{number:.3f}" for number in numbers[1:]))
    Console(width=100).print(shown)

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for panel, name in zip(panels, ["not private", "epsilon 1"], strict=True):
        found = fits[name].predict(test)
        order = np.argsort(found.mean)
        malignant = (test["diagnosis"] == "malignant").to_numpy()[order]
        for colour, chosen, label in (("#0072B2", ~malignant, "benign"), ("#D55E00", malignant, "malignant")):
            place = np.flatnonzero(chosen)
            panel.vlines(place, found.low[order][chosen], found.high[order][chosen], color=colour, lw=1.2, alpha=0.55)
            panel.plot(place, found.mean[order][chosen], ".", color=colour, ms=5, label=label)
        panel.set(xlabel="patients, by probability", title=f"{name}: 90 % credible intervals")
    panels[0].set(ylabel="probability of a malignant tumour")
    panels[0].legend(frameon=False, title="in truth")
    path = sys.argv[1] if len(sys.argv) > 1 else "three_hospitals.png"
    figure.savefig(path, dpi=150)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
