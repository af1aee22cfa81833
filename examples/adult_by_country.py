"""Adult by country: one site per country of birth, so unequal that most have a hundredth of the largest one's rows.

The target: does a person earn more than 50,000 dollars? Countries with fewer than 100 people form one site. The example
checks calibration: of the people with probability 0.8, eight of ten should. It is a simulation: its noise is seeded, so
nothing here is private.

    python examples/adult_by_country.py [PICTURE]
"""

import sys

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

from fedvi import fit, infer_schema
from fedvi.datasets import load_adult, paper_split

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LEFT_OUT = ["fnlwgt", "education"]  # a weight of the census, and what education-num says as a number


def main() -> None:
    """Fit with and without privacy, print the table, draw the picture."""
    adult, split = load_adult(), paper_split()
    columns = {name: np.where(column == "?", "unknown", column) for name, column in adult.columns.items()}
    columns["income"] = np.where(adult.target > 0, ">50K", "<=50K")
    train, test = (
        {name: column[rows] for name, column in columns.items()} for rows in (split.train_rows, split.test_rows)
    )
    schema = infer_schema(train, target="income", event=">50K", ignore=[*LEFT_OUT, "native-country"]).schema

    fits = {
        name: fit(schema, train, site_column="native-country", epsilon=epsilon, min_rows=100, seed=1)
        for name, epsilon in {"not private": None, "epsilon 1": 1.0}.items()
    }
    shown = Table("budget", "sites", "accuracy", "log-likelihood", "Brier", "ECE", title="Adult by country, test rows")
    for name, fitted in fits.items():
        scores = fitted.evaluate(test)
        numbers = (f"{scores[key]:.4f}" for key in ("log_likelihood", "brier", "ece"))
        shown.add_row(name, str(len(fitted.sites)), f"{scores['accuracy']:.2%}", *numbers)
    Console(width=100).print(shown)

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=[1, 1.2])
    truth = test["income"] == ">50K"
    for (name, fitted), colour, marker in zip(fits.items(), ["#000000", "#0072B2"], "os", strict=True):
        probability = fitted.predict(test).mean
        bins = np.minimum((probability * 10).astype(int), 9)
        mean = [[probability[bins == k].mean(), truth[bins == k].mean()] for k in range(10) if np.any(bins == k)]
        left.plot(*np.transpose(mean), f"-{marker}", color=colour, label=name, ms=5)
    left.axline((0, 0), slope=1, color="#999999", lw=0.8)
    left.set(xlabel="predicted probability", ylabel="share above 50,000 dollars", title="Calibration")
    left.legend(frameon=False)
    surest = sorted(fits["epsilon 1"].coefficients(), key=lambda each: -abs(each.mean) / each.std)[:14][::-1]
    for place, each in enumerate(surest):
        right.plot([each.low, each.high], [place, place], color="#0072B2", lw=2)
        right.plot(each.mean, place, "o", color="#0072B2", ms=5)
    right.set_yticks(range(len(surest)), [each.feature for each in surest])
    right.axvline(0, color="#444444", lw=0.8)
    right.set(xlabel="log odds, with 90 % interval", title="The surest coefficients at epsilon 1")
    path = sys.argv[1] if len(sys.argv) > 1 else "adult_by_country.png"
    figure.savefig(path, dpi=150)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
