"""What is public and what never leaves: declared rows, default deltas, refusals that depend on no row, statements."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedvi import PVI, Budget, Gaussian, LogisticRegression, compiling, fit, simulate
from fedvi.cli.main import app
from fedvi.errors import FewUnits, InputError, ValuesClipped
from fedvi.federation import wire
from fedvi.federation.description import Description
from fedvi.federation.wire import Answer, Request
from fedvi.fitting import Fitted
from fedvi.inference import GradientSteps, PrivateClient, Public
from fedvi.privacy import ClientLevel, FullBatch, FullBatchGaussian, PoissonGaussian, calibrate
from fedvi.privacy.budget import default_delta
from fedvi.privacy.ledger.disclosure import disclosure, to_markdown
from fedvi.privacy.ledger.ledger import Ledger, read
from fedvi.privacy.ledger.overlap import rows_digest
from fedvi.privacy.sampling import Seeded, default_public_rows, most_rows, poisson_sample
from fedvi.privacy.sums import BoundedSum
from fedvi.tables import BinaryTarget, Category, Number, Schema
from fedvi.tables.encode import encode
from small_federation import SCHEMA, description, rows_of, site_of

FULL = PVI(GradientSteps(2, 0.5, FullBatchGaussian(20.0, 1.0)))


def table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 3)), np.sign(rng.normal(size=rows))


def opened(
    path: Path, rows: Any, algorithm: Any = FULL, budget: Budget | None = None, **settings: Any
) -> PrivateClient:
    public = Public(Gaussian.standard(3), jnp.asarray(1.0), jnp.asarray(1000.0))
    return PrivateClient.open(path, rows, LogisticRegression(), algorithm, public, budget or Budget(5.0), **settings)


# Declared rows


def test_two_digits_of_the_number_of_rows_are_declared() -> None:
    assert [default_public_rows(rows) for rows in (1, 9, 99, 100, 101, 999, 1000, 3907, 48_842)] == [
        *(1, 9, 99, 100, 100, 990, 1000, 3900, 48_000)
    ]


@given(st.integers(1, 10**9))
def test_the_table_fits_the_room_that_its_default_declares(rows: int) -> None:
    declared = default_public_rows(rows)
    assert declared <= rows <= most_rows(declared)


def test_the_ledger_keeps_the_declared_number_for_ever(tmp_path: Path) -> None:
    x, y = table(1234)
    with opened(tmp_path / "ledger", (x, y)) as client:
        assert client.public_rows == 1200
    assert read(tmp_path / "ledger").public_rows == 1200
    with opened(tmp_path / "ledger", (x, y), budget=Budget(5.0)) as client:
        assert client.public_rows == 1200
    with pytest.raises(InputError, match="Expected the number of rows that the ledger was made with, 1200, got 1300"):
        opened(tmp_path / "ledger", (x, y), public_rows=1300)
    with pytest.raises(InputError, match="Expected at most 1100 rows for 1000 declared ones, got more"):
        opened(tmp_path / "other", (x, y), public_rows=1000, accept=["second ledger"])


def test_a_ledger_that_was_made_without_a_number_of_rows_keeps_the_first_that_is_declared(tmp_path: Path) -> None:
    """Ledgers of earlier versions have none; the number may not follow the table from one opening to the next."""
    x, y = table(1000)
    Ledger.create(tmp_path / "ledger", Budget(5.0, 1e-5), rows_digest(x, y)).close()
    before = read(tmp_path / "ledger").entries
    for rows in ((x, y), (x[1:], y[1:])):
        with opened(tmp_path / "ledger", rows, budget=Budget(5.0, 1e-5), accept=["other data"]) as client:
            assert client.public_rows == 1000
    book = read(tmp_path / "ledger")
    assert book.public_rows == 1000
    assert book.entries[: len(before)] == before
    assert [entry.kind for entry in book.entries].count("declared") == 1
    assert "1000 rows" in CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "ledger")]).output


def test_everything_public_is_the_same_for_neighbouring_tables(tmp_path: Path) -> None:
    x, y = table(1000)
    clients: list[PrivateClient] = []
    for count in (1000, 999):
        accept = ["other people"] if clients else []
        clients.append(opened(tmp_path / str(count), (x[:count], y[:count]), public_rows=1000, accept=accept))
    one, two = clients
    assert one.event == two.event
    assert one.ledger.book.budget == two.ledger.book.budget
    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(client._rows.rows)] for client in clients]
    assert shapes[0] == shapes[1]
    for client in clients:
        client.close()


def test_the_true_number_of_rows_is_in_no_message(tmp_path: Path) -> None:
    chosen = description(("north",), 2)
    told = wire.encode(Answer(chosen.digest, wire.QUESTION, 0, 0, arrays=wire.arrays_of(chosen.form)))
    with site_of(tmp_path / "db", chosen, rows_of(0, 257), Budget(1.0), tmp_path / "ledger") as client:
        messages = [client.request()]
        client.receive(told)
        messages.append(client.request())
    for data in messages:
        assert data is not None
        request = wire.decode(data, Request, 1 << 20)
        assert request.declared.rows == 250
        header = json.dumps(msgspec.to_builtins(request.declared))
        assert "257" not in header
        assert request.declared.delta == default_delta(250)


def test_a_site_tells_what_it_spent_in_this_federation_only(tmp_path: Path) -> None:
    """The ledger of the rows pays for another federation first."""
    declared = []
    for number, updates in ((0, 3), (1, 1)):
        chosen = description(("north",), 4, identity=f"federation {number}")
        arrays = wire.arrays_of(chosen.form)
        place = tmp_path / f"{number}.db", chosen, rows_of(0, 300), Budget(2.0), tmp_path / "ledger"
        with site_of(*place) as client:
            client.request()
            for made in range(updates):
                client.receive(wire.encode(Answer(chosen.digest, wire.QUESTION, made, made, arrays=arrays)))
                data = client.request()
            assert data is not None
            declared.append(wire.decode(data, Request, 1 << 20).declared)
    assert [sum(int(event["count"]) for event in said.events) for said in declared] == [3, 1]
    book = read(tmp_path / "ledger")
    assert sum(book.charged.values()) == 4
    assert declared[1].epsilon < declared[0].epsilon < book.budget.spent(book.charged)


def test_sums_are_scaled_to_the_declared_number() -> None:
    part, rng = BoundedSum(1e-3), np.random.default_rng(0)
    values = rng.uniform(0, 1, (1050, 1))
    total = float(part.total(values, 1000, average=True)[0])
    assert total / 1000 == pytest.approx(values.mean(), rel=1e-4)
    few = float(part.total(values[:900], 1000, average=True)[0])
    assert few == pytest.approx(values[:900].sum(), rel=1e-4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 30))
def test_one_row_moves_an_average_by_at_most_one(values: list[float], declared: int) -> None:
    part, numbers = BoundedSum(1.0), np.array(values)[:, None]
    if len(values) > most_rows(declared):
        return
    with_it, without = (part.total(rows, declared, average=True)[0] for rows in (numbers, numbers[1:]))
    assert abs(with_it - without) <= 1


def test_rows_are_sampled_at_the_declared_rate() -> None:
    rng = Seeded(0, 0)
    sizes, rows = poisson_sample(rng, 1000, 0.05, 2000)
    assert abs(sizes.mean() - 50) < 4 * math.sqrt(47.5 / 2000)
    assert abs(sizes.var() - 47.5) < 4 * 47.5 * math.sqrt(2 / 2000)
    counts = np.bincount(rows, minlength=1000)
    assert abs(counts - 100).max() < 6 * 10
    for rate in (1e-5, 0.3, 0.9, 0.999):
        sizes, rows = poisson_sample(rng, 500, rate, 400)
        assert abs(sizes.sum() - 200_000 * rate) <= 6 * math.sqrt(200_000 * rate * (1 - rate)) + 1
        starts = np.concatenate([[0], np.cumsum(sizes)])
        assert all(np.all(np.diff(rows[a:b]) > 0) for a, b in itertools.pairwise(starts))


# Deltas


def test_one_rule_for_delta_at_all_entrances(tmp_path: Path) -> None:
    x, y = table(1000)
    assert default_delta(1000) == 1e-5
    assert default_delta(10**6) == 1e-7
    assert Budget(1.0).fixed(1000).delta == 1e-5
    assert Budget(1.0, "paper").fixed(999).delta == 1e-3
    with opened(tmp_path / "ledger", (x, y)) as client:
        assert client.ledger.book.budget.delta == 1e-5
    result = simulate([(x, y)], LogisticRegression(), seed=0, algorithm=FULL, privacy=Budget(1.0), max_updates=1)
    assert result.privacy["client 0"].delta == 1e-5
    named = {f"x{k}": x[:, k] for k in range(3)}
    schema = Schema(tuple(Number(f"x{k}", -4, 4, 0, 1) for k in range(3)), BinaryTarget("y", ("-1.0", "1.0")))
    tables = {"a": {**named, "y": y.astype(str)}, "b": {**named, "y": y.astype(str)}}
    fitted = fit(schema, tables, epsilon=1.0, questions=3)
    assert {site.delta for site in fitted.sites} == {1e-5}
    assert CliRunner().invoke(app, ["budget", "--eps", "1", "--rows", "1000", "--updates", "3", "--json"]).stdout
    with pytest.raises(InputError, match="Expected delta to be one of auto, paper"):
        Budget(1.0, "none")


def test_the_default_delta_of_client_level_privacy_is_by_clients() -> None:
    tables = [table(50, seed) for seed in range(20)]
    algorithm = PVI(GradientSteps(2, 0.5, FullBatch()), client_level=ClientLevel(20.0, 1.0))
    with pytest.warns(FewUnits, match="Only 20 clients"):
        result = simulate(tables, LogisticRegression(), seed=0, algorithm=algorithm, privacy=Budget(1.0), max_updates=1)
    assert result.privacy["client 0"].delta == 1e-5


def test_few_rows_are_warned_about() -> None:
    with pytest.warns(FewUnits, match="Only 60 rows of a client: the promise holds, but"):
        simulate([table(60)], LogisticRegression(), seed=0, algorithm=FULL, privacy=Budget(1.0), max_updates=1)


def test_small_epsilons_are_planned_where_they_are_feasible() -> None:
    assert calibrate(epsilon=1e-3, delta=1e-5, sampling_rate=1.0, updates=1).noise_multiplier == 1725
    sampled = calibrate(epsilon=1e-3, delta=1e-5, sampling_rate=0.02, updates=1, steps=25)
    assert sampled.epsilon <= 1e-3
    assert sampled.noise_multiplier < 200


# No refusal depends on a row


def test_a_private_client_counts_unusable_rows_as_nothing_and_tells(tmp_path: Path) -> None:
    x, y = table(200)
    x[3, 1], x[5, 0], y[7], y[9] = np.nan, 1e30, 3.0, np.nan
    with opened(tmp_path / "ledger", (x, y), public_rows=200) as client:
        assert client.noticed == (
            "3 rows hold what is no number, or a foreign label: they count as nothing",
            "1 features are beyond 64 and count as that",
        )
        client.update(Gaussian.standard(3))


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_without_any_usable_row_is_a_table_like_others(tmp_path: Path, rows: int) -> None:
    nothing = np.full((rows, 3), np.nan), np.ones(rows)
    with opened(tmp_path / "ledger", nothing, public_rows=200) as client:
        client.update(Gaussian.standard(3))


def test_simulations_warn_about_features_beyond_the_bound() -> None:
    x, y = table(200)
    x[0, 0] = 100.0
    with pytest.warns(ValuesClipped, match="1 features beyond 64 were clipped"):
        simulate([(x, y)], LogisticRegression(), seed=0, algorithm=FULL, max_updates=1)
    simulate([(x, y)], LogisticRegression(), seed=0, algorithm=FULL, max_updates=1, feature_bound=128.0)
    with pytest.raises(InputError, match="Expected feature_bound to be a power of two, got 100"):
        simulate([(x, y)], LogisticRegression(), seed=0, algorithm=FULL, max_updates=1, feature_bound=100.0)


def test_a_schema_that_makes_sites_refuse_is_refused_before_rows_are_read() -> None:
    asking = Schema((Number("a", 0, 1, 0, 1, missing="error"), Category("b", ("x", "y"))), SCHEMA.target)
    assert asking.questions == ["a"]
    with pytest.raises(InputError, match=r"Expected a schema by which no site refuses because of a row.*in a"):
        Description("trial", ("north",), asking, rows=100)
    unknown = Schema((Category("b", ("x", "y"), unknown="error"),), SCHEMA.target)
    with pytest.raises(InputError, match="a refusal is a noiseless answer"):
        Description("trial", ("north",), unknown, rows=100)


def test_encoding_at_a_site_refuses_no_row() -> None:
    columns = {
        "a": ["1", "inf", "three", "", "9"],
        "b": ["0.5", "0.1", "0.2", "0.3", "0.4"],
        "y": ["yes", "no", "maybe", "", "no"],
    }
    with pytest.raises(InputError):
        encode(SCHEMA, columns, strict=True)
    assert encode(SCHEMA, columns).x[:, 1].tolist() == [1.0, 0.0, 4.0]  # elsewhere rows without a target are left out
    found = encode(SCHEMA, columns, private=True)
    assert found.x[:, 1].tolist() == [1.0, 0.0, 0.0, 0.0, 4.0]
    assert found.y is not None
    assert np.array_equal(found.y, [1, -1, np.nan, np.nan, -1], equal_nan=True)
    assert (found.counts.unknown, found.counts.foreign["a"]) == ({"y": 1}, 2)


def test_the_feature_bound_of_a_schema_is_public_and_enough() -> None:
    schema = Schema((Number("a", 0, 100, 40, 20), Number("b", 0, 1, 0.5, 1)), SCHEMA.target)
    assert schema.feature_bound == 4.0
    assert SCHEMA.feature_bound == 4.0
    assert Schema((Number("a", 0, 1e5, 0, 1),), SCHEMA.target).feature_bound == 8192.0


def test_private_updates_refuse_backends_other_than_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.jax, "default_backend", lambda: "gpu")
    with pytest.raises(InputError, match="Expected private updates on the CPU, got JAX's backend 'gpu'"):
        opened(tmp_path / "ledger", table(200))


# Files and statements


def test_posterior_files_say_that_they_are_simulations_and_hold_no_seed(tmp_path: Path) -> None:
    x, y = rows_of(0, 200)
    columns = {"a": x[:, 1], "b": x[:, 2], "y": np.where(y > 0, "yes", "no")}
    fitted = fit(SCHEMA, {"north": columns, "south": columns}, epsilon=1.0, questions=3, seed=987_654_321)
    fitted.save(tmp_path / "model.fedvi")
    assert b"987654321" not in (tmp_path / "model.fedvi").read_bytes()
    again = Fitted.load(tmp_path / "model.fedvi")
    assert again.simulated
    assert "simulation" in again.statement
    assert "seed" not in again.settings


def spent_ledger(path: Path) -> None:
    algorithm = PVI(GradientSteps(1, 0.5, FullBatchGaussian(None, 1.5)))
    with opened(path, table(1000), algorithm, Budget(1.0), updates=3) as client:
        client.update(Gaussian.standard(3))


def test_a_statement_says_what_nist_asks_for(tmp_path: Path) -> None:
    spent_ledger(tmp_path / "ledger")
    values = disclosure(read(tmp_path / "ledger"))
    privacy = values["privacy"]
    assert privacy["unit"] == "one row of one site"
    assert "same number of rows is declared" in privacy["neighbouring_relation"]
    assert privacy["declared_rows"] == 1000
    assert 0 < privacy["epsilon_spent"] < 1 == privacy["epsilon_budget"]
    assert privacy["guarantee"]
    assert values["mechanism"]["numbers_with_noise"] == 6
    (release,) = values["releases"]
    assert release["count"] == 1
    assert release["epsilon_of_one"] == pytest.approx(privacy["epsilon_spent"])
    assert {"trust_model", "composition", "known_gaps", "unprotected_quantities", "data", "utility"} <= set(values)
    registry = values["registry"]
    assert registry["privacy_loss"]["privacy_parameters"] == {
        "epsilon": privacy["epsilon_spent"],
        "delta": 1e-5,
        "rho": None,
    }
    assert "basic.name" in registry["to_be_filled_in"]
    assert json.loads(json.dumps(values)) == values
    page = to_markdown(values, "Privacy")
    assert page.startswith("# Privacy\n")
    assert "## Known gaps" in page
    assert "{" not in page


def test_the_command_prints_every_format(tmp_path: Path) -> None:
    spent_ledger(tmp_path / "ledger")
    runner, path = CliRunner(), str(tmp_path / "ledger")
    text = runner.invoke(app, ["ledger", "statement", path]).stdout
    assert "The declared number of rows, 1000, is public" in text
    assert json.loads(runner.invoke(app, ["ledger", "statement", path, "--format", "json"]).stdout)["privacy"]
    assert "## Releases" in runner.invoke(app, ["ledger", "statement", path, "--format", "markdown"]).stdout
    wrong = runner.invoke(app, ["ledger", "statement", path, "--format", "xml"])
    assert wrong.exit_code != 0


def test_a_ledger_with_releases_of_earlier_versions_is_no_guarantee(tmp_path: Path) -> None:
    from fedvi.privacy.ledger.entries import Book, Entry

    spent_ledger(tmp_path / "ledger")
    entries, previous = [], ""
    for entry in read(tmp_path / "ledger").entries:
        body = json.loads(json.dumps(entry.body))
        if "event" in body:
            del body["event"]["numbers"]  # as they were written then
        entries.append(Entry.after(previous, entry.number, entry.time, entry.kind, body))
        previous = entries[-1].chain
    old = Book.read(entries, "old")
    assert old.caveats == ("1 releases were made by an earlier version, whose noise did not hide rows (SECURITY.md)",)
    assert "NOT A GUARANTEE" in old.statement("x")
    assert not disclosure(old)["privacy"]["guarantee"]


def test_the_price_of_the_distance_from_real_normals_is_counted() -> None:
    from fedvi.privacy import epsilon
    from fedvi.privacy.events import gaussian

    plain, counted = (epsilon({gaussian(5.0, 1, numbers): 1}, 1e-5) for numbers in (0, 10**9))
    assert counted - plain >= 2.1 * 10**9 * 2.0**-48
    assert counted - plain < 1e-2
    assert epsilon({gaussian(5.0, 1, 10**12): 1}, 1e-5) > 1.01 * plain
    for accountant in ("pld", "rdp", "moments", "filter"):
        free, paid = (epsilon({gaussian(5.0, 1, numbers): 1}, 1e-4, accountant, target=1.0) for numbers in (0, 10**6))
        assert free < paid < free + 1e-5
    event = PoissonGaussian(5.0).event(3907, 25, 216)
    assert 0 < event.distance * 239 < 1e-6
