"""What the commands that run experiments have in common: where to write, how to go on, what to show."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.experiments.config import Experiment
    from fedvi.experiments.directory import Results, RunDirectory
    from fedvi.experiments.local_pool import RunAll

FOLDER = Path("fedvi-runs")
"""Where run directories go unless one is named."""


def open_directory(experiment: Experiment, prefix: str, out: Path | None, *, resume: bool) -> RunDirectory:
    """Return a new directory for the experiment, or with `resume` the one that was left."""
    from fedvi.experiments.directory import RunDirectory
    from fedvi.experiments.execute import newest

    if not resume:
        return RunDirectory.create(out or FOLDER / f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}", experiment)
    directory, saved = RunDirectory.reopen(out or newest(FOLDER, prefix))
    if saved.config != experiment.config:
        keys = {*saved.config, *experiment.config}
        other = sorted(key for key in keys if saved.config.get(key) != experiment.config.get(key))
        raise InputError(
            f"{directory.path} was begun with other settings ({', '.join(other)}). Repeat the options of the run that "
            "you go on with."
        )
    return directory


def run_and_report(
    experiment: Experiment,
    directory: RunDirectory,
    workers: int | None,
    *,
    over: RunAll,
    as_json: bool,
    again: str,
) -> None:
    """Run, write the report, and show the table; exit code 1 if a run failed."""
    from fedvi.experiments.execute import execute

    try:
        outcome = execute(directory, experiment, workers, over=over, quiet=as_json)
    except KeyboardInterrupt:
        typer.echo(f"Nothing is lost. Go on with: {again} --resume --out {directory.path}", err=True)
        raise
    show(outcome, as_json=as_json)
    if any(entry["failed"] for methods in outcome.results.values() for entry in methods.values()):
        raise typer.Exit(1)


def show(outcome: Results, *, as_json: bool) -> None:
    """Write the report of a run directory, and print its table, or its results as JSON."""
    from rich.console import Console

    from fedvi.reports.build import write_report
    from fedvi.reports.table import WIDE, render, render_grid

    with Console(stderr=True, quiet=as_json).status("Drawing the figures and report.html ..."):
        page = write_report(outcome)
    if as_json:
        typer.echo(json.dumps(outcome.results))
        return

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    table = render(outcome, console.width)
    if table.row_count:
        console.print(table)
    if (cells := render_grid(outcome)) is not None:
        console.print(cells)
    for partition, methods in outcome.results.items():
        for method, entry in methods.items():
            for failure in entry["failed"]:
                failed = f"Failed: {partition} {method} seed {failure['seed']}: {failure['error']}"
                console.print(failed, markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)
