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
    sites: Annotated[int, typer.Option(min=1, max=50, help="How many sites take part.")] = 4,
    transport: Annotated[str, typer.Option(help="Carry messages by https, flare or flower.")] = "https",
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep everything there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a coordinator and sites as real processes on loopback, on UCI Adult. Also over FLARE or Flower.

    With --chaos over https, a proxy spoils a fifth of all exchanges too: it cuts, delays, doubles and alters them.

    Exit code 1 if a release was lost, applied twice, out of order or not paid for, if a budget was exceeded, or if
    the posterior is not what the sites' own answers say.
    """
    from fedvi.checks import one_of
    from fedvi.cli.federation.coordinator import table_of
    from fedvi.federation.demo.local import TRANSPORTS
    from fedvi.federation.demo.run import demonstrate

    one_of("--transport", transport, TRANSPORTS)
    if out is not None and out.exists() and any(out.iterdir()):
        raise InputError(f"Expected a new or empty folder, got {out}.")
    with contextlib.ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedvi-demo-")))
        update, say = stack.enter_context(live(quiet=as_json))
        chosen = updates or (min(30 + round(6 * chaos), 1000) if chaos else None)  # enough to be killed at work
        shown = (lambda status: None) if update is None else lambda status: update(table_of(status))  # noqa: ARG005
        what = {"epsilon": eps, "updates": chosen, "seed": seed, "chaos": chaos, "sites": sites, "transport": transport}
        report = demonstrate(folder, **what, show=shown, say=say)  # type: ignore[arg-type]
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
    killed, spoilt = (
        ", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items())) or "nothing"
        for counts in (report.kills, report.spoilt)
    )
    show(
        table(columns, rows, title=f"{report.updates} answers in {report.seconds:.0f} s"),
        f"Until the first answer: {report.seconds_to_first:.1f} s.",
        f"Test rows: accuracy {report.accuracy:.2%}, log-likelihood {report.log_likelihood:.4f}.",
        f"Killed: {killed}. The proxy: {spoilt}.",
        f"Releases lost: {report.lost}, applied twice: {report.duplicated}, out of order: {report.disordered}, "
        f"not paid for: {report.unpaid}. Sites whose answers are not the coordinator's: {report.differing}.",
        f"Budget left at the site that spent most: epsilon {-report.max_epsilon_over_budget:.4f}.",
        f"q as it is stored and as it was read again differ by {report.difference:.1g} nats.",
        "All checks passed." if report.holds else "A check failed: see above.",
        *([f"Kept: {kept}"] if kept else []),
    )


def bench(
    updates: Annotated[int, typer.Option(min=50, max=1000, help="Of every late site.")] = 300,
    seconds: Annotated[float, typer.Option(min=8, help="Let 200 sites work for so long.")] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Measure updates per second and round trips, where the work of sites is next to nothing. Two minutes.

    Real processes on loopback, ledgers and files synced to disk at every step.
    """
    from fedvi.federation.demo.bench import measure

    shown = working("Running a coordinator with 4 sites, with 1 and with 200 ...", quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="fedvi-bench-") as folder, shown:
        speed = measure(Path(folder), updates, seconds)
    if as_json:
        print_json(speed)
        return
    show(
        f"{speed.updates_per_s:.0f} updates per second over 4 late sites; {speed.in_step_per_s:.0f} in step",
        f"Round trip of a lone site: {speed.round_trip_ms:.1f} ms; to the next question {speed.question_ms:.1f} ms",
        f"200 sites, 50 updates per second: {speed.median_ms_200_sites:.1f} ms, median; 99 % within "
        f"{speed.p99_ms_200_sites:.0f} ms",
        f"Memory: coordinator of 200 sites {speed.coordinator_mb:.0f} MB, waiting site {speed.idle_site_mb:.0f} MB",
        f"Until the first update of the demonstration: {speed.first_update_s:.1f} s",
    )
