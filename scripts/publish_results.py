"""Put the results of a run directory into the documents, or check that they are there.

    python scripts/publish_results.py DIR          write docs/results.json, docs/images and the tables
    python scripts/publish_results.py --check      exit code 1 unless the documents show what docs/results.json says
    python scripts/publish_results.py DIR --check  the same against a run directory

Tables stand between the lines `<!-- NAME -->` and `<!-- end of NAME -->`. docs/results.json is a run's results.json
without what every single client did.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results.json"
PICTURES = {"tradeoff.png": "tradeoff.png", "progress_C.png": "progress_c.png", "spending_B.png": "spending_b.png"}
EPSILONS = ("0.50", "0.75", "1.00")
TRADEOFF = ("0.05", "0.10", "0.20", "0.50", "0.75", "1.00", "2.00")
LABELS = {
    "pvi": "PVI, not private",
    "global-vi": "global VI, not private",
    "dp-pvi": "DP-PVI, published rule",
    "dp-pvi-strict": "DP-PVI, strict budget",
    "fedvi": "**fedvi**, strict budget",
}
PARTITIONS = {"A": "A: clients alike", "B": "B: sizes 19 to 1", "C": "C: sizes 6 to 1, classes differ"}


def trimmed(results: dict[str, Any]) -> dict[str, Any]:
    """Return of every entry what the tables show."""
    return {
        partition: {method: _entry(entry) for method, entry in methods.items()}
        for partition, methods in results.items()
    }


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    runs = entry["runs"]

    def largest(key: str) -> float | None:
        return max((epsilon for run in runs for epsilon in run[key].values()), default=None)

    return {
        "acc": [round(value, 4) for value in entry["acc"]],
        "ll": [round(value, 6) for value in entry["ll"]],
        "runs": [{key: run[key] for key in ("seed", "acc", "ll", "communications")} for run in runs],
        "largest_epsilon": largest("epsilon"),
        "largest_epsilon_proven": largest("epsilon_proven"),
    }


def summary(results: dict[str, Any], reference: dict[str, Any]) -> str:
    """Return the short table of the README: epsilon 0.5, accuracy and log-likelihood."""
    methods = ("pvi", "dp-pvi@0.50", "dp-pvi-strict@0.50", "fedvi@0.50")
    head = ["partition", "DP-PVI, from the paper", *(LABELS[method.split("@")[0]] for method in methods[1:])]
    lines = [[*head, LABELS["pvi"]], ["---"] * 6]
    for partition in ("A", "B", "C"):
        cells = [_pair(results[partition][method]) for method in methods]
        lines.append([PARTITIONS[partition], _pair(reference[partition]["dp-pvi@0.50"]), *cells[1:], cells[0]])
    return _markdown(lines)


def comparison(results: dict[str, Any], reference: dict[str, Any]) -> str:
    """Return the paper's table, ours, and the differences."""
    lines = [
        ["", "method", "accuracy [%]", "paper", "difference", "log-likelihood", "paper", "difference"],
        ["---"] * 8,
    ]
    for partition, published in reference.items():
        for method, entry in published.items():
            line = [partition, method]
            for key, digits in (("acc", 2), ("ll", 4)):
                mean, std = results[partition][method][key]
                line += [f"{mean:.{digits}f} ± {std:.{digits}f}", f"{entry[key][0]:.{digits}f}"]
                line.append(f"{mean - entry[key][0]:+.{digits}f}")
            lines.append(line)
    return _markdown(lines)


def tradeoff(results: dict[str, Any], _: dict[str, Any]) -> str:
    """Return strict DP-PVI and fedvi at every epsilon."""
    lines = [
        ["ε", *(f"{p}: {m}" for p in results for m in ("DP-PVI, strict", "fedvi"))],
        ["---"] * (1 + 2 * len(results)),
    ]
    for epsilon in TRADEOFF:
        pairs = [_pair(methods[f"{m}@{epsilon}"]) for methods in results.values() for m in ("dp-pvi-strict", "fedvi")]
        lines.append([f"{float(epsilon):g}", *pairs])
    return _markdown(lines)


def spending(results: dict[str, Any], _: dict[str, Any]) -> str:
    """Return the largest epsilon of any client, as its rule accounts for it and as proven."""
    head = ["budget", *(f"{p}: {m}" for p in results for m in ("published: accounted, proven", "strict", "fedvi"))]
    lines = [head, ["---"] * len(head)]
    for epsilon in EPSILONS:
        cells = [f"{float(epsilon):g}"]
        for methods in results.values():
            published = methods[f"dp-pvi@{epsilon}"]
            cells.append(f"{published['largest_epsilon']:.3f}, {published['largest_epsilon_proven']:.2f}")
            cells += [f"{methods[f'{m}@{epsilon}']['largest_epsilon']:.4f}" for m in ("dp-pvi-strict", "fedvi")]
        lines.append(cells)
    return _markdown(lines)


TABLES = {
    "results": (ROOT / "README.md", summary),
    "comparison": (ROOT / "docs" / "experiments.md", comparison),
    "tradeoff": (ROOT / "docs" / "experiments.md", tradeoff),
    "spending": (ROOT / "docs" / "experiments.md", spending),
}


def _pair(entry: dict[str, Any]) -> str:
    return f"{entry['acc'][0]:.2f} / {entry['ll'][0]:.4f}"


def _markdown(lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_tables(document: Path, text: str, results: dict[str, Any]) -> str:
    """Return a document's text with its tables made anew."""
    from fedvi.experiments.papers import paper_config

    reference = paper_config()["reference"]
    for name, (place, make) in TABLES.items():
        if place == document:
            old = rf"<!-- {name} -->\n.*?<!-- end of {name} -->"
            new = f"<!-- {name} -->\n{make(results, reference)}<!-- end of {name} -->"
            text, found = re.subn(old, new.replace("\\", "\\\\"), text, flags=re.DOTALL)
            if found != 1:
                raise SystemExit(f"Expected one table {name!r} in {document.name}, found {found}.")
    return text


def main() -> int:
    """Publish a run directory, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", help="run directory of `fedvi reproduce`")
    parser.add_argument("--check", action="store_true", help="only check the documents")
    options = parser.parse_args()
    if options.directory and not options.check:
        results = trimmed(json.loads((options.directory / "results.json").read_text()))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        for source, target in PICTURES.items():
            shutil.copyfile(options.directory / "figures" / source, ROOT / "docs" / "images" / target)
    if options.directory and options.check:
        results = trimmed(json.loads((options.directory / "results.json").read_text()))
    else:
        results = json.loads(RESULTS.read_text())
    wrong = []
    for document in dict.fromkeys(place for place, _ in TABLES.values()):
        text = document.read_text()
        made = with_tables(document, text, results)
        if made != text:
            wrong.append(document.name)
            if not options.check:
                document.write_text(made)
    if options.check and wrong:
        print(f"Tables differ from the results: {', '.join(wrong)}. Run scripts/publish_results.py.", file=sys.stderr)
        return 1
    print("The documents show the results." if options.check else f"Written: {', '.join(wrong) or 'nothing new'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
