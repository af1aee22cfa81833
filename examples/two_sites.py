"""Two sites get one posterior, and it equals the posterior of the pooled rows.

The northern site's features vary mostly along one direction, the southern site's along another. Alone, each site can
estimate only one combination of the two weights. They exchange factors (a vector and a matrix each), never rows.

    python examples/two_sites.py [PICTURE]
"""

import sys

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

from fedvi import PVI, FullGaussian, LinearRegression, simulate
from fedvi.inference import Exact
from fedvi.simulation import RoundRobin

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"north alone": "#0072B2", "south alone": "#E69F00", "both, by fedvi": "#009E73", "rows pooled": "black"}


def make_site(rng: np.random.Generator, rows: int, spread: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose features have these standard deviations along (1, 1) and (1, -1)."""
    x = rng.normal(size=(rows, 2)) * spread @ np.array([[1, 1], [1, -1]]) / np.sqrt(2)
    return x, x @ np.array([1.0, -0.5]) + rng.normal(size=rows)


def federate(sites: dict[str, tuple[np.ndarray, np.ndarray]]) -> FullGaussian:
    """Return the posterior after every site has communicated once."""
    posterior = simulate(
        sites,
        LinearRegression(noise_variance=1.0),
        seed=0,
        prior=FullGaussian.standard(2),
        algorithm=PVI(Exact(), damping=1.0),
        schedule=RoundRobin(),
        max_updates=1,
    ).posterior
    assert isinstance(posterior, FullGaussian)
    return posterior


def pool(sites: dict[str, tuple[np.ndarray, np.ndarray]]) -> FullGaussian:
    """Return the textbook posterior of all rows together, by plain NumPy."""
    x, y = (np.concatenate(part) for part in zip(*sites.values(), strict=True))
    covariance = np.linalg.inv(np.eye(2) + x.T @ x)
    return FullGaussian.from_moments(covariance @ x.T @ y, covariance)


def draw(posteriors: dict[str, FullGaussian], path: str) -> None:
    """Draw the region that holds the weights with probability 90 %, for every posterior."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.sqrt(-2 * np.log(0.1)) * np.stack([np.cos(angle), np.sin(angle)])
    figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    for name, q in posteriors.items():
        ellipse = np.asarray(q.mean)[:, None] + np.linalg.cholesky(np.asarray(q.covariance, float)) @ circle
        pooled = name == "rows pooled"
        axes.plot(*ellipse, label=name, color=COLOURS[name], ls=(0, (2, 2)) if pooled else "-", lw=2, zorder=3 + pooled)
        if not pooled:
            axes.fill(*ellipse, color=COLOURS[name], alpha=0.15)
    axes.plot(1.0, -0.5, "k+", ms=12, mew=2, label="truth")
    axes.set(xlabel="weight 1", ylabel="weight 2", title="90 % credible regions", aspect="equal")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(path, dpi=130)


def main(picture: str = "two_sites.png") -> None:
    """Print the posteriors and draw them."""
    rng = np.random.default_rng(1)
    sites = {"north": make_site(rng, 60, [1.0, 0.1]), "south": make_site(rng, 25, [0.1, 1.0])}
    posteriors = {f"{name} alone": federate({name: site}) for name, site in sites.items()}
    posteriors |= {"both, by fedvi": federate(sites), "rows pooled": pool(sites)}

    table = Table("posterior", "weight 1", "weight 2", title="Two sites, one posterior (mean ± standard deviation)")
    for name, q in posteriors.items():
        moments = zip(q.mean.tolist(), q.std.tolist(), strict=True)
        table.add_row(name, *(f"{mean:+.4f} ± {std:.4f}" for mean, std in moments))
    console = Console()
    console.print(table)
    gap = float(posteriors["both, by fedvi"].kl(posteriors["rows pooled"]))
    console.print(f"KL(fedvi || pooled) = {gap:.1e} nats: the same posterior, up to rounding.")
    draw(posteriors, picture)
    console.print(f"Picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
