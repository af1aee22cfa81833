"""Regression with scikit-learn's interface: how diabetes progresses, learned over four clinics.

Intervals are for the patient's own value: nine of ten should hold it. A simulation: its noise is seeded, so nothing
here is private.

    python examples/diabetes.py [PICTURE]
"""

import sys

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_diabetes
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import train_test_split

from fedvi.fitting.sklearn import FederatedLinearRegression

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BOUNDS = (-0.14, 0.14)  # the columns come centred, with a deviation of 0.048: about three of them
PROGRESSION = (0.0, 350.0)


def main() -> None:
    """Fit with several budgets, print the table, draw the picture."""
    x, y = load_diabetes(return_X_y=True)
    clinics = np.random.default_rng(0).choice(["A", "B", "C", "D"], len(y))
    x_train, x_test, y_train, y_test, clinic, _ = train_test_split(x, y, clinics, test_size=0.3, random_state=0)

    shown = Table("model", "RMSE", "R²", "truths in 90 % intervals", "mean width", title="Diabetes, four clinics")
    found = {}
    for name, epsilon in {"not private": None, "epsilon 3": 3.0, "epsilon 1": 1.0}.items():
        model = FederatedLinearRegression(epsilon, bounds=BOUNDS, target_bounds=PROGRESSION, random_state=0)
        mean, low, high = model.fit(x_train, y_train, sites=clinic).predict(x_test, return_interval=True)
        found[name] = (mean, low, high)
        error = np.sqrt(np.mean((mean - y_test) ** 2))
        covered = np.mean((low <= y_test) & (y_test <= high))
        shown.add_row(
            name, f"{error:.1f}", f"{model.score(x_test, y_test):.2f}", f"{covered:.0%}", f"{np.mean(high - low):.0f}"
        )
    mean, std = BayesianRidge().fit(x_train, y_train).predict(x_test, return_std=True)
    error, explained = np.sqrt(np.mean((mean - y_test) ** 2)), 1 - np.mean((mean - y_test) ** 2) / np.var(y_test)
    covered = np.mean(np.abs(mean - y_test) <= 1.645 * std)
    shown.add_row(
        "pooled rows, BayesianRidge", f"{error:.1f}", f"{explained:.2f}", f"{covered:.0%}", f"{np.mean(3.29 * std):.0f}"
    )
    Console(width=100).print(shown)

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharex=True, sharey=True)
    for panel, name in zip(panels, ["not private", "epsilon 1"], strict=True):
        mean, low, high = found[name]
        inside = (low <= y_test) & (y_test <= high)
        for colour, chosen, label in (("#0072B2", inside, "holds the truth"), ("#D55E00", ~inside, "does not")):
            panel.vlines(y_test[chosen], low[chosen], high[chosen], color=colour, lw=1, alpha=0.4)
            panel.plot(y_test[chosen], mean[chosen], ".", color=colour, ms=5, label=label)
        panel.axline((150, 150), slope=1, color="#444444", lw=0.8)
        panel.set(xlabel="progression, in truth", title=name)
    panels[0].set(ylabel="predicted, with 90 % interval", ylim=(None, 460))
    panels[0].legend(frameon=False, title="interval", ncols=2, loc="upper left")
    path = sys.argv[1] if len(sys.argv) > 1 else "diabetes.png"
    figure.savefig(path, dpi=150)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
