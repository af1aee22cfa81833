from fedvi.reports.build import merge as merge
from fedvi.reports.build import write_report as write_report
from fedvi.reports.table import markdown as markdown
from fedvi.reports.table import render as render
from fedvi.reports.table import render_grid as render_grid
