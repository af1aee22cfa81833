"""Run an experiment into a directory, from the start or from where it was left."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedvi.errors import InputError
from fedvi.experiments.config import Experiment, RunSpec
from fedvi.experiments.directory import Results, RunDirectory
from fedvi.experiments.kinds import build
from fedvi.experiments.local_pool import Finished, RunAll, run_all
from fedvi.experiments.runs import load_clients


def execute(
    directory: RunDirectory,
    experiment: Experiment,
    workers: int | None = None,
    *,
    over: RunAll = run_all,
    quiet: bool = False,
) -> Results:
    """Make all runs of the experiment that the directory does not have yet, and put the results together.

    workers: how many runs at once; None for as many as there are cores. over: the machine, or machines, that they are
    spread over: this one, or `on_ray(address)`.
    After Ctrl-C (KeyboardInterrupt) the directory holds everything that was done; call again to go on.
    """
    possible, skipped = possible_runs(experiment)
    directory.skip(skipped)
    try:
        with _progress(directory, experiment, possible, quiet=quiet) as finished:
            over(directory, possible, workers, finished)
    finally:
        outcome = directory.collect(possible)
    return outcome


def possible_runs(experiment: Experiment) -> tuple[list[RunSpec], dict[str, str]]:
    """Return the runs whose partitions exist, and why others do not.

    In a sweep over partitions some combinations need rows that are not there; outside of a sweep that is an error.
    """
    data, skipped = json.dumps(experiment.config["data"]), {}
    for partition in experiment.partitions:
        try:
            load_clients(data, json.dumps(partition.table))
        except InputError as error:
            if not partition.swept:
                raise InputError(f"partition.{partition.base}: {error}") from None
            skipped[partition.name] = str(error)
    return [spec for spec in experiment.runs() if spec.partition.name not in skipped], skipped


def settings_table(experiment: Experiment) -> list[tuple[str, str]]:
    """Return every variant of the experiment and what its objects are, for people to read before a long run."""
    lines = []
    for method in experiment.methods:
        parts = [
            repr(build(role, method.table[role], role))
            for role in ("algorithm", "schedule", "privacy")
            if role in method.table
        ]
        limits = [
            f"{key}={method.table[key]}" for key in ("communications", "until", "max_updates") if key in method.table
        ]
        lines.append((method.name, ", ".join([*parts, *limits])))
    return lines


def newest(folder: Path, prefix: str) -> Path:
    """Return the newest run directory in a folder, to go on with."""
    found = sorted(path for path in folder.glob(f"{prefix}-*") if (path / "config.toml").is_file())
    if not found:
        raise InputError(f"Expected a run directory {folder}/{prefix}-* to go on with, got none. Give it with --out.")
    return found[-1]


@contextmanager
def _progress(
    directory: RunDirectory, experiment: Experiment, specs: Sequence[RunSpec], *, quiet: bool
) -> Iterator[Finished]:
    """Give a function that shows one more finished run; on a terminal as a bar, otherwise as lines now and then."""
    console = Console(stderr=True, quiet=quiet)
    done = sum(directory.is_done(spec) for spec in specs)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[latest]}"),
    )
    title = str(experiment.config.get("title", "experiment"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(escape(title), total=len(specs), completed=done, latest="starting")

        def finished(_: RunSpec, run: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            bar.update(task, completed=done, latest=escape(_summary(run)))
            if not console.is_terminal and (done % 25 == 0 or done == len(specs)):
                console.print(f"{done}/{len(specs)} runs, last: {_summary(run)}", soft_wrap=True, markup=False)

        yield finished


def _summary(run: dict[str, Any]) -> str:
    name = f"{run['partition']} {run['method']} seed {run['seed']}"
    if "error" in run:
        return f"{name}: {run['error']}"
    final = run["final"]
    accuracy = f"{final['accuracy']:.2f} % " if "accuracy" in final else ""
    likelihood = f"{final['log_likelihood']:.4f}" if "log_likelihood" in final else ""
    return f"{name}: {accuracy}{likelihood}"
