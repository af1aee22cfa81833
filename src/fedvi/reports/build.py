"""From a run directory to its report, and from several run directories to one that compares them.

The same directory gives the same bytes. Every file appears whole or not at all.
"""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvi.errors import InputError
from fedvi.files import replacing, write
from fedvi.reports.results import Report
from fedvi.web.pages import RC

if TYPE_CHECKING:
    from fedvi.experiments.directory import MethodResults, Results


def write_report(outcome: Results) -> Path:
    """Write `figures/` and `report.html` into the run directory and return the page's path."""
    from fedvi.reports.page.page import page

    report, target = Report(outcome), outcome.path / "report.html"
    write(target, page(report, write_figures(report)))
    return target


def write_figures(report: Report) -> list[Path]:
    """Write all figures that the run directory has data for into its `figures`; return paths, PNG and SVG of each."""
    import matplotlib as mpl  # takes a second: only this waits for it

    from fedvi.reports.figures.communications import draw_progress, draw_spending
    from fedvi.reports.figures.settings import draw_heatmap, draw_tradeoff

    target, names, written = report.outcome.path / "figures", file_names(report.partitions), []
    target.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names may be in any script; the page shows them all
        drawn = {f"progress_{name}": draw_progress(report, partition) for partition, name in names.items()}
        drawn["tradeoff"] = draw_tradeoff(report)
        drawn |= {f"spending_{name}": draw_spending(report, partition) for partition, name in names.items()}
        drawn["heatmap"] = draw_heatmap(report)
        for name, figure in drawn.items():
            if figure is None:
                continue
            for path in (target / f"{name}.png", target / f"{name}.svg"):
                metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                with replacing(path) as file:
                    figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=metadata)
                figure.set_layout_engine("none")  # what was laid out stays: laying out is slower than drawing
                written.append(path)
    return written


def file_names(partitions: list[str]) -> dict[str, str]:
    """Return a safe and unique part of a file's name for every partition.

    >>> file_names(["A", "by age/sex", "by age sex"])
    {'A': 'A', 'by age/sex': 'by-age-sex', 'by age sex': 'by-age-sex-2'}
    """
    chosen: dict[str, str] = {}
    for partition in partitions:
        plain = re.sub(r"[^A-Za-z0-9._]+", "-", partition).strip("-.") or "data"
        name, number = plain, 2
        while name.lower() in {other.lower() for other in chosen.values()}:
            name, number = f"{plain}-{number}", number + 1
        chosen[partition] = name
    return chosen


def merge(outcomes: Sequence[Results], path: str | os.PathLike[str]) -> Results:
    """Return one outcome that holds all of them; methods are named "directory: method".

    path: the directory that a report of the comparison is written to.
    """
    if not outcomes:
        raise InputError("Expected at least one run directory to compare, got none.")
    named = dict(zip(_names([outcome.path for outcome in outcomes]), outcomes, strict=True))
    results: MethodResults = {}
    published: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    for name, outcome in named.items():
        for partition, methods in outcome.results.items():
            for method, one in methods.items():
                own = dataclasses.replace(one, base=f"{name}: {one.base}", label=f"{name}: {one.label or one.base}")
                results.setdefault(partition, {})[f"{name}: {method}"] = own
        for partition, numbers in Report(outcome).published.items():
            published.setdefault(partition, {}).update({f"{name}: {method}": one for method, one in numbers.items()})
        skipped = outcome.skipped | skipped
    config = {
        "title": "Comparison: " + ", ".join(named),
        "command": "fedvi report " + " ".join(named),
        "reference": published,
        "runs": {name: outcome.config for name, outcome in named.items()},
    }
    return dataclasses.replace(
        outcomes[0],
        path=Path(path),
        config=config,
        results=results,
        history=_stacked({name: outcome.history for name, outcome in named.items()}),
        spending=_stacked({name: outcome.spending for name, outcome in named.items()}),
        skipped={place: reason for place, reason in skipped.items() if place not in results},
    )


def _names(paths: list[Path]) -> list[str]:
    """Return the directories' names, with enough of their parents to distinguish them."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError(f"Expected different run directories, got {', '.join(map(str, paths))}.")


def _stacked(named: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the rows of all tables one after another; columns that a table lacks are NaN there."""
    tables = [
        table | {"method": np.asarray([f"{name}: {method}" for method in table["method"]])}
        for name, table in named.items()
        if len(table.get("method", ()))
    ]
    columns = dict.fromkeys(column for table in tables for column in table)
    return {
        column: np.concatenate([table.get(column, np.full(len(table["method"]), np.nan)) for table in tables])
        for column in columns
    }
