"""`fedvi reproduce`: the paper's table and figures, beside the published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedvi.errors import InputError


def reproduce(
    distribution: Annotated[
        list[str] | None,
        typer.Option(help="Distribution of the rows over clients: A, B, C or D; may be repeated. Default: A, B, C."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="pvi, global-vi, dp-pvi, dp-pvi-strict or fedvi; may be repeated. Default: all of the rule."),
    ] = None,
    eps: Annotated[
        list[str] | None, typer.Option("--eps", help="Budget of every client; may be repeated. Default: the paper's.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many seeds (5: 1 to 5), or a list (1,2,7). Default: 5.")
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            help="published: the paper's 75 runs, its stopping rule and accountant. strict: Poisson sampling, exact "
            "accounting, never above the budget; and fedvi's own method. both."
        ),
    ] = "both",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Distribution C, one seed, one budget, few communications: to see that all works."
        ),
    ] = False,
    heatmap: Annotated[
        bool,
        typer.Option("--heatmap", help="Instead, the paper's heat maps: PVI minus global VI over 60 distributions."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory to write to. Default: fedvi-runs/reproduce-DATE-TIME.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run: that of --out, or the newest one.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once. Default: one per core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Run the DP-PVI paper's experiment on UCI Adult again, and compare with its published table.

    Writes a run directory with results, history, figures and report.html. Everything is a simulation from seeds.
    """
    from fedvi.cli.experiment import open_directory, run_and_report
    from fedvi.experiments.local_pool import run_all
    from fedvi.experiments.papers import heatmap_experiment, paper_experiment

    chosen_seeds = _seeds(seeds)
    if heatmap:
        if distribution or method or eps or quick:
            raise InputError(
                "--heatmap runs PVI and global VI over a grid: leave out --distribution, --method, --eps and --quick."
            )
        command = " ".join(["fedvi reproduce --heatmap", *_given(seeds=seeds)])
        experiment = heatmap_experiment(chosen_seeds, command)
    else:
        distributions, methods, epsilons = _words(distribution), _words(method), _words(eps)
        chosen = _given(rule=None if rule == "both" else rule, seeds=seeds, quick=quick or None)
        several = [
            f"--{name} {','.join(words)}"
            for name, words in (("distribution", distributions), ("method", methods), ("eps", epsilons))
            if words
        ]
        command = " ".join(["fedvi reproduce", *chosen, *several])
        experiment = paper_experiment(
            rule=rule,
            distributions=distributions,
            methods=methods,
            epsilons=[_number(word) for word in epsilons],
            seeds=chosen_seeds,
            quick=quick,
            command=command,
        )
    directory = open_directory(experiment, "heatmap" if heatmap else "reproduce", out, resume=resume)
    run_and_report(experiment, directory, workers, over=run_all, as_json=as_json, again=command)


def _given(**options: object) -> list[str]:
    """Return the options that were given as they are typed."""
    return [
        f"--{name}" + ("" if value is True else f" {value}") for name, value in options.items() if value is not None
    ]


def _words(given: list[str] | None) -> list[str]:
    return [word.strip() for entry in given or () for word in entry.split(",") if word.strip()]


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InputError(f"Expected a number for --eps, got {word!r}.") from None


def _seeds(given: str | None) -> list[int]:
    if given is None:
        return []
    try:
        numbers = [int(word) for word in given.split(",")]
    except ValueError:
        raise InputError(f"Expected --seeds to be a number or a list such as 1,2,7, got {given!r}.") from None
    if "," in given:
        return numbers
    if numbers[0] < 1:
        raise InputError(f"Expected at least one seed, got --seeds {given}.")
    return list(range(1, numbers[0] + 1))
