"""`fedvi report`: the page of a run directory again, or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    directories: Annotated[list[Path], typer.Argument(help="Run directories; several are compared.", metavar="DIR...")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write. Default: into DIR; for several, fedvi-runs/comparison.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Write the table, figures and report.html of a run directory, or compare several."""
    import dataclasses

    from fedvi.cli.experiment import FOLDER, show
    from fedvi.experiments.directory import read
    from fedvi.reports.build import merge

    outcomes = [read(directory) for directory in directories]
    outcome = outcomes[0] if len(outcomes) == 1 else merge(outcomes, out or FOLDER / "comparison")
    if out is not None:
        outcome = dataclasses.replace(outcome, path=out)
    show(outcome, as_json=as_json)
