"""`fedvi federation demo`: a whole federation on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedvi.cli.options import AsJson
from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.federation.demo.run import DemoReport


def demo(
    chaos: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Kill random processes for so long; they come back.")
    ] = 0,
    eps: Annotated[float, typer.Option("--eps", help="Budget of every site.")] = 1.0,
    updates: Annotated[
        int | None, typer.Option(min=1, help="Of every site. Default: 150, and 7 for every second of --chaos.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the partition and of what is killed; noise is never seeded.")
    ] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep everything there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a coordinator and 4 sites as real processes with real certificates on loopback, on UCI Adult.

    Exit code 1 if a release was lost, applied twice, out of order or not paid for, if a budget was exceeded, or if
    the posterior is not the product of the sites' own factors.
    """
    from fedvi.federation.demo.run import demonstrate

    if out is not None and out.exists() and any(out.iterdir()):
        raise InputError(f"Expected a new or empty folder, got {out}.")
    with contextlib.ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedvi-demo-")))
        show, say = stack.enter_context(_terminal(as_json))
        chosen = updates or 150 + round(7 * chaos)  # more than are made while processes are killed
        outcome = demonstrate(folder, epsilon=eps, updates=chosen, seed=seed, chaos=chaos, show=show, say=say)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(outcome)))
    else:
        _print(outcome, out)
    if not outcome.holds:
        raise typer.Exit(1)


@contextlib.contextmanager
def _terminal(quiet: bool) -> Any:
    """Give two functions: one shows a status, live in a terminal; the other says a line."""
    from rich.console import Console
    from rich.live import Live

    from fedvi.cli.federation import table_of

    console = Console(stderr=True, quiet=quiet)
    if quiet or not console.is_terminal:
        yield lambda status: None, lambda line: console.print(line, markup=False)  # noqa: ARG005
        return
    with Live(console=console, refresh_per_second=2, transient=True) as live:
        yield lambda status: live.update(table_of(status)), lambda line: console.print(line, markup=False)


def _print(outcome: DemoReport, kept: Path | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fedvi.privacy.ledger.statement import rounded_up

    table = Table("site", title=f"{outcome.updates} updates in {outcome.seconds:.0f} s")
    for name in ("rows", "updates", "epsilon", "sent again", "refused"):
        table.add_column(name, justify="right")
    for site in outcome.sites:
        epsilon = f"{rounded_up(site['epsilon'])} of {site['epsilon_max']:g}"
        counts = (str(site[key]) for key in ("repeated", "refused"))
        table.add_row(escape(site["name"]), str(site["rows"]), str(site["updates"]), epsilon, *counts)
    console = Console()
    console.print(table)
    killed = ", ".join(f"{count} x {kind}" for kind, count in sorted(outcome.kills.items())) or "nothing"
    for line in (
        f"Test rows: accuracy {outcome.accuracy:.2%}, log-likelihood {outcome.log_likelihood:.4f}.",
        f"Killed: {killed}.",
        f"Releases lost: {outcome.lost}, applied twice: {outcome.duplicated}, out of order: {outcome.disordered}, "
        f"not paid for: {outcome.unpaid}. Sites whose factor is not the coordinator's: {outcome.differing}.",
        f"Budget left at the site that spent most: epsilon {-outcome.max_epsilon_over_budget:.4f}.",
        f"q and the product of prior and stored factors differ by {outcome.difference:.1g}.",
        "All is as it must be." if outcome.holds else "This must not be: see what is not zero, or too much, above.",
        *([f"Kept: {kept}"] if kept else []),
    ):
        console.print(line, markup=False, soft_wrap=True)


def bench(
    updates: Annotated[int, typer.Option(min=10, help="Of every site.")] = 300,
    as_json: AsJson = False,
) -> None:
    """Measure updates per second over 4 sites with next to no local work, and what one update takes.

    Real processes with real certificates on loopback, ledgers and files synced to disk at every step.
    """
    from rich.console import Console

    from fedvi.federation.demo.speed import measure_speed

    shown = Console(stderr=True, quiet=as_json).status("Running a coordinator and 4 sites ...")
    with tempfile.TemporaryDirectory(prefix="fedvi-bench-") as folder, shown:
        speed = measure_speed(Path(folder), updates)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(speed)))
        return
    typer.echo(f"{speed.updates_per_second:.1f} updates per second over {speed.sites} sites ({speed.updates} updates)")
    typer.echo(f"One update of one site among {speed.sites}: {speed.milliseconds:.0f} ms, median")
    typer.echo(f"  of which from sending to the answer: {speed.answer_milliseconds:.0f} ms, mean")
    typer.echo(f"Until the first update: {speed.seconds_to_first:.0f} s")
