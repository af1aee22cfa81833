"""Processes that run in a folder: one at a time, found by others, sent to the background."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from pathlib import Path

import psutil
import pytest

from fedvi.errors import InputError
from fedvi.federation import service as running

AT_WORK = "with only_one(Path(sys.argv[-1]), 'It'):\n    time.sleep(120)"


@pytest.fixture
def pid(tmp_path: Path) -> Path:
    return tmp_path / "start.pid"


def command(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Let `fedvi` be this code."""
    script = folder / "fedvi"
    imports = "import contextlib, sys, time\nfrom pathlib import Path\nfrom fedvi.federation.service import only_one"
    script.write_text(f"#!{sys.executable}\n{imports}\nwith contextlib.suppress(KeyboardInterrupt):\n  {code}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


def start(folder: Path, pid: Path, patience: float = 60) -> int:
    return running.in_background(["start", str(pid)], folder / "log", pid, patience)


def test_who_starts_a_process_in_the_background_is_not_troubled_by_it(
    tmp_path: Path, pid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No warning while it runs, and no zombie once it has ended."""
    command(monkeypatch, tmp_path, AT_WORK)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        number = start(tmp_path, pid)
        gc.collect()
    assert not warned
    assert running.running(pid) == number != os.getpid()
    assert os.stat(tmp_path / "log").st_mode & 0o077 == 0  # what it says about rows is its owner's
    process = psutil.Process(number)
    assert running.ask_to_stop(pid)
    process.wait(10)
    assert not process.is_running()


def test_process_that_dies_at_its_start_is_noticed_with_its_last_word(
    tmp_path: Path, pid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, tmp_path, "sys.exit('first\\nthe port is taken')")
    with pytest.raises(InputError, match="It did not start: the port is taken"):
        start(tmp_path, pid)


def test_process_that_is_not_at_work_in_time_is_ended(
    tmp_path: Path, pid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, tmp_path, "time.sleep(120)")
    before = psutil.Process().children()
    with pytest.raises(InputError, match="no reason given"):
        start(tmp_path, pid, patience=0.5)
    _, alive = psutil.wait_procs(set(psutil.Process().children()) - set(before), timeout=10)
    assert not alive
