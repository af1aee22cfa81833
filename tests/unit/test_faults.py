"""Bad or odd input: a clear error, or the right result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from federations import exact_posterior, linear_tables, logistic_tables, relative_error
from fedvi import PVI, FullGaussian, Gaussian, LinearRegression, LogisticRegression, simulate
from fedvi.errors import InputError
from fedvi.inference import CentralisedVI, Exact
from fedvi.simulation import RoundRobin

DIM = 3


def run(tables: Any, model: Any = None, **options: Any) -> Any:
    options = {"communications": 60, "seed": 0, "model": LogisticRegression() if model is None else model, **options}
    return simulate(tables, **options)


def spoiled(value: Any, part: int = 0) -> dict[str, Any]:
    tables: dict[str, Any] = logistic_tables([10, 5], DIM)
    tables["site 1"][part][(2, 1) if part == 0 else 2] = value
    return tables


class Frame:
    """A table with named columns, like a data frame."""

    def __init__(self, columns: list[str]):
        self.columns = columns

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.ones((3, len(self.columns)))


BAD: dict[str, tuple[Any, str]] = {
    "NaN feature": (
        lambda: spoiled(np.nan),
        "finite float32 numbers in x of client 'site 1', got nan in row 2, column 1",
    ),
    "infinite feature": (lambda: spoiled(-np.inf), "got -inf in row 2, column 1"),
    "too large for float32": (lambda: spoiled(1e300), "got inf in row 2, column 1"),
    "NaN label": (lambda: spoiled(np.nan, 1), "numbers in y of client 'site 1', got nan in row 2"),
    "three classes": (
        lambda: {"a": (np.ones((3, 1)), [1, -1, 2])},
        r"or -1 and \+1, got 2 in client 'a', row 2",
    ),
    "empty client": (lambda: {"a": (np.ones((0, 2)), [])}, "Expected at least one row in client 'a', got none"),
    "no clients": (dict, "Expected at least one client, got none"),
    "text": (lambda: {"a": (np.array([["x"]]), [1])}, "Expected numbers in x of client 'a', got dtype <U1"),
    "objects": (lambda: {"a": (np.array([[None]]), [1])}, "got dtype object"),
    "complex numbers": (lambda: {"a": (np.array([[1j]]), [1])}, "got dtype complex128"),
    "one axis": (lambda: {"a": (np.ones(3), [1, 1, 1])}, r"to have rows and columns, got shape \(3,\)"),
    "missing label": (lambda: {"a": (np.ones((3, 2)), [1, -1])}, r"one y per row of x in client 'a', got \(3, 2\) and"),
    "ragged rows": (lambda: {"a": ([[1, 2], [3]], [1, 1])}, "Expected rows of equal length in x of client 'a'"),
    "column of labels": (
        lambda: {"a": (np.ones((3, 2)), np.ones((3, 1)))},
        r"y of client 'a' to have one number per row, got shape \(3, 1\). Use y.ravel\(\)",
    ),
    "three axes": (
        lambda: {"a": (np.ones((3, 2, 2)), np.ones(3))},
        r"x of client 'a' to be a matrix, got shape \(3, 2",
    ),
    "no table at all": (lambda: 3, "Expected clients as a dictionary or a list of .x, y., got int"),
    "columns in another order": (
        lambda: {"a": (Frame(["p", "q"]), np.ones(3)), "b": (Frame(["q", "p"]), np.ones(3))},
        r"'a' has x of \(2,\) per row with columns \['p', 'q'\] .* 'b' has .* \['q', 'p'\]",
    ),
    "not a pair": (lambda: {"a": np.ones((3, 2))[:, :1]}, r"Expected a pair \(x, y\) for client 'a', got ndarray"),
    "different columns": (
        lambda: {"a": (np.ones((3, 2)), [1, 1, 1]), "b": (np.ones((3, 4)), [1, 1, 1])},
        r"Clients disagree on columns: 'a' has x of \(2,\) per row and y of \(\) per row, 'b' has x of \(4,\)",
    ),
    "huge feature": (
        lambda: spoiled(2e6),
        r"features up to 10000 in size for gradient steps, got 2e\+06 in client 'site 1', row 2, column 1. Standardise",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_gets_a_clear_error(case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(InputError, match=message):
        run(make())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"communications": None}, "Expected communications, until, max_updates or privacy, got none"),
        ({"communications": 0}, "Expected communications to be a whole number of at least 1, got 0"),
        ({"evaluate_every": -1}, "Expected evaluate_every"),
        ({"seed": -1}, "Expected seed to be a whole number of at least 0 and at most 18446744073709551615, got -1"),
        ({"seed": 1.5}, "Expected seed"),
        ({"seed": True}, "Expected seed"),
        ({"seed": 2**64}, "Expected seed"),
        ({"until": -1.0}, "Expected 0 <= until, got -1.0"),
        ({"max_updates": [1, 2, 3]}, "Expected one number of max_updates or 2, one per client, got 3"),
        ({"max_updates": [1, -2]}, "Expected max_updates to be a whole number of at least 0, got -2"),
        ({"prior": Gaussian.standard(7)}, "Expected a prior over 3 parameters for these columns, got one over 7"),
        ({"test": (np.ones((4, 2)), np.ones(4))}, r"as in the clients \(\(3,\), \(\)\) in the test set, got \(\(2,\)"),
        ({"test": (np.ones((4, 3)), np.ones((4, 1)))}, r"y of the test set to have one number per row"),
        ({"model": LogisticRegression}, r"model, got the class: write LogisticRegression\(...\)"),
        ({"model": len}, "Expected model to be a Model, got <built-in function len>"),
        ({"algorithm": PVI}, r"algorithm, got the class: write PVI\(...\)"),
        ({"schedule": RoundRobin}, r"schedule, got the class: write RoundRobin\(...\)"),
        ({"schedule": "fast"}, "Expected a schedule with a method turns"),
        ({"prior": 1.0}, "Expected prior to be a GaussianFamily, got 1.0"),
        ({"resume": True}, "Expected resume to be a checkpoint or a path, got bool"),
        ({"until": "5"}, "Expected a number for until, got '5'"),
        ({"max_updates": 2.5}, "Expected max_updates to be a whole number of at least 0, got 2.5"),
        ({"test": (np.full((4, 3), np.nan), np.ones(4))}, "x of the test set, got nan in row 0, column 0"),
        ({"algorithm": PVI(Exact())}, r"Exact\(\) needs a conjugate model such as LinearRegression, got Logistic"),
    ],
)
def test_bad_settings_get_a_clear_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(logistic_tables([10, 5], DIM), **options)


def test_algorithm_that_is_no_pytree_is_explained() -> None:
    class Plain(PVI):
        pass

    with pytest.raises(InputError, match=r"algorithm to be a pytree, got Plain: decorate its class with @fedvi.pytree"):
        run(logistic_tables([10, 5], DIM), algorithm=Plain())


def test_misaligned_clients_are_refused_before_pooling() -> None:
    x, y = np.ones((20, 2)), np.ones(20)
    with pytest.raises(InputError, match="one y per row of x in client 'client 0'"):
        run([(x, y[:10]), (x, np.append(y, y[:10]))], algorithm=CentralisedVI())


def test_numpy_numbers_are_numbers() -> None:
    tables = logistic_tables([10, 5], DIM)
    a = run(tables, seed=np.int64(3), communications=np.int32(6), max_updates=np.array([4, 4])).posterior
    b = run(tables, seed=3, communications=6, max_updates=4).posterior
    assert np.array_equal(a.mean, b.mean)


def test_constant_column_is_an_intercept() -> None:
    tables = logistic_tables([200, 80], DIM)
    for x, y in tables.values():
        x[:, 1] = 1.0
        y[:] = np.where(np.random.default_rng(0).random(len(y)) < 0.9, 1.0, -1.0)
    q = run(tables, communications=400).posterior
    assert abs(float(q.mean[1]) - np.log(9)) < 0.5


def test_client_of_one_class_learns_in_the_right_direction() -> None:
    x = np.ones((50, 1))
    q = run({"yes": (x, np.ones(50)), "no": (x[:10], -np.ones(10))}, communications=300).posterior
    assert bool(q.is_proper())
    assert abs(float(q.mean[0]) - np.log(5)) < 0.5
    alone = run({"yes": (x, np.ones(50))}, communications=300).posterior
    assert float(alone.mean[0]) > 1.5


def test_client_of_one_row_counts_as_one_row() -> None:
    tables = linear_tables([40, 1, 1], DIM)
    mean, precision = exact_posterior(tables)
    q = run(
        tables,
        LinearRegression(),
        prior=FullGaussian.standard(DIM),
        algorithm=PVI(Exact(), 1.0),
        schedule=RoundRobin(),
        communications=3,
    ).posterior
    assert relative_error(q.mean, mean) < 1e-5
    assert relative_error(q.precision, precision) < 1e-5


def test_features_of_millions_are_exact_in_the_conjugate_case() -> None:
    tables = linear_tables([40, 25], DIM)
    for x, _ in tables.values():
        x[:, 0] *= 1e6
    mean, _ = exact_posterior(tables)
    q = run(
        tables,
        LinearRegression(),
        prior=FullGaussian.standard(DIM),
        algorithm=PVI(Exact(), 1.0),
        schedule=RoundRobin(),
        communications=2,
    ).posterior
    assert np.allclose(np.asarray(q.mean), mean, rtol=1e-4)


def test_integer_and_boolean_features_are_numbers() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, (60, 2)), rng.choice([-1, 1], 60)
    a, b, c = (run({"a": (x.astype(kind), y)}).posterior.mean for kind in (int, bool, np.float16))
    assert np.array_equal(a, b)
    assert np.array_equal(a, c)


def test_data_is_not_changed() -> None:
    tables = logistic_tables([10, 5], DIM)
    before = {name: (x.copy(), y.copy()) for name, (x, y) in tables.items()}
    run(tables)
    assert all(np.array_equal(tables[name][part], before[name][part]) for name in tables for part in (0, 1))
