"""Reports: a run directory turned into a table, figures and one self-contained page."""

from fedvi.reports.build import merge, write_report
from fedvi.reports.table import WIDE, markdown, render

__all__ = ["WIDE", "markdown", "merge", "render", "write_report"]
