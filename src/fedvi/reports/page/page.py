"""One self-contained page: template, style, scripts and data in a single file that needs no network.

Everything that comes from the run directory is escaped: names in HTML by `html.escape`, data as JSON without any
character that HTML gives a meaning to; scripts put text into the page as text only. The page's own policy allows
exactly its own scripts, by their hashes, and no connection at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fedvi.reports.page.data import page_data
from fedvi.reports.page.table import compact_html, table_html, table_note
from fedvi.reports.results import Report
from fedvi.reports.summary import headlines, paragraph
from fedvi.web.assets import asset, embedded, filled, source

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results


def page(report: Report, figures: Sequence[Path] = ()) -> str:
    """Return the page as text. figures: static figures to link to, inside the run directory."""
    cards = [f"<div><dt>{escape(meaning)}</dt><dd>{escape(number)}</dd></div>" for number, meaning in headlines(report)]
    scripts = {
        "chart_js": asset("web/chart.js"),
        "shapes_js": asset("web/shapes.js"),
        "page_js": asset("reports/page/page.js"),
    }
    parts = {
        "title": escape(report.title),
        "summary": escape(paragraph(report)),
        "cards": "\n".join(cards),
        "table_note": escape(table_note(report)),
        "table": table_html(report),
        "compact": compact_html(report),
        **_making(report.outcome),
        "statements": _statements(report),
        "figures": _links(report.outcome.path, figures),
        "css": asset("web/base.css") + asset("reports/page/page.css"),
        "data": embedded(page_data(report)),
        **scripts,
        "script_hashes": " ".join(source(text) for text in scripts.values()),
    }
    return filled(asset("reports/page/page.html"), parts)


def _making(outcome: Results) -> dict[str, str]:
    """Return how the run is made again, with which settings, and by which versions."""
    command, path, given = outcome.config.get("command"), outcome.path / "config.toml", outcome.config.get("versions")
    again = [str(command)] if command else []
    if path.is_file() or not command:
        again.append("fedvi simulate config.toml")
    settings = json.dumps(outcome.config, indent=2, default=str, ensure_ascii=False)
    versions = [f"{name} {number}" for name, number in (given or {}).items()]
    return {
        "rerun": f"<pre>{escape(chr(10).join(again))}</pre>",
        "config": escape(path.read_text(encoding="utf-8") if path.is_file() else settings),
        "versions": escape("\n".join([*versions, f"This page: fedvi {version('fedvi')}"])),
    }


def _statements(report: Report) -> str:
    """Return what was promised, a block per base method; the same words are not repeated for every partition."""
    shown: dict[str, dict[tuple[str, str], list[str]]] = {}
    for row in report.rows:
        if row.partition not in report.cells and (text := str(row.entry.get("statement") or "")):
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
