"""`python -m benchmarks`: how fast the installed code is, as ratios, and how honest its intervals are."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import run_bench  # holds the process to one thread before it loads anything heavy
from fedvi import console

app = typer.Typer(help="Measure fedvi on this machine, as ratios.", no_args_is_help=True, add_completion=False)
Quick = Annotated[bool, typer.Option("--quick", help="Few rounds, to see that all works.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("growth", help="Measure steps, and how cost grows with clients, rows, features and others: some minutes.")
@app.command("steps", help="Time private steps in turns with bare matrix products, PyTorch and Opacus; on one thread.")
def measure(
    context: typer.Context,
    quick: Quick = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the made-up rows and of all draws.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write here. Default: fedvi-runs/bench-DATE-TIME.")] = None,
    as_json: Json = False,
) -> None:
    """Write bench.json and bench.png, and growth.png. PyTorch and Opacus: install the extra named bench."""
    with console.working("Measuring ...", quiet=as_json) as status:
        results = run_bench(growth=context.info_name == "growth", quick=quick, seed=seed, show=status.update)
        from benchmarks import render

        directory = out or Path("fedvi-runs") / f"bench-{time.strftime('%Y%m%d-%H%M%S')}"
        directory.mkdir(parents=True, exist_ok=True)
        numbers = directory / "bench.json"
        numbers.write_text(json.dumps(results, indent=1) + "\n")
        written = [numbers, *render.write_figures(results, directory)]
    lines = (*results["notes"], f"Written: {', '.join(map(str, written))}")
    _show(results, render.tables(results), *lines, as_json=as_json)


@app.command()
def tables(
    quick: Quick = False,
    rows: Annotated[int, typer.Option(min=10, help="Of the long table.")] = 10_000_000,
    as_json: Json = False,
) -> None:
    """Time the encoding of CSV files, a long one and one with a tenth of its rows, beside pandas.read_csv."""
    from benchmarks.render import csv_rows
    from benchmarks.tables import measure_tables

    results = measure_tables((100_000,) if quick else (rows // 10, rows), 1 if quick else 3)
    _show(results, {"tables": csv_rows(results)}, as_json=as_json)


@app.command()
def cold(
    times: Annotated[int, typer.Option(min=1, help="Processes of each command.")] = 3, as_json: Json = False
) -> None:
    """Time commands from their start to their end, beside Python's own; compiled code may be in the user's cache."""
    from benchmarks.costs import measure_commands

    costs = measure_commands(times, Path(__file__).parents[1] / "examples")
    rows = [[cost.command, f"{cost.seconds:.2f}", f"{cost.cpu_seconds:.2f}"] for cost in costs]
    table = {"commands": [["command", "seconds", "of processors"], *rows]}
    _show([cost._asdict() for cost in costs], table, as_json=as_json)


@app.command()
def honesty(
    quick: Quick = False,
    method: Annotated[str, typer.Option(help="ours, default, dp-pvi, dp-sgd, nuts or before.")] = "ours",
    cells: Annotated[str, typer.Option(help="Only cells whose name has this in it.")] = "",
    tables: Annotated[
        int | None, typer.Option(min=2, help="Of every cell, at most. Default: as cells.toml says.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option(help="Measure the fedvi in this folder src of another checkout, as it was.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results; what is in it already is kept.")] = Path(
        "fedvi-runs/honesty.json"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the method's results in that file.")] = False,
    as_json: Json = False,
) -> None:
    """Measure coverage and scores of intervals where the truth is known. Exit code 1: a cell is out of its limits."""
    from benchmarks.honesty.command import judged, run_before, run_method

    try:
        if before is not None:
            raise typer.Exit(run_before(before, cells, tables))
        results, names = run_method(method, cells, tables, out, quick=quick, fresh=fresh, quiet=as_json)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    found, shown, failed = judged(results, method, names)
    _show(found, shown, *found["lines"], f"Written: {out}", as_json=as_json)
    raise typer.Exit(int(failed))


@app.command()
def forecasts(
    cells: Annotated[str, typer.Option(help="Only cells whose name has this in it.")] = "",
    fits: Annotated[Path, typer.Option(help="Results of `honesty`, with the standard deviations of fits.")] = Path(
        "fedvi-runs/honesty.json"
    ),
    as_json: Json = False,
) -> None:
    """Compare forecasts with the fits of `honesty`. Exit code 1: too few of them are near enough."""
    from benchmarks.honesty.cells import load_cells
    from benchmarks.honesty.forecasts import FACTOR, PROMISED, compared, rows_of, share_within
    from benchmarks.honesty.run import read_results

    chosen = {name: cell for name, cell in load_cells().items() if cells in name}
    with console.progress("cells", len(chosen), wanted=False if as_json else None) as show:
        found = compared(chosen, read_results(fits)["methods"]["ours"]["cells"], show)
    if not found:
        raise typer.BadParameter(f"Expected cells with the standard deviations of fits in {fits}, got none.")
    share = share_within(found)
    line = f"Within a factor of {FACTOR}: {share:.0%} of {len(found)} cells (promised: {PROMISED:.0%})"
    _show({"share": share, "cells": found}, {"forecasts": rows_of(found)}, line, as_json=as_json)
    raise typer.Exit(int(share < PROMISED))


def _show(results: object, tables: dict[str, list[list[str]]], *lines: str, as_json: bool) -> None:
    if as_json:
        console.print_json(results)
    else:
        shown = (console.table("|>".join(head), rows, name) for name, (head, *rows) in tables.items())
        console.show(*shown, *lines)


if __name__ == "__main__":
    app()
