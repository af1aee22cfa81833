"""The figure of a posterior's coefficients: one line per feature, with its credible interval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from fedvi.files import replacing
from fedvi.fitting.fitted import Fitted
from fedvi.fitting.records import Coefficient
from fedvi.web.pages import RC

SURE, UNSURE = "#0072B2", "#9A9A9A"


def draw_coefficients(fitted: Fitted, coefficients: Sequence[Coefficient], level: float, path: Path) -> None:
    """Write the figure, PNG, SVG or PDF by the file's name; intervals that hold zero are grey."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(7.5, 1.2 + 0.28 * len(coefficients)), layout="constrained")
        panel = figure.subplots()
        for place, each in enumerate(reversed(coefficients)):
            colour = UNSURE if each.low <= 0 <= each.high else SURE
            panel.plot([each.low, each.high], [place, place], color=colour, lw=2, solid_capstyle="butt")
            panel.plot(each.mean, place, "o", color=colour, ms=5)
        panel.axvline(0, color="#444444", lw=0.8)
        names = [f"{each.feature} *" if each.prior_decides else each.feature for each in reversed(coefficients)]
        panel.set_yticks(range(len(coefficients)), names)
        panel.set_ylim(-0.7, len(coefficients) - 0.3)
        panel.grid(axis="y", visible=False)
        panel.set_xlabel(f"{fitted.schema.target.unit}, per scale of the feature")
        decided = "; *: the prior decides" if any(each.prior_decides for each in coefficients) else ""
        panel.set_title(f"Coefficients with {level:.0%} credible intervals; grey: holds zero{decided}")
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)
