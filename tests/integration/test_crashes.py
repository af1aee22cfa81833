"""Killed at any instant, a client has paid for at least what it released, and never for more than its budget."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import crashing_client
from fedvi.privacy.ledger import ledger as ledgers
from victims import Victims


@pytest.mark.parametrize(("half", "most"), [(0, 40), pytest.param(1, 120, marks=pytest.mark.long)])
def test_killed_clients_have_paid_for_all_that_they_released(half: int, most: int, tmp_path: Path) -> None:
    """SIGKILL at random instants of private updates, until the budget is spent, and again with other data."""
    rng, victims = random.Random(half), Victims(tmp_path / "cache", crashing_client.__file__)
    total = closed = kills = 0
    try:
        while kills < most:
            seed = 1000 * half + closed
            path = tmp_path / f"ledger {seed}.db".replace(" ", "-")
            released = lost = 0
            end = "killed"
            while kills < most and end == "killed":
                said, end = victims.run(f"{path} {seed}", rng.randrange(6), rng.expovariate(1 / 0.02))
                got = len(said) - said.count("closed")
                assert end in ("killed", "ended 0")
                released, kills, lost = released + got, kills + (end == "killed"), lost + 1
                book = ledgers.read(path)
                paid, planned = sum(book.charged.values()), sum(book.planned.values())
                assert released <= paid <= released + lost  # of each life at most the update in hand is lost
                assert paid <= planned
                assert book.spent.epsilon <= crashing_client.BUDGET.epsilon
            closed, total = closed + (end == "ended 0"), total + released
    finally:
        victims.stop()
    print(f"{kills} kills, {total} releases, {closed} budgets spent to the end")
    assert total > most
