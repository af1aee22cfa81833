"""The live page as one text, and the policy it is sent with: its own style and scripts by their hashes, nothing else.

What the page shows it asks of its own server, again and again; none of it is in the text.
"""

from __future__ import annotations

from functools import cache

from fedvi.web.pages import DASHES, KNOWN, SPARE, asset, embedded, filled, source

SCRIPTS = (
    "web/chart.js",
    "web/shapes.js",
    "federation/page/status.js",
    "federation/page/charts.js",
    "federation/page/page.js",
)
INK = "#000000"


@cache
def live_page() -> tuple[str, str]:
    """Return the page and its Content-Security-Policy."""
    css = asset("web/base.css") + asset("federation/page/page.css")
    scripts = [asset(name) for name in SCRIPTS]
    colours = [look.colour for look in reversed(KNOWN.values()) if look.colour != INK] + SPARE
    parts = {
        "css": css,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
        "looks": embedded({"colours": colours, "dashes": DASHES}),
    }
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(map(source, scripts)),
        "style-src": source(css),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return filled(asset("federation/page/page.html"), parts), "; ".join(
        f"{name} {allowed}" for name, allowed in policy.items()
    )
