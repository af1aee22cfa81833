"""The benchmarks as commands: their keys, their peers, what their points cost. No test asserts a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.growth import measure_point

ROOT = Path(__file__).parents[2]
KEYS = {
    *("private_step_over_blas", "private_step_batched_over_blas", "pvi_step_over_blas", "blas_us", "private_step_us"),
    *("budget_check_us", "ledger_charge_us", "pld_epsilon_ms", "plan_ms"),
    *("import_s", "import_jax_s", "help_s", "first_compile_s", "peak_memory_mb"),
}


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Run the command where one of the libraries to compare with is hidden."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['opacus'] = None\n")
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "steps", "--quick", "--json", "--out", folder / "out"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), folder / "out"


def test_command_prints_and_writes_every_key(quick_run: tuple[dict[str, Any], Path]) -> None:
    results, directory = quick_run
    assert results.keys() >= KEYS
    assert all(results[key] > 0 for key in KEYS)
    assert {"cpu", "cores", "memory", "python", "numpy", "jax", "blas", "os"} == results["machine"].keys()
    assert json.loads((directory / "bench.json").read_text()) == results
    assert (directory / "bench.png").stat().st_size > 10_000


def test_missing_libraries_are_left_out_with_a_remedy(quick_run: tuple[dict[str, Any], Path]) -> None:
    results, _ = quick_run
    assert len(results["notes"]) == 1
    assert "pip install 'fedvi[bench]'" in results["notes"][0]
    assert not results.keys() & {"torch_over_fedvi", "opacus_over_fedvi"}
    assert not [name for name in results["steps"] if "PyTorch" in name or "Opacus" in name]


def test_torch_computes_what_fedvi_computes() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.peers import TorchClient, closed_form, per_example, torch_draws
    from benchmarks.steps import OneSite, algorithm_with
    from fedvi import simulate
    from fedvi.privacy import PoissonGaussian
    from fedvi.simulation import RoundRobin

    problem, algorithm = OneSite(3, rows=500, features=7), algorithm_with(PoissonGaussian())
    same = {"seed": 4, "algorithm": algorithm, "schedule": RoundRobin(), "communications": 3}
    ours: Any = simulate([problem.table], problem.model, **same).clients["client 0"].factor  # type: ignore[arg-type]
    assert np.max(np.abs(np.asarray(ours.precision))) > 0.1
    for clipped in (closed_form, per_example):
        client = TorchClient(problem, algorithm, clipped)
        with torch.no_grad():
            for drawn in torch_draws(problem, algorithm, 3, seed=4):
                client.update(*drawn)
        for mine, theirs in zip((ours.natural_mean, ours.precision), client.factor.numpy(), strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-5)


def test_opacus_learns_on_the_same_batches() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("opacus")
    from benchmarks.peers import opacus_steps
    from benchmarks.steps import OneSite, algorithm_with
    from fedvi.privacy import PoissonGaussian

    contender = opacus_steps(OneSite(3, rows=500, features=7), algorithm_with(PoissonGaussian()), seed=4, count=2)
    contender.call()
    assert contender.units == 50


@pytest.mark.parametrize(("axis", "size"), [("clients", 3), ("seeds", 2)])
def test_a_point_of_growth_says_what_it_cost(axis: str, size: int) -> None:
    point = measure_point(axis, size, seed=1, rounds=2)
    assert point["axis"] == axis
    assert point["size"] == size
    assert point["seconds"] > 0
    assert point["data_bytes"] == {"clients": 3 * 100 * 21 * 4, "seeds": 3907 * 109 * 4}[axis]
    assert ("over_blas" in point) == (axis == "seeds")


def test_tables_are_encoded_beside_pandas() -> None:
    command = [sys.executable, "-m", "benchmarks", "tables", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (found,) = json.loads(ran.stdout).values()
    contenders = ("pandas", "fedvi", "infer")
    assert {name: result["rows"] for name, result in found.items()} == dict.fromkeys(contenders, 100_000)


def test_intervals_are_honest_within_the_errors_of_a_quick_run(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "honesty",
        "--quick",
        "--json",
        "--out",
        str(tmp_path / "honesty.json"),
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout)
    assert found["cells"] == 4
    assert found["outside"] == []
    assert found["ratio"] < 1
    kept = json.loads((tmp_path / "honesty.json").read_text())["methods"]["ours"]["cells"]
    assert all(len(columns["weights covered"]) == 20 for columns in kept.values())


def test_wrong_names_of_methods_and_cells_are_one_message() -> None:
    for wrong in (["--method", "magic"], ["--cells", "no such cell"], ["--before", "nowhere"]):
        command = [sys.executable, "-m", "benchmarks", "honesty", *wrong]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert ran.returncode == 2
        assert "Expected" in ran.stderr
        assert "Traceback" not in ran.stderr
