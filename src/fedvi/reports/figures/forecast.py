"""The figure of a forecast: how wide the intervals will be, and what more rows or a larger epsilon would buy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from fedvi.files import replacing
from fedvi.inference.forecasting import Forecast, forecast
from fedvi.tables.schema import Schema
from fedvi.web.pages import RC

NOISE, ROWS_ALONE, OTHERS = "#D55E00", "#0072B2", ("#56B4E9", "#0072B2", "#000000")
MOST_SHOWN = 20
"""Features that are shown, the widest first."""

TIMES, FACTORS = (0.5, 1, 2), (0.1, 0.3, 1, 3, 10)
"""Of all rows, one line each; of the planned epsilons, along the axis."""


def draw_forecast(
    schema: Schema, planned: Forecast, without: Forecast, settings: Mapping[str, Any], level: float, path: Path
) -> None:
    """Write the figure, PNG, SVG or PDF by the file's name.

    without: the same without noise. settings: of `forecast`, for the forecasts of other rows and epsilons.
    """
    order = np.argsort(-planned.half_widths(level))[:MOST_SHOWN][::-1]
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(10, max(3.6, 1.2 + 0.26 * len(order))), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
        for place, feature in enumerate(order):
            for found, width, colour in ((planned, 5, NOISE), (without, 9, ROWS_ALONE)):
                half = found.half_widths(level)[feature]
                left.plot([-half, half], [place, place], color=colour, lw=width, solid_capstyle="butt")
        left.plot([], [], color=ROWS_ALONE, lw=9, label="without noise")
        left.plot([], [], color=NOISE, lw=5, label="as planned")
        left.axvline(0, color="#444444", lw=0.8)
        left.set_yticks(range(len(order)), [planned.features[feature] for feature in order])
        left.set(ylim=(-0.7, len(order) - 0.3), title=f"{level:.0%} intervals of coefficients, around their middle")
        left.set_xlabel(f"{schema.target.unit}, per scale of the feature")
        left.grid(axis="y", visible=False)
        left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        middle = float(np.mean(planned.epsilons))
        for times, colour in zip(TIMES, OTHERS, strict=True):
            rows = [max(2, round(times * count)) for count in planned.rows]
            budgets = [[factor * epsilon for epsilon in planned.epsilons] for factor in FACTORS]
            halves = [forecast(schema, rows, each, draws=3, **settings).typical(level) for each in budgets]
            own = "the planned rows" if times == 1 else f"{times:g} times the rows"
            right.loglog([factor * middle for factor in FACTORS], halves, "o-", ms=4, color=colour, label=own)
        right.axhline(without.typical(level), color="#999999", ls="--", lw=1, label="planned rows, no noise")
        right.plot([middle], [planned.typical(level)], "D", color=NOISE, ms=8, label="as planned")
        right.set(xlabel="epsilon of a site", ylabel=f"typical {level:.0%} interval, +-", title="What it would buy")
        for axis in (right.xaxis, right.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FormatStrFormatter("%g"))
            axis.set_minor_locator(NullLocator())
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)
