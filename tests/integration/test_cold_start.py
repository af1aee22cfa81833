"""What needs no JAX does not load it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedvi import Fitted, Schema, fit
from fedvi.federation import wire
from fedvi.fitting.from_federation import fitted_of
from fedvi.tables import BinaryTarget, Number, NumberTarget
from small_federation import answer, answers, description, message, open_coordinator, poll, release

COMMANDS = """
import sys
from fedvi.cli import app
for command in (["predict", "m.fedvi", "rows.csv", "--out", "p.csv"], ["inspect", "m.fedvi"]):
    app(command, standalone_mode=False)
found = {"jax", "pandas", "matplotlib", "optax", "dp_accounting"} & set(sys.modules)
assert not found, found
"""
SERVER = """
import sys
import numpy as np
from fedvi.errors import ImproperRelease
from fedvi.families.mean_field import Gaussian
from fedvi.inference.server import Server
from fedvi.inference.update import Release

server = Server.start(Gaussian.standard(2), ["a", "b"])
for sequence, name, mean in ((1, "a", 1.0), (1, "b", 2.0), (2, "a", 3.0)):
    factor = Gaussian(np.full(2, mean, np.float32), np.ones(2, np.float32))
    server = server.receive(name, Release(factor, np.int32(sequence)))
try:
    server.receive("b", Release(Gaussian(np.zeros(2, np.float32), np.full(2, -9, np.float32)), np.int32(2)))
except ImproperRelease:
    print(server.posterior.mean.tolist(), "jax" in sys.modules)
"""
COORDINATOR = """
import sys
from pathlib import Path
from fedvi.cli import app
from fedvi.federation.coordinator import Coordinator

with Coordinator.open(Path("cold/coordinator.db")) as coordinator:
    for number, name in enumerate("north north south north north".split()):
        Path(f"{number}.answer").write_bytes(coordinator.handle(name, Path(f"{number}.request").read_bytes()))
app(["federation", "export", "cold", "--out", "m.fedvi"], standalone_mode=False)
assert "jax" not in sys.modules
"""


def run(code: str, folder: Path) -> str:
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("binary", [True, False])
def test_predict_and_inspect_load_no_jax_and_agree_with_it(tmp_path: Path, binary: bool, private: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 80)).clip(-4, 4)
    y = np.where(a + b > 0, "yes", "no") if binary else (a - b).clip(-4, 4)
    target = BinaryTarget("y", ("no", "yes")) if binary else NumberTarget("y", -4, 4, 0, 1)
    schema = Schema((Number("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1)), target)
    table = {"a": a, "b": b, "y": y, "site": np.repeat("north", 80)}
    fitted = fit(schema, table, site_column="site", epsilon=1.0 if private else None, questions=3, progress=False)
    fitted.save(tmp_path / "m.fedvi")
    (tmp_path / "rows.csv").write_text("a,b\n0.5,1.0\n")
    run(COMMANDS, tmp_path)
    *_, mean, low, high = (tmp_path / "p.csv").read_text().splitlines()[1].split(",")
    expected = fitted.predict({"a": [0.5], "b": [1.0]})
    numbers = [expected.mean[0], expected.low[0], expected.high[0]]
    assert [float(mean), float(low), float(high)] == pytest.approx(numbers, rel=1e-5)


def test_a_server_needs_no_jax(tmp_path: Path) -> None:
    q = (1 + 1 + 1, 3.0 + 2.0)
    assert run(SERVER, tmp_path) == f"{[float(np.float32(q[1] / q[0]))] * 2} False\n"


def test_a_coordinator_and_its_export_need_no_jax_and_agree_with_it(tmp_path: Path) -> None:
    chosen = description()
    wrong = {name: np.float32(np.inf) + part for name, part in answers(chosen, 1, 2).items()}
    given = [release(chosen, 1, 1), release(chosen, 1, 2)]
    requests = [poll(chosen, 0), *given, message(chosen, 2, wrong), release(chosen, 2, 1)]
    for number, request in enumerate(requests):
        (tmp_path / f"{number}.request").write_bytes(request)
    for name in ("cold", "warm"):
        (tmp_path / name).mkdir()
        open_coordinator(tmp_path / name, chosen).close()
    run(COORDINATOR, tmp_path)
    with open_coordinator(tmp_path / "warm", chosen) as warm:
        for number, (name, request) in enumerate(
            zip(["north", "north", "south", "north", "north"], requests, strict=True)
        ):
            cold, expected = answer((tmp_path / f"{number}.answer").read_bytes()), answer(warm.handle(name, request))
            assert (cold.kind, cold.code, cold.version) == (expected.kind, expected.code, expected.version)
            for part in expected.arrays:
                np.testing.assert_allclose(cold.arrays[part], expected.arrays[part], rtol=1e-6)
        exported = fitted_of(warm)
    assert answer((tmp_path / "3.answer").read_bytes()).kind == wire.REFUSED
    np.testing.assert_allclose(Fitted.load(tmp_path / "m.fedvi").posterior.mean, exported.posterior.mean, rtol=1e-5)
