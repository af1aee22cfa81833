"""One self-contained page: template, style, scripts and data in a single file that needs no network.

Everything that comes from the run directory is escaped: names in HTML by `html.escape`, data as JSON without any
character that HTML gives a meaning to; scripts put text into the page as text only. The page's own policy allows
exactly its own scripts, by their hashes, and no connection at all. Curves are thinned so that the page stays small.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvi.reports.charts import curves, grid, has_tradeoff, main_range, private_points, spenders, spent
from fedvi.reports.results import TOLERANCES, Comparison, Group, Report, Row
from fedvi.reports.table import cells, compact, header, headlines, number, paragraph
from fedvi.web.pages import asset, embedded, filled, source

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results

MOST_POINTS = 100_000
"""Of one page: curves are thinned further when there are very many."""


def page(report: Report, figures: Sequence[Path] = ()) -> str:
    """Return the page as text. figures: static figures to link to, inside the run directory."""
    cards = [f"<div><dt>{escape(meaning)}</dt><dd>{escape(number)}</dd></div>" for number, meaning in headlines(report)]
    scripts = [asset(name) for name in ("web/chart.js", "web/shapes.js", "reports/page/page.js")]
    parts = {
        "title": escape(report.title),
        "summary": escape(paragraph(report)),
        "cards": "\n".join(cards),
        "tolerances": "{acc:g} points of accuracy or {ll:g} of log-likelihood".format(**TOLERANCES),
        "if_published": "" if report.has_published else "hidden",
        "remark": escape(str(report.outcome.config.get("remark", ""))) if report.has_published else "",
        "if_private": "" if any(row.budget is not None for row in report.table) else "hidden",
        "table": _table(report),
        "compact": _other_budgets(report),
        **_making(report.outcome),
        "version": escape(version("fedvi")),
        "statements": _statements(report),
        "figures": _links(report.outcome.path, figures),
        "css": asset("web/base.css") + asset("reports/page/page.css"),
        "data": embedded(page_data(report)),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
        "script_hashes": " ".join(map(source, scripts)),
    }
    return filled(asset("reports/page/page.html"), parts)


def _table(report: Report) -> str:
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


def _other_budgets(report: Report) -> str:
    """Return the trade-off table for epsilons without published numbers, in a block that opens."""
    names, lines = compact(report)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    table = f'<div class="scroll"><table>{_head(names)}<tbody>{body}</tbody></table></div>'
    return f"<details><summary>Other budgets</summary>{table}</details>" if lines else ""


def _making(outcome: Results) -> dict[str, str]:
    """Return how the run is made again, and with which settings."""
    command, path = outcome.config.get("command"), outcome.path / "config.toml"
    again = [str(command)] if command else []
    if path.is_file() or not command:
        again.append("fedvi simulate config.toml")
    settings = json.dumps(outcome.config, indent=2, default=str, ensure_ascii=False)
    return {
        "rerun": escape("\n".join(again)),
        "config": escape(path.read_text(encoding="utf-8") if path.is_file() else settings),
    }


def _statements(report: Report) -> str:
    """Return what was promised, a block per base method; the same words are not repeated for every partition."""
    shown: dict[str, dict[tuple[str, str], list[str]]] = {}
    for row in report.rows:
        if row.partition not in report.cells and (text := row.result.statement):
            shown.setdefault(row.base, {}).setdefault((row.variant, text), []).append(row.partition)
    parts = ["<h3>What was promised</h3>"] if shown else []
    for base, texts in shown.items():
        body = ""
        for (variant, text), where in sorted(texts.items(), key=lambda item: item[0][0]):
            place = f"partition {', '.join(where)}" if len(report.partitions) > 1 else ""
            title = "; ".join(part for part in (variant, place) if part)
            body += f"<h3>{escape(title)}</h3><pre>{escape(text)}</pre>"
        parts.append(f"<details><summary>{escape(report.bases[base].name)}</summary>{body}</details>")
    return "\n".join(parts)


def _links(directory: Path, figures: Sequence[Path]) -> str:
    drawings = {path.stem: path.relative_to(directory).as_posix() for path in figures if path.suffix == ".svg"}
    links = "".join(f'<li><a href="{escape(place)}">{escape(name)}</a></li>' for name, place in drawings.items())
    return f'<h3>Figures for print</h3><ul class="files">{links}</ul>' if links else ""


def page_data(report: Report) -> dict[str, Any]:
    """Return everything that the page's charts draw, as plain lists and numbers."""
    points = max(20, min(200, MOST_POINTS // max(len(report.table) * len(report.measures), 1)))
    methods = {row.method: row for row in report.rows if row.partition not in report.cells}
    return {
        "measures": [{"key": m.key, "axis": m.axis, "digits": m.digits} for m in report.measures],
        "methods": {
            method: {"label": row.full_label, "colour": row.look.colour, "dash": report.dashes.get(row.variant, ())}
            for method, row in methods.items()
        },
        "bases": {base: {"label": row.name, "colour": row.look.colour} for base, row in report.bases.items()},
        "partitions": [
            {
                "name": partition,
                "progress": _learning_data(report, partition, points),
                "ends": {row.method: row.budget_ends for row in report.on(partition, table=True)},
                "tradeoff": _tradeoff_data(report, partition) if has_tradeoff(report, partition) else {},
                "spending": [_spending_data(row, group) for row, group in spenders(report, partition)],
            }
            for partition in report.partitions
        ],
        "grid": _grid_data(report),
    }


def _numbers(values: np.ndarray, digits: int = 5) -> list[float]:
    return [round(float(value), digits) for value in values]


def _learning_data(report: Report, partition: str, points: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for measure in report.measures:
        if drawn := curves(report, report.on(partition, table=True), measure, points):
            low, high, broken = main_range([one for _, one in drawn])
            parts = {row.method: [_numbers(part) for part in (o.x, o.mean, o.low, o.high)] for row, o in drawn}
            found[measure.key] = {"range": [low, high], "broken": broken, "curves": parts}
    return found


def _tradeoff_data(report: Report, partition: str) -> dict[str, Any]:
    found = {}
    for measure in report.measures:
        open_ = [(row.method, row.measured(measure).mean) for row in report.on(partition) if row.budget is None]
        if ours := private_points(report, partition, measure):
            theirs = private_points(report, partition, measure, published=True)
            flat = [[method, mean] for method, mean in open_ if mean is not None]
            found[measure.key] = {"ours": ours, "published": theirs, "flat": flat}
    return found


def _spending_data(row: Row, group: Group) -> dict[str, Any]:
    clients = [
        {"name": c.client, "rows": c.rows, "group": c.group, "x": _numbers(c.x, 0), "y": _numbers(c.epsilon)}
        for c in spent(group)
    ]
    return {"method": row.method, "budget": row.budget, "clients": clients}


def _grid_data(report: Report) -> dict[str, Any] | None:
    found = grid(report)
    if found is None:
        return None
    maps = {m.key: [[*place, round(value, 5)] for place, value in found.values(m).items()] for m in report.measures}
    return {
        "x": found.x,
        "y": found.y,
        "xs": found.xs,
        "ys": found.ys,
        "compared": len(found.methods) == 2,
        "title": found.title,
        "maps": maps,
        "skipped": [[*place, reason] for place, reason in found.skipped.items()],
    }
