"""`fedvi bench`: how fast the installed code is on this machine, as ratios to what cannot be avoided."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvi.cli.experiment import FOLDER


def bench(
    growth: Annotated[
        bool, typer.Option(help="Also how cost grows with clients, rows, features, batch and seeds: some minutes.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds, to see that all works.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the made-up rows and of all draws.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Directory to write to. Default: fedvi-runs/bench-DATE-TIME.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time private steps in turns with bare matrix products, PyTorch and Opacus; on one thread.

    Writes bench.json and bench.png, and growth.png with --growth. To compare with PyTorch and Opacus, install the
    extra named bench.
    """
    from rich.console import Console

    from fedvi.bench import run_bench  # holds the process to one thread before it loads anything heavy

    with Console(stderr=True, quiet=as_json).status("Measuring ...") as status:
        results = run_bench(growth=growth, quick=quick, seed=seed, show=status.update)
        directory = out or FOLDER / f"bench-{time.strftime('%Y%m%d-%H%M%S')}"
        written = _write(results, directory)
    if as_json:
        typer.echo(json.dumps(results))
        return
    from fedvi.bench.tables import render
    from fedvi.reports import WIDE

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    for table in render(results):
        console.print(table)
    for note in results["notes"]:
        console.print(note, markup=False, soft_wrap=True)
    console.print(f"Written: {', '.join(map(str, written))}", markup=False, soft_wrap=True)


def _write(results: dict[str, Any], directory: Path) -> list[Path]:
    from fedvi.bench.figures import write_figures

    directory.mkdir(parents=True, exist_ok=True)
    numbers = directory / "bench.json"
    numbers.write_text(json.dumps(results, indent=1) + "\n")
    return [numbers, *write_figures(results, directory)]
