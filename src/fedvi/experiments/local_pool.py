"""Run an experiment into a directory, from the start or from where it was left: one process per core.

Workers are processes of their own, each with one thread for its numerics: runs are independent, and small. A job is a
few runs that differ in their seeds alone: they go through one compiled loop, and share rows and accounting. Finished
runs are written at once. On Ctrl-C every worker writes a checkpoint of each run that it is in and stops; the next time
the runs go on from there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from fedvi.console import progress
from fedvi.errors import FedviError, InputError
from fedvi.experiments.config import Experiment, RunSpec
from fedvi.experiments.directory import Results, RunDirectory
from fedvi.experiments.runs import RunRecord, clients_of, load_rows, make_runs

ONE_THREAD = {"PJRT_NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

Job = tuple[RunSpec, ...]
Waiting = dict[Future[list[RunRecord]], Job]
Finished = Callable[[RunRecord], None]
RunAll = Callable[[RunDirectory, Sequence[RunSpec], int | None, Finished], None]
"""How runs get done: by `run_all` on this machine, or by what `fedvi.experiments.ray_pool.on_ray` returns."""


def execute(
    directory: RunDirectory,
    experiment: Experiment,
    workers: int | None = None,
    *,
    over: RunAll | None = None,
    quiet: bool = False,
) -> Results:
    """Make all runs of the experiment that the directory does not have yet, and put the results together.

    workers: how many runs at once; None for as many as there are cores. over: the machine, or machines, that they are
    spread over: None for this one, or `on_ray(address)`.
    After Ctrl-C (KeyboardInterrupt) the directory holds everything that was done; call again to go on.
    """
    possible, skipped = possible_runs(experiment)
    missing = [spec for spec in possible if not directory.is_done(spec)]
    done, total = len(possible) - len(missing), len(possible)

    def say(done: int, latest: str) -> None:
        if not quiet and (done % 25 == 0 or done == total):
            print(f"{done}/{total} runs, last: {latest}", file=sys.stderr)

    title, wanted = str(experiment.config.get("title", "experiment")), False if quiet else None
    count = itertools.count(done + 1)
    try:
        with progress(title, total, "runs", done=done, wanted=wanted, otherwise=say) as show:
            (over or run_all)(directory, missing, workers, lambda run: show(next(count), run.summary()))
    finally:
        outcome = directory.collect(possible, skipped)
    return outcome


def possible_runs(experiment: Experiment) -> tuple[list[RunSpec], dict[str, str]]:
    """Return the runs whose partitions exist, and why others do not.

    In a sweep over partitions some combinations need rows that are not there; outside of a sweep that is an error.
    """
    rows, skipped = load_rows(json.dumps(experiment.config["data"])), {}
    for partition in experiment.partitions:
        try:
            clients_of(rows, partition)
        except InputError as error:
            if not partition.swept:
                raise InputError(f"partition.{partition.base}: {error}") from None
            skipped[partition.name] = str(error)
    return [spec for spec in experiment.runs() if spec.partition.name not in skipped], skipped


def run_all(directory: RunDirectory, specs: Sequence[RunSpec], workers: int | None, finished: Finished) -> None:
    """Make all runs; each is written to the directory when it is finished.

    workers: processes; 1 to work in this process, None for one per core. finished: called after each run.
    Raises KeyboardInterrupt after Ctrl-C, when everything is written.
    """
    workers = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    jobs = arrange_jobs(specs, workers)
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            _report(job, _work(directory, job), finished)
        return
    with _pool(min(workers, len(jobs))) as pool:
        waiting: Waiting = {pool.submit(_work, directory, job): job for job in jobs}
        try:
            for future in as_completed(waiting):
                _take(future, waiting.pop(future), directory, finished)
        except KeyboardInterrupt:
            _stop(pool, waiting, directory, finished)
            raise
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def arrange_jobs(specs: Sequence[RunSpec], workers: int) -> list[Job]:
    """Return the runs in jobs: in order, seeds of the same partition and method together, several jobs per worker."""
    most = max(1, len(specs) // (4 * workers))
    jobs = []
    for _, cell in itertools.groupby(specs, lambda spec: (spec.partition.name, spec.method.name)):
        runs = tuple(cell)
        jobs += [runs[start : start + most] for start in range(0, len(runs), most)]
    return jobs


_stopping = threading.Event()


def _work(directory: RunDirectory, job: Job) -> list[RunRecord]:
    """Make the runs of a job, write each to the directory, and return them; fewer if Ctrl-C ended it."""
    if _stopping.is_set():
        return []
    runs = make_runs(directory.config, job, [directory.checkpoint(spec) for spec in job], _stopping.is_set)
    for spec, run in zip(job, runs, strict=False):
        directory.save(spec, run)
    return runs


def _report(job: Job, runs: list[RunRecord], finished: Finished) -> None:
    for run in runs:
        finished(run)
    if len(runs) < len(job):  # told to stop
        raise KeyboardInterrupt


def _take(future: Future[list[RunRecord]], job: Job, directory: RunDirectory, finished: Finished) -> None:
    try:
        runs = future.result()
    except BrokenProcessPool:
        raise FedviError(
            f"A worker process ended unexpectedly, maybe for lack of memory, near {job[0].name!r}. Finished runs "
            f"are kept: go on with --resume --out {directory.path}."
        ) from None
    _report(job, runs, finished)


def _stop(pool: ProcessPoolExecutor, waiting: Waiting, directory: RunDirectory, finished: Finished) -> None:
    """Tell the workers to write what they have, and wait until they have done so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running = [future for future in waiting if not future.cancel()]
    for process in list(getattr(pool, "_processes", {}).values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
    for future in as_completed(running):
        with contextlib.suppress(KeyboardInterrupt, FedviError):
            _take(future, waiting[future], directory, finished)


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


def _prepare_worker() -> None:
    """Only take note of Ctrl-C: an exception might strike anywhere, a run stops where nothing is lost."""
    signal.signal(signal.SIGINT, lambda *_: _stopping.set())
