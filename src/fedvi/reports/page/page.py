"""One self-contained page: template, style, scripts and data in a single file that needs no network.

Everything that comes from the run directory is escaped: names in HTML by `html.escape`, data as JSON without any
character that HTML gives a meaning to; scripts put text into the page as text only. The page's own policy allows
exactly its own scripts, by their hashes, and no connection at all.
"""

from __future__ import annotations

import json
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fedvi.reports.page.data import page_data
from fedvi.reports.page.table import compact_html, table_html, table_note
from fedvi.reports.summary import headlines, paragraph
from fedvi.reports.view import View
from fedvi.web.assets import asset, embedded, filled, source

if TYPE_CHECKING:
    from fedvi.experiments.directory import Results


def page(outcome: Results, figures: list[Path] | None = None) -> str:
    """Return the page as text. figures: static figures to link to, relative to the run directory."""
    view = View(outcome)
    scripts = {"chart": asset("web/chart.js"), "shapes": asset("web/shapes.js"), "page": asset("reports/page/page.js")}
    parts = {
        "title": escape(view.title),
        "summary": escape(paragraph(outcome)),
        "cards": "\n".join(
            f"<div><dt>{escape(card.meaning)}</dt><dd>{escape(card.number)}</dd></div>" for card in headlines(outcome)
        ),
        "table_note": escape(table_note(view)),
        "table": table_html(outcome),
        "compact": compact_html(outcome),
        "rerun": _rerun(outcome),
        "config": escape(_settings(outcome)),
        "statements": _statements(view),
        "versions": escape(_versions(outcome)),
        "figures": _links(outcome, figures or []),
        "css": asset("web/base.css") + asset("reports/page/page.css"),
        "data": embedded(page_data(view)),
        "chart_js": scripts["chart"],
        "shapes_js": scripts["shapes"],
        "page_js": scripts["page"],
        "script_hashes": " ".join(source(text) for text in scripts.values()),
    }
    return filled(asset("reports/page/page.html"), parts)


def _settings(outcome: Results) -> str:
    path = outcome.path / "config.toml"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return json.dumps(outcome.config, indent=2, default=str, ensure_ascii=False)


def _rerun(outcome: Results) -> str:
    command = outcome.config.get("command")
    lines = [str(command)] if command else []
    if (outcome.path / "config.toml").is_file() or not command:
        lines.append("fedvi simulate config.toml")
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _statements(view: View) -> str:
    """Return what was promised, a block per base method; the same words are not repeated for every partition."""
    shown: dict[str, dict[tuple[str, str], list[str]]] = {}
    for partition in view.partitions:
        for method in view.methods(partition):
            if text := str(view.entry(partition, method).get("statement") or ""):
                texts = shown.setdefault(view.base(method), {})
                texts.setdefault((view.variant(method), text), []).append(partition)
    parts = ["<h3>What was promised</h3>"] if shown else []
    for base, texts in shown.items():
        body = ""
        for (variant, text), where in sorted(texts.items(), key=lambda item: item[0][0]):
            place = f"partition {', '.join(where)}" if len(view.partitions) > 1 else ""
            title = "; ".join(part for part in (variant, place) if part)
            body += f"<h3>{escape(title)}</h3><pre>{escape(text)}</pre>"
        parts.append(f"<details><summary>{escape(view.labels[base])}</summary>{body}</details>")
    return "\n".join(parts)


def _versions(outcome: Results) -> str:
    given = outcome.config.get("versions") or {}
    lines = [f"{name} {number}" for name, number in given.items()] if isinstance(given, dict) else [str(given)]
    return "\n".join([*lines, f"This page: fedvi {version('fedvi')}"])


def _links(outcome: Results, figures: list[Path]) -> str:
    links = []
    for path in figures:
        if path.suffix == ".svg":
            place = path.relative_to(outcome.path).as_posix()
            links.append(f'<li><a href="{escape(place)}">{escape(path.stem)}</a></li>')
    return f'<h3>Figures for print</h3><ul class="files">{"".join(links)}</ul>' if links else ""
