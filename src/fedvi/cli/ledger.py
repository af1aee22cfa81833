"""`fedvi ledger`: look at the privacy ledger of a data set."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedvi import console

if TYPE_CHECKING:
    from fedvi.privacy.ledger.entries import Book, Entry

app = typer.Typer(
    help="Look at the privacy ledger of a data set: what was planned, what was spent.", no_args_is_help=True
)

File = Annotated[Path, typer.Argument(help="File of the ledger.")]


@app.command()
def show(
    path: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, for export.")] = False,
    last: Annotated[int, typer.Option(help="Show so many of the last entries.")] = 10,
) -> None:
    """Show budget, spending and the last entries. Works while a site has the ledger open."""
    from fedvi.privacy.ledger.ledger import read

    book = read(path)
    if as_json:
        console.print_json(export(book), indent=1)
    else:
        _show(book, last)


@app.command()
def statement(
    path: File,
    form: Annotated[
        str,
        typer.Option("--format", help="Choose text (plain words), json or markdown (all that NIST SP 800-226 asks)."),
    ] = "text",
) -> None:
    """Print the privacy statement: what is promised to whom, what was spent on what, and what is not covered.

    Example: fedvi ledger statement patients.ledger --format markdown > statement.md
    """
    from fedvi.checks import one_of
    from fedvi.privacy.ledger.disclosure import disclosure, to_markdown
    from fedvi.privacy.ledger.ledger import read

    one_of("--format", form, ("text", "json", "markdown"))
    book, title = read(path), f"the data of ledger {path.name}"
    if form == "json":
        console.print_json(disclosure(book), indent=1)
    elif form == "markdown":
        typer.echo(to_markdown(disclosure(book), f"Privacy of {title}"), nl=False)
    else:
        typer.echo(book.statement(title))


@app.command()
def verify(path: File) -> None:
    """Check the file, its chain, and that its witness on this machine has seen nothing newer."""
    from fedvi.privacy.ledger.ledger import read
    from fedvi.privacy.ledger.witness import verify_witness

    book = read(path)
    typer.echo(f"{path}: {len(book.entries)} entries, chain unbroken.")
    typer.echo(verify_witness(book))


def export(book: Book) -> dict[str, Any]:
    """Return the whole ledger as plain values, but for the key of the data's fingerprint."""
    from fedvi.privacy.events import to_json

    spent = dataclasses.asdict(dataclasses.replace(book.spent, events=()))
    spent["events"] = [{**to_json(event), "count": count} for event, count in book.charged.items()]
    return {
        "budget": dataclasses.asdict(book.budget),
        "unit": book.unit,
        "public_rows": book.public_rows,
        "schema": book.schema,
        "spent": spent,
        "planned": [{**to_json(event), "count": count} for event, count in book.planned.items()],
        "entries": [_without_key(entry) for entry in book.entries],
    }


def _without_key(entry: Entry) -> dict[str, Any]:
    fields = dataclasses.asdict(entry)
    fields["body"].pop("salt", None)
    return fields


def _show(book: Book, last: int) -> None:
    from fedvi.privacy.events import from_json, summarise

    def row(entry: Entry) -> tuple[object, ...]:
        named = [entry.body[name] for name in ("purpose", "accepted", "ledger") if entry.body.get(name)]
        what = named[0] if named else f"{entry.body['public_rows']} rows"
        if "event" in entry.body:
            times = f"{entry.body['updates']} x " if "updates" in entry.body else ""
            what = f"{what}: {times}({summarise(from_json(entry.body['event']))})"
        return entry.number, entry.time[:19], entry.kind, what

    entries = book.entries[-last:] if last > 0 else []
    console.show(
        book.statement(f"the data of ledger {Path(book.where).name}"),
        *([f"  Feature schema: {book.schema[:12]}."] if book.schema else []),
        *(
            f"  Planned: {count} x ({summarise(event)}), of which {book.remaining(event)} are left."
            for event, count in book.planned.items()
        ),
        console.table("number|time|kind|what", map(row, entries), title=f"The last of {len(book.entries)} entries"),
    )
