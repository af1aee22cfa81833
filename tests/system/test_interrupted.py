"""Experiments in several processes, interrupted, or with a worker lost: they end as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedvi.experiments import Results, read
from sweeps import command, long_config, run_here, small_config, wait_for, without_times, write_rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.npz")


@pytest.fixture(scope="module")
def whole(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What comes out of the long experiment when nothing happens."""
    return run_here(long_config(rows), tmp_path_factory.mktemp("whole") / "out")


def workers_of(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


@contextlib.contextmanager
def stopped(workers: list[int]) -> Iterator[None]:
    """Let these processes do nothing for as long as this lasts."""
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in workers:
        os.kill(pid, signal.SIGCONT)


def test_processes_change_nothing(rows: Path, tmp_path: Path) -> None:
    alone, together = (run_here(small_config(rows), tmp_path / f"{workers}", workers) for workers in (1, 2))
    assert without_times(alone) == without_times(together)


@pytest.mark.parametrize("to", ["the whole group, as a terminal does", "the parent alone"])
def test_after_ctrl_c_a_resumed_experiment_ends_as_if_nothing_had_happened(
    to: str, rows: Path, whole: Results, tmp_path: Path
) -> None:
    config = long_config(rows)
    (tmp_path / "c.toml").write_text(tomli_w.dumps(config))
    out = tmp_path / "cut"
    process = command("simulate", tmp_path / "c.toml", "--out", out, "--workers", 2, start_new_session=True)
    wait_for(lambda: len(list((out / "runs").glob("*.json"))) == 2)  # long runs come next
    time.sleep(0.3)
    send: Any = os.killpg if to.startswith("the whole") else os.kill
    with stopped(workers_of(process.pid)):  # or a quick machine ends the runs before they can be interrupted
        send(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"--resume --out {out}" in errors
    assert "Traceback" not in errors
    done = len(list((out / "runs").glob("*.json")))
    assert done == 2
    assert list((out / "runs").glob("*.checkpoint.npz"))
    assert read(out).results  # what was done can be looked at

    process = command("simulate", tmp_path / "c.toml", "--out", out, "--resume", "--workers", 2)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert without_times(read(out)) == without_times(whole)
    assert not list((out / "runs").glob("*.checkpoint.npz"))


def test_a_killed_worker_is_an_error_from_which_the_experiment_goes_on(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(tomli_w.dumps(long_config(rows)))
    out = tmp_path / "out"
    process = command("simulate", tmp_path / "c.toml", "--out", out, "--workers", 2)
    wait_for(lambda: len(list((out / "runs").glob("*.json"))) == 2)
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "A worker process ended unexpectedly" in errors
    process = command("simulate", tmp_path / "c.toml", "--out", out, "--resume", "--workers", 2)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert len(read(out).results["even"]) == 2
