"""A model of your own: regression that outliers do not disturb, over three laboratories.

Noise with heavy tails (Student's t) is one function of a single row. Compare with the built-in Gaussian noise.

    python examples/own_model.py
"""

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from fedvi import PVI, CustomModel, LinearRegression, simulate
from fedvi.inference import GradientSteps


def log_likelihood(w, x, y):  # type: ignore[no-untyped-def]
    """Return log p(y | x, w) of one example, up to a constant: Student's t with 4 degrees of freedom."""
    return -2.5 * jnp.log1p((y - x @ w) ** 2 / 4)


def main() -> None:
    """Fit both models over three laboratories, one of which writes one result in ten into the wrong column."""
    rng, truth = np.random.default_rng(0), np.array([1.0, 0.5, -0.3])
    laboratories = {}
    for name, rows, outliers in (("harbour", 200, 0.1), ("hill", 80, 0.0), ("station", 40, 0.0)):
        x = np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))])
        y = x @ truth + rng.standard_t(4, rows)
        laboratories[name] = (x, np.where(rng.random(rows) < outliers, 30.0, y))

    table = Table("weight", "truth", "Student's t", "Gaussian noise", title="posterior mean ± standard deviation")
    algorithm = PVI(GradientSteps(steps=20, learning_rate=0.5), damping=0.2)
    posteriors = [
        simulate(laboratories, model, seed=0, algorithm=algorithm, communications=1000).posterior
        for model in (CustomModel(log_likelihood), LinearRegression(noise_variance=2.0))
    ]
    for index, weight in enumerate(truth):
        cells = [f"{float(q.mean[index]):+.3f} ± {float(q.std[index]):.3f}" for q in posteriors]
        table.add_row(f"w{index}", f"{weight:+.2f}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
