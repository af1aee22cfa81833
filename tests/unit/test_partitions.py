"""Partitions: every row to at most one client, and the paper's table of clients."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedvi
from fedvi import Budget
from fedvi.datasets import (
    PARTITIONS,
    ByColumn,
    DirichletLabels,
    Iid,
    PaperPartition,
    Partition,
    QuantitySkew,
    distribute,
    paper_split,
)
from fedvi.errors import InputError

RHOS = (0, 0.5, 0.6, 0.7, 0.9, 0.95)
KAPPAS = (-3, -2.5, -2, -1.5, 0, 0.5, 0.7, 0.9, 0.95, 1)
COMPLETE = [Iid, DirichletLabels, QuantitySkew]


def sizes(parts: dict[str, np.ndarray]) -> list[int]:
    return [len(rows) for rows in parts.values()]


def spread(partition: Partition, y: np.ndarray) -> float:
    """Return the variance between clients of the fraction of positives."""
    return float(np.var([np.mean(y[rows] == 1) for rows in partition.split(y).values()]))


@pytest.mark.parametrize(
    ("name", "small", "large"),
    [
        ("A", (3907, 24, 1e-4), (3907, 24, 1e-4)),
        ("B", (390, 1.3, 1e-3), (7424, 25, 1e-4)),
        ("C", (1172, 96, 1e-4), (6642, 11, 1e-4)),
        ("D", (1562, 60, 1e-4), (6251, 15, 1e-4)),
    ],
)
def test_clients_are_those_of_the_papers_table(
    name: str, small: tuple[int, float, float], large: tuple[int, float, float]
) -> None:
    clients = distribute(PARTITIONS[name], *paper_split().train)
    expected = {f"small {m}": small for m in range(1, 6)} | {f"large {m}": large for m in range(1, 6)}
    assert list(clients) == list(expected)
    for client, (rows, positive, delta) in expected.items():
        x, y = clients[client]
        assert x.shape == (rows, 108)
        assert 100 * np.mean(y == 1) == pytest.approx(positive, abs=1.5 if "large" in client or name == "A" else 0.1)
        assert Budget(0.5, "paper").delta_for(rows) == delta


def test_invalid_combinations_are_those_that_need_more_rows_of_a_class_than_there_are() -> None:
    y = paper_split().train[1]
    positives, negatives, positive = int(np.sum(y == 1)), int(np.sum(y == -1)), np.mean(y == 1)
    invalid = []
    for rho, kappa in itertools.product(RHOS, KAPPAS):
        # the paper's formulas times 100, in whole numbers; // is the floor
        small = len(y) * (100 - round(100 * rho)) // 1000
        of_negatives = small * (100 * negatives + round(100 * kappa) * positives) // (100 * len(y))
        if 5 * of_negatives > negatives or 5 * (small - of_negatives) > positives:
            invalid.append((rho, kappa))
            with pytest.raises(InputError, match=r"rows of class 1.0 for 5 small clients .* or a larger rho"):
                PaperPartition(rho, kappa).split(y)
        else:
            parts = PaperPartition(rho, kappa).split(y)
            assert np.mean(y[parts["small 1"]] == 1) == pytest.approx(positive * (1 - kappa), abs=1 / 195)
    assert invalid == [(0, -3), (0, -2.5), (0, -2), (0, -1.5)]


def test_paper_partition_says_which_kappa_would_do() -> None:
    y = paper_split().train[1]
    with pytest.raises(InputError, match=r"at least 18725 rows .* got 9363") as raised:
        PaperPartition(0, -3).split(y)
    found = re.search(r"Take kappa >= (\S+) ", str(raised.value))
    assert found
    assert len(PaperPartition(0, float(found[1])).split(y)) == 10
    with pytest.raises(InputError, match="Take kappa"):
        PaperPartition(0, float(found[1]) - 0.01).split(y)


def test_small_clients_are_filled_from_the_front_and_large_ones_by_the_seed() -> None:
    y = np.array([1, 0, 0, 0] * 8)
    parts = PaperPartition(0.5, 1, clients=4).split(y)
    assert parts["small 1"].tolist() == [1, 2, 3, 5]
    assert parts["small 2"].tolist() == [6, 7, 9, 10]
    rest = np.array([11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26, 27, 29, 30, 31, *range(0, 32, 4)])
    np.random.RandomState(0).shuffle(rest)
    assert np.concatenate([parts["large 1"], parts["large 2"]]).tolist() == rest.tolist()
    other = PaperPartition(0.5, 1, clients=4, seed=1).split(y)
    assert other["small 1"].tolist() == parts["small 1"].tolist()
    assert other["large 1"].tolist() != parts["large 1"].tolist()


def test_sizes_are_floors_of_the_numbers_as_written() -> None:
    y = np.array([0, 1] * 50)
    assert 100 / 10 * (1 - 0.9) < 1  # the trap
    assert sizes(PaperPartition(0.9, 1).split(y)) == [1] * 5 + [19] * 5


@given(
    y=st.lists(st.booleans(), min_size=2, max_size=200),
    rho=st.floats(0, 0.99),
    kappa=st.floats(-4, 1),
    half=st.integers(1, 5),
)
def test_paper_partition_is_disjoint_or_refused(y: list[bool], rho: float, kappa: float, half: int) -> None:
    try:
        parts = PaperPartition(rho, kappa, 2 * half).split(y)
    except InputError:
        return
    used = np.concatenate(list(parts.values()))
    assert len(set(used)) == len(used) >= len(y) - 2 * half
    small, large = sizes(parts)[:half], sizes(parts)[half:]
    assert len(set(small)) == len(set(large)) == 1
    assert 0 < small[0] <= large[0]


@pytest.mark.parametrize("kind", COMPLETE)
@given(data=st.data())
def test_partitions_use_every_row_once_and_leave_no_client_empty(kind: type, data: st.DataObject) -> None:
    settings: dict[str, Any] = {"clients": data.draw(st.integers(1, 8)), "seed": data.draw(st.integers(0, 99))}
    minimum = 1
    if kind is not Iid:
        minimum = data.draw(st.integers(1, 5))
        settings |= {"minimum": minimum, "concentration": data.draw(st.sampled_from([1e-6, 0.1, 0.5, 10.0, 1e6]))}
    least = settings["clients"] * minimum
    y = data.draw(st.lists(st.integers(0, 3), min_size=least, max_size=least + 60))
    parts = kind(**settings).split(y)
    assert list(parts) == [f"client {m + 1}" for m in range(settings["clients"])]
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(y)))
    assert min(sizes(parts)) >= minimum
    again = kind(**settings).split(y)
    assert all(np.array_equal(parts[name], again[name]) for name in parts)


@pytest.mark.parametrize("kind", COMPLETE)
def test_another_seed_is_another_partition(kind: type) -> None:
    y = np.arange(200) % 2
    assert kind(seed=0).split(y)["client 1"].tolist() != kind(seed=1).split(y)["client 1"].tolist()


def test_iid_clients_are_of_equal_size_and_alike() -> None:
    y = paper_split().train[1]
    assert set(sizes(Iid().split(y))) == {3907, 3908}
    assert spread(Iid(), y) < 1e-3


def test_dirichlet_shares_skew_labels_or_sizes_as_the_concentration_says() -> None:
    y = paper_split().train[1]
    assert spread(DirichletLabels(concentration=0.1), y) > 0.05 > 1e-3 > spread(DirichletLabels(concentration=1e6), y)
    uneven = QuantitySkew(concentration=0.5, minimum=200)
    assert spread(uneven, y) < 1e-3  # sizes only
    assert min(sizes(uneven.split(y))) >= 200
    # a Dirichlet share with M = 10, a = 0.5 has variance (1/M)(1 - 1/M) / (M a + 1) = 0.015
    shares = [size / 39_074 for seed in range(40) for size in sizes(QuantitySkew(seed=seed).split(y))]
    assert np.var(shares) == pytest.approx(0.015, rel=0.25)
    by_class = [np.sum(y[rows] == 1) for seed in range(40) for rows in DirichletLabels(seed=seed).split(y).values()]
    assert np.var(np.array(by_class) / np.sum(y == 1)) == pytest.approx(0.015, rel=0.25)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=20, max_size=60), st.integers(1, 20))
def test_by_column_uses_every_row_once_and_gives_the_minimum(values: list[str], minimum: int) -> None:
    parts = ByColumn("town", minimum=minimum).split(np.zeros(len(values)), {"town": values})
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(values)))
    assert min(sizes(parts)) >= minimum
    for name, rows in parts.items():
        assert name == "other" or {values[row] for row in rows} == {name}
    assert {value for value in values if values.count(value) < minimum}.isdisjoint(parts)
    assert ("other" in parts) == any(values.count(value) < minimum for value in values)


def test_by_column_reads_numbers_objects_and_a_value_named_other() -> None:
    y = np.zeros(6)
    assert list(ByColumn("n").split(y, {"n": [10, 2, 2, 10, 2, 2]})) == ["2", "10"]
    assert list(ByColumn("n").split(y, {"n": np.array([None, "b", "b", None, 1, "b"], object)})) == ["1", "None", "b"]
    mixed = ByColumn("n", minimum=2).split(y, {"n": ["other", "other", "a", "b", "b", "b"]})
    assert {name: rows.tolist() for name, rows in mixed.items()} == {"b": [3, 4, 5], "other": [0, 1, 2]}


def test_countries_are_clients() -> None:
    split = paper_split()
    clients = distribute(ByColumn("native-country", minimum=100), *split.train, columns=split.columns)
    assert sum(len(y) for _, y in clients.values()) == 39_074
    assert list(clients)[-2:] == ["United-States", "other"]
    mexico = split.features.index("native-country=Mexico")
    assert np.all(clients["Mexico"][0][:, mexico] == 1)


def test_distributed_tables_can_be_simulated() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.where(x[:, 0] > 0, 1, -1)
    result = fedvi.simulate(distribute(Iid(3), x, y), fedvi.LogisticRegression(), seed=0, communications=3)
    assert list(result.clients) == ["client 1", "client 2", "client 3"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PaperPartition(1, 0), "Expected 0 <= rho < 1, got 1"),
        (lambda: PaperPartition(-0.1, 0), "Expected 0 <= rho, got -0.1"),
        (lambda: PaperPartition("0", 0), "Expected a finite number for rho, got '0'"),  # type: ignore[arg-type]
        (lambda: PaperPartition(0, np.nan), "Expected a finite number for kappa, got nan"),
        (lambda: PaperPartition(0, 0, clients=0), "clients to be a whole number of at least 2, got 0"),
        (lambda: PaperPartition(0, 0, clients=5), "Expected an even number of clients, .* got 5"),
        (lambda: PaperPartition(0, 0, seed=-1), "seed to be a whole number of at least 0"),
        (lambda: Iid(clients=0), "clients to be a whole number of at least 1, got 0"),
        (lambda: DirichletLabels(concentration=0), "Expected 0 < concentration <= 1e\\+09, got 0"),
        (lambda: QuantitySkew(minimum=0), "minimum to be a whole number of at least 1, got 0"),
        (lambda: ByColumn("town", minimum=0), "minimum to be a whole number of at least 1, got 0"),
    ],
)
def test_unusable_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("partition", "columns", "message"),
    [
        (PaperPartition(0, -3.001, 2), None, r"Expected -3 <= kappa <= 1, got -3.001: .* 75.0% .* would be -0.0%"),
        (PaperPartition(0, 1.5, 2), None, r"Expected -3 <= kappa <= 1, got 1.5: .* would be 112.5%"),
        (PaperPartition(0.9, 0), None, "at least one row for each small client, got none: rho=0.9 with 12 rows"),
        (Iid(13), None, "Expected at least 13 rows for clients=13 with minimum=1, got 12. Take fewer clients"),
        (DirichletLabels(3, minimum=5), None, "Expected at least 15 rows for clients=3 with minimum=5, got 12"),
        (QuantitySkew(3, minimum=5), None, "Expected at least 15 rows for clients=3 with minimum=5, got 12"),
        (ByColumn("town"), None, "Expected column 'town' to tell clients apart, got no columns"),
        (ByColumn("town"), {"age": [], "sex": []}, "got columns age, sex"),
        (ByColumn("town"), {"town": ["Bath"]}, r"Expected 12 values in column 'town', one per row, got \(1,\)"),
    ],
)
def test_rows_that_do_not_suffice_are_refused(partition: Partition, columns: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        partition.split([1, 0, 0, 0] * 3, columns)


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"one y per row, got shapes \(3, 1\) and \(2,\)"):
        distribute(Iid(1), np.zeros((3, 1)), np.zeros(2))
    with pytest.raises(InputError, match=r"Expected labels of two classes, got 3\. Use DirichletLabels"):
        PaperPartition(0, 0, 2).split([0, 1, 2])
    with pytest.raises(InputError, match=r"Expected one label per row, got y of shape \(4, 2\)"):
        DirichletLabels(2).split(np.zeros((4, 2)))


def test_distributions_are_values() -> None:
    assert PARTITIONS["B"] == PaperPartition(0.9, 0.95)
    assert len({DirichletLabels(), QuantitySkew(), DirichletLabels()}) == 2
    assert repr(DirichletLabels(3)) == "DirichletLabels(clients=3, concentration=0.5, minimum=1, seed=0)"
