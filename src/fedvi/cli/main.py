"""The `fedvi` command.

Exit codes: 0 for success, 1 if a command or an audit failed, 2 for wrong usage, 3 if a site is refused, 130 for Ctrl-C.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated

import typer

from fedvi import __version__
from fedvi.cli.audit import audit
from fedvi.cli.budget import budget
from fedvi.cli.experiments import report, reproduce, simulate
from fedvi.cli.federation.commands import app as federation
from fedvi.cli.fit import fit
from fedvi.cli.forecast import forecast
from fedvi.cli.inspect import inspect
from fedvi.cli.ledger import app as ledger
from fedvi.cli.predict import predict
from fedvi.cli.schema import app as schema
from fedvi.cli.site import app as site
from fedvi.compiling import cache_compilations
from fedvi.errors import FedviError, InputError, SiteRefused

app = typer.Typer(
    help="Learn Bayesian models from many sites, with differential privacy.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (forecast, fit, predict, inspect, reproduce, simulate, report, budget, audit):
    app.command()(command)
for name, group in {"federation": federation, "site": site, "ledger": ledger, "schema": schema}.items():
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedvi {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn Bayesian models from many sites, with differential privacy."""


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"Warning: {message}", err=True)


def main() -> None:
    """Run the command line. Print an error of fedvi, or of what it prints to, as one line, without a traceback."""
    cache_compilations()
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")  # a letter that the terminal does not know is no reason to fail
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except FedviError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2 if isinstance(error, InputError) else 3 if isinstance(error, SiteRefused) else 1)
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        sys.exit(130)
    except OSError as error:  # of standard output, if it names no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail once more at the end
        what = "Cannot write the output" if error.filename is None else f"Cannot use {error.filename}"
        typer.echo(f"Error: {what}: {error.strerror or error}.", err=True)
        sys.exit(1)
