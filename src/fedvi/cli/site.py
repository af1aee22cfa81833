"""`fedvi site`: what the people of one site do."""

from __future__ import annotations

import dataclasses
import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.options import TABLE_HELP, AsJson, Decimal, Encoding, Sheet
from fedvi.console import print_json, progress, show
from fedvi.errors import FedviError, InputError

if TYPE_CHECKING:
    from fedvi.federation.settings import SiteSettings
    from fedvi.federation.site_file import SiteState
    from fedvi.tables.encode import Encoded

app = typer.Typer(help="Take part in a federation with your own table.", no_args_is_help=True)

Kit = Annotated[Path, typer.Argument(metavar="KIT", help="Folder or zip that the coordinator gave you.")]

UNHEARD = "never heard by the coordinator"
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
    encoding: Encoding = "",
    decimal: Decimal = "",
    sheet: Sheet = "",
    accept: Annotated[
        list[str] | None, typer.Option(help="Confirm a ledger warning by its name, for example moved.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML", help="Read what this site allows. Default: policy.toml beside the ledger, if any."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Promise without a question.")] = False,
    background: Annotated[bool, typer.Option("--background", help="Return once the site is at work.")] = False,
) -> None:
    """Check the table, show the promise, and take part until the budget or the federation ends.

    The second time, KIT alone is enough. Ctrl-C stops; join again to go on.

    Example: fedvi site join north.zip --data patients.csv --eps 1.0 --ledger north.ledger
    """
    from fedvi.federation.invitation import unpack_kit
    from fedvi.federation.service import in_background, only_one
    from fedvi.federation.settings import SiteSettings
    from fedvi.federation.transports.flare import site_parent
    from fedvi.federation.wire import WORKING

    folder, confirmed = unpack_kit(kit).resolve(), tuple(accept or ())
    given = {"--data": data, "--eps": eps, "--ledger": ledger}
    missing = [name for name, value in given.items() if value is None]
    if data is not None and eps is not None and ledger is not None:
        chosen = data.resolve(), ledger.resolve(), eps, delta, public_rows, encoding, decimal, sheet, confirmed
        settings = SiteSettings(folder, *chosen)
    elif len(missing) < len(given):
        raise InputError(
            f"Expected --data, --eps and --ledger, or none of them to go on; missing: {', '.join(missing)}."
        )
    else:
        settings = dataclasses.replace(SiteSettings.load(folder), accept=confirmed)
    if policy is not None:
        settings = dataclasses.replace(settings, policy=policy.resolve())
    with only_one(settings.pid, f"The site of {folder}"):
        encoded = settings.read(look=True)
        _show_promise(settings, encoded, forecast=not yes)  # it takes a second or two
        if not yes and not typer.confirm("Do you promise this, and take part?"):
            raise typer.Exit(1)
        site_parent(folder).stop()  # processes of a command that was killed work on, and have the ledger
        with settings.open(patience=1.0) as site:  # makes ledger and file, or finds what is wrong with them
            for line in site.noticed:
                typer.echo(f"Noticed (this stays here): {line}.")
            typer.echo(f"The ledger admits {site.remaining} more answers.")
        dataclasses.replace(settings, accept=()).save()  # a confirmation holds once: the ledger has it now
        _want(settings, WORKING)
        if not background:
            _work(settings)
    if background:
        log = settings.pid.with_suffix(".log")
        number = in_background(["site", "join", str(folder), "--yes"], log, settings.pid)
        typer.echo(f"Process {number} takes part. Look: fedvi site status {folder}")


@app.command()
def status(kit: Kit, as_json: AsJson = False) -> None:
    """Show what this site has done, spent and been told."""
    from fedvi.federation.service import running
    from fedvi.federation.wire import FINISHED, LEFT, WORKING
    from fedvi.privacy.ledger.ledger import read
    from fedvi.privacy.ledger.statement import rounded_up

    settings = _joined(kit)
    site, book = _load(settings), read(settings.ledger)
    is_running, problem = running(settings.pid) is not None, site.failed or site.note
    if as_json:
        print_json(
            {
                "federation": settings.description.name,
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
def pause(kit: Kit) -> None:
    """Pause: release nothing more for now. The site stays in touch with the coordinator."""
    from fedvi.federation.wire import PAUSED

    _want(_joined(kit), PAUSED)
    typer.echo("The site pauses after what is under way. Go on: fedvi site resume")


@app.command()
def resume(kit: Kit) -> None:
    """Go on after a pause."""
    from fedvi.federation.wire import WORKING

    _want(_joined(kit), WORKING)
    typer.echo("The site goes on.")


@app.command()
def leave(
    kit: Kit,
    patience: Annotated[float, typer.Option(help="Try to tell the coordinator for so many seconds.")] = 60.0,
) -> None:
    """Leave the federation. What was released stays in the posterior; the ledger stays yours. join comes back."""
    from fedvi.federation.service import only_one, running
    from fedvi.federation.wire import FINISHED, LEFT

    settings = _joined(kit)
    if _load(settings).said == FINISHED:
        typer.echo("The federation is over for this site.")
        return
    _want(settings, LEFT)
    deadline = time.monotonic() + patience
    if running(settings.pid) is None:
        with only_one(settings.pid, f"The site of {settings.folder}"):
            _work(settings, deadline)
    while (_load(settings).said != LEFT or running(settings.pid)) and time.monotonic() < deadline:
        time.sleep(LOOK)
    if _load(settings).said == LEFT:
        typer.echo("Left, and the coordinator knows.")
    else:
        typer.echo("Left: nothing more is released. The coordinator could not be told; leave again tells it.", err=True)
        raise typer.Exit(1)


def _show_promise(settings: SiteSettings, encoded: Encoded, *, forecast: bool) -> None:
    from fedvi.inference.private_client import declared_rows
    from fedvi.privacy.budget import FEW, warn_if_few

    rows = declared_rows(settings.ledger, len(encoded.x), settings.public_rows)
    warn_if_few(rows)
    description, budget = settings.description, settings.budget.fixed(rows)
    schema = description.schema.digest[:12]
    typer.echo(f"Federation {description.name}, coordinator {description.host}:{description.port}, schema {schema}")
    typer.echo(f"It predicts {description.schema.target.predicted}.")
    missing = ", ".join(f"{column} {count}" for column, count in encoded.counts.missing.items() if count)
    if missing:
        typer.echo(f"Values missing (this stays here): {missing}")
    said, warned = encoded.counts.lines(description.schema.expected)
    for line in said:
        typer.echo(f"Noticed (this stays here): {line}")
    for line in warned:
        typer.echo(f"Warning (this stays here): {line}")
    hidden = "" if rows == len(encoded.x) < FEW else ", and so does their true number"
    lines = [
        f"Your {len(encoded.x)} rows stay here{hidden}. You are about to promise that whoever",
        "sees all that this site ever sends can hardly tell whether any one row was there:",
        f"  epsilon {settings.epsilon:g} at delta {budget.delta:g}, if one row is added or removed; never more",
        f"  at most {description.spec.updates} releases, each the answer to a question, paid before it is made",
        f"  ledger: {settings.ledger}",
        f"Public: that you take part, and the declared number of rows, {rows}. It holds for ever. Declare one that you",
        "would give with or without any one person (--public-rows).",
    ]
    if description.epsilon != settings.epsilon:
        lines.append(f"The coordinator suggests epsilon {description.epsilon:g}.")
    if forecast:
        lines.append(f"Forecast, if all {len(description.sites)} sites take part as described: {settings.forecast}")
    for line in lines:
        typer.echo(line)


def _work(settings: SiteSettings, deadline: float | None = None) -> None:
    """Keep the engine's process alive until the federation is over for the site."""
    from fedvi.federation.transports.flare import site_parent
    from fedvi.federation.wire import FINISHED, LEFT

    parent, said = site_parent(settings.folder), ""

    def say(releases: int, text: str) -> None:
        nonlocal said
        if text != said:
            typer.echo(f"{text} ({releases} releases)")
        said = text

    try:
        with progress("site", settings.description.spec.updates, "answers", otherwise=say) as shown:
            while True:
                site = _load(settings)
                shown(site.releases, f"{site.said or 'connecting'}{': ' + site.note if site.note else ''}")
                if site.failed:
                    raise FedviError(f"{site.failed} When it is mended, join again.")
                if site.said == FINISHED or site.said == site.wanted == LEFT:
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
    done = "The federation is over" if site.said == FINISHED else "Left"
    typer.echo(f"{done}. What was spent, and on what: fedvi ledger statement {settings.ledger}")


def _joined(kit: Path) -> SiteSettings:
    from fedvi.federation.settings import SiteSettings

    folder = kit.with_suffix("") if kit.suffix == ".zip" else kit
    if not folder.is_dir():
        raise InputError(f"Expected the kit of a site that has joined, got {kit}. Use fedvi site join first.")
    return SiteSettings.load(folder.resolve())


def _load(settings: SiteSettings) -> SiteState:
    from fedvi.federation.site_file import SiteFile

    with SiteFile.open(settings.state) as file:
        return file.load()


def _want(settings: SiteSettings, wanted: str) -> None:
    from fedvi.federation.site_file import SiteFile

    with SiteFile.open(settings.state) as file:
        file.want(wanted)
