"""Schedules: who communicates when, from which q."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedvi.errors import InputError
from fedvi.privacy.sampling import Seeded
from fedvi.simulation import Asynchronous, EventDriven, Paced, RoundRobin, Schedule, Synchronous, Turn
from fedvi.simulation.schedules import SCRATCH, PlannedTurn, plan

ALL: list[Schedule] = [Asynchronous(), RoundRobin(), Synchronous(), Paced(), EventDriven(jitter=0.5)]
INF = math.inf


def turns(schedule: Schedule, rows: list[int], budgets: list[float], count: int, seed: int = 0) -> list[Turn]:
    return list(itertools.islice(schedule.turns(rows, budgets, np.random.default_rng(seed)), count))


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
@given(
    clients=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 6)), min_size=1, max_size=6),
    seed=st.integers(0, 9),
)
def test_every_client_makes_exactly_its_budget_of_updates(
    schedule: Schedule, clients: list[tuple[int, int]], seed: int
) -> None:
    rows, budgets = [n for n, _ in clients], [float(most) for _, most in clients]
    made = turns(schedule, rows, budgets, 10_000, seed)
    assert [sum(turn.client == m for turn in made) for m in range(len(rows))] == budgets


def test_round_robin_goes_around() -> None:
    assert [turn.client for turn in turns(RoundRobin(), [5, 1, 9], [INF] * 3, 7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [turn.client for turn in turns(RoundRobin(), [5, 1, 9], [3, 1, 2], 99)] == [0, 1, 2, 0, 2, 0]


def test_synchronous_rounds_read_once() -> None:
    made = turns(Synchronous(), [5, 1, 9], [2, 1, 2], 99)
    assert made == [Turn(0, 1.0, (0, 1, 2)), Turn(1, 1.0, ()), Turn(2, 1.0, ()), Turn(0, 2.0, (0, 2)), Turn(2, 2.0, ())]
    assert [turn.staleness for turn in plan(iter(made), [INF] * 3)] == [0, 1, 2, 0, 1]


def test_asynchronous_picks_are_inversely_proportional_to_rows() -> None:
    rows = [10, 20, 40]
    made = turns(Asynchronous(), rows, [INF] * 3, 7000)
    counts = [sum(turn.client == m for turn in made) for m in range(3)]
    assert chisquare(counts, np.array([4, 2, 1]) * 1000).pvalue > 1e-3
    assert chisquare(counts, np.array([1, 1, 1]) * 7000 / 3).pvalue < 1e-6  # and a wrong rule is rejected
    assert made[-1].time == pytest.approx(7000 / 3)


def test_asynchronous_wastes_picks_of_spent_clients() -> None:
    made = turns(Asynchronous(), [10, 1000], [3, 3], 99)
    assert len(made) == 6
    # the small client is picked 100 times as often: spent early, its later picks still take time
    assert made[-1].time > 50


def test_paced_clients_use_their_budgets_at_the_same_relative_rate() -> None:
    budgets = [10, 40, 5]
    made = turns(Paced(), [7, 7, 7], [float(most) for most in budgets], 999)
    used = np.zeros(3)
    for turn in made:
        used[turn.client] += 1
        share = used / budgets
        assert np.ptp(share) <= 1 / min(budgets) + 1e-9
    assert [turn.client for turn in turns(Paced(), [7, 7, 7], [INF] * 3, 3)] != [0, 0, 0]
    with pytest.raises(InputError, match="for every client or for none"):
        turns(Paced(), [1, 1], [INF, 3], 1)


def test_event_driven_clock_follows_rows_and_latency() -> None:
    made = turns(EventDriven(seconds_per_row=1.0, latency=1.0), [1, 4], [INF, INF], 7)
    assert [(turn.client, turn.time) for turn in made] == [(0, 2), (0, 4), (1, 5), (0, 6), (0, 8), (0, 10), (1, 10)]
    # client 1 read q at time 0 and arrives at 5, when two updates of client 0 have been applied meanwhile
    assert [turn.staleness for turn in plan(iter(made), [INF] * 2)] == [0, 0, 2, 1, 0, 0, 3]


def test_paced_breaks_ties_at_random() -> None:
    orders = {tuple(turn.client for turn in turns(Paced(), [7] * 4, [INF] * 4, 8, seed)) for seed in range(20)}
    assert len(orders) > 10
    assert all(sorted(order[:4]) == sorted(order[4:]) == [0, 1, 2, 3] for order in orders)
    assert any(order[:4] != order[4:] != (0, 1, 2, 3) for order in orders)


def test_jitter_spreads_durations_by_its_factor() -> None:
    times = [turn.time for turn in turns(EventDriven(0.0, 2.0, jitter=0.3), [1], [INF], 4000)]
    logs = np.log(np.diff(times, prepend=0.0) / 2.0)
    assert abs(logs.std() - 0.3) < 0.02
    assert abs(logs.mean()) < 0.02


def test_random_streams_are_distinct_and_do_not_overlap() -> None:
    named = [
        (1, 1, 0, 0),
        (1, 1, 0, 1),
        (1, 1, 1, 0),
        (1, 0, 0, 0),
        (2, 1, 0, 0),
        (2**63, 1, 0, 0),
        (2**63 + 1, 1, 0, 0),
    ]
    drawn = [Seeded(*name).words(5000) for name in named]
    assert len(np.unique(np.concatenate(drawn))) == 5000 * len(named)
    assert np.array_equal(Seeded(1, 1, 0, 1).words(5), Seeded(1, 1, 0, 1).words(5))


def replay(planned: list[PlannedTurn], clients: int) -> list[int]:
    """Execute a plan on version numbers instead of posteriors; return the version that each update started from."""
    slots = [0] * (clients + 1)
    started_from = []
    for version, turn in enumerate(planned, start=1):
        started_from.append(slots[turn.source])
        slots[turn.save] = version
    return started_from


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
@given(rows=st.lists(st.integers(1, 50), min_size=1, max_size=6), budget=st.sampled_from([2.0, 5.0, INF]))
def test_planned_memory_gives_every_client_the_version_it_read(
    schedule: Schedule, rows: list[int], budget: float
) -> None:
    made = turns(schedule, rows, [budget] * len(rows), 60)
    read: dict[int, int] = {}
    expected = []
    for version, turn in enumerate(made):
        read.update(dict.fromkeys(turn.reads, version))
        expected.append(read.pop(turn.client))
    planned = list(plan(iter(made), [INF] * len(rows)))
    assert replay(planned, len(rows)) == expected
    assert [version - turn.staleness for version, turn in enumerate(planned)] == expected
    assert all(turn.source != SCRATCH for turn in planned)


def test_plan_does_not_depend_on_where_it_is_cut() -> None:
    made = turns(EventDriven(jitter=0.5), [3, 30, 300], [INF] * 3, 80)
    assert list(itertools.islice(plan(iter(made), [INF] * 3), 40)) == list(plan(iter(made), [INF] * 3))[:40]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([Turn(0, 1.0, (0,)), Turn(0, 2.0, ())], "lets client 0 update twice without reading q"),
        ([Turn(0, 1.0, (0,))] * 4, "lets client 0 make more than 3 updates"),
        ([Turn(2, 1.0, (2,))], "names client 2 in turn 0; clients are 0 to 1"),
        ([Turn(-1, 1.0, (-1,))], "names client -1 in turn 0"),
        ([Turn(0, 1.0, (0, 7))], "names client 7 in turn 0"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(made: list[Turn], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(plan(iter(made), [3, 3]))


def test_reading_twice_before_a_turn_is_reading_once() -> None:
    twice = [Turn(0, 1.0, (0, 0, 1)), Turn(1, 2.0, (1,))]
    once = [Turn(0, 1.0, (0, 1)), Turn(1, 2.0, (1,))]
    assert list(plan(iter(twice), [1, 1])) == list(plan(iter(once), [1, 1]))


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="Expected 0 <= latency, got -1"):
        EventDriven(latency=-1)
    with pytest.raises(InputError, match="time would stand still"):
        EventDriven(0, 0)
