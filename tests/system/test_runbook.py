"""The runbook of docs/federation.md, its commands run as they are printed: from invitations to predictions."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents import ROOT, shell_blocks
from fedvi.federation.demo.engines import free_port
from fedvi.federation.invitation import Invitation
from fedvi.federation.making import read_key
from fedvi.federation.service import ask_to_stop
from fedvi.fitting import Fitted
from fedvi.privacy.ledger import ledger

SITES = ("north", "south", "east")
PORT = 8443
LIMIT = 180
"""Seconds that a reader's commands may take in all."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A fresh folder with the examples; what is left at work there is ended."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "fedvi").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedvi "$@"\n')
    (tmp_path / "bin" / "fedvi").chmod(0o755)
    yield tmp_path
    for name in ("coordinator/start.pid", *(f"{site}/join.pid" for site in SITES)):
        ask_to_stop(tmp_path / name)


def port() -> int:
    """Return the port of the document, or another one if somebody has it."""
    with socket.socket() as tried:
        return PORT if tried.connect_ex(("localhost", PORT)) else free_port()


@pytest.mark.slow
def test_the_runbook_leads_from_nothing_to_predictions(folder: Path) -> None:
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    deadline, used = time.monotonic() + LIMIT, str(port())
    for commands, shown in shell_blocks(ROOT / "docs" / "federation.md", "runbook"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands.replace(str(PORT), used)],
            cwd=folder,
            env=environment,
            input="y\n",  # the promise is asked for
            capture_output=True,
            text=True,
            timeout=deadline - time.monotonic(),
        )
        assert done.returncode == 0, commands + done.stdout + done.stderr
        printed = done.stdout.replace(f"{folder}/", ".../").replace(used, str(PORT))
        assert [line for line in shown.splitlines() if line not in printed] == []

    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert all(0 < float(row["low"]) < float(row["probability"]) < float(row["high"]) < 1 for row in rows)
    fitted = Fitted.load(folder / "model.fedvi")
    assert [(site.name, site.rows) for site in fitted.sites] == [("north", 1400), ("south", 1000), ("east", 600)]
    assert fitted.settings["version"] == 3 * 14
    for site in SITES:
        assert 0.9 < ledger.read(folder / f"{site}.ledger").spent.epsilon <= 1
        invitation = Invitation.parse((folder / f"{site}.invitation").read_text())
        assert invitation.key.private_bytes_raw() != read_key(folder / site / "site.key").private_bytes_raw()
    told = subprocess.run(
        ["bin/fedvi", "federation", "status", "coordinator", "--json"], cwd=folder, capture_output=True, text=True
    )
    status = json.loads(told.stdout)
    assert (status["running"], bool(status["stop"]), status["asked"], status["refusals"]) == (False, True, 14, [])
