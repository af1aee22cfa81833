"""`fedvi federation`: making a federation, looking at it, ending it; the other commands are beside this file."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.federation.coordinator import PID, Folder, arrival, opened, page, require, start, table_of
from fedvi.cli.federation.demo import bench, demo
from fedvi.cli.federation.withdrawal import report, withdraw
from fedvi.cli.options import AsJson, Force, require_new
from fedvi.console import print_json, show

if TYPE_CHECKING:
    from fedvi.federation.store.records import Refusal

app = typer.Typer(help="Coordinate a real federation of sites by signed messages.", no_args_is_help=True)


Days = Annotated[float, typer.Option(min=0.01, help="The invitation may be used for so many days.")]

SHOWN_REFUSALS = 3
"""How many of the newest are shown; --json has more."""


def template() -> None:
    """Print a federation's TOML file to fill in."""
    from fedvi.web.pages import asset

    typer.echo(asset("federation/template.toml"), nl=False)


def init(
    config: Annotated[Path, typer.Argument(metavar="TOML", help="The federation; fedvi federation template has one.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="New folder. Default: the name.")] = None,
    tls_pin: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A proxy in front ends TLS: its certificate (PEM), or system if machines trust it."
        ),
    ] = "",
) -> None:
    """Make a federation: the coordinator's folder, with its keys and its file.

    Example: fedvi federation init federation.toml --out coordinator
    """
    from fedvi.config import search
    from fedvi.federation.description import Description
    from fedvi.federation.making import make_federation, pin_of_file
    from fedvi.federation.names import SYSTEM

    search(config.parent)
    description = Description.load(config, kinds=None)  # one's own file
    if tls_pin:
        tls = tls_pin if tls_pin == SYSTEM else pin_of_file(Path(tls_pin))
        description = dataclasses.replace(description, tls=tls)
    folder = out or Path(description.name)
    make_federation(description, folder)
    typer.echo(f"Made {folder}. It holds the coordinator's keys: keep it to yourself, and keep a copy (backup).")
    typer.echo(f"Start: fedvi federation start {folder}")
    typer.echo("Then, for each site, a line that only its people may read:")
    for site in description.sites:
        typer.echo(f"  fedvi federation invite {folder} {site}")


def invite(
    folder: Folder,
    site: Annotated[str, typer.Argument(help="The site; new ones are added. north.2: a second table of north.")],
    days: Days = 7.0,
) -> None:
    """Print an invitation: one line, for one site, to be used once. Works while the federation runs.

    An earlier invitation of the site no longer works. A site that has lost its key joins again with a new one.
    """
    from fedvi.federation import making

    require(folder)
    typer.echo(making.invite(folder, site, days))
    typer.echo(f"For {site} alone, until used or {days:g} days old. There:", err=True)
    typer.echo("  fedvi site join LINE --data TABLE --eps EPSILON --ledger FILE", err=True)


def revoke(folder: Folder, site: Annotated[str, typer.Argument(help="The site.")]) -> None:
    """Take nothing more of a site: forget its key and its invitation. What it has answered stays."""
    from fedvi.federation import making

    require(folder)
    making.revoke(folder, site)
    typer.echo(f"Nothing more is taken of {site}. Its answers stay; fedvi federation withdraw takes them out.")


def backup(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="COPY", help="New folder. It holds keys, as FOLDER does.")],
) -> None:
    """Copy the coordinator's folder, while it runs. To restore, use the copy as the folder."""
    from fedvi.federation.making import copy_federation

    require(folder)
    copy_federation(folder, out)
    typer.echo(f"Copied to {out}. Use only the newest copy: sites stop when the coordinator knows less than they do.")


def begin(folder: Folder) -> None:
    """Ask the first question now, whoever is missing of those in wait_for. They may still join, late."""
    with opened(folder) as store:
        store.begin()
    typer.echo("Whoever is at work is asked when it calls next.")


def status(folder: Folder, as_json: AsJson = False) -> None:
    """Show the questions, whether q has arrived, and every site: state, last seen, answers, budget, refusals."""
    from fedvi.federation.service import running
    from fedvi.federation.store.status import status_of

    with opened(folder) as store:
        found, is_running = status_of(store), running(folder / PID) is not None
    if as_json:
        print_json(dataclasses.asdict(found) | {"running": is_running})
        return
    show(table_of(found), *arrival(found))
    over = f"over: {found.stop}" if found.over else f"ending: {found.stop}" if found.stop else "not over"
    typer.echo(f"It predicts {found.predicts}.")
    typer.echo(f"The federation is {over}; the coordinator is {'running' if is_running else 'not running'}.")
    show(*found.health, *map(_refusal, found.refusals[:SHOWN_REFUSALS]))
    if found.over:
        typer.echo(f"Write the posterior: fedvi federation export {folder} --out model.fedvi")
    elif not is_running:
        typer.echo(f"Start it: fedvi federation start {folder}")


def _refusal(each: Refusal) -> str:
    when = datetime.datetime.fromtimestamp(each.time).strftime("%F %T")
    return f"Refused at {when}, {each.site}: {each.reason}"


def stop(
    folder: Folder,
    end: Annotated[bool, typer.Option("--end", help="End the federation. Sites answer nothing more.")] = False,
) -> None:
    """Stop the coordinator. Sites wait until it is started again. With --end, tell them that it is over instead."""
    from fedvi.federation.service import ask_to_stop

    if end:
        with opened(folder) as store:
            store.end("the coordinator ended it")
        typer.echo("Sites are told so when they call next, and release nothing more.")
        typer.echo(f"Leave the coordinator running until it is over: fedvi federation status {folder}")
    else:
        stopped = ask_to_stop(folder / PID)
        typer.echo("Stopped." if stopped else f"No coordinator of {folder} is running here.")


def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Posterior file to write.")] = Path("model.fedvi"),
    force: Force = False,
) -> None:
    """Write the posterior as it is now, for fedvi predict and fedvi inspect. Works while the federation runs."""
    from fedvi.fitting.from_federation import fitted_of

    require_new(out, force)
    with opened(folder) as store:
        difference = store.verify()
        fitted = fitted_of(store)
    fitted.save(out)
    typer.echo(f"Wrote {out} of {fitted.settings['version']} answers. Next: fedvi inspect {out}")
    typer.echo(
        "Checked: all questions and q follow from the stored answers; q as it is stored and as it was read again "
        f"differ by {difference:.1g} nats."
    )
    show(fitted.convergence, *fitted.warnings)


SHOWN = template, init, invite, start, begin, status, export, report, page, stop, withdraw, revoke, backup, demo, bench
for command in SHOWN:
    app.command()(command)
