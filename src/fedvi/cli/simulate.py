"""`fedvi simulate`: any experiment from a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedvi.experiments.config import Experiment


def simulate(
    config: Annotated[Path, typer.Argument(help="TOML file that says what to run; see docs/experiments.md.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and show what would run.")] = False,
    out: Annotated[Path | None, typer.Option(help="Directory to write to. Default: fedvi-runs/NAME-DATE-TIME.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run: that of --out, or the newest one.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at once. Default: one per core, here or of the Ray cluster.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Spread the runs over a Ray cluster that is up: auto, HOST:PORT or ray://HOST:PORT. Its machines get "
            "the rows. Default: over the cores of this machine.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Simulate federations as a configuration file says: data, partitions, methods, seeds, sweeps over lists.

    Writes a run directory with results, history, figures and report.html.
    """
    from fedvi.cli.experiment import open_directory, run_and_report
    from fedvi.experiments.config import Experiment
    from fedvi.experiments.local_pool import run_all
    from fedvi.experiments.ray_pool import on_ray

    experiment = Experiment.load(config)
    if dry_run:
        _preview(experiment)
        return
    over = run_all if ray is None else on_ray(ray)  # before anything is written: the address may be wrong
    directory = open_directory(experiment, config.stem, out, resume=resume)
    again = f"fedvi simulate {config}" + (f" --ray {ray}" if ray else "")
    run_and_report(experiment, directory, workers, over=over, as_json=as_json, again=again)


def _preview(experiment: Experiment) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fedvi.experiments.execute import possible_runs, settings_table

    runs, skipped = possible_runs(experiment)
    console = Console()
    table = Table("method", "settings", title="Methods")
    for name, settings in settings_table(experiment):
        table.add_row(escape(name), escape(settings))
    console.print(table)
    console.print(f"Partitions: {', '.join(dict.fromkeys(spec.partition.name for spec in runs))}", markup=False)
    console.print(f"Seeds: {', '.join(map(str, experiment.seeds))}", markup=False)
    for name, reason in skipped.items():
        console.print(f"Skipped {name}: {reason}", markup=False)
    console.print(f"{len(runs)} runs. Nothing was run.")
