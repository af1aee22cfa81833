"""How pages and figures look, and how a page is put together from templates, styles and scripts of the package.

One colour and marker per method, one line style per setting, the same in every figure. Colours are the colour-blind
safe palette of Okabe and Ito. Known methods always look the same; others take what is left, in the order in which they
come. Markers and line styles repeat what colours say, so figures work in grey too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle
from typing import Any

OVER = "#C1121F"
"""The colour of what should not be: epsilon beyond a budget."""


@dataclass(frozen=True)
class Look:
    """colour: of lines and markers. marker: in matplotlib's letters."""

    colour: str
    marker: str


KNOWN = {
    "pvi": Look("#000000", "o"),
    "global-vi": Look("#CC79A7", "X"),
    "dp-pvi": Look("#D55E00", "s"),
    "dp-pvi-strict": Look("#0072B2", "D"),
    "fedvi": Look("#009E73", "^"),
    "fedvi-splines": Look("#E69F00", "P"),
}
SPARE = ["#56B4E9", "#7F7F7F", "#882255", "#117733", "#332288", "#AA4499", "#999933"]
SPARE_MARKERS = ["v", "<", ">", "p", "h", "*", "d"]
DASHES: list[tuple[float, ...]] = [(), (5, 2), (1, 1.5), (5, 1.5, 1, 1.5), (8, 3), (3, 1, 1, 1, 1, 1)]
"""On and off lengths in units of the line's width; the empty one is a solid line."""

SMALL_CLIENTS, LARGE_CLIENTS = "#E69F00", "#0072B2"

RC: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.titlesize": 11,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "fedvi",
    "text.parse_math": False,  # names are names: a dollar sign in one is not the start of a formula
}
"""Settings of matplotlib for every figure; the fixed salt makes the ids in SVG files the same every time."""


def looks(bases: Iterable[str]) -> dict[str, Look]:
    """Return a look for every base method; known methods have their own, others take what is left, in order.

    >>> looks(["mine", "pvi"])["pvi"].colour
    '#000000'
    >>> looks(["mine", "pvi"])["mine"].colour
    '#56B4E9'
    """
    others = [base for base in dict.fromkeys(bases) if base not in KNOWN]
    spare = zip(others, cycle(SPARE), cycle(SPARE_MARKERS), strict=False)
    return KNOWN | {base: Look(colour, marker) for base, colour, marker in spare}


def order(base: str) -> int:
    """Return the rank of a base method: known ones in the order of the paper's table, others after them."""
    return list(KNOWN).index(base) if base in KNOWN else len(KNOWN)


def dashes(variants: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return a line style for every variant of methods (an epsilon, a swept setting): solid for the last.

    >>> dashes(["0.5", "1"])
    {'0.5': (5, 2), '1': ()}
    """
    return {name: DASHES[(len(variants) - 1 - index) % len(DASHES)] for index, name in enumerate(variants)}


def asset(name: str) -> str:
    """Return the text of a file that comes with fedvi, such as `web/base.css`."""
    return files("fedvi").joinpath(name).read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with its parts, which are not looked at again.

    >>> filled("<p>{{a}}, {{b}}</p>", {"a": "{{b}}", "b": "two"})
    '<p>{{b}}, two</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def source(text: str) -> str:
    """Return what a page's policy calls a script or style that it allows: its hash."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def embedded(data: object) -> str:
    """Return JSON that is safe inside a script element: no character that HTML gives a meaning to.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
