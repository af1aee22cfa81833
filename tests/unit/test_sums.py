"""Private sums beside training: sensitivity, noise, standardisation, the width of the posterior, and who pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvi import PVI, Budget, Gaussian
from fedvi.errors import BudgetClosed, ChosenLate, InputError, LedgerError, OtherData, OtherSchema
from fedvi.inference import GradientSteps, PrivateClient, Public, Server
from fedvi.models import LogisticRegression
from fedvi.privacy import ClientLevel, FullBatchGaussian
from fedvi.privacy.ledger.ledger import read
from fedvi.privacy.sampling import STATISTIC, Seeded, System, most_rows
from fedvi.privacy.sums import BoundedSum, part_of
from fedvi.tables import BinaryTarget, Category, Number, Schema
from fedvi.tables.standardise import Standardisation

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)
SCHEMA = Schema((Number("a", -3, 3, 0, 1), Number("b", 0, 10, 4, 2)), BinaryTarget("y", ("no", "yes")))


def without_noise(vectors: np.ndarray, rows: int = 50) -> np.ndarray:
    """Return what a release is made of before it gets its noise, for so many declared rows."""
    return BoundedSum(1.0, vectors.shape[1]).total(vectors, rows, average=False)


@given(st.lists(st.lists(ANY, min_size=4, max_size=4), min_size=1, max_size=8), st.integers(0, 7))
def test_one_row_moves_the_sum_by_at_most_one_whatever_it_holds(rows: list[list[float]], left_out: int) -> None:
    vectors = np.array(rows)
    less = np.delete(vectors, left_out % len(vectors), axis=0)
    assert np.linalg.norm(without_noise(vectors) - without_noise(less)) <= 1


@given(st.lists(ANY, min_size=1, max_size=8), st.integers(0, 7), st.integers(1, 10))
def test_one_row_moves_an_average_by_at_most_one_whatever_number_of_rows_is_declared(
    rows: list[float], left_out: int, declared: int
) -> None:
    vectors = np.array(rows)[: most_rows(declared), None]
    less = np.delete(vectors, left_out % len(vectors), axis=0)
    averages = [BoundedSum(1.0).total(each, declared, average=True) for each in (vectors, less)]
    assert abs(averages[0][0] - averages[1][0]) <= 1
    assert all(0 <= average[0] <= declared for average in averages)


def test_short_rows_are_summed_as_they_are_and_noise_has_its_size() -> None:
    vectors = np.random.default_rng(0).uniform(-0.4, 0.4, (50, 4))
    part, total = BoundedSum(3.0, 4), vectors.sum(axis=0)
    np.testing.assert_allclose(part.total(vectors, 50, average=False), total, atol=2e-6)
    noise = [part.release(vectors, 50, Seeded(seed, STATISTIC)) - total for seed in range(1000)]
    assert np.std(noise) == pytest.approx(3.0, rel=0.05)
    assert abs(np.mean(noise)) < 0.2
    lattice = part.lattice(50)
    whole = np.rint(part.total(vectors, 50, average=False) / lattice.grid) + lattice.noise(Seeded(7, STATISTIC), 4)
    assert np.array_equal(part.release(vectors, 50, Seeded(7, STATISTIC)), whole * lattice.grid)
    with pytest.raises(InputError, match=r"Expected vectors of 3 numbers, got shape \(50, 4\)"):
        BoundedSum(3.0, 3).release(vectors, 50, System())
    with pytest.raises(InputError, match="Expected at most 44 rows, got more"):
        part.release(vectors, 40, System())
    with pytest.raises(InputError, match="Expected one number per row for an average, got 4"):
        part.release(vectors, 50, System(), average=True)
    with pytest.raises(InputError, match="noise_multiplier"):
        BoundedSum(0.0)
    beyond = np.full((3, 4), np.longdouble("1e4000"))
    assert np.array_equal(without_noise(beyond), np.zeros(4))


def test_an_average_is_that_of_as_many_rows_as_are_declared() -> None:
    numbers = np.random.default_rng(0).uniform(0, 1, (52, 1))
    for declared in (50, 52, 60):
        total = float(BoundedSum(1.0).total(numbers, declared, average=True)[0])
        assert total == pytest.approx(numbers.sum() * declared / max(52, declared), abs=1e-4)


def test_long_sums_are_whole_numbers_and_the_same_in_any_order() -> None:
    rows = 1 << 21
    ones = np.ones((rows, 1))
    longest = float((without_noise(ones, rows) - without_noise(ones[1:], rows))[0])
    assert 0.999 < longest <= 1
    vectors = np.random.default_rng(0).normal(size=(rows // 8, 2))
    forth, back = without_noise(vectors, rows), without_noise(vectors[::-1], rows)
    assert np.array_equal(forth, back)
    steps = forth / BoundedSum(1.0, 2).lattice(rows).grid
    assert np.array_equal(steps, np.rint(steps))
    assert np.linalg.norm(forth - without_noise(vectors[1:], rows)) <= 1


def test_parts_of_a_budget_cost_what_the_whole_costs() -> None:
    budget = Budget(1.0, 1e-4)
    parts = [part_of(budget, share) for share in (0.1, 0.2, 0.7)]
    spent = budget.spent({part.event: 1 for part in parts})
    assert 0.99 < spent <= 1.0  # noise is rounded up
    assert budget.beside({parts[2].event: 1}).spent({parts[0].event: 1, parts[1].event: 1}) == pytest.approx(spent)
    assert budget.beside({parts[2].event: 1}).most_updates(parts[2].event) == 0


@given(st.lists(st.tuples(ANY, ANY, ANY), min_size=1, max_size=6))
def test_vectors_of_standardisation_are_no_longer_than_one(rows: list[tuple[float, ...]]) -> None:
    vectors = Standardisation.of(SCHEMA).vectors(np.array(rows, np.float64), np.zeros(len(rows)))
    assert np.nanmax(np.linalg.norm(vectors, axis=1), initial=0) <= 1 + 1e-12


def test_standardisation_gives_mean_and_deviation_and_stays_with_the_schema_where_noise_drowns_them() -> None:
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(5000), rng.normal(0.5, 0.7, 5000).clip(-3, 3), rng.uniform(-1, 2, 5000)])
    standard = Standardisation.of(SCHEMA)
    total = standard.vectors(x, x[:, 0]).sum(axis=0)
    centre, scale = standard.scales(total, 5000, 0.0)
    np.testing.assert_allclose(centre, x[:, 1:].mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(scale, x[:, 1:].std(axis=0), rtol=1e-9)
    b = standard.schema(SCHEMA, centre, scale).columns[1]
    assert isinstance(b, Number)
    assert [b.centre, b.scale] == [pytest.approx(4 + 2 * x[:, 2].mean()), pytest.approx(2 * x[:, 2].std())]
    centre, scale = standard.scales(1e9 * rng.normal(size=4), 5000, 1e9)
    np.testing.assert_allclose(centre, 0, atol=1e-6)
    np.testing.assert_allclose(scale, 1, rtol=1e-6)


def table(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))]), rng.choice([-1.0, 1.0], rows)


def opened(path: Path, sums: tuple[BoundedSum, ...] = (), schema: str = SCHEMA.digest, **more: Any) -> PrivateClient:
    public = Public(Gaussian.standard(3), jnp.asarray(1.0), jnp.asarray(60.0))
    budget = Budget(1.0, 1e-3)
    return PrivateClient.open(
        path,
        table(),
        LogisticRegression(),
        PVI(GradientSteps(2, 0.5, FullBatchGaussian(None, 1.5)), damping=0.5),
        public,
        budget,
        updates=3,
        sums=sums,
        schema=schema,
        **more,
    )


def test_site_pays_for_its_statistics_before_they_are_drawn_and_once(tmp_path: Path) -> None:
    x, y = table()
    budget = Budget(1.0, 1e-3)
    first, last = part_of(budget, 0.1, numbers=4), part_of(budget, 0.05, numbers=4)
    standard = Standardisation.of(SCHEMA)
    with opened(tmp_path / "ledger", (first, last)) as site:
        assert site.remaining == 3
        sums = site.release_sum(first, standard.vectors, "standardisation")
        again = standard.vectors(x.astype(np.float32), y).sum(axis=0)
        assert np.all(np.abs(sums - again) < 6 * first.noise_multiplier)
        assert not np.allclose(sums, again, atol=1e-3)
        with pytest.raises(BudgetClosed, match="Planned 1 times and used as often"):
            site.release_sum(first, standard.vectors, "once more")
        assert site.update(Gaussian.standard(3)).schema == SCHEMA.digest

        def raising(*_: np.ndarray) -> np.ndarray:
            raise RuntimeError("power cut")

        with pytest.raises(RuntimeError):
            site.release_sum(last, raising, "width")  # what breaks after the charge is paid for all the same
    book = read(tmp_path / "ledger")
    assert {event: count for event, count in book.charged.items() if event == last.event} == {last.event: 1}
    assert [entry.body["purpose"] for entry in book.entries if entry.kind == "charge"] == [
        "standardisation",
        "training",
        "width",
    ]
    assert book.spent.epsilon <= 1.0
    assert not book.spent.caveats
    assert book.schema == SCHEMA.digest
    with opened(tmp_path / "ledger", (first, last)) as site:  # a restart plans nothing twice
        assert site.remaining == 2
        with pytest.raises(BudgetClosed):
            site.release_sum(last, standard.vectors, "width")


def test_ledger_knows_its_schema(tmp_path: Path) -> None:
    opened(tmp_path / "ledger").close()
    other = Schema((*SCHEMA.columns, Category("c", ("p", "q"))), SCHEMA.target).digest
    with pytest.raises(OtherData, match="feature schema"):
        opened(tmp_path / "ledger", schema=other)
    opened(tmp_path / "ledger", schema=other, accept=["other data"]).close()
    assert read(tmp_path / "ledger").schema == other
    opened(tmp_path / "ledger", schema=other).close()


def test_coordinator_refuses_rows_encoded_by_another_schema(tmp_path: Path) -> None:
    coordinator = Server.start(Gaussian.standard(3), ["north"], schema=SCHEMA.digest)
    with opened(tmp_path / "right") as site:
        after = coordinator.receive("north", site.update(coordinator.posterior))
    assert int(after.state.version) == 1
    assert after.schema == SCHEMA.digest
    with (
        opened(tmp_path / "wrong", schema="f" * 64, accept=["second ledger"]) as site,
        pytest.raises(OtherSchema, match="'north' encodes its rows by feature schema ffffffffffff, the federation by"),
    ):
        coordinator.receive("north", site.update(coordinator.posterior))


def test_sums_over_rows_need_rows_as_the_unit_of_privacy(tmp_path: Path) -> None:
    public = Public(Gaussian.standard(3), jnp.asarray(1.0), jnp.asarray(60.0))
    algorithm = PVI(client_level=ClientLevel(50.0, 1.0))
    arguments: Any = (table(), LogisticRegression(), algorithm, public, Budget(1.0, 1e-3))
    with pytest.raises(InputError, match="protects single rows"):
        PrivateClient.open(tmp_path / "ledger", *arguments, sums=[BoundedSum(10.0)])
    assert not (tmp_path / "ledger").exists()
    with PrivateClient.open(tmp_path / "ledger", *arguments) as site:
        with pytest.raises(InputError, match="protects single rows"):
            site.release_sum(BoundedSum(50.0), lambda x, _: np.ones((len(x), 1)), "count")
        assert not site.ledger.book.charged


def test_sums_that_the_plan_does_not_cover_are_refused(tmp_path: Path) -> None:
    planned, late = BoundedSum(100.0, 3), BoundedSum(200.0, 3)
    with opened(tmp_path / "ledger", (planned,)) as site:
        with pytest.raises(LedgerError, match="planned event"):
            site.release_sum(late, lambda x, _: x, "unplanned")
        with pytest.raises(InputError, match=r"a vector of 3 numbers for each row, got shape \(120, 3\)"):
            site.release_sum(planned, lambda x, _: np.concatenate([x, x]), "twice")
    with pytest.raises(ChosenLate, match="sums"):
        opened(tmp_path / "ledger", (planned, late))
    public = Public(Gaussian.standard(3), jnp.asarray(1.0), jnp.asarray(60.0))
    algorithm = PVI(GradientSteps(1, 0.5, FullBatchGaussian(300.0)))
    arguments: Any = (table(), LogisticRegression(), algorithm, public, Budget(1.0, 1e-3))
    with pytest.raises(InputError, match="other noise than updates"):
        PrivateClient.open(tmp_path / "other", *arguments, sums=[BoundedSum(300.0, 6)], accept=["second ledger"])
