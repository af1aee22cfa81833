"""`fedvi federation demo`: a whole federation on this machine."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.options import AsJson
from fedvi.console import live, print_json, show, table, working
from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.federation.demo.run import DemoReport


def demo(
    chaos: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Kill random processes for so long. They come back.")
    ] = 0,
    eps: Annotated[float, typer.Option("--eps", help="Budget of every site.")] = 1.0,
    updates: Annotated[
        int | None,
        typer.Option(min=2, help="Questions that sites answer. Default: the plan's own, and more with --chaos."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the partition and of what is killed; noise is never seeded.")
    ] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep everything there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a coordinator and 4 sites as real processes with real certificates on loopback, on UCI Adult.

    Exit code 1 if a release was lost, applied twice, out of order or not paid for, if a budget was exceeded, or if
    the posterior is not what the sites' own answers say.
    """
    from fedvi.cli.federation import table_of
    from fedvi.federation.demo.run import demonstrate

    if out is not None and out.exists() and any(out.iterdir()):
        raise InputError(f"Expected a new or empty folder, got {out}.")
    with contextlib.ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedvi-demo-")))
        update, say = stack.enter_context(live(quiet=as_json))
        chosen = updates or (30 + round(3 * chaos) if chaos else None)  # enough to be killed at work
        shown = (lambda status: None) if update is None else lambda status: update(table_of(status))  # noqa: ARG005
        report = demonstrate(folder, epsilon=eps, updates=chosen, seed=seed, chaos=chaos, show=shown, say=say)
    if as_json:
        print_json(report)
    else:
        _print(report, out)
    if not report.holds:
        raise typer.Exit(1)


def _print(report: DemoReport, kept: Path | None) -> None:
    from fedvi.privacy.ledger.statement import rounded_up

    columns = "site|>rows|>answers|>epsilon|>sent again|>refused"
    rows = (
        (
            *(site.name, site.rows, site.answered),
            f"{rounded_up(site.epsilon or 0.0)} of {site.epsilon_max:g}",
            *(site.repeated, site.refused),
        )
        for site in report.sites
    )
    killed = ", ".join(f"{count} x {kind}" for kind, count in sorted(report.kills.items())) or "nothing"
    show(
        table(columns, rows, title=f"{report.updates} answers in {report.seconds:.0f} s"),
        f"Test rows: accuracy {report.accuracy:.2%}, log-likelihood {report.log_likelihood:.4f}.",
        f"Killed: {killed}.",
        f"Releases lost: {report.lost}, applied twice: {report.duplicated}, out of order: {report.disordered}, "
        f"not paid for: {report.unpaid}. Sites whose answers are not the coordinator's: {report.differing}.",
        f"Budget left at the site that spent most: epsilon {-report.max_epsilon_over_budget:.4f}.",
        f"q as it is stored and as it was read again differ by {report.difference:.1g} nats.",
        "All checks passed." if report.holds else "A check failed: see above.",
        *([f"Kept: {kept}"] if kept else []),
    )


def bench(
    updates: Annotated[int, typer.Option(min=10, help="Of every site.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Measure answers per second over 4 sites with next to no local work, and what one answer takes.

    Real processes with real certificates on loopback, ledgers and files synced to disk at every step.
    """
    from fedvi.federation.demo.run import measure_speed

    shown = working("Running a coordinator and 4 sites ...", quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="fedvi-bench-") as folder, shown:
        speed = measure_speed(Path(folder), updates)
    if as_json:
        print_json(speed)
        return
    show(
        f"{speed.updates_per_second:.1f} answers per second over {speed.sites} sites ({speed.updates} answers)",
        f"From one answer of a site to its next, among {speed.sites}: {speed.milliseconds:.0f} ms, median",
        f"  of which from sending to the answer: {speed.answer_milliseconds:.0f} ms, mean",
        f"Until the first answer: {speed.seconds_to_first:.0f} s",
    )
