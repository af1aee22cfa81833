"""`fedvi reproduce`, `fedvi simulate` and `fedvi report`: experiments, and the page of a run directory."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi import console
from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.experiments.config import Experiment
    from fedvi.experiments.directory import Results
    from fedvi.experiments.local_pool import RunAll

FOLDER = Path("fedvi-runs")
"""Where run directories go unless one is named."""

Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write to this directory. Default: fedvi-runs/NAME-TIME.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run: the one in --out, or the newest.")]
Workers = Annotated[int | None, typer.Option(min=1, metavar="N", help="Make N runs at once. Default: one per core.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def reproduce(
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition",
            "--distribution",
            metavar="LIST",
            help="Choose the paper's partitions of rows over clients. A: clients are alike. B: small clients have "
            "almost only negative rows. C: almost only positive rows. D: between A and C. Default: A,B,C.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST",
            help="Choose methods: pvi, global-vi, dp-pvi, dp-pvi-strict, fedvi, fedvi-splines. Default: the rule's.",
        ),
    ] = None,
    eps: Annotated[
        list[str] | None,
        typer.Option("--eps", metavar="LIST", help="Set the budgets of every client. Default: the paper's."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N|LIST", help="Set the number of seeds (5: 1 to 5), or a list (1,2,7). Default: 5."),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="Choose the rule. published: the paper's 75 runs with its stopping rule, which overspends. strict: "
            "Poisson sampling and exact accounting, never above the budget; and fedvi's own method. both: all runs.",
        ),
    ] = "both",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Check that all works: partition C, one seed, one budget, few communications."),
    ] = False,
    heatmap: Annotated[
        bool,
        typer.Option("--heatmap", help="Draw the paper's heat maps instead: PVI minus global VI over 60 partitions."),
    ] = False,
    out: Out = None,
    resume: Resume = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run the DP-PVI paper's experiments on UCI Adult, and compare with its table.

    Write a run directory with results, history, figures and report.html.
    All runs are simulations from seeds. A LIST is separated by commas.
    """
    from fedvi.experiments.papers import heatmap_experiment, paper_experiment

    partitions, methods, epsilons = _words(partition), _words(method), _words(eps)
    chosen_rule = None if rule == "both" or heatmap else rule
    command = "fedvi reproduce" + _typed(
        heatmap=heatmap, rule=chosen_rule, seeds=seeds, quick=quick, partition=partitions, method=methods, eps=epsilons
    )
    if heatmap:
        if partitions or methods or epsilons or quick:
            raise InputError(
                "--heatmap runs PVI and global VI over a grid: leave out --partition, --method, --eps and --quick."
            )
        experiment = heatmap_experiment(_seeds(seeds), command)
    else:
        experiment = paper_experiment(
            rule=rule,
            partitions=partitions,
            methods=methods,
            epsilons=[_number(word) for word in epsilons],
            seeds=_seeds(seeds),
            quick=quick,
            command=command,
        )
    prefix = "heatmap" if heatmap else "reproduce"
    _run(experiment, prefix, out, workers, command, resume=resume, as_json=as_json)


def simulate(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="Read this TOML file; docs/experiments.md explains it.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and show what would run.")] = False,
    out: Out = None,
    resume: Resume = False,
    workers: Workers = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Use a running Ray cluster: auto, HOST:PORT or ray://HOST:PORT. Its machines get the rows. "
            "Default: use the cores of this machine.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate federations from a configuration file: data, partitions, methods, sweeps.

    Write a run directory with results, history, figures and report.html.
    """
    from fedvi.experiments.config import Experiment
    from fedvi.experiments.local_pool import possible_runs
    from fedvi.experiments.ray_pool import on_ray

    experiment = Experiment.load(config)
    if dry_run:
        possible, skipped = possible_runs(experiment)
        console.show(
            console.table("method|settings", [method.described() for method in experiment.methods], title="Methods"),
            f"Partitions: {', '.join(dict.fromkeys(spec.partition.name for spec in possible))}",
            f"Seeds: {', '.join(map(str, experiment.seeds))}",
            *(f"Skipped {name}: {reason}" for name, reason in skipped.items()),
            f"{len(possible)} runs. Nothing was run.",
        )
        return
    over = None if ray is None else on_ray(ray)  # before anything is written: the address may be wrong
    again = f"fedvi simulate {config}" + (f" --ray {ray}" if ray else "")
    _run(experiment, config.stem, out, workers, again, resume=resume, as_json=as_json, over=over)


def report(
    directories: Annotated[
        list[Path], typer.Argument(help="Read these run directories; several are compared.", metavar="DIR...")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write here. Default: DIR itself; for several: fedvi-runs/comparison."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the table, figures and report.html of a run directory, or compare several."""
    from fedvi.experiments.directory import read
    from fedvi.reports.build import merge

    outcomes = [read(directory) for directory in directories]
    outcome = outcomes[0] if len(outcomes) == 1 else merge(outcomes, out or FOLDER / "comparison")
    if out is not None:
        outcome = dataclasses.replace(outcome, path=out)
    _show(outcome, as_json=as_json)


def _run(
    experiment: Experiment,
    prefix: str,
    out: Path | None,
    workers: int | None,
    again: str,
    *,
    resume: bool,
    as_json: bool,
    over: RunAll | None = None,
) -> None:
    """Run into a new directory, or with `resume` go on; write the report, show the table; exit code 1 if a run failed.

    prefix: of the directory's name, unless `out` is given. again: what people type.
    """
    from fedvi.experiments.directory import RunDirectory
    from fedvi.experiments.local_pool import execute

    if resume:
        found = [out] if out else sorted(config.parent for config in FOLDER.glob(f"{prefix}-*/config.toml"))
        if not found:
            raise InputError(
                f"Expected a run directory {FOLDER}/{prefix}-* to go on with, got none. Give it with --out."
            )
        directory, saved = RunDirectory.reopen(found[-1])
        keys = {*saved.config, *experiment.config}
        if other := sorted(key for key in keys if saved.config.get(key) != experiment.config.get(key)):
            raise InputError(
                f"{directory.path} was started with other settings ({', '.join(other)}). Repeat the options of that "
                "run."
            )
    else:
        directory = RunDirectory.create(out or FOLDER / f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}", experiment)
    try:
        outcome = execute(directory, experiment, workers, over=over, quiet=as_json)
    except KeyboardInterrupt:
        typer.echo(f"Finished work is kept. Continue with: {again} --resume --out {directory.path}", err=True)
        raise
    if _show(outcome, as_json=as_json):
        raise typer.Exit(1)


def _show(outcome: Results, *, as_json: bool) -> int:
    """Write the report of a run directory, print its table, or its results as JSON; return how many runs failed."""
    from msgspec import to_builtins

    from fedvi.reports.build import write_report
    from fedvi.reports.table import render, render_grid

    with console.working("Drawing the figures and report.html ...", quiet=as_json):
        page = write_report(outcome)
    failures = [
        f"Failed: {partition} {method} seed {failure.seed}: {failure.error}"
        for partition, methods in outcome.results.items()
        for method, found in methods.items()
        for failure in found.failed
    ]
    if as_json:
        console.print_json(to_builtins(outcome.results))
    else:
        tables = render(outcome, console.stdout().width), render_grid(outcome)
        console.show(*(table for table in tables if table and table.row_count), *failures, f"Report: {page}")
    return len(failures)


def _typed(**options: str | bool | list[str] | None) -> str:
    """Return the options that were given as they are typed."""
    texts = {name: ",".join(value) if isinstance(value, list) else value for name, value in options.items() if value}
    return "".join(f" --{name}" if text is True else f" --{name} {text}" for name, text in texts.items())


def _words(given: list[str] | None) -> list[str]:
    return [word.strip() for entry in given or () for word in entry.split(",") if word.strip()]


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InputError(f"Expected a number for --eps, got {word!r}.") from None


def _seeds(given: str | None) -> list[int]:
    try:
        numbers = [] if given is None else [int(word) for word in given.split(",")]
    except ValueError:
        raise InputError(f"Expected --seeds to be a number or a list such as 1,2,7, got {given!r}.") from None
    if len(numbers) == 1 and numbers[0] < 1:
        raise InputError(f"Expected at least one seed, got --seeds {given}.")
    return list(range(1, numbers[0] + 1)) if len(numbers) == 1 else numbers
