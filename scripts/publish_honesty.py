"""Put the results of `python -m benchmarks honesty` into docs/honesty.md, or check that they are there.

python -m benchmarks honesty --out docs/honesty.json    measure, hours; then --method default, dp-pvi, dp-sgd, nuts
python -m scripts.publish_honesty                       write the tables of the document and its figure
python -m scripts.publish_honesty --check               exit code 1 unless the document shows what the files say
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from benchmarks.honesty import report
from benchmarks.honesty.before import read_before
from benchmarks.honesty.command import by_shape
from benchmarks.honesty.figure import write_figure
from benchmarks.honesty.run import read_results
from benchmarks.honesty.scores import Columns
from fedvi.console import markdown
from scripts.documents import DOCS, with_tables

DOCUMENT, RESULTS, FIGURE = DOCS / "honesty.md", DOCS / "honesty.json", DOCS / "images" / "honesty.png"
METHODS = ("ours", "default", "dp-pvi", "dp-sgd", "nuts")
LABELS = {"ours": "fedvi", "before": "before", "dp-pvi": "DP-PVI", "dp-sgd": "DP-SGD"}


def measured() -> dict[str, Mapping[str, Columns]]:
    """Return all that was measured, by method and cell; cells as in the file of the product's own."""
    found = read_results(RESULTS)["methods"]
    return {name: found.get(name, {"cells": {}})["cells"] for name in METHODS}


def tables() -> dict[str, str]:
    """Return what docs/honesty.md shows, as Markdown by name."""
    methods, before = measured(), read_before()
    ours, nuts = methods["ours"], by_shape(methods.pop("nuts"))
    lines = "".join(f"- {line.strip()}\n" for line in report.lines(report.verdict(ours, before, nuts)))
    beside = {name: before if name == "before" else methods[name] for name in LABELS}
    return {
        "verdict": lines,
        "cells": markdown(report.cell_rows(ours, before)),
        "groups": markdown(report.group_rows(ours, before)),
        "defaults": markdown(report.short_rows(methods["default"], before)),
        "baselines": markdown(report.baseline_rows(beside, LABELS)),
    }


def main() -> int:
    """Write the document and the figure, or compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    text = with_tables(DOCUMENT, tables())
    if parser.parse_args().check:
        same = text == DOCUMENT.read_text()
        print("The document shows the results." if same else "Tables differ from the results: honesty.md.")
        return int(not same)
    DOCUMENT.write_text(text)
    write_figure(measured()["ours"], read_before(), FIGURE)
    print(f"Written: {DOCUMENT.name}, {FIGURE.name}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
