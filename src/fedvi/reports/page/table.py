"""The tables as HTML: the same rows as everywhere, with a bar for every difference from a published number."""

from __future__ import annotations

from html import escape
from itertools import groupby

from fedvi.reports.measures import TOLERANCES, Comparison
from fedvi.reports.results import Report, Row
from fedvi.reports.table import cells, compact, header, number


def table_html(report: Report) -> str:
    """Return head and bodies of the main table; one body per partition, which the page's script shows or hides."""
    names = header(report)
    parts = [_head(names[1:])]
    for partition, group in groupby(report.table, key=lambda row: row.partition):
        lines = "\n".join(_line(row, names) for row in group)
        title = f'<tr class="group" hidden><th colspan="{len(names) - 1}">Partition {escape(partition)}</th></tr>'
        parts.append(f'<tbody data-partition="{escape(partition)}">\n{title}\n{lines}\n</tbody>')
    return "\n".join(parts)


def _head(names: list[str]) -> str:
    return "<thead><tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in names) + "</tr></thead>"


def _line(row: Row, names: list[str]) -> str:
    colour = "var(--ink)" if row.look.colour == "#000000" else row.look.colour
    line = f'<th scope="row"><span class="swatch" style="background:{colour}"></span>{escape(row.label)}</th>'
    published, differences = iter(row.compared), iter(row.compared)
    for name, text in list(zip(names, cells(row, names), strict=True))[2:]:
        if name == "paper":
            one = next(published)
            title = number(one.published, one.published_std, one.measure.digits)
            line += f'<td class="paper" title="{title}">{text}</td>'
        elif name == "difference":
            line += _difference(next(differences), text)
        else:
            kind = ' class="over"' if row.over and name.startswith("largest") else ""
            line += f"<td{kind}>{text}</td>"
    return f"<tr>{line}</tr>"


def _difference(one: Comparison, text: str) -> str:
    if one.difference is None:
        return f"<td>{text}</td>"
    kind = "agrees" if one.agrees else "better" if one.difference > 0 else "worse"
    width = 50 * min(abs(one.difference) / (2 * TOLERANCES.get(one.measure.key, 1.0)), 1.0)
    side = "left" if one.difference >= 0 else "right"
    bar = f'<span class="bar"><i style="{side}:50%;width:{width:.0f}%"></i></span>'
    return f'<td class="{kind}"><span class="difference">{text}</span>{bar}</td>'


def table_note(report: Report) -> str:
    """Return the sentence under the heading of the table."""
    text = "Mean ± standard deviation over seeds."
    if report.has_published:
        text += (
            f" Difference: ours minus the paper's. Green: within {TOLERANCES['acc']:g} points of accuracy or "
            f"{TOLERANCES['ll']:g} of log-likelihood, or within two standard deviations of the seeds. "
            "Blue: better. Red: worse."
        )
    if any(row.budget is not None for row in report.rows if row.partition not in report.cells):
        text += (
            " Largest ε of any client: by the run's own rule / as proven for its sampling "
            "(batches of fixed size: one row exchanged for another; others: one row more or less)."
        )
    return text


def compact_html(report: Report) -> str:
    """Return the trade-off table for epsilons without published numbers, in a block that opens."""
    names, lines = compact(report)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    table = f'<div class="scroll"><table>{_head(names)}<tbody>{body}</tbody></table></div>'
    return f"<details><summary>Other budgets</summary>{table}</details>" if lines else ""
