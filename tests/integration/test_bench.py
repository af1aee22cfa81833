"""The bench: its arithmetic, its keys, its peers. No test asserts a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.growth import exponent, exponents
from benchmarks.timing import LIMITS, Contender, Samples, one_thread, take_turns

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("script", ["publish_bench", "publish_honesty"])
def test_documents_show_the_published_numbers(script: str) -> None:
    command = [sys.executable, "-m", f"scripts.{script}", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
