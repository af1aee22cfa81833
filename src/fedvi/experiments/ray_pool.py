"""Many runs over the machines of a Ray cluster that somebody started: one task per run, each with one core.

The rows are loaded here and put into the cluster's memory once, so that no other machine needs the file they come from.
Runs come back as they are finished and are written here at once. A run whose worker or machine is lost is made again
from its start; checkpoints stay on this machine, so an interrupted sweep keeps its finished runs only.

Ray is imported when it is needed, and reports its usage to nobody.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedvi import __version__
from fedvi.errors import FedviError, InputError
from fedvi.experiments.config import RunSpec, data_of
from fedvi.experiments.directory import RunDirectory
from fedvi.experiments.local_pool import ONE_THREAD, Finished, RunAll
from fedvi.experiments.runs import load_rows

RETRIES = 3
"""How often a run whose worker was lost is made again."""

ATTEMPTS = 3
"""How often to connect, before giving up."""

DIED = "Initialization failure from server"
REMEDY_DIED = (
    "The process that Ray starts for each client died: a known fault of Ray's when it is busy. Try again, or start the "
    "head with GRPC_ENABLE_FORK_SUPPORT=0 in its environment."
)

AHEAD = 2
"""Runs that are with the cluster, for each of its cores: one that is worked on, one that is next."""

KNOCK = """
import ray, sys
try:
    ray.init(sys.argv[1], log_to_driver=False)
except Exception as error:
    sys.exit(" ".join(str(error).split()))
"""
ADDRESS = re.compile(r"auto|(ray://)?(?P<host>[^/\s]+):(?P<port>[0-9]{1,5})")
PATIENCE = 60.0
"""Seconds in which a cluster has to answer, which on a busy machine takes a while; a port, in a sixth of them."""


def on_ray(address: str) -> RunAll:
    """Return how to make runs over the Ray cluster at this address, or raise `InputError` if there is none.

    address: `auto` for the cluster of this machine, `HOST:PORT`, or `ray://HOST:PORT`.
    """
    _import_ray()
    _knock(address)

    def run_all(directory: RunDirectory, specs: Sequence[RunSpec], workers: int | None, finished: Finished) -> None:
        """Do as `local_pool.run_all` does. workers: None for as many as the cluster has cores."""
        missing, config, put = iter(specs), directory.config, dict[str, Any]()
        with _cluster(address) as ray:

            def rows(spec: RunSpec) -> Any:
                named = json.dumps(data_of(config, spec.method))
                if named not in put:  # once for all runs
                    data = load_rows(named)
                    put[named] = ray.put((data.train, data.test, data.columns, data.layout))
                return put[named]

            work = ray.remote(num_cpus=1, max_retries=RETRIES)(_portable())
            waiting: dict[Any, RunSpec] = {}
            try:
                while True:
                    # Asked anew each time: machines come and go.
                    room = workers or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
                    for spec in itertools.islice(missing, max(0, room - len(waiting))):
                        given = pickle.dumps((config, spec))
                        job = work.options(name=f"fedvi {spec.name}").remote(__version__, given, rows(spec))
                        waiting[job] = spec
                    if not waiting:
                        return
                    (done,), _ = ray.wait(list(waiting), num_returns=1)
                    _take(done, waiting.pop(done), directory, finished)
            except BaseException:
                _stop(waiting, directory, finished)
                raise

    return run_all


def _portable() -> Callable[[str, bytes, Any], tuple[str, Any]]:
    """Return what a worker does. Defined in here, it travels as code: a worker may have another fedvi, or none."""

    def work(version: str, given: bytes, rows: Any) -> tuple[str, Any]:
        import importlib.util
        import pickle
        import tempfile
        from pathlib import Path

        if importlib.util.find_spec("fedvi") is None:
            return "no fedvi", None
        import fedvi

        if fedvi.__version__ != version:
            return f"fedvi {fedvi.__version__}", None
        from fedvi.compiling import cache_compilations

        cache_compilations()
        from fedvi.datasets.adult import Dataset
        from fedvi.experiments.runs import make_runs

        config, spec = pickle.loads(given)
        with tempfile.TemporaryDirectory() as folder:
            made = Dataset(*rows[:3], layout=rows[3])
            runs = make_runs(config, [spec], [Path(folder) / "checkpoint.npz"], rows=made)
            return f"fedvi {version}", runs[0] if runs else None

    return work


def _take(done: Any, spec: RunSpec, directory: RunDirectory, finished: Finished) -> None:
    import ray

    try:
        there, run = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # as if it had happened here
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise FedviError(
            f"Lost {spec.name!r}, also when it was made again ({RETRIES} times at most): {reason} Finished runs are "
            f"kept: go on with --resume --out {directory.path}."
        ) from None
    if run is None:
        raise FedviError(
            f"A machine of the Ray cluster has {there}, this one fedvi {__version__}. Install the same on "
            f"all of them, then go on with --resume --out {directory.path}."
        )
    directory.save(spec, run)
    finished(run)


def _stop(waiting: dict[Any, RunSpec], directory: RunDirectory, finished: Finished) -> None:
    """Write the runs that are finished by now, and give up the others."""
    import ray

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done, others = ray.wait(list(waiting), num_returns=len(waiting), timeout=1) if waiting else ([], [])
        for reference in done:
            with contextlib.suppress(Exception):  # it shows again when the sweep is resumed
                _take(reference, waiting[reference], directory, finished)
        for reference in others:
            ray.cancel(reference, force=True)
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Give the module `ray`, connected."""
    ray = _import_ray()
    # What decides JAX's precision here must do so there: the results are the same wherever a run is made. But where
    # compiled code is kept is each machine's own affair.
    settings = {name: value for name, value in os.environ.items() if name.startswith("JAX_") and "CACHE" not in name}
    options = {
        "runtime_env": {"env_vars": {**settings, **ONE_THREAD}},
        "log_to_driver": False,
        "logging_level": logging.CRITICAL,
    }
    for left in reversed(range(ATTEMPTS)):  # it answered before: the process that Ray starts for its client may die
        try:
            ray.init(address=address, **options)
            break
        except ConnectionError as error:
            ray.shutdown()
            if not left:
                raise FedviError(
                    f"The Ray cluster at {address!r} answers, but could not be connected in {ATTEMPTS} attempts: "
                    f"{str(error).strip().splitlines()[0]} {REMEDY_DIED}"
                ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns of what it will do with GPUs
    try:
        import ray
    except ImportError:
        raise InputError("Expected Ray for --ray, got none. Install it: python -m pip install 'fedvi[ray]'") from None
    return ray


def _knock(address: str) -> None:
    """Raise `InputError` unless a cluster answers at this address.

    In a process of its own, which can be ended: where something else listens, Ray itself goes on trying for minutes.
    """
    parts = ADDRESS.fullmatch(address)
    if parts is None:  # Ray would take some other words for the wish to start a cluster here
        raise InputError(f"Expected --ray to be auto, HOST:PORT or ray://HOST:PORT, got {address!r}.")
    remedy = "Start it with `ray start`, or give its address."
    try:
        if parts["host"]:
            socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), PATIENCE / 6).close()
    except OSError as error:
        raise InputError(f"Cannot reach a Ray cluster at {address!r}: {error.strerror or error}. {remedy}") from None
    try:
        ran = subprocess.run(
            [sys.executable, "-c", KNOCK, address], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"No Ray cluster answers at {address!r} within {PATIENCE:g} s. {remedy}") from None
    if ran.returncode:
        reason = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
        if DIED in reason:
            raise FedviError(f"Cannot connect to the Ray cluster at {address!r}. {REMEDY_DIED}")
        raise InputError(f"Cannot reach a Ray cluster at {address!r}: {reason} {remedy}")
