"""The product as it was, by its source code in another folder: `python -m benchmarks honesty --before OTHER/src`.

Its numbers are kept in before.json, with the commit. It runs in a process of its own, with its own fedvi.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.honesty.cells import Cell
from benchmarks.honesty.methods import Estimate, by_fit
from benchmarks.honesty.tables import Drawn
from fedvi.fitting import fit as fitting
from fedvi.inference import spec

FILE = Path(__file__).with_name("before.json")


def before(cell: Cell, drawn: Drawn, seed: int) -> Estimate:
    """Return what `fit` says. Its prior is the one that drawn tables come from; `fit` has no argument for that."""
    if not cell.drawn:
        return by_fit(cell, drawn, seed)
    prior: dict[str, Any] = {"prior_variance": 1.0}  # as it was called then
    with mock.patch.object(fitting, "default_spec", functools.partial(spec.default_spec, **prior)):
        return by_fit(cell, drawn, seed)


def run_elsewhere(source: Path, arguments: list[str]) -> int:
    """Run this command with the fedvi of another folder, and return its exit code."""
    if not (source / "fedvi" / "__init__.py").is_file():
        raise ValueError(f"Expected the folder src of a checkout, with fedvi in it, got '{source}'.")
    paths = [str(source.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "benchmarks", "honesty", "--method", "before", *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False).returncode


def commit_of(source: Path) -> str:
    """Return the commit that is checked out in the folder of a source, or nothing."""
    asked = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def read_before() -> dict[str, dict[str, object]]:
    """Return what is kept of the product as it was, by cell."""
    return json.loads(FILE.read_text())["methods"]["before"]["cells"] if FILE.exists() else {}
