"""A likelihood that fedvi does not know, one small file (tests/support/student_t.py), works wherever a model does."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats
from typer.testing import CliRunner

import student_t
from fedvi import Budget, Fitted, NoiseAwarePVI, Schema, fit, simulate
from fedvi.cli import app
from fedvi.errors import InputError
from fedvi.experiments import Experiment, RunDirectory, execute
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.description import Description
from fedvi.federation.settings import SiteSettings
from fedvi.fitting.from_federation import fitted_of
from fedvi.tables import Number, NumberTarget
from own_columns import Log, Steps
from small_federation import site_of
from student_t import StudentT

KIND = "student_t:StudentT"
WEIGHTS = np.array([1.0, -0.5, 0.25])
SCHEMA = Schema((Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1)), NumberTarget("y", -60, 60, 0, 1))


def rows_of(seed: int, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.c_[np.ones(rows), np.clip(rng.normal(size=(rows, 2)), -4, 4)].astype(np.float32)
    return x, (x @ WEIGHTS + rng.standard_t(4, rows)).astype(np.float32)


def table(seeds: tuple[int, ...] = (0, 1)) -> pa.Table:
    x, y = (np.concatenate(parts) for parts in zip(*map(rows_of, seeds), strict=True))
    sites = [site for site in seeds for _ in range(300)]
    columns = {"a": x[:, 1].tolist(), "b": x[:, 2].tolist(), "y": y.tolist(), "site": [f"site {s}" for s in sites]}
    return pa.table(columns)


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return fit(SCHEMA, table(), site_column="site", model=KIND, epsilon=None, progress=False)


def test_the_file_is_small() -> None:
    assert len(Path(student_t.__file__).read_text().splitlines()) <= 60


def test_slopes_by_quadrature_are_those_of_the_integral() -> None:
    model, z = StudentT(5.0, 0.7), jnp.zeros(0)
    with jax.enable_x64(True):
        mean, variance, y = jnp.array([0.3, -1.0]), jnp.array([0.05, 0.2]), jnp.array([1.0, -0.6])
        slopes = model.slopes(mean, variance, y, z.astype(float))

    def value(m: float, v: float, target: float) -> float:
        def term(t: float) -> float:
            eta = m + np.sqrt(v) * t
            return float(stats.t.logpdf((target - eta) / 0.7, 5.0)) * float(stats.norm.pdf(t))

        return float(integrate.quad(term, -12, 12, epsabs=1e-13, limit=300)[0])

    for k in range(2):
        m, v, target, h = float(mean[k]), float(variance[k]), float(y[k]), 1e-4
        by_mean = (value(m + h, v, target) - value(m - h, v, target)) / (2 * h)
        by_variance = (value(m, v + h, target) - value(m, v - h, target)) / (2 * h)
        assert float(slopes[0][k]) == pytest.approx(by_mean, abs=1e-5)
        assert float(slopes[1][k]) == pytest.approx(by_variance, abs=1e-4)


def test_simulate_with_and_without_privacy() -> None:
    clients = {"a": rows_of(0), "b": rows_of(1)}
    settings = {"seed": 0, "algorithm": NoiseAwarePVI(), "max_updates": 60, "progress": False}
    result = simulate(clients, StudentT(), **settings, privacy=Budget(4.0), test=rows_of(2))  # type: ignore[arg-type]
    assert np.abs(np.asarray(result.posterior.mean) - WEIGHTS).max() < 0.5
    assert result.privacy["a"].epsilon <= 4.0


def test_a_sweep(tmp_path: Path) -> None:
    x, y = rows_of(0)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    (tmp_path / "own.toml").write_text(
        f"""
seeds = [1]
data = {{ kind = "Npz", path = "{tmp_path / "rows.npz"}" }}
model = {{ kind = "{KIND}", df = 5.0 }}
partition.even = {{ kind = "Iid", clients = 2 }}
[method.pvi]
algorithm = "NoiseAwarePVI"
privacy = {{ kind = "Budget", epsilon = 2.0 }}
max_updates = 5
"""
    )
    experiment = Experiment.load(tmp_path / "own.toml")
    results = execute(RunDirectory.create(tmp_path / "run", experiment), experiment, workers=1, quiet=True).results
    assert np.isfinite(results["even"]["pvi"].metrics["rmse"][0])


def test_fit_predict_inspect_and_the_posterior_file(fitted: Fitted, tmp_path: Path) -> None:
    found = {each.feature: each for each in fitted.coefficients()}
    for name, truth in zip(SCHEMA.features, WEIGHTS, strict=True):
        assert abs(found[name].mean - truth) < 0.3
    path = tmp_path / "own.fedvi"
    fitted.save(path)
    with pytest.raises(InputError, match="student_t"):
        Fitted.load(path)
    again = Fitted.load(path, kinds=[KIND])
    assert repr(again.model) == repr(fitted.model)
    before, after = fitted.predict(table()), again.predict(table())
    np.testing.assert_array_equal(before.mean, after.mean)
    y = np.asarray(table()["y"].to_pylist())
    inside = (before.low <= y) & (y <= before.high)
    assert 0.85 < inside.mean() < 0.97
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n0.5,1.0\n-1.0,2.0\n")
    shown = CliRunner().invoke(app, ["predict", str(path), str(rows), "--kind", KIND])
    assert shown.output.splitlines()[0] == '"prediction","low","high"'
    told = CliRunner().invoke(app, ["inspect", str(path), "--kind", KIND, "--json"])
    assert json.loads(told.output)["model"]["kind"] == KIND


def test_an_own_column_and_target_from_a_schema_file_to_predictions(tmp_path: Path) -> None:
    """A file names them; commands build them, and read them back only if the reader allows it."""
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 90, 400)
    days = np.exp(0.5 + (age > 40) + (age > 60) + rng.normal(0, 0.3, 400))
    rows = "".join(f"{a:.1f},{d:.3f},{'ab'[n % 2]}\n" for n, (a, d) in enumerate(zip(age, days, strict=True)))
    (tmp_path / "rows.csv").write_text("age,days,site\n" + rows)
    (tmp_path / "new.csv").write_text("age\n30\n50\n70\n")
    columns = (Steps("age", 40, 60, 50, 20),)
    Schema(columns, Log("days", 1e-3, 1e3, 1, 1)).save(tmp_path / "schema.toml")
    paths = [str(tmp_path / name) for name in ("schema.toml", "rows.csv", "m.fedvi", "new.csv")]
    fitting = ["fit", *paths[:2], "--site-column", "site", "--not-private", "--out", paths[2]]
    kinds = ["--kind", "own_columns:Steps", "--kind", "own_columns:Log"]
    assert CliRunner().invoke(app, fitting, catch_exceptions=False).exit_code == 0
    shown = CliRunner().invoke(app, ["predict", *paths[2:], *kinds], catch_exceptions=False)
    lines = [[float(cell) for cell in line.split(",")] for line in shown.output.splitlines()[1:]]
    for (predicted, low, high), truth in zip(lines, np.exp([0.5, 1.5, 2.5]), strict=True):
        assert predicted == pytest.approx(truth, rel=0.1)
        assert low < truth < high
    told = CliRunner().invoke(app, ["inspect", paths[2], "--json", *kinds], catch_exceptions=False)
    features = {each["feature"] for each in json.loads(told.output)["coefficients"]}
    assert features == {"(intercept)", "age above 40", "age above 60"}
    for allowed in ([], ["own_columns:Steps"]):
        with pytest.raises(InputError, match=r"Refused target \(days\)\.kind = 'own_columns:Log'"):
            Fitted.load(paths[2], allowed)


def test_a_real_federation(tmp_path: Path) -> None:
    named = Description("trial", ("north",), SCHEMA, updates=3, rows=300, identity="test", model={"kind": KIND})
    named.save(tmp_path / "north")
    own = tmp_path / "own"
    own.mkdir()
    place = tmp_path / "north", own / "rows.csv", own / "north.ledger", 4.0
    with pytest.raises(InputError, match="policy file"):
        _ = SiteSettings(*place).description
    (own / "policy.toml").write_text(f'kinds = ["{KIND}"]')
    settings = SiteSettings(*place)
    with (
        Coordinator.create(tmp_path / "coordinator.db", named) as server,
        site_of(own / "north.db", settings.description, rows_of(0), Budget(4.0), own / "north.ledger") as site,
    ):
        for _ in range(20):
            data = site.request()
            if data is None:
                break
            site.receive(server.handle("north", data))
        assert server.version == 3
        assert np.isfinite(fitted_of(server).predict(table()).mean).all()
