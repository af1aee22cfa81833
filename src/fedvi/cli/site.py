"""`fedvi site`: what the people of one site do."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedvi.cli.options import TABLE_HELP, AsJson, Encoding
from fedvi.errors import FedviError, InputError

if TYPE_CHECKING:
    from fedvi.federation.settings import SiteSettings
    from fedvi.federation.site import Site
    from fedvi.tables.encode import Encoded

app = typer.Typer(help="Take part in a federation with your own table.", no_args_is_help=True)

Kit = Annotated[Path, typer.Argument(metavar="KIT", help="Folder or zip that the coordinator gave you.")]

PID, LOG = "join.pid", "join.log"
LOOK = 0.5
"""Seconds between looks."""


@app.command()
def join(
    kit: Kit,
    data: Annotated[Path | None, typer.Option(metavar="TABLE", help=TABLE_HELP)] = None,
    eps: Annotated[float | None, typer.Option("--eps", help="Epsilon that your rows never exceed.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Privacy ledger of the rows; made if new.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Default: min(1e-5, 1/(10 N)) for N declared rows.")] = None,
    public_rows: Annotated[
        int | None,
        typer.Option(help="Number of rows to declare in public. Default: two digits of it, rounded down."),
    ] = None,
    encoding: Encoding = "utf-8",
    accept: Annotated[
        list[str] | None, typer.Option(help="What you accept in so many words about the ledger, if it asks.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="What this site allows. Default: policy.toml beside the ledger, if any."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Promise without being asked.")] = False,
    background: Annotated[bool, typer.Option("--background", help="Return once it works.")] = False,
) -> None:
    """Check the table, show what you are about to promise, and take part until the budget or the federation ends.

    The second time, KIT alone is enough. Ctrl-C stops; join again to go on.

    Example: fedvi site join north.zip --data patients.csv --eps 1.0 --ledger north.ledger
    """
    from fedvi.federation.invitation import unpack_kit
    from fedvi.federation.service import in_background, only_one
    from fedvi.federation.settings import FOLDER
    from fedvi.federation.site import want
    from fedvi.federation.wire import WORKING

    folder = unpack_kit(kit).resolve()
    settings = _settings(folder, data, eps, ledger, delta, public_rows, encoding, tuple(accept or ()))
    if policy is not None:
        settings = dataclasses.replace(settings, policy=policy.resolve())
    with only_one(folder / FOLDER / PID, f"The site of {folder}"):
        encoded = settings.read()
        _show_promise(settings, encoded)
        if not yes and not typer.confirm("Do you promise this, and take part?"):
            raise typer.Exit(1)
        _end_leftovers(folder)
        with settings.open(patience=1.0) as client:  # makes ledger and file, or finds what is wrong with them
            _say_left(client)
        settings.accepting(()).save()  # a word holds once: the ledger has it now
        want(settings.state, WORKING)
        if not background:
            _work(settings)
    if background:
        pid = folder / FOLDER / PID
        number = in_background(["site", "join", str(folder), "--yes"], folder / FOLDER / LOG, pid)
        typer.echo(f"Process {number} takes part. Look: fedvi site status {folder}")


@app.command()
def status(kit: Kit, as_json: AsJson = False) -> None:
    """Show what this site has done, spent and been told."""
    from fedvi.federation.service import running
    from fedvi.federation.settings import FOLDER, SiteSettings
    from fedvi.federation.wire import FINISHED, LEFT, WORKING
    from fedvi.privacy.ledger.ledger import read
    from fedvi.privacy.ledger.statement import rounded_up

    folder = _folder(kit)
    settings = SiteSettings.load(folder)
    site, book = _site(settings), read(settings.ledger)
    found = {
        "federation": settings.project.name,
        "state": site["said"] or "never heard by the coordinator",
        "wanted": site["wanted"],
        "running": running(folder / FOLDER / PID) is not None,
        "releases": site["releases"],
        "waiting_for_an_answer": site["pending"] is not None,
        "version": site["version"],
        "last_answer": site["heard"],
        "epsilon": book.spent.epsilon,
        "epsilon_max": book.budget.epsilon,
        "delta": book.budget.delta,
        "stop": site["stop"],
        "problem": site["failed"] or site["note"],
    }
    if as_json:
        typer.echo(json.dumps(found))
        return
    heard = "none yet"
    if site["heard"] is not None:
        when = datetime.datetime.fromtimestamp(site["heard"]).strftime("%F %T")
        heard = f"{when}, q after {site['version']} updates"
    wanted = f", wanted: {site['wanted']}" if site["wanted"] not in (WORKING, site["said"]) else ""
    works = "running" if found["running"] else "not running"
    typer.echo(f"Federation {found['federation']}; this site: {found['state']}{wanted}; its command is {works}.")
    pending = ", the last one not acknowledged yet" if found["waiting_for_an_answer"] else ""
    width = ", the last of them the number about the posterior's width" if site["width"] else ""
    typer.echo(f"Releases: {found['releases']}{width}{pending}.")
    typer.echo(f"Last answer of the coordinator: {heard}.")
    epsilon = f"{rounded_up(book.spent.epsilon)} of {book.budget.epsilon:g} at delta {book.budget.delta:g}"
    typer.echo(f"Spent: epsilon {epsilon}. Ledger: {settings.ledger}")
    over = "is over" if site["said"] == FINISHED else "ends"
    for line in filter(None, (site["stop"] and f"The federation {over}: {site['stop']}.", found["problem"])):
        typer.echo(line)
    if not found["running"] and site["said"] not in (FINISHED, LEFT):
        typer.echo(f"Go on: fedvi site join {folder}")


@app.command()
def pause(kit: Kit) -> None:
    """Release nothing more for now; the site stays in touch with the coordinator."""
    from fedvi.federation.wire import PAUSED

    typer.echo(_want(kit, PAUSED, "The site pauses after what is under way. Go on: fedvi site resume"))


@app.command()
def resume(kit: Kit) -> None:
    """Go on after pause."""
    from fedvi.federation.wire import WORKING

    typer.echo(_want(kit, WORKING, "The site goes on."))


@app.command()
def leave(
    kit: Kit,
    patience: Annotated[float, typer.Option(help="Seconds to try to tell the coordinator.")] = 60.0,
) -> None:
    """Leave the federation. What was released stays in the posterior; the ledger stays yours. join comes back."""
    from fedvi.federation.service import only_one, running
    from fedvi.federation.settings import FOLDER, SiteSettings
    from fedvi.federation.wire import FINISHED, LEFT

    folder = _folder(kit)
    settings = SiteSettings.load(folder)
    if _site(settings)["said"] == FINISHED:
        typer.echo("The federation is over for this site: it has said its last.")
        return
    _want(kit, LEFT, "")
    deadline = time.monotonic() + patience
    if running(folder / FOLDER / PID) is None:
        with only_one(folder / FOLDER / PID, f"The site of {folder}"):
            _work(settings, deadline)
    while (_site(settings)["said"] != LEFT or running(folder / FOLDER / PID)) and time.monotonic() < deadline:
        time.sleep(LOOK)
    if _site(settings)["said"] == LEFT:
        typer.echo("Left, and the coordinator knows.")
    else:
        typer.echo("Left: nothing more is released. The coordinator could not be told; leave again tells it.", err=True)
        raise typer.Exit(1)


def _settings(
    folder: Path,
    data: Path | None,
    eps: float | None,
    ledger: Path | None,
    delta: float | None,
    public_rows: int | None,
    encoding: str,
    accept: tuple[str, ...],
) -> SiteSettings:
    """Return what was asked for; of a site that joined before, what it chose then."""
    from fedvi.federation.settings import SiteSettings

    if data is None and eps is None and ledger is None:
        return SiteSettings.load(folder).accepting(accept)
    if data is None or eps is None or ledger is None:
        given = {"--data": data, "--eps": eps, "--ledger": ledger}
        missing = ", ".join(name for name, value in given.items() if value is None)
        raise InputError(f"Expected --data, --eps and --ledger, or none of them to go on; missing: {missing}.")
    return SiteSettings(folder, data.resolve(), ledger.resolve(), eps, delta, public_rows, encoding, accept)


def _show_promise(settings: SiteSettings, encoded: Encoded) -> None:
    from fedvi.inference.private_client import declared_rows
    from fedvi.privacy.budget import FEW, warn_if_few

    rows = declared_rows(settings.ledger, len(encoded.x), settings.public_rows)
    warn_if_few(rows)
    project, budget = settings.project, settings.budget.fixed(rows)
    typer.echo(
        f"Federation {project.name}, coordinator {project.host}:{project.port}, schema {project.schema.digest[:12]}"
    )
    for kind in ("clipped", "missing", "unknown"):
        counted = {column: count for column, count in getattr(encoded.counts, kind).items() if count}
        if counted:
            found = ", ".join(f"{column} {count}" for column, count in counted.items())
            typer.echo(f"Values {kind} (this stays here): {found}")
    hidden = "" if rows == len(encoded.x) < FEW else ", and so does their true number"
    lines = [
        f"Your {len(encoded.x)} rows stay here{hidden}. You are about to promise that whoever",
        "sees all that this site ever sends can hardly tell whether any one row was there:",
        f"  epsilon {settings.epsilon:g} at delta {budget.delta:g}, if one row is added or removed; never more",
        f"  at most {project.updates} updates and one number about the posterior's width, each paid before it is made",
        f"  ledger: {settings.ledger}",
        f"Public: that you take part, and the declared number of rows, {rows}. It holds for ever. Declare one that you",
        "would give with or without any one person (--public-rows).",
    ]
    if project.epsilon != settings.epsilon:
        lines.append(f"The coordinator suggests epsilon {project.epsilon:g}.")
    for line in lines:
        typer.echo(line)


def _end_leftovers(folder: Path) -> None:
    """End the engine's processes of a command that was killed: they work on, and have the ledger."""
    from fedvi.federation.transports.flare import site_parent

    site_parent(folder).stop()


def _say_left(client: Site) -> None:
    for line in client.noticed:
        typer.echo(f"Noticed (this stays here): {line}.")
    typer.echo(f"The ledger admits {client.remaining} more updates.")


def _work(settings: SiteSettings, deadline: float | None = None) -> None:
    """Keep the engine's process alive until the site has said its last."""
    from fedvi.federation.transports.flare import site_parent
    from fedvi.federation.wire import FINISHED, LEFT

    parent = site_parent(settings.folder)
    try:
        with _progress(settings) as show:
            while True:
                site = _site(settings)
                show(site)
                if site["failed"]:
                    raise FedviError(f"{site['failed']} When it is mended, join again.")
                if site["said"] == FINISHED or site["said"] == site["wanted"] == LEFT:
                    break
                if deadline is not None and time.monotonic() > deadline:
                    return
                parent.ensure()
                time.sleep(LOOK)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. Nothing is lost; go on with: fedvi site join {settings.folder}", err=True)
        raise
    finally:
        parent.stop()
    done = "The federation is over" if site["said"] == FINISHED else "Left"
    typer.echo(f"{done}. What was spent, and on what: fedvi ledger statement {settings.ledger}")


@contextlib.contextmanager
def _progress(settings: SiteSettings) -> Any:
    """Give a function that shows how far the site is: a bar in a terminal, else a line when something changes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console, total = Console(stderr=True), settings.project.updates
    said = {"text": ""}

    def changed(site: Any) -> str:
        text = f"{site['said'] or 'connecting'}{': ' + site['note'] if site['note'] else ''}"
        new = text if text != said["text"] else ""
        said["text"] = text
        return new

    if not console.is_terminal:

        def say(site: Any) -> None:
            if text := changed(site):
                typer.echo(f"{text} ({site['releases']} releases)")

        yield say
        return
    text = TextColumn("{task.description}", markup=False)  # the coordinator's words may be in it
    columns = (text, BarColumn(), MofNCompleteColumn(), TextColumn("updates"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("connecting", total=total)

        def show(site: Any) -> None:
            changed(site)
            bar.update(task, completed=min(site["releases"], total), description=said["text"])

        yield show


def _folder(kit: Path) -> Path:
    folder = kit.with_suffix("") if kit.suffix == ".zip" else kit
    if not folder.is_dir():
        raise InputError(f"Expected the kit of a site that has joined, got {kit}. Use fedvi site join first.")
    return folder.resolve()


def _site(settings: SiteSettings) -> Any:
    from fedvi.federation.site import read_site
    from fedvi.sqlite import Database

    with Database.open(settings.state) as database:
        return read_site(database)


def _want(kit: Path, wanted: str, said: str) -> str:
    from fedvi.federation.settings import SiteSettings
    from fedvi.federation.site import want

    want(SiteSettings.load(_folder(kit)).state, wanted)
    return said
