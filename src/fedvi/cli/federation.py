"""`fedvi federation`: what a coordinator does."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.demo import bench, demo
from fedvi.cli.options import TABLE_HELP, AsJson, Force, require_new
from fedvi.console import live, print_json, show, table
from fedvi.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from fedvi.federation.coordinator_file import CoordinatorFile
    from fedvi.federation.records import Refusal
    from fedvi.federation.status import SiteStatus, Status

app = typer.Typer(help="Coordinate a real federation of sites over mutual TLS.", no_args_is_help=True)
app.command()(demo)
app.command()(bench)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder, as made by init.")]
TestTable = Annotated[Path | None, typer.Option(metavar="TABLE", help=f"Score q on these public rows. {TABLE_HELP}")]
PageHost = Annotated[str, typer.Option(help="Address of the live page; any but loopback needs its token.")]
PagePort = Annotated[int, typer.Option(min=0, max=65535, help="Port of the live page; 0 for a free one.")]

PID, LOG = "start.pid", "start.log"
LOOK = 1.0
"""Seconds between looks."""

SHOWN_REFUSALS = 3
"""How many of the newest are shown; --json has more."""


@app.command()
def template() -> None:
    """Print a federation's TOML file to fill in."""
    from fedvi.web.pages import asset

    typer.echo(asset("federation/template.toml"), nl=False)


@app.command()
def init(
    config: Annotated[Path, typer.Argument(metavar="TOML", help="The federation; fedvi federation template has one.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="New folder. Default: the name.")] = None,
) -> None:
    """Make a federation: certificates, the coordinator's file, and a startup kit for every site.

    Example: fedvi federation init federation.toml --out coordinator
    """
    from fedvi.config import search
    from fedvi.federation.description import Description
    from fedvi.federation.invitation import make_federation

    search(config.parent)
    description = Description.load(config, kinds=None)  # one's own file
    folder = out or Path(description.name)
    make_federation(description, folder)
    typer.echo(f"Made {folder}. Every site gets its own kit, by a way that nobody else reads, for it holds a key:")
    for site in description.sites:
        typer.echo(f"  {folder / 'kits' / site}.zip")
    typer.echo(f"Then: fedvi federation start {folder}")


@app.command()
def add(folder: Folder, site: Annotated[str, typer.Argument(help="Name of the new site.")]) -> None:
    """Let one more site take part, and make its kit. Works while the federation runs."""
    from fedvi.federation.invitation import add_to_federation

    typer.echo(f"Made {add_to_federation(folder, site)}. Bring it to {site}, by a way that nobody else reads.")


@app.command()
def start(
    folder: Folder,
    test: TestTable = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the live page.")] = True,
    page_host: PageHost = "127.0.0.1",
    page_port: PagePort = 0,
    background: Annotated[
        bool, typer.Option("--background", help="Return once the coordinator runs. stop ends it.")
    ] = False,
) -> None:
    """Run the coordinator until the federation is over. Ctrl-C stops it; start goes on where it was.

    Example: fedvi federation start coordinator --test public.csv
    """
    from fedvi.federation.service import in_background, only_one
    from fedvi.federation.status import status_of

    if background:
        options = ["--test", str(test.resolve())] if test else []
        options += ["--page" if page else "--no-page", "--page-host", page_host, "--page-port", str(page_port)]
        number = in_background(["federation", "start", str(folder), *options], folder / LOG, folder / PID)
        typer.echo(f"Process {number} runs. Look: fedvi federation status {folder}; output: {folder / LOG}")
        return
    with _opened(folder) as store, only_one(folder / PID, f"The coordinator of {folder}"):
        from fedvi.federation.transports.flare import Supervisor

        ended = store.over
        if ended:
            typer.echo(f"The federation is over: {store.stop}. Write its posterior: fedvi federation export {folder}")
            return
        supervisor = Supervisor(folder)
        try:
            with _page(store, test, page, page_host, page_port) as measure, _shown() as shown:
                while not store.over:
                    supervisor.step()
                    measure()
                    shown(lambda: status_of(store))
                    time.sleep(LOOK)
                shown(lambda: status_of(store))
        except KeyboardInterrupt:
            typer.echo(f"Stopped. Nothing is lost; go on with: fedvi federation start {folder}", err=True)
            raise
        finally:
            supervisor.stop()
        found = status_of(store)
        show(table_of(found), *arrival(found))
        typer.echo(f"Over: {store.stop}. Write the posterior: fedvi federation export {folder} --out model.fedvi")


@app.command()
def begin(folder: Folder) -> None:
    """Ask the first question now, whoever of those in [start] wait_for is missing. They may still join, late."""
    with _opened(folder) as store:
        store.begin()
    typer.echo("Whoever is at work is asked when it calls next.")


@app.command()
def status(folder: Folder, as_json: AsJson = False) -> None:
    """Show the questions, whether q has arrived, and every site: state, last seen, answers, budget, refusals."""
    from fedvi.federation.service import running
    from fedvi.federation.status import status_of

    with _opened(folder) as store:
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


@app.command()
def stop(
    folder: Folder,
    end: Annotated[bool, typer.Option("--end", help="End the federation. Sites answer nothing more.")] = False,
) -> None:
    """Stop the coordinator. Sites wait until it is started again. With --end, tell them that it is over instead."""
    from fedvi.federation.service import ask_to_stop

    if end:
        with _opened(folder) as store:
            store.end("the coordinator ended it")
        typer.echo("Sites are told so when they call next, and release nothing more.")
        typer.echo(f"Leave the coordinator running until it is over: fedvi federation status {folder}")
    else:
        stopped = ask_to_stop(folder / PID)
        typer.echo("Stopped." if stopped else f"No coordinator of {folder} is running here.")


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Posterior file to write.")] = Path("model.fedvi"),
    force: Force = False,
) -> None:
    """Write the posterior as it is now, for fedvi predict and fedvi inspect. Works while the federation runs."""
    from fedvi.fitting.from_federation import fitted_of

    require_new(out, force)
    with _opened(folder) as store:
        difference = store.verify()
        fitted = fitted_of(store)
    fitted.save(out)
    typer.echo(f"Wrote {out} of {fitted.settings['version']} answers. Next: fedvi inspect {out}")
    typer.echo(
        "Checked: all questions and q follow from the stored answers; q as it is stored and as it was read again "
        f"differ by {difference:.1g} nats."
    )
    show(fitted.convergence, *fitted.warnings)


@app.command()
def page(folder: Folder, test: TestTable = None, page_host: PageHost = "127.0.0.1", page_port: PagePort = 0) -> None:
    """Serve the live page alone, beside a coordinator that runs in the background."""
    with _opened(folder) as store, _page(store, test, True, page_host, page_port) as measure:
        typer.echo("Ctrl-C ends it.")
        while True:
            measure()
            time.sleep(LOOK)


def _opened(folder: Path) -> CoordinatorFile:
    from fedvi.federation.coordinator_file import FILE, CoordinatorFile

    if not (folder / FILE).is_file():
        raise InputError(
            f"Expected the folder of a coordinator, got {folder} without {FILE}. Make one: federation init."
        )
    return CoordinatorFile.open(folder / FILE)


@contextlib.contextmanager
def _page(
    store: CoordinatorFile, test: Path | None, wanted: bool, host: str, port: int
) -> Iterator[Callable[[], object]]:
    """Serve the page, and give a function that measures q on the test table, whether somebody looks or not."""
    if not wanted:
        yield lambda: None
        return
    from fedvi.federation.page.server import LivePage
    from fedvi.federation.status import Scores, status_of

    scores = None if test is None else Scores(store, test)
    with LivePage(lambda: status_of(store, scores), host, port) as live:
        typer.echo(f"Live page: {live.address}")
        yield lambda: scores and scores.measured()


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[Callable[[], Status]], None]]:
    """Give a function that shows a status: a live table in a terminal, else a line now and then."""
    due, said = 0.0, ""
    with live() as (update, _):

        def shown(status: Callable[[], Status]) -> None:
            nonlocal due, said
            if update is not None:
                update(table_of(status()))
            elif time.monotonic() >= due:
                found = status()
                states = [site.state for site in found.sites]
                counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
                text = f"question {found.asked} of {found.questions}, {found.version} answers; sites: {counts}"
                if text != said:
                    typer.echo(text)
                due, said = time.monotonic() + 10, text

        yield shown


def table_of(status: Status) -> Table:
    """Return the table of a federation's sites."""
    from fedvi.federation.status import ago
    from fedvi.privacy.ledger.statement import rounded_up

    def row(site: SiteStatus) -> tuple[object, ...]:
        seen = "never" if site.last_seen is None else ago(status.time - site.last_seen)
        epsilon = "-" if site.epsilon is None else f"{rounded_up(site.epsilon)} of {site.epsilon_max:g}"
        rows = "-" if site.rows is None else site.rows
        return site.name, site.state, seen, f"{site.answered} of {status.questions}", rows, epsilon, site.refused

    return table(
        "site|state|>last seen|>answers|>rows|>epsilon declared|>refused",
        map(row, status.sites),
        title=f"{status.name}: question {status.asked} of {status.questions}",
    )


def arrival(status: Status) -> list[str]:
    """Return whether q is where it should be, in words; nothing before there is anything to say."""
    if status.arrived is None:
        return []
    return ["Arrived: q is where it should be." if status.arrived else "Not arrived: q is not yet where it should be."]
