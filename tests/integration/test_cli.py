"""The command line, as people call it: real processes, exit codes, JSON, and errors of one line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import Budget
from fedvi.privacy.events import poisson_gaussian
from fedvi.privacy.ledger.ledger import Ledger
from fedvi.privacy.ledger.overlap import rows_digest

UPDATE = poisson_gaussian(5.0, 0.02, 25, numbers=14)


def fedvi(*arguments: Any, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from fedvi.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.db"
    with Ledger.create(path, Budget(0.5, 1e-4), rows_digest(np.ones((3, 2)), np.ones(3))) as opened:
        opened.plan(UPDATE)
        for _ in range(3):
            opened.charge(UPDATE)
    return path


BUDGET = ("budget", "--eps", "0.5", "--delta", "1e-4", "--sampling-rate", "0.02", "--steps", "25")


@pytest.mark.parametrize(("accountant", "updates"), [("pld", 69), ("rdp", 56), ("moments", 30)])
def test_budget_finds_updates(accountant: str, updates: int) -> None:
    ran = fedvi(*BUDGET, "--noise-multiplier", "5", "--accountant", accountant, "--json")
    assert ran.returncode == 0, ran.stderr
    plan = json.loads(ran.stdout)
    assert (plan["accountant"], plan["updates"]) == (accountant, updates)
    assert plan["epsilon"] <= 0.5 < plan["epsilon_substitute"]
    assert ran.stderr == ""


def test_budget_finds_noise_and_explains_it() -> None:
    ran = fedvi(*BUDGET, "--updates", "69")
    assert ran.returncode == 0, ran.stderr
    assert "4.979 clip norms" in ran.stdout
    assert "What it means: after 69 updates" in " ".join(ran.stdout.split())


def test_budget_finds_epsilon_and_takes_delta_from_rows() -> None:
    asked = ("budget", "--rows", "3907", "--noise-multiplier", "5", "--updates", "69", "--json")
    plan = json.loads(fedvi(*asked, "--delta", "paper").stdout)
    assert plan["delta"] == 1e-4
    assert round(plan["epsilon"], 3) == 0.497
    default = json.loads(fedvi(*asked).stdout)
    assert default["delta"] == 1e-5
    assert default["epsilon"] > plan["epsilon"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("budget", "--eps", "0.5", "--noise-multiplier", "5"), "Expected --delta as a number, or --rows"),
        ((*BUDGET,), "Expected two of epsilon, updates and noise_multiplier"),
        ((*BUDGET, "--noise-multiplier", "-5"), "noise_multiplier <= 1e+06, got -5"),
        ((*BUDGET, "--noise-multiplier", "5", "--accountant", "magic"), "one of pld, rdp, moments, filter"),
        (("audit", "--unit", "household"), "one of row, client"),
        (("nonsense",), "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    ran = fedvi(*arguments)
    assert ran.returncode == 2
    assert message in " ".join(ran.stderr.replace("│", " ").split())
    assert "Traceback" not in ran.stderr


def test_ledger_show_and_export_and_statement_and_verify(ledger: Path) -> None:
    shown = fedvi("ledger", "show", ledger)
    assert shown.returncode == 0, shown.stderr
    assert "Planned: 69 x (25 steps, rate 0.02, noise 5), of which 66 are left." in shown.stdout
    exported = json.loads(fedvi("ledger", "show", ledger, "--json").stdout)
    assert exported["spent"]["updates"] == 3
    assert exported["spent"]["epsilon"] < exported["budget"]["epsilon"] == 0.5
    assert [entry["kind"] for entry in exported["entries"]] == ["opened", "plan", "charge", "charge", "charge"]
    assert "salt" not in json.dumps(exported)
    statement = fedvi("ledger", "statement", ledger).stdout
    assert "Never more than epsilon 0.5" in statement
    assert "NOT A GUARANTEE" not in statement
    assert "3 x 25 times a sum over rows drawn independently with probability 0.02" in " ".join(statement.split())
    verified = fedvi("ledger", "verify", ledger)
    assert "5 entries, chain unbroken" in verified.stdout
    assert "has seen nothing newer" in verified.stdout


def test_ledger_commands_work_while_a_client_has_it_open(ledger: Path) -> None:
    data = rows_digest(np.ones((3, 2)), np.ones(3))
    with Ledger.open(ledger, data) as opened:
        opened.charge(UPDATE)
        assert json.loads(fedvi("ledger", "show", ledger, "--json").stdout)["spent"]["updates"] == 4


def test_ledger_verify_notices_an_older_copy_and_a_missing_witness(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ledger.read_bytes()
    with Ledger.open(ledger, rows_digest(np.ones((3, 2)), np.ones(3))) as opened:
        opened.charge(UPDATE)
    ledger.write_bytes(old)
    ran = fedvi("ledger", "verify", ledger)
    assert ran.returncode == 1
    assert "lacks entry 5, which its witness saw" in ran.stderr
    monkeypatch.setenv("FEDVI_STATE_DIR", str(tmp_path / "elsewhere"))
    assert "cannot be told here" in fedvi("ledger", "verify", ledger).stdout


def test_ledger_errors_are_one_line_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for path, message in ((tmp_path / "missing.db", "Expected a file at"), (tmp_path / "empty.db", "is empty")):
        ran = fedvi("ledger", "show", path)
        assert ran.returncode == 1
        assert message in ran.stderr
        assert len(ran.stderr.strip().splitlines()) == 1


def test_help_is_instant_and_needs_no_jax() -> None:
    code = (
        "import sys; sys.argv = ['fedvi', '--help']\n"
        "from fedvi.cli import main\n"
        "try: main()\n"
        "except SystemExit: print([name for name in ('jax', 'dp_accounting', 'numpy') if name in sys.modules])"
    )
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    print(f"help took {time.perf_counter() - began:.2f} s")
    assert ran.stdout.endswith("[]\n"), ran.stdout + ran.stderr


def test_version_and_no_arguments() -> None:
    assert fedvi("--version").stdout.startswith("fedvi 0.")
    assert "Usage" in fedvi().stdout + fedvi().stderr
