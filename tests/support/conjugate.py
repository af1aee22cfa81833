"""Federations of linear regressions, whose posterior is known exactly."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from federations import exact_posterior, linear_tables, relative_error
from fedvi import PVI, FullGaussian, Gaussian, LinearRegression, simulate
from fedvi.inference import CentralisedVI, Committee, Exact
from fedvi.simulation import Asynchronous, EventDriven, Result, RoundRobin, Schedule, Synchronous

DIM = 6
SIZES = {
    1: [80],
    2: [20, 100],
    10: [3, 50, 7, 120, 1, 33, 80, 12, 64, 5],
    37: [1 + (7 * index) % 41 for index in range(37)],
}
SCHEDULES: dict[str, tuple[Schedule, int]] = {
    "one sequential pass": (RoundRobin(), 1),
    "asynchronous": (Asynchronous(), 4),
    "synchronous": (Synchronous(), 1),
    "event-driven": (EventDriven(), 2),
}
"""And how many updates every client makes."""


def conjugate_run(
    clients: int,
    schedule: Schedule,
    family: type,
    max_updates: int | None,
    damping: float = 1.0,
    communications: int | None = None,
) -> Result:
    return simulate(
        linear_tables(SIZES[clients], DIM, noise_variance=0.5),
        LinearRegression(0.5),
        seed=1,
        prior=family.standard(DIM),  # type: ignore[attr-defined]
        algorithm=PVI(Exact(), damping),
        schedule=schedule,
        max_updates=max_updates,
        communications=communications,
    )


def check_exact(clients: int, schedule: str, x64: bool) -> None:
    """After its updates, every client having come, q is the posterior of the pooled rows."""
    mean, precision = exact_posterior(linear_tables(SIZES[clients], DIM, noise_variance=0.5), 0.5)
    chosen, updates = SCHEDULES[schedule]
    q = conjugate_run(clients, chosen, FullGaussian, updates).posterior
    tolerance = 1e-10 if x64 else 1e-5
    assert relative_error(q.mean, mean) < tolerance
    assert relative_error(q.precision, precision) < tolerance


def check_mean_field(clients: int, schedule: str, x64: bool, communications: int = 15_000) -> None:
    """argmin KL(q || N(mean, precision^-1)) over mean-field q has the same mean and the diagonal of the precision."""
    mean, precision = exact_posterior(linear_tables(SIZES[clients], DIM, noise_variance=0.5), 0.5)
    # small clients come often and large ones rarely: the longest-waiting one must come some dozens of times
    q = conjugate_run(clients, SCHEDULES[schedule][0], Gaussian, None, communications=communications).posterior
    tolerance = 1e-10 if x64 else 1e-5
    assert relative_error(q.precision, np.diag(precision)) < tolerance
    assert relative_error(q.mean, mean) < tolerance


def check_defaults(clients: int, algorithm: CentralisedVI | Committee) -> None:
    """What an algorithm does by default comes close to what it does exactly."""
    tables = linear_tables([40] * clients, DIM)
    found = []
    with jax.numpy_dtype_promotion("standard"):  # inside optax
        for solver in (algorithm.solver, Exact()):
            run = simulate(
                tables,
                LinearRegression(),
                seed=0,
                prior=Gaussian.standard(DIM),
                algorithm=dataclasses.replace(algorithm, solver=solver),
                schedule=RoundRobin(),
                max_updates=1,
            )
            found.append(run.posterior)
    by_default, exact = found
    assert float(exact.kl(by_default)) < 5e-3
