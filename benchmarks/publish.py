"""Put the results of `python -m benchmarks` into docs/speed.md, or check that they are there.

    python -m benchmarks.publish DIR             write docs/bench.json, docs/images and the tables
    python -m benchmarks.publish --check         exit code 1 unless the document shows what docs/bench.json says

Tables stand between the lines `<!-- NAME -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.render import Rows, growth_rows, other_rows, step_rows

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "speed.md"
RESULTS = ROOT / "docs" / "bench.json"
PICTURES = ("bench.png", "growth.png")


def machine_rows(results: dict[str, Any]) -> Rows:
    """Return what was measured on, and the ratios in a few words."""
    machine, ratios = results["machine"], results["steps"]
    libraries = f"Python {machine['python']}, NumPy {machine['numpy']} with {machine['blas']}, JAX {machine['jax']}"
    return [
        ["", ""],
        ["processor", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']}, {machine['os']}"],
        ["libraries", libraries],
        ["measured", f"{results['settings']['rounds']} rounds of {len(ratios)} contenders, one thread"],
    ]


TABLES = {"machine": machine_rows, "steps": step_rows, "others": other_rows, "growth": growth_rows}


def with_tables(text: str, results: dict[str, Any]) -> str:
    """Return the document's text with its tables made anew."""
    for name, make in TABLES.items():
        new = f"<!-- {name} -->\n{_markdown(make(results))}<!-- end of {name} -->"
        text, found = re.subn(rf"<!-- {name} -->\n.*?<!-- end of {name} -->", lambda _: new, text, flags=re.DOTALL)  # noqa: B023
        if found != 1:
            raise SystemExit(f"Expected one table {name!r} in {DOCUMENT.name}, found {found}.")
    return text


def _markdown(rows: Rows) -> str:
    head, *lines = rows
    aligned = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, aligned, *lines))


def main() -> int:
    """Publish a directory, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", help="directory of `python -m benchmarks growth`")
    parser.add_argument("--check", action="store_true", help="only check the document")
    options = parser.parse_args()
    if options.check == bool(options.directory):
        parser.error("give either a directory to publish or --check")
    if options.directory:
        shutil.copyfile(options.directory / "bench.json", RESULTS)
        for name in PICTURES:
            shutil.copyfile(options.directory / name, ROOT / "docs" / "images" / name)
    text = DOCUMENT.read_text()
    made = with_tables(text, json.loads(RESULTS.read_text()))
    if options.check:
        print("The document shows the results." if made == text else "Tables differ from docs/bench.json: publish it.")
        return int(made != text)
    DOCUMENT.write_text(made)
    print(f"Written: {DOCUMENT.name}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
