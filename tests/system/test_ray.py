"""Sweeps over a Ray cluster, a real one on this machine: the same numbers, whatever happens on the way."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w

from fedvi import FedviError, __version__
from fedvi.errors import InputError
from fedvi.experiments import Results, RunDirectory, ray_pool, read
from fedvi.experiments.local_pool import ONE_THREAD, execute
from sweeps import long_config, run_here, wait_for, without_times, write_rows

LONG_RUN = "ray::fedvi even pvi seed 1"
"""What Ray calls the process in which this run is made."""


class Cluster(NamedTuple):
    """A Ray cluster of two cores; all its processes belong to one session."""

    address: str
    client: str
    session: int

    def processes(self, title: str = "") -> list[int]:
        """Return the processes whose command line begins with the title."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
                words = (folder / "cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if session == self.session and words[0].startswith(title):
                found.append(int(folder.name))
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    port, client = (each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    # A short name, for the sake of Unix sockets.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        patch.setenv("RAY_AUTH_MODE", "token")  # Ray listens beyond this machine, too
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Or one connection in ten fails on a busy machine: https://github.com/ray-project/ray/issues/63202
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        patch.setenv("JAX_COMPILATION_CACHE_DIR", f"{folder}/compiled")  # each worker would compile the same
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        options = {
            "port": port,
            "ray-client-server-port": client,
            "min-worker-port": 0,
            "max-worker-port": 0,
            "node-ip-address": "127.0.0.1",
            "num-cpus": 2,
            "object-store-memory": 100_000_000,
            "include-dashboard": "false",
            "temp-dir": folder,
        }
        head = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
            + [f"--{name}={value}" for name, value in options.items()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        made = Cluster(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", head.pid)
        try:
            assert head.stdout is not None
            assert any("Ray runtime started" in line for line in head.stdout)
            yield made
        finally:
            while left := made.processes():
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                head.poll()
                time.sleep(0.05)
            head.communicate()


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """Work where sweep.toml is: two short runs, then two longer ones; give what comes out when nothing happens.

    The file with the rows is found from there only: the cluster's processes work elsewhere.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("sweep"))
        config = long_config(write_rows(Path("rows.npz")))
        Path("sweep.toml").write_text(tomli_w.dumps(config))
        yield run_here(config, Path("truth"))


def start(*words: object, before: str = "") -> Any:
    """Start `fedvi simulate sweep.toml`, maybe after some code."""
    code = f"{before}; from fedvi.cli import main; main()".lstrip("; ")
    command = [sys.executable, "-c", code, "simulate", "sweep.toml", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(out: Path) -> int:
    return len(list((out / "runs").glob("*.json")))


def finish(process: Any) -> str:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return errors


def test_a_cluster_changes_nothing(cluster: Cluster, truth: Results, tmp_path: Path) -> None:
    errors = finish(start("--out", tmp_path / "out", "--ray", cluster.address))
    assert without_times(read(tmp_path / "out")) == without_times(truth)
    assert [line[:9] for line in errors.splitlines()] == ["4/4 runs,"]  # progress as ever, and Ray is silent


def test_a_run_whose_worker_is_killed_is_made_again(cluster: Cluster, truth: Results, tmp_path: Path) -> None:
    process = start("--out", tmp_path / "out", "--ray", cluster.address)
    wait_for(lambda: cluster.processes(LONG_RUN))
    (worker,) = cluster.processes(LONG_RUN)
    environment = Path(f"/proc/{worker}/environ").read_text().split("\0")
    assert {f"{name}={value}" for name, value in ONE_THREAD.items()} <= set(environment)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: set(cluster.processes(LONG_RUN)) - {worker})
    finish(process)
    assert without_times(read(tmp_path / "out")) == without_times(truth)


@pytest.mark.usefixtures("truth")
def test_a_run_that_is_lost_for_good_is_named_and_the_others_are_kept(cluster: Cluster, tmp_path: Path) -> None:
    before = "from fedvi.experiments import ray_pool; ray_pool.RETRIES = 0"
    process = start("--out", tmp_path / "out", "--ray", cluster.address, "--workers", 1, before=before)
    wait_for(lambda: cluster.processes(LONG_RUN))
    os.kill(cluster.processes(LONG_RUN)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith("Error: Lost 'even pvi seed 1'")
    assert f"--resume --out {tmp_path / 'out'}" in errors
    assert len(errors.splitlines()) == 1
    assert done(tmp_path / "out") == 2


def test_after_ctrl_c_the_sweep_goes_on_there_or_here(cluster: Cluster, truth: Results, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    # One run at a time: with two, a long run would start while the other worker is still being loaded.
    process = start("--out", there, "--ray", cluster.address, "--workers", 1)
    wait_for(lambda: cluster.processes(LONG_RUN))
    (worker,) = cluster.processes(LONG_RUN)
    os.kill(worker, signal.SIGSTOP)  # or a quick machine ends the run before it can be interrupted
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)
    assert process.returncode == 130
    again = f"fedvi simulate sweep.toml --ray {cluster.address} --resume --out {there}"
    assert errors.splitlines() == [f"Finished work is kept. Continue with: {again}"]
    assert done(there) == 2
    assert read(there).results  # what was done can be looked at
    wait_for(lambda: not cluster.processes("ray::fedvi"), 20)  # nobody works for nothing

    shutil.copytree(there, here)
    process = start("--out", there, "--ray", cluster.client, "--resume")
    resumed = execute(*RunDirectory.reopen(here), 1, quiet=True)
    finish(process)
    assert without_times(read(there)) == without_times(resumed) == without_times(truth)


@pytest.mark.parametrize("failures", [1, 99])
def test_a_connection_that_fails_is_made_again(
    cluster: Cluster, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen: the process that Ray starts for a client may die at once."""
    import ray

    real, tried = ray.init, []

    def init(**given: Any) -> None:
        tried.append(given)
        if len(tried) <= failures:
            raise ConnectionAbortedError("Initialization failure from server:\nTraceback ...\nit is a zombie\n\n")
        real(**given)

    monkeypatch.setattr(ray, "init", init)
    if failures == 1:
        with ray_pool._cluster(cluster.client):
            assert ray.cluster_resources()["CPU"] == 2
        assert len(tried) == 2
    else:
        with pytest.raises(FedviError, match=r"3 attempts: Initialization.*GRPC_ENABLE_FORK_SUPPORT=0") as failed:
            ray_pool._cluster(cluster.client).__enter__()
        assert len(str(failed.value).splitlines()) == 1
        assert len(tried) == 3
    assert not ray.is_initialized()


def test_where_rays_process_for_a_client_dies_there_is_a_remedy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = "Initialization failure from server: RuntimeError: Starting Ray client server failed."
    monkeypatch.setattr(ray_pool, "KNOCK", f"import sys; sys.exit({seen!r})")
    with pytest.raises(FedviError, match=r"Cannot connect.*Try again, or start the head with GRPC_ENABLE_FORK"):
        ray_pool.on_ray(cluster.client)


@pytest.mark.usefixtures("truth")
def test_a_worker_with_another_fedvi_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    before = "import fedvi; fedvi.__version__ = '99.0'"
    process = start("--out", tmp_path / "out", "--ray", cluster.address, before=before)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"has fedvi {__version__}, this one fedvi 99.0. Install the same" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.usefixtures("truth")
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "Cannot reach a Ray cluster at '127.0.0.1:1': Connection refused"),
        ("local", "Expected --ray to be auto, HOST:PORT or ray://HOST:PORT, got 'local'"),
    ],
)
def test_an_address_without_a_cluster_is_an_error_at_once(address: str, message: str, tmp_path: Path) -> None:
    process = start("--out", tmp_path / "out", "--ray", address)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_something_else_that_listens_is_not_waited_for(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "PATIENCE", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=f"No Ray cluster answers at '{address}' within 2 s"):
            ray_pool.on_ray(address)


@pytest.mark.usefixtures("truth")
def test_without_ray_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    process = start("--out", tmp_path / "out", "--ray", "auto", before="import sys; sys.modules['ray'] = None")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "python -m pip install 'fedvi[ray]'" in errors
    assert len(errors.splitlines()) == 1
