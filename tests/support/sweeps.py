"""Sweeps of small experiments, shared by tests of local and Ray workers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from federations import logistic_tables, pool
from fedvi.experiments import Experiment, Results, RunDirectory
from fedvi.experiments.local_pool import execute

EPSILONS = (0.5, 0.75, 1.0)


def write_rows(path: Path) -> Path:
    """Write the rows of the experiments, and return where."""
    x, y = pool(logistic_tables([600], 3))
    np.savez(path, x=x, y=y)
    return path


def small_config(rows: Path) -> dict[str, Any]:
    """Return an experiment of twelve runs that take moments."""
    steps = {"kind": "GradientSteps", "steps": 5, "learning_rate": 0.2}
    private = {**steps, "mechanism": {"kind": "PoissonGaussian", "noise_multiplier": 4.0, "clip_norm": 1.0}}
    return {
        "title": "small",
        "seeds": [1, 2],
        "data": {"kind": "Npz", "path": str(rows), "test_fraction": 0.2},
        "model": "LogisticRegression",
        "partition": {
            "even": {"kind": "Iid", "clients": 4},
            "skewed": {"kind": "QuantitySkew", "clients": 4, "minimum": 20},
        },
        "method": {
            "pvi": {"algorithm": {"kind": "PVI", "solver": steps}, "communications": 40, "evaluate_every": 10},
            "private": {
                "algorithm": {"kind": "PVI", "solver": private},
                "schedule": "RoundRobin",
                "privacy": {"kind": "Budget", "epsilon": [0.5, 1.0], "delta": "paper"},
                "max_updates": 10,
                "evaluate_every": 10,
            },
        },
    }


def run_here(config: dict[str, Any], path: Path, workers: int = 1) -> Results:
    experiment = Experiment.of(config)
    return execute(RunDirectory.create(path, experiment), experiment, workers, quiet=True)


def without_times(outcome: Results) -> Any:
    """Return results.json without how long runs took."""
    plain = json.loads((outcome.path / "results.json").read_text())
    for methods in plain.values():
        for entry in methods.values():
            for run in entry["runs"]:
                del run["seconds"]
    return plain


def long_config(rows: Path) -> dict[str, Any]:
    """Return an experiment of two short runs and then two that take some seconds."""
    config = small_config(rows)
    del config["partition"]["skewed"]
    private, pvi = config["method"]["private"], config["method"]["pvi"]
    private["privacy"]["epsilon"] = 0.5
    config["method"] = {"private": private, "pvi": pvi | {"communications": 45_000, "evaluate_every": 5_000}}
    return config


def wait_for(found: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)


def command(*words: object, **options: Any) -> Any:
    """Start a command of fedvi."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedvi", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
