"""Put the results of a run directory into the documents, or check that they are there.

python -m scripts.publish_results DIR          write docs/results.json, docs/images and the tables
python -m scripts.publish_results --check      exit code 1 unless the documents show what docs/results.json says
python -m scripts.publish_results DIR --check  the same against a run directory

docs/results.json is a run's results.json without what every single client did.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fedvi.console import markdown
from fedvi.experiments.papers import paper_config
from scripts.documents import DOCS, Tables, publish

PICTURES = {f"figures/{name}.png": f"{name.lower()}.png" for name in ("tradeoff", "progress_C", "spending_B")}
EPSILONS = ("0.50", "0.75", "1.00")
TRADEOFF = ("0.05", "0.10", "0.20", "0.50", "0.75", "1.00", "2.00")
SUMMARY = {
    "dp-pvi@0.50": "DP-PVI, published rule",
    "dp-pvi-strict@0.50": "DP-PVI, strict budget",
    "fedvi@0.50": "**fedvi**, strict budget",
    "fedvi-splines@0.50": "**fedvi** with splines",
    "pvi": "PVI, not private",
}
PARTITIONS = {"A": "A: clients alike", "B": "B: sizes 19 to 1", "C": "C: sizes 6 to 1, classes differ"}


def trimmed(directory: Path) -> dict[str, Any]:
    """Return of every entry of a run directory what the tables show."""
    results = json.loads((directory / "results.json").read_text())
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
    lines = [["partition", "DP-PVI, from the paper", *SUMMARY.values()]]
    for partition, label in PARTITIONS.items():
        cells = [_pair(results[partition][method]) for method in SUMMARY]
        lines.append([label, _pair(reference[partition]["dp-pvi@0.50"]), *cells])
    return markdown(lines, left=99)


def comparison(results: dict[str, Any], reference: dict[str, Any]) -> str:
    """Return the paper's table, ours, and the differences."""
    lines = [["", "method", "accuracy [%]", "paper", "difference", "log-likelihood", "paper", "difference"]]
    for partition, published in reference.items():
        for method, entry in published.items():
            line = [partition, method]
            for key, digits in (("acc", 2), ("ll", 4)):
                mean, std = results[partition][method][key]
                line += [f"{mean:.{digits}f} ± {std:.{digits}f}", f"{entry[key][0]:.{digits}f}"]
                line.append(f"{mean - entry[key][0]:+.{digits}f}")
            lines.append(line)
    return markdown(lines, left=99)


def tradeoff(results: dict[str, Any]) -> str:
    """Return strict DP-PVI and fedvi at every epsilon."""
    shown = {"dp-pvi-strict": "DP-PVI, strict", "fedvi": "fedvi", "fedvi-splines": "fedvi with splines"}
    lines = [["ε", *(f"{p}: {m}" for p in results for m in shown.values())]]
    for epsilon in TRADEOFF:
        pairs = [_pair(methods[f"{m}@{epsilon}"]) for methods in results.values() for m in shown]
        lines.append([f"{float(epsilon):g}", *pairs])
    return markdown(lines, left=99)


def spending(results: dict[str, Any]) -> str:
    """Return the largest epsilon of any client, as its rule accounts for it and as proven."""
    lines = [["budget", *(f"{p}: {m}" for p in results for m in ("published: accounted, proven", "strict", "fedvi"))]]
    for epsilon in EPSILONS:
        cells = [f"{float(epsilon):g}"]
        for methods in results.values():
            published = methods[f"dp-pvi@{epsilon}"]
            cells.append(f"{published['largest_epsilon']:.3f}, {published['largest_epsilon_proven']:.2f}")
            cells += [f"{methods[f'{m}@{epsilon}']['largest_epsilon']:.4f}" for m in ("dp-pvi-strict", "fedvi")]
        lines.append(cells)
    return markdown(lines, left=99)


def tables(results: dict[str, Any]) -> Tables:
    """Return what the README and docs/experiments.md show."""
    reference = paper_config()["reference"]
    shown = {"comparison": comparison(results, reference), "tradeoff": tradeoff(results), "spending": spending(results)}
    return {DOCS.parent / "README.md": {"results": summary(results, reference)}, DOCS / "experiments.md": shown}


def _pair(entry: dict[str, Any]) -> str:
    return f"{entry['acc'][0]:.2f} / {entry['ll'][0]:.4f}"


if __name__ == "__main__":
    sys.exit(publish(__doc__, DOCS / "results.json", trimmed, tables, PICTURES))
