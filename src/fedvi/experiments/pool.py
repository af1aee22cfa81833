"""Many runs side by side: one process per core, finished runs written at once, Ctrl-C loses nothing.

Workers are processes of their own, each with one thread for its numerics: runs are independent, and small. On Ctrl-C
every worker writes a checkpoint of the run that it is in and stops; the next time the runs go on from there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import FrameType
from typing import Any

from fedvi.errors import FedviError
from fedvi.experiments.config import Experiment, RunSpec
from fedvi.experiments.directory import RunDirectory
from fedvi.experiments.run import make_run

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

Finished = Callable[[RunSpec, dict[str, Any]], None]
RunAll = Callable[[RunDirectory, Experiment, list[RunSpec], int | None, Finished], None]
"""How runs get done: by `run_all` on this machine, or by what `fedvi.experiments.ray_cluster.on_ray` returns."""


def run_all(
    directory: RunDirectory, experiment: Experiment, specs: list[RunSpec], workers: int | None, finished: Finished
) -> None:
    """Make all runs that are not done yet, and write each to the directory when it is finished.

    workers: processes; 1 to work in this process, None for one per core. finished: called after each run.
    Raises KeyboardInterrupt after Ctrl-C, when everything is written.
    """
    workers = workers or cores()
    missing = [spec for spec in specs if not directory.is_done(spec)]
    if workers == 1 or len(missing) <= 1:
        for spec in missing:
            run = make_run(experiment.config, spec, directory.checkpoint(spec))
            if run is None:
                raise KeyboardInterrupt
            directory.save(spec, run)
            finished(spec, run)
        return
    with _pool(min(workers, len(missing))) as pool:
        waiting: dict[Future[Any], RunSpec] = {
            pool.submit(_work, experiment.config, spec, directory.checkpoint(spec)): spec for spec in missing
        }
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                _take(done, waiting, directory, finished)
        except KeyboardInterrupt:
            _stop(pool, waiting, directory, finished)
            raise


def cores() -> int:
    """Return how many processes may work at once on this machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _take(
    done: set[Future[Any]], waiting: dict[Future[Any], RunSpec], directory: RunDirectory, finished: Finished
) -> None:
    for future in done:
        spec = waiting.pop(future)
        if future.cancelled():
            continue
        try:
            run = future.result()
        except BrokenProcessPool:
            raise FedviError(
                f"A worker process ended unexpectedly, maybe for lack of memory, near {spec.name!r}. Finished runs are "
                f"kept: go on with --resume --out {directory.path}."
            ) from None
        if run is None:  # a worker was told to stop
            raise KeyboardInterrupt
        directory.save(spec, run)
        finished(spec, run)


def _stop(
    pool: ProcessPoolExecutor, waiting: dict[Future[Any], RunSpec], directory: RunDirectory, finished: Finished
) -> None:
    """Tell the workers to write what they have, and wait until they have done so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for future in waiting:
        future.cancel()
    for process in list(getattr(pool, "_processes", {}).values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
    running = {future for future in waiting if not future.cancelled()}
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        with contextlib.suppress(KeyboardInterrupt, FedviError):
            _take(done, waiting, directory, finished)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give a pool of processes that compute with one thread each."""
    handler, before = signal.getsignal(signal.SIGINT), {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_prepare_worker) as pool:
            yield pool
    finally:
        signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


_stopping = False


def _prepare_worker() -> None:
    """Only take note of Ctrl-C: an exception might strike anywhere, a run stops where nothing is lost."""
    signal.signal(signal.SIGINT, _take_note)


def _take_note(_signal: int, _frame: FrameType | None) -> None:
    global _stopping
    _stopping = True


def _work(config: dict[str, Any], spec: RunSpec, checkpoint: Path) -> dict[str, Any] | None:
    return None if _stopping else make_run(config, spec, checkpoint, lambda: _stopping)
