"""`fedvi federation start` and `page`: the coordinator at work, and what is shown of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.options import TABLE_HELP
from fedvi.console import live as live_table
from fedvi.console import show, table
from fedvi.errors import FedviError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from fedvi.federation.page.server import LivePage
    from fedvi.federation.store.file import CoordinatorFile
    from fedvi.federation.store.reader import Reader
    from fedvi.federation.store.status import SiteStatus, Status
    from fedvi.federation.transports.serving import Service

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder, as made by init.")]
TestTable = Annotated[Path | None, typer.Option(metavar="TABLE", help=f"Score q on these public rows. {TABLE_HELP}")]
PageHost = Annotated[str, typer.Option(help="Address of the live page; any but loopback needs its token.")]
PagePort = Annotated[int, typer.Option(min=0, max=65535, help="Port of the live page; 0 for a free one.")]
PageToken = Annotated[
    str | None,
    typer.Option(envvar="FEDVI_PAGE_TOKEN", show_envvar=True, help="Token of page and metrics. Default: made anew."),
]

PID, LOG = "start.pid", "start.log"
LOOK = 1.0
"""Seconds between looks."""


def start(
    folder: Folder,
    test: TestTable = None,
    host: Annotated[
        str | None, typer.Option(help="Listen there. Default: all addresses; behind a proxy loopback.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: that of the URL; behind a proxy 8002.")
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the live page; it stays after the end.")] = True,
    page_host: PageHost = "127.0.0.1",
    page_port: PagePort = 0,
    page_token: PageToken = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Log there. Default: standard error, or coordinator.log.")
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")] = False,
    background: Annotated[
        bool, typer.Option("--background", help="Return once the coordinator runs. stop ends it.")
    ] = False,
) -> None:
    """Run the coordinator. Ctrl-C stops it; start goes on where it was. With --no-page it ends with the federation.

    Example: fedvi federation start coordinator --test public.csv
    """
    from fedvi.federation.service import in_background, only_one

    require(folder)
    if background:
        named = {"test": test, "host": host, "port": port, "page-host": page_host, "page-port": page_port, "log": log}
        options = [f"--{name}={value}" for name, value in named.items() if value is not None]
        options += ["--page" if page else "--no-page", *(["--log-json"] if log_json else [])]
        if page_token is not None:
            os.environ["FEDVI_PAGE_TOKEN"] = page_token  # everybody may see the arguments of a process
        number = in_background(["federation", "start", *options, str(folder)], folder / LOG, folder / PID)
        typer.echo(f"Process {number} runs. Look: fedvi federation status {folder}; output: {folder / LOG}")
        return
    from fedvi.federation.page.metrics import Metrics
    from fedvi.federation.page.server import LivePage
    from fedvi.federation.store.status import Contributions, Scores, status_of
    from fedvi.federation.transports.serving import Service
    from fedvi.logs import setup

    sys.setswitchinterval(0.0005)  # who answers messages waits for who reads no longer than that
    with only_one(folder / PID, f"The coordinator of {folder}"), opened(folder) as store:
        terminal = sys.stderr.isatty()
        handler = setup(log or (folder / "coordinator.log" if terminal else sys.stderr), log_json)
        scores = None if test is None else Scores(store, test)
        shown = partial(status_of, store, scores, Contributions(store, scores))
        metrics = Metrics(partial(status_of, store))
        live = LivePage(shown, metrics.text, page_host, page_port, page_token) if page else None
        with Service(folder, metrics, host, port) as service:
            _say_where(service, live)
            interrupted = asyncio.run(_served(service, store, live, lambda: status_of(store)))
        logging.getLogger().removeHandler(handler)
        found = status_of(store)
        show(table_of(found), *arrival(found))
        if interrupted:
            typer.echo(f"Stopped. Nothing is lost; go on with: fedvi federation start {folder}", err=True)
            raise KeyboardInterrupt
        typer.echo(f"Over: {store.stop}. Write the posterior: fedvi federation export {folder} --out model.fedvi")


async def _served(
    service: Service, store: CoordinatorFile, live: LivePage | None, status: Callable[[], Status]
) -> bool:
    """Serve until the federation is over and nobody looks, or until a signal; tell whether it was a signal."""
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled.set)
    if live is not None:
        live.listen()
    serving = asyncio.create_task(service.run(lambda: live is None and store.over))
    stop = asyncio.create_task(signalled.wait())
    try:
        with _shown() as shown:
            while not serving.done() and not signalled.is_set():
                with contextlib.suppress(OSError, FedviError):  # such as a full disk, on which the output is too
                    await asyncio.to_thread(shown, status)
                await asyncio.wait((serving, stop), timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        if not serving.done():
            serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        if live is not None:
            live.stop()
    if not serving.cancelled():
        serving.result()
    return signalled.is_set()


def _say_where(service: Service, live: LivePage | None) -> None:
    """Say where it listens."""
    typer.echo(f"Listening at {', '.join(service.places)}")
    if live is not None:
        typer.echo(f"Live page: {live.address}")


def page(
    folder: Folder,
    test: TestTable = None,
    page_host: PageHost = "127.0.0.1",
    page_port: PagePort = 0,
    page_token: PageToken = None,
) -> None:
    """Serve the live page alone, with the metrics that the coordinator's file has."""
    from fedvi.federation.page.metrics import Metrics
    from fedvi.federation.page.server import LivePage
    from fedvi.federation.store.status import Contributions, Scores, status_of

    with opened(folder) as store:
        scores = None if test is None else Scores(store, test)
        shown, metrics = partial(status_of, store, scores, Contributions(store, scores)), partial(status_of, store)
        with LivePage(shown, Metrics(metrics).text, page_host, page_port, page_token) as live:
            typer.echo(f"Live page: {live.address}. Ctrl-C ends it.")
            while True:
                time.sleep(LOOK)


def require(folder: Path) -> None:
    """Raise unless this is a coordinator's folder."""
    from fedvi.federation.store.file import FILE

    if not (folder / FILE).is_file():
        raise InputError(
            f"Expected the folder of a coordinator, got {folder} without {FILE}. Make one: federation init."
        )


def opened(folder: Path) -> Reader:
    """Open the file of a coordinator's folder."""
    from fedvi.federation.store.file import FILE
    from fedvi.federation.store.reader import Reader

    require(folder)
    return Reader.open(folder / FILE)


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[Callable[[], Status]], None]]:
    """Give a function that shows a status: a live table in a terminal, else a line now and then."""
    due, said = 0.0, ""
    with live_table() as (update, _):

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
    """Return the table of a federation's sites; further tables of a site stand below it."""
    from fedvi.federation.names import base_name
    from fedvi.federation.store.status import ago
    from fedvi.privacy.ledger.statement import rounded_up

    def row(site: SiteStatus) -> tuple[object, ...]:
        seen = "never" if site.last_seen is None else ago(status.time - site.last_seen)
        epsilon = "-" if site.epsilon is None else f"{rounded_up(site.epsilon)} of {site.epsilon_max:g}"
        rows = "-" if site.rows is None else site.rows
        name = site.name if site.name == base_name(site.name) else f"  {site.name}"
        return name, site.state, seen, f"{site.answered} of {status.questions}", rows, epsilon, site.refused

    names = [base_name(site.name) for site in status.sites]
    grouped = sorted(status.sites, key=lambda site: (names.index(base_name(site.name)), site.name))
    return table(
        "site|state|>last seen|>answers|>rows|>epsilon declared|>refused",
        map(row, grouped),
        title=f"{status.name}: question {status.asked} of {status.questions}",
    )


def arrival(status: Status) -> list[str]:
    """Return whether q is where it should be, in words; nothing before there is anything to say."""
    if status.arrived is None:
        return []
    return ["Arrived: q is where it should be." if status.arrived else "Not arrived: q is not yet where it should be."]
