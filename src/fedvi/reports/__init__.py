"""Reports: a run directory turned into a table, figures and one self-contained page."""

from fedvi.reports.build import merge, write_report
from fedvi.reports.table import WIDE, markdown, render, render_grid

__all__ = ["WIDE", "markdown", "merge", "render", "render_grid", "write_report"]
