"""`fedvi site join`: a table, a budget and a ledger take part in a federation."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi.cli.options import TABLE_HELP, Decimal, Encoding, Sheet
from fedvi.console import progress
from fedvi.errors import InputError, SiteRefused

if TYPE_CHECKING:
    from fedvi.federation.settings import SiteSettings
    from fedvi.federation.site import Site
    from fedvi.tables.encode import Encoded

Link = Annotated[
    Path | None,
    typer.Option(metavar="SOCKET", help="Wait at this Unix socket for the relay of an engine, instead of HTTPS."),
]

REST_AFTER = 120.0
"""Seconds without a question after which rows and ledger are closed, and the process starts anew to wait."""


def join(
    invitation: Annotated[
        str,
        typer.Argument(metavar="INVITATION", help="The coordinator's line; - for standard input; later: the folder."),
    ],
    data: Annotated[Path | None, typer.Option(metavar="TABLE", help=TABLE_HELP)] = None,
    eps: Annotated[float | None, typer.Option("--eps", help="Epsilon that your rows never exceed.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Privacy ledger of the rows; made if new.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the site's files there. Default: its name.")
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
    link: Link = None,
    link_mode: Annotated[
        str, typer.Option(help="Permissions of the socket; 660 lets in a relay of the same group.")
    ] = "600",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Promise without a question.")] = False,
    background: Annotated[bool, typer.Option("--background", help="Return once the site is at work.")] = False,
    waiting: Annotated[bool, typer.Option("--waiting", hidden=True)] = False,
) -> None:
    """Check the table, show the promise, and take part until the budget or the federation ends.

    The second time, the site's folder alone is enough. Ctrl-C stops; join again to go on.

    Example: fedvi site join fedvi1_... --data patients.csv --eps 1.0 --ledger north.ledger
    """
    from fedvi.federation.service import in_background, only_one
    from fedvi.federation.settings import FILE, SiteSettings

    missing = [name for name, value in {"--data": data, "--eps": eps, "--ledger": ledger}.items() if value is None]
    if 0 < len(missing) < 3:
        raise InputError(
            f"Expected --data, --eps and --ledger, or none of them to go on; missing: {', '.join(missing)}."
        )
    home = _home(invitation, folder, link, link_mode, first=not missing)
    if data is None or eps is None or ledger is None:
        settings = SiteSettings.load(home)
    else:
        more = delta, public_rows, encoding, decimal, sheet
        settings = SiteSettings(home, data.resolve(), ledger.resolve(), eps, *more)
        if (home / FILE).exists():  # what was not said again stays
            old = SiteSettings.load(home)
            settings = dataclasses.replace(settings, policy=old.policy, link=old.link, link_mode=old.link_mode)
    settings = dataclasses.replace(settings, accept=tuple(accept or ()))
    if policy is not None:
        settings = dataclasses.replace(settings, policy=policy.resolve())
    if link is not None:
        settings = dataclasses.replace(settings, link=link.resolve(), link_mode=link_mode)
    with (
        only_one(settings.pid, f"The site of {home}"),
        settings.open(now=False) if waiting else _opened(settings, yes) as site,
    ):
        if not background:
            work(settings, site)
    if background:
        log = settings.pid.with_suffix(".log")
        number = in_background(["site", "join", str(home), "--yes"], log, settings.pid)
        typer.echo(f"Process {number} takes part. Look: fedvi site status {home}")


def _home(invitation: str, folder: Path | None, link: Path | None, link_mode: str, *, first: bool) -> Path:
    """Return the folder of a site that has joined; with an invitation, join. first: whether a table was named."""
    from fedvi.federation.enrolment import enrol
    from fedvi.federation.invitation import Invitation, is_line
    from fedvi.federation.settings import FILE

    text = invitation
    if invitation == "-":
        text = sys.stdin.read()
        with contextlib.suppress(OSError):  # the question that follows is answered at the terminal
            sys.stdin = open("/dev/tty", encoding="utf-8")  # noqa: SIM115
    if invitation != "-" and not is_line(text) and Path(text).is_dir():
        return Path(text).resolve()
    found = Invitation.parse(text)
    home = (folder or Path(found.address.site)).resolve()
    if not first and not (home / FILE).exists():
        raise InputError("Expected --data, --eps and --ledger with the invitation of a site that is new, got none.")
    enrol(found, home, link and link.resolve(), link_mode, say=lambda line: typer.echo(line, err=True))
    return home


def _opened(settings: SiteSettings, yes: bool) -> Site:
    """Show the promise, have it confirmed, and open the site: that makes ledger and file, or finds what is wrong."""
    from fedvi.federation.wire import PAUSED, WORKING

    encoded = settings.read(look=True)
    must_ask = settings.rules.ask_before_first_release and not settings.confirmed
    _show_promise(settings, encoded, forecast=not yes or must_ask)  # it takes a second or two
    if must_ask and not sys.stdin.isatty():
        raise InputError(
            f"The policy {settings.rules.file} wants a person to confirm the promise: ask_before_first_release. Join "
            "once in a terminal."
        )
    if (not yes or must_ask) and not typer.confirm("Do you promise this, and take part?"):
        raise typer.Exit(1)
    site = settings.open(encoded, patience=1.0)
    for line in site.noticed:
        _say(f"Noticed (this stays here): {line}.")
    typer.echo(f"The ledger admits {site.remaining} more answers.")
    confirmed = settings.confirmed or not yes or must_ask
    dataclasses.replace(
        settings, accept=(), confirmed=confirmed
    ).save()  # a warning is accepted once: the ledger has it
    wanted = PAUSED if site.state.wanted == PAUSED else WORKING  # a service starts this again, and asks nobody
    want(settings, wanted)
    if wanted == PAUSED:
        typer.echo(f"It is paused, and stays so. Go on: fedvi site resume {settings.folder}")
    return site


def _show_promise(settings: SiteSettings, encoded: Encoded, *, forecast: bool) -> None:
    from fedvi.privacy.budget import FEW, warn_if_few

    rows = settings.declared(encoded)
    warn_if_few(rows)
    description, budget = settings.description, settings.budget.fixed(rows)
    schema = description.schema.digest[:12]
    where = f"by the engine at {settings.link}" if settings.link else settings.address.url
    _say(f"Federation {description.name}, coordinator {where}, schema {schema}")
    _say(f"It predicts {description.schema.target.predicted}.")
    missing = ", ".join(f"{column} {count}" for column, count in encoded.counts.missing.items() if count)
    if missing:
        _say(f"Values missing (this stays here): {missing}")
    said, warned = encoded.counts.lines(description.schema.expected)
    for line in said:
        _say(f"Noticed (this stays here): {line}")
    for line in warned:
        _say(f"Warning (this stays here): {line}")
    hidden = "" if rows == len(encoded.x) < FEW else ", and so does their true number"
    lines = [
        f"Your {len(encoded.x)} rows stay here{hidden}. You are about to promise that whoever",
        "sees all that this site ever sends can hardly tell whether any one row was there:",
        f"  epsilon {settings.epsilon:g} at delta {budget.delta:g}, if one row is added or removed; never more",
        f"  at most {description.spec.updates} releases, each the answer to a question, paid before it is made",
        f"  ledger: {settings.ledger}",
        *settings.rules.lines,
        f"Public: that you take part, and the declared number of rows, {rows}. It holds for ever. Declare one that you",
        "would give with or without any one person (--public-rows).",
    ]
    if description.epsilon != settings.epsilon:
        lines.append(f"The coordinator suggests epsilon {description.epsilon:g}.")
    if forecast:
        lines.append(f"Forecast, if all {len(description.sites)} sites take part as described: {settings.forecast}")
    for line in lines:
        _say(line)


def _say(line: str) -> None:
    """Print a line; names that a coordinator wrote do not steer the terminal."""
    typer.echo("".join(each if each.isprintable() else "?" for each in line))


def work(settings: SiteSettings, site: Site, deadline: float | None = None) -> None:
    """Work until the federation is over for the site. A process that only waits starts itself anew, without JAX."""
    from fedvi.federation.transports.base import run
    from fedvi.federation.wire import FINISHED, LEFT

    said = ""

    def say(releases: int, text: str) -> None:
        nonlocal said
        if text != said:
            typer.echo(f"{text} ({releases} releases)")
        said = text

    transport = settings.transport()
    try:
        with progress("site", settings.description.spec.updates, "answers", otherwise=say) as shown:

            def stopped() -> bool:
                now = site.state
                shown(now.releases, f"{now.said or 'connecting'}{': ' + now.note if now.note else ''}")
                return deadline is not None and time.monotonic() > deadline

            done = run(site, settings.correspondence(transport).exchange, stopped, idle=REST_AFTER)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. Nothing is lost; go on with: fedvi site join {settings.folder}", err=True)
        raise
    finally:
        transport.close()
    if not done:
        sys.stdout.flush()
        again = "site", "join", str(settings.folder), "--yes", "--waiting"
        os.execv(sys.executable, [sys.executable, "-m", "fedvi", *again])
    state = site.state
    if state.failed:
        raise SiteRefused(f"{state.failed} When it is mended, join again.")
    if state.said in (FINISHED, LEFT):
        over = "The federation is over" if state.said == FINISHED else "Left"
        typer.echo(f"{over}. What was spent, and on what: fedvi ledger statement {settings.ledger}")


def want(settings: SiteSettings, wanted: str) -> None:
    """Write down what people here want: working, paused or left."""
    from fedvi.federation.site_file import SiteFile

    with SiteFile.open(settings.state) as file:
        file.want(wanted)
