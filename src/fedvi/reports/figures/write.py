"""Every figure of a run directory, as PNG and SVG; the same directory gives the same bytes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

from fedvi.files import replacing
from fedvi.reports.figures.heatmap import draw_heatmap
from fedvi.reports.figures.progress import draw_progress
from fedvi.reports.figures.spending import draw_spending
from fedvi.reports.figures.tradeoff import draw_tradeoff
from fedvi.reports.results import Report
from fedvi.web.style import RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figures(report: Report) -> list[Path]:
    """Write all figures that the run directory has data for into its `figures`; return paths, PNG and SVG of each."""
    target = report.outcome.path / "figures"
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names may be in any script; the page shows them all
        for name, figure in _draw_all(report):
            if figure is None:
                continue
            for path in (target / f"{name}.png", target / f"{name}.svg"):
                metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                with replacing(path) as file:
                    figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=metadata)
                figure.set_layout_engine("none")  # what was laid out stays: laying out is slower than drawing
                written.append(path)
    return written


def _draw_all(report: Report) -> Iterator[tuple[str, Figure | None]]:
    """Yield the names of the files, without an ending, and the figures."""
    names = file_names(report.partitions)
    for partition, name in names.items():
        yield f"progress_{name}", draw_progress(report, partition)
    yield "tradeoff", draw_tradeoff(report)
    for partition, name in names.items():
        yield f"spending_{name}", draw_spending(report, partition)
    yield "heatmap", draw_heatmap(report)


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
