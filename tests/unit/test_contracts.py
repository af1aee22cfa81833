"""One contract for every algorithm, schedule and model; and the laws of the federation."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from contracts import DIM, SCHEDULES, SIZES, STEPS, departure_from_law
from federations import Tables, linear_tables, logistic_tables
from fedvi import PVI, LinearRegression, LogisticRegression, simulate
from fedvi.families import GaussianFamily
from fedvi.simulation import Asynchronous, Result


def test_the_law_holds_after_thousands_of_communications_in_float32() -> None:
    """Plain float32 running sums drift; the server's compensated ones must not."""
    result = simulate(
        linear_tables(SIZES, DIM),
        LinearRegression(),
        seed=0,
        algorithm=PVI(STEPS, 1.0),
        schedule=Asynchronous(),
        communications=20_000,
        measure=departure_from_law,
    )
    assert result.history["departure"][-1] < 3e-7


def bits(result: Result) -> bytes:
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((result.posterior, result.clients)))


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    def once(seed: int) -> bytes:
        tables = logistic_tables(SIZES, DIM)
        return bits(simulate(tables, LogisticRegression(), seed=seed, communications=30))

    assert once(1) == once(1)
    assert once(1) != once(2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_names_of_clients_change_nothing(schedule: str) -> None:
    tables = logistic_tables(SIZES, DIM)
    names = list(tables)
    renamed = dict(zip([names[2], names[0], names[3], names[1]], tables.values(), strict=True))

    def q(given: Tables) -> GaussianFamily:
        return simulate(given, LogisticRegression(), seed=3, schedule=SCHEDULES[schedule], communications=30).posterior

    for a, b in zip(jax.tree.leaves(q(tables)), jax.tree.leaves(q(renamed)), strict=True):
        assert np.array_equal(a, b)


def test_measuring_more_often_changes_nothing() -> None:
    tables = logistic_tables(SIZES, DIM)

    def once(every: int | None) -> bytes:
        return bits(simulate(tables, LogisticRegression(), seed=3, communications=300, evaluate_every=every))

    assert once(None) == once(1) == once(7)
