"""The bench: its arithmetic, its keys, its peers. No test asserts a time."""

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

from benchmarks.growth import exponent, exponents, measure_point
from benchmarks.timing import LIMITS, Contender, Samples, one_thread, take_turns

ROOT = Path(__file__).parents[2]
KEYS = {
    *("private_step_over_blas", "private_step_batched_over_blas", "pvi_step_over_blas", "blas_us", "private_step_us"),
    *("budget_check_us", "ledger_charge_us", "pld_epsilon_ms", "plan_ms"),
    *("import_s", "import_jax_s", "help_s", "first_compile_s", "peak_memory_mb"),
}


class DriftingMachine:
    """A clock, and work that takes its time on a machine whose speed changes all the while."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, 0

    def clock(self) -> float:
        return self.now

    def work(self, seconds: float) -> Contender:
        def call() -> None:
            self.calls += 1
            self.now += seconds * (1 + 0.5 * np.sin(self.now / 3))

        return Contender(call, units=4)


def test_ratios_do_not_see_the_drift_of_the_machine() -> None:
    machine = DriftingMachine()
    contenders = {"floor": machine.work(1e-4), "slow": machine.work(7e-4)}
    samples = take_turns(contenders, rounds=30, clock=machine.clock)
    assert all(len(seconds) == 30 for seconds in samples.seconds.values())
    assert samples.ratio("slow", "floor") == pytest.approx(7, rel=0.01)
    assert samples.typical("floor") == pytest.approx(1e-4 / 4, rel=0.6)


def test_blocks_have_about_the_wanted_length() -> None:
    machine = DriftingMachine()
    work = machine.work(1e-5)
    take_turns({"work": work}, rounds=0, clock=machine.clock)
    machine.calls, before = 0, machine.now
    take_turns({"work": work}, rounds=10, clock=machine.clock)
    assert 0.5 < (machine.now - before) / (10 * 0.01) < 3


def test_ratio_is_the_median_of_quotients_and_not_the_quotient_of_medians() -> None:
    samples = Samples({"a": [2.0, 30.0, 4.0], "b": [1.0, 10.0, 1.0]})
    assert samples.ratio("a", "b") == 3
    assert samples.typical("a") / samples.typical("b") == 4
    assert samples.ratio_of_best("a", "b") == 2


def test_exponent_is_that_of_the_upper_half() -> None:
    sizes = [10.0, 100.0, 1000.0, 10_000.0]
    assert exponent(sizes, [0.5 + 1e-3 * size**1.5 for size in sizes]) == pytest.approx(1.5, abs=0.05)
    assert exponent(sizes, [3.0] * 4) == pytest.approx(0)
    assert exponent([1, 2, 4, 8, 16], [9, 9, 1, 2, 4]) == pytest.approx(1)


def test_memory_has_an_exponent_only_if_it_grows() -> None:
    def points(*memory: float) -> list[dict[str, Any]]:
        return [
            {"size": 10.0**k, "seconds": 1.0, "setup_s": 10.0**k, "memory_mb": value} for k, value in enumerate(memory)
        ]

    assert exponents(points(250, 251, 252, 253)) == pytest.approx({"seconds": 0, "setup_s": 1})
    assert exponents(points(250, 251, 350, 1250))["memory_mb"] == pytest.approx(1)


def test_limits_come_and_go_and_lateness_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("XLA_FLAGS", "--xla_of_my_own=1")
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with one_thread() as notes:
        assert all(os.environ[name] == value for name, value in LIMITS.items() if name != "XLA_FLAGS")
        assert os.environ["XLA_FLAGS"].split() == ["--xla_of_my_own=1", LIMITS["XLA_FLAGS"]]
        assert any("numpy and jax loaded before" in note for note in notes)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert os.environ["XLA_FLAGS"] == "--xla_of_my_own=1"
    assert "PJRT_NPROC" not in os.environ
    assert cores is None or os.sched_getaffinity(0) == cores


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Run the command where one of the libraries to compare with is hidden."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['opacus'] = None\n")
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "steps", "--quick", "--json", "--out", folder / "out"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
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
    from benchmarks.steps import algorithm_with, one_site
    from fedvi import simulate
    from fedvi.privacy import PoissonGaussian
    from fedvi.simulation import RoundRobin

    problem, algorithm = one_site(3, rows=500, features=7), algorithm_with(PoissonGaussian())
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
    from benchmarks.steps import algorithm_with, one_site
    from fedvi.privacy import PoissonGaussian

    contender = opacus_steps(one_site(3, rows=500, features=7), algorithm_with(PoissonGaussian()), seed=4, count=2)
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


def test_growth_is_drawn_and_told(tmp_path: Path) -> None:
    from benchmarks.render import growth_rows, write_figures

    points = [
        {"size": 10**k, "seconds": 1e-3 * 3**k, "setup_s": 0.1, "memory_mb": 9.0, "data_bytes": 10**k} for k in range(4)
    ]
    row = {"us": 5.0, "best_us": 4.0, "over_blas": 1.0, "over_blas_of_best": 1.0, "over_fedvi": 1.0}
    curve = {"points": points, "exponents": exponents(points)}
    results = {"steps": {"fedvi": row, "other": row}, "growth": {"axes": {"rows": curve, "clients": curve}}}
    assert [path.name for path in write_figures(results, tmp_path)] == ["bench.png", "growth.png"]
    assert growth_rows(results)[5][2] == f"^{np.log10(3):.2f}"


def test_document_shows_the_published_numbers() -> None:
    command = [sys.executable, "-m", "scripts.publish_bench", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_tables_are_encoded_beside_pandas() -> None:
    command = [sys.executable, "-m", "benchmarks", "tables", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (found,) = json.loads(ran.stdout).values()
    assert {name: result["rows"] for name, result in found.items()} == {"pandas": 100_000, "fedvi": 100_000}
