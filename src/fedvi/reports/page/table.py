"""The tables as HTML: the same rows as everywhere, with a bar for every difference from a published number."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from fedvi.reports.results import TOLERANCES, Comparison, Row, rows
from fedvi.reports.table import NONE, compact, epsilons, header, number, signed
from fedvi.reports.view import View
from fedvi.web.style import Look

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results


def table_html(outcome: Results) -> str:
    """Return head and bodies of the main table; one body per partition, which the page's script shows or hides."""
    view, names = View(outcome), header(outcome)[1:]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    parts = [f"<thead><tr>{head}</tr></thead>"]
    for partition, group in groupby(rows(outcome), key=lambda row: row.partition):
        lines = "\n".join(_line(row, names, view.looks[view.base(row.method)]) for row in group)
        title = f'<tr class="group" hidden><th colspan="{len(names)}">Partition {escape(partition)}</th></tr>'
        parts.append(f'<tbody data-partition="{escape(partition)}">\n{title}\n{lines}\n</tbody>')
    return "\n".join(parts)


def _line(row: Row, names: list[str], look: Look) -> str:
    colour = "var(--ink)" if look.colour == "#000000" else look.colour
    cells = [f'<th scope="row"><span class="swatch" style="background:{colour}"></span>{escape(row.label)}</th>']
    if "ε" in names:
        cells.append(f"<td>{'' if row.budget is None else f'{row.budget:g}'}</td>")
    for one in row.compared:
        cells.append(f"<td>{number(one.mean, one.std, one.measure.digits)}</td>")
        if "paper" in names:
            published = number(one.published, one.published_std, one.measure.digits)
            cells.append(
                f'<td class="paper" title="{published}">{number(one.published, None, one.measure.digits)}</td>'
            )
            cells.append(_difference(one))
    if len(names) > len(cells) + 1:
        kind = ' class="over"' if row.over else ""
        cells.append(f"<td{kind}>{epsilons(row)}</td>")
    count = NONE if row.communications is None else f"{row.communications:,.0f}"
    return f"<tr>{''.join(cells)}<td>{count}</td></tr>"


def _difference(one: Comparison) -> str:
    if one.difference is None:
        return f"<td>{NONE}</td>"
    kind = "agrees" if one.agrees else "better" if one.difference > 0 else "worse"
    width = 50 * min(abs(one.difference) / (2 * TOLERANCES.get(one.measure.key, 1.0)), 1.0)
    side = "left" if one.difference >= 0 else "right"
    bar = f'<span class="bar"><i style="{side}:50%;width:{width:.0f}%"></i></span>'
    return f'<td class="{kind}"><span class="difference">{signed(one.difference, one.measure.digits)}</span>{bar}</td>'


def table_note(view: View) -> str:
    """Return the sentence under the heading of the table."""
    text = "Mean ± standard deviation over seeds."
    if view.has_reference:
        text += (
            f" Difference: ours minus the paper's. Green: within {TOLERANCES['acc']:g} points of accuracy or "
            f"{TOLERANCES['ll']:g} of log-likelihood, or within two standard deviations of the seeds. "
            "Blue: better. Red: worse."
        )
    if any(view.epsilon(method) is not None for partition in view.partitions for method in view.methods(partition)):
        text += (
            " Largest ε of any client: by the run's own rule / as proven for its sampling "
            "(batches of fixed size: one row exchanged for another; others: one row more or less)."
        )
    return text


def compact_html(outcome: Results) -> str:
    """Return the trade-off table for epsilons without published numbers, in a block that opens."""
    names, lines = compact(outcome)
    if not lines:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<details><summary>Other budgets</summary><div class="scroll">{table}</div></details>'
