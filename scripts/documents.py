"""Published results in documents: tables between the lines `<!-- NAME -->` and `<!-- end of NAME -->`, and pictures."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
Tables = Mapping[Path, Mapping[str, str]]
"""Tables as Markdown, by document and name."""


def publish(
    usage: str | None,
    kept: Path,
    read: Callable[[Path], dict[str, Any]],
    tables: Callable[[dict[str, Any]], Tables],
    pictures: Mapping[str, str],
) -> int:
    """Publish the directory that the command line names, or check the documents; return the exit code.

    kept: the results in docs/, used if no directory is given. read: returns what to keep of a directory.
    tables: what the documents show of it. pictures: from their places in the directory to their names in docs/images.
    """
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help=f"results to publish; default: docs/{kept.name}")
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    given = parser.parse_args()
    results = read(given.directory) if given.directory else json.loads(kept.read_text())
    changed = {
        document: text
        for document, shown in tables(results).items()
        if (text := with_tables(document, shown)) != document.read_text()
    }
    names = ", ".join(document.name for document in changed)
    if given.check:
        print(f"Tables differ from the results: {names}." if changed else "The documents show the results.")
        return int(bool(changed))
    if given.directory:
        kept.write_text(json.dumps(results, indent=1) + "\n")
        for source, target in pictures.items():
            shutil.copyfile(given.directory / source, DOCS / "images" / target)
    for document, text in changed.items():
        document.write_text(text)
    print(f"Written: {names or 'nothing new'}.")
    return 0


def with_tables(document: Path, tables: Mapping[str, str]) -> str:
    """Return a document's text with tables in their places."""
    text = document.read_text()
    for name, table in tables.items():
        parts = re.split(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", text, flags=re.DOTALL)
        if len(parts) != 2:
            sys.exit(f"Expected one table {name!r} in {document.name}, found {len(parts) - 1}.")
        text = table.join(parts)
    return text
