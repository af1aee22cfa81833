"""Every figure of a run directory, as PNG and SVG; the same directory gives the same bytes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

from fedvi.files import replacing
from fedvi.reports.curves import split
from fedvi.reports.figures.heatmap import draw_heatmap
from fedvi.reports.figures.progress import draw_progress
from fedvi.reports.figures.spending import draw_spending
from fedvi.reports.figures.tradeoff import draw_tradeoff
from fedvi.reports.view import View
from fedvi.web.style import RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedvi.experiments.directory import Results


def write_figures(outcome: Results, directory: Path | None = None) -> list[Path]:
    """Write all figures that the run directory has data for and return their paths, PNG and SVG of each.

    directory: `figures` inside the run directory when None.
    """
    target = outcome.path / "figures" if directory is None else directory
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names may be in any script; the page shows them all
        for name, figure in draw_all(View(outcome)):
            written.append(_save(figure, target / f"{name}.png"))
            figure.set_layout_engine("none")  # what was laid out stays: laying out is slower than drawing
            written.append(_save(figure, target / f"{name}.svg"))
    return written


def draw_all(view: View) -> Iterator[tuple[str, Figure]]:
    """Yield the names of the files, without an ending, and the figures."""
    history, spending = split(view.outcome.history), split(view.outcome.spending)
    names = file_names(view.partitions)
    for partition in view.partitions:
        if (figure := draw_progress(view, partition, history)) is not None:
            yield f"progress_{names[partition]}", figure
    if (figure := draw_tradeoff(view)) is not None:
        yield "tradeoff", figure
    for partition in view.partitions:
        if (figure := draw_spending(view, partition, spending)) is not None:
            yield f"spending_{names[partition]}", figure
    if (figure := draw_heatmap(view, history)) is not None:
        yield "heatmap", figure


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


def _save(figure: Figure, path: Path) -> Path:
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=metadata)
    return path
