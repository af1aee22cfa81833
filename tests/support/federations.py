"""Small data sets, and comparisons, that many tests share."""

from __future__ import annotations

import jax
import numpy as np

from fedvi.simulation import Result

Tables = dict[str, tuple[np.ndarray, np.ndarray]]


def linear_tables(sizes: list[int], dim: int, seed: int = 0, noise_variance: float = 1.0) -> Tables:
    """Return clients whose y = w'x + noise, with correlated features whose means differ from client to client."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=dim)
    mixing = np.eye(dim) + 0.3 * rng.normal(size=(dim, dim)) / np.sqrt(dim)
    tables = {}
    for index, size in enumerate(sizes):
        x = (rng.normal(size=(size, dim)) + 0.3 * rng.normal(size=dim)) @ mixing
        tables[f"site {index}"] = (x, x @ w + np.sqrt(noise_variance) * rng.normal(size=size))
    return tables


def logistic_tables(sizes: list[int], dim: int, seed: int = 0) -> Tables:
    """Return the same kind of clients with labels -1 and +1."""
    rng = np.random.default_rng([seed, 1])
    return {
        name: (x, np.where(rng.random(len(y)) < 1 / (1 + np.exp(-y)), 1.0, -1.0))
        for name, (x, y) in linear_tables(sizes, dim, seed, noise_variance=1e-12).items()
    }


def pool(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Return all clients' rows together."""
    return np.concatenate([x for x, _ in tables.values()]), np.concatenate([y for _, y in tables.values()])


def exact_posterior(tables: Tables, noise_variance: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and precision matrix of the conjugate posterior under a standard normal prior, in float64."""
    x, y = pool(tables)
    precision = np.eye(x.shape[1]) + x.T @ x / noise_variance
    return np.linalg.solve(precision, x.T @ y / noise_variance), precision


def relative_error(value: object, truth: np.ndarray) -> float:
    """Return the largest difference, relative to the largest true entry."""
    return float(np.max(np.abs(np.asarray(value) - truth)) / np.max(np.abs(truth)))


def same_bits(a: Result, b: Result) -> bool:
    """Tell whether posterior and clients are the same to the last bit."""
    leaves = zip(jax.tree.leaves((a.posterior, a.clients)), jax.tree.leaves((b.posterior, b.clients)), strict=True)
    return all(np.asarray(s).tobytes() == np.asarray(t).tobytes() for s, t in leaves)
