"""Put what `python -m benchmarks honesty` and `forecasts` found into documents, or check that it is there.

python -m benchmarks honesty --out docs/honesty.json       measure, hours; then --method default, dp-pvi, dp-sgd, nuts
python -m benchmarks forecasts --json > docs/forecasts.json
python -m scripts.publish_honesty                          write the tables of the documents and the figure
python -m scripts.publish_honesty --check                  exit code 1 unless the documents show what the files say
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from benchmarks.honesty import report
from benchmarks.honesty.before import read_before
from benchmarks.honesty.command import by_shape
from benchmarks.honesty.figure import write_figure
from benchmarks.honesty.forecasts import summary_of
from benchmarks.honesty.run import read_results
from benchmarks.honesty.scores import Columns
from fedvi.console import markdown
from scripts.documents import DOCS, Tables, with_tables

RESULTS, FORECASTS, FIGURE = DOCS / "honesty.json", DOCS / "forecasts.json", DOCS / "images" / "honesty.png"
METHODS = ("ours", "default", "dp-pvi", "dp-sgd", "nuts")
LABELS = {"ours": "fedvi", "before": "before", "dp-pvi": "DP-PVI", "dp-sgd": "DP-SGD"}


def measured() -> dict[str, Mapping[str, Columns]]:
    """Return all that was measured, by method and cell; cells as in the file of the product's own."""
    found = read_results(RESULTS)["methods"]
    return {name: found.get(name, {"cells": {}})["cells"] for name in METHODS}


def tables() -> Tables:
    """Return what the documents show."""
    methods, before = measured(), read_before()
    ours, nuts = methods["ours"], by_shape(methods.pop("nuts"))
    lines = "".join(f"- {line.strip()}\n" for line in report.lines(report.verdict(ours, before, nuts)))
    beside = {name: before if name == "before" else methods[name] for name in LABELS}
    forecasts = json.loads(FORECASTS.read_text())["cells"]
    honesty = {
        "verdict": lines,
        "cells": markdown(report.cell_rows(ours, before)),
        "groups": markdown(report.group_rows(ours, before)),
        "defaults": markdown(report.short_rows(methods["default"], before)),
        "baselines": markdown(report.baseline_rows(beside, LABELS)),
    }
    return {DOCS / "honesty.md": honesty, DOCS / "tables.md": {"forecasts": markdown(summary_of(forecasts))}}


def main() -> int:
    """Write the documents and the figure, or compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    texts = {document: with_tables(document, shown) for document, shown in tables().items()}
    if parser.parse_args().check:
        other = [document.name for document, text in texts.items() if text != document.read_text()]
        print(f"Tables differ from the results: {', '.join(other)}." if other else "The documents show the results.")
        return int(bool(other))
    for document, text in texts.items():
        document.write_text(text)
    write_figure(measured()["ours"], read_before(), FIGURE)
    print(f"Written: {', '.join(document.name for document in texts)}, {FIGURE.name}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
