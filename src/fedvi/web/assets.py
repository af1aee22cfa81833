"""What pages are made of: templates, styles and scripts that come with the package, put into one text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files


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
