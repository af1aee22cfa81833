"""`fedvi site`: what the people of one site do."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.join import join, want, work
from fedvi.cli.options import AsJson
from fedvi.console import print_json, show
from fedvi.errors import InputError

if TYPE_CHECKING:
    from fedvi.federation.settings import SiteSettings
    from fedvi.federation.site_file import SiteState

app = typer.Typer(help="Take part in a federation with your own table.", no_args_is_help=True)
app.command()(join)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The site's folder, as made by join.")]
UNHEARD = "never heard by the coordinator"
LOOK = 0.5
"""Seconds between looks."""


@app.command()
def status(folder: Folder, as_json: AsJson = False) -> None:
    """Show what this site has done, spent and been told."""
    from fedvi.federation.service import running
    from fedvi.federation.wire import FINISHED, LEFT, WORKING
    from fedvi.privacy.ledger.ledger import read
    from fedvi.privacy.ledger.statement import rounded_up

    settings = _joined(folder)
    site, book = _load(settings), read(settings.ledger)
    is_running, problem = running(settings.pid) is not None, site.failed or site.note
    if as_json:
        print_json(
            {
                "federation": settings.description.name,
                "site": settings.address.site,
                "state": site.said or UNHEARD,
                "wanted": site.wanted,
                "running": is_running,
                "releases": site.releases,
                "waiting_for_an_answer": site.pending is not None,
                "version": site.version,
                "last_answer": site.heard,
                "epsilon": book.spent.epsilon,
                "epsilon_max": book.budget.epsilon,
                "delta": book.budget.delta,
                "stop": site.stop,
                "problem": problem,
            }
        )
        return
    when = "" if site.heard is None else datetime.datetime.fromtimestamp(site.heard).strftime("%F %T")
    answer = f"{when}, with {site.version} answers of all sites" if when else "none yet"
    wanted = f", wanted: {site.wanted}" if site.wanted not in (WORKING, site.said) else ""
    pending = ", the last one not acknowledged yet" if site.pending is not None else ""
    epsilon = f"{rounded_up(book.spent.epsilon)} of {book.budget.epsilon:g} at delta {book.budget.delta:g}"
    over = "is over" if site.said == FINISHED else "ends"
    lines = (
        f"Federation {settings.description.name}; this site: {site.said or UNHEARD}{wanted}; its command is "
        f"{'running' if is_running else 'not running'}.",
        f"Releases: {site.releases} of {settings.description.spec.updates}{pending}.",
        f"Last answer of the coordinator: {answer}.",
        f"Spent: epsilon {epsilon}. Ledger: {settings.ledger}",
        site.stop and f"The federation {over}: {site.stop}.",
        problem,
        "" if is_running or site.said in (FINISHED, LEFT) else f"Go on: fedvi site join {settings.folder}",
    )
    show(*filter(None, lines))


@app.command()
def pause(folder: Folder) -> None:
    """Pause: release nothing more for now. The site stays in touch with the coordinator."""
    from fedvi.federation.wire import PAUSED

    want(_joined(folder), PAUSED)
    typer.echo("The site pauses after what is under way. Go on: fedvi site resume")


@app.command()
def resume(folder: Folder) -> None:
    """Go on after a pause."""
    from fedvi.federation.wire import WORKING

    want(_joined(folder), WORKING)
    typer.echo("The site goes on.")


@app.command()
def rekey(folder: Folder) -> None:
    """Take a new private key, signed by the old one. Stop the site before. A lost key needs a new invitation."""
    from fedvi.federation import enrolment
    from fedvi.federation.service import only_one

    settings = _joined(folder)
    with only_one(settings.pid, f"The site of {settings.folder}"):
        transport = settings.transport()
        try:
            enrolment.rekey(settings.folder, transport)
        finally:
            transport.close()
    typer.echo(f"The site has a new key. Go on: fedvi site join {settings.folder}")


@app.command()
def leave(
    folder: Folder,
    patience: Annotated[float, typer.Option(help="Try to tell the coordinator for so many seconds.")] = 60.0,
) -> None:
    """Leave the federation. What was released stays in the posterior; the ledger stays yours. join comes back."""
    from fedvi.federation.service import only_one, running
    from fedvi.federation.wire import FINISHED, LEFT

    settings = _joined(folder)
    if _load(settings).said == FINISHED:
        typer.echo("The federation is over for this site.")
        return
    want(settings, LEFT)
    deadline = time.monotonic() + patience
    if running(settings.pid) is None:
        with only_one(settings.pid, f"The site of {settings.folder}"), settings.open(now=False) as site:
            work(settings, site, deadline)
    while (_load(settings).said != LEFT or running(settings.pid)) and time.monotonic() < deadline:
        time.sleep(LOOK)
    if _load(settings).said == LEFT:
        typer.echo("Left, and the coordinator knows.")
    else:
        typer.echo("Left: nothing more is made. The coordinator could not be told; leave again tells it.", err=True)
        raise typer.Exit(1)


def _joined(folder: Path) -> SiteSettings:
    from fedvi.federation.settings import SiteSettings

    if not folder.is_dir():
        raise InputError(f"Expected the folder of a site that has joined, got {folder}. Use fedvi site join first.")
    return SiteSettings.load(folder.resolve())


def _load(settings: SiteSettings) -> SiteState:
    from fedvi.federation.site_file import SiteFile

    with SiteFile.open(settings.state) as file:
        return file.load()
