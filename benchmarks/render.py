"""The results of the bench for people: tables and figures. The same tables are in docs/speed.md."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator, StrMethodFormatter

from fedvi.web.pages import KNOWN, RC

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = list[list[str]]
"""A table: its head, then its lines."""

OTHERS = {
    "may one more update be made?": ("budget_check_us", "µs"),
    "charge the ledger, synced to disk": ("ledger_charge_us", "µs"),
    "epsilon of 69 updates, nothing remembered": ("pld_epsilon_ms", "ms"),
    "how many updates a budget admits, nothing remembered": ("plan_ms", "ms"),
    "fedvi --help": ("help_s", "s"),
    "import fedvi": ("import_s", "s"),
    "from fedvi import simulate": ("import_simulate_s", "s"),
    "import jax, for comparison": ("import_jax_s", "s"),
    "compile a first private simulation": ("first_compile_s", "s"),
    "peak memory of the steps": ("peak_memory_mb", "MB"),
}
"""What is not a step: accountant, cold start, memory."""

OWN, PEERS, FLOOR = KNOWN["fedvi"].colour, "#9AA5B1", "#4A4A4A"
COSTS = {
    "seconds": ("time per communication or step, seconds", KNOWN["fedvi"]),
    "setup_s": ("set-up, seconds", KNOWN["dp-pvi-strict"]),
    "memory_mb": ("memory, GB", KNOWN["dp-pvi"]),
}
"""Label and look of every kind of cost."""


def tables(results: dict[str, Any]) -> dict[str, Rows]:
    """Return all tables of a bench, by name."""
    made = {"machine": machine_rows, "steps": step_rows, "others": other_rows, "growth": growth_rows}
    return {name: rows(results) for name, rows in made.items() if name != "growth" or name in results}


def machine_rows(results: dict[str, Any]) -> Rows:
    """Return what was measured on."""
    machine = results["machine"]
    libraries = f"Python {machine['python']}, NumPy {machine['numpy']} with {machine['blas']}, JAX {machine['jax']}"
    return [
        ["", ""],
        ["processor", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']}, {machine['os']}"],
        ["libraries", libraries],
        ["measured", f"{results['settings']['rounds']} rounds of {len(results['steps'])} contenders, one thread"],
    ]


def step_rows(results: dict[str, Any]) -> Rows:
    """Return every contender with its time and ratios."""
    lines = [["one step", "µs", "over bare products", "of the best blocks", "over fedvi, private"]]
    for name, row in results["steps"].items():
        ratios = (f"{row[key]:.2f}" for key in ("over_blas", "over_blas_of_best", "over_fedvi"))
        lines.append([name, f"{row['us']:.1f}", *ratios])
    return lines


def other_rows(results: dict[str, Any]) -> Rows:
    """Return the costs beside steps."""
    return [["cost", "", ""], *([name, _digits(results[key]), unit] for name, (key, unit) in OTHERS.items())]


def growth_rows(results: dict[str, Any]) -> Rows:
    """Return every point of the growth curves, and the exponents under each axis."""
    lines = [["", "size", "ms per turn or step", "over bare products", "set-up s", "data MB", "memory MB"]]
    growth = results["growth"]
    for axis, curve in growth["axes"].items():
        lines += [_point(axis, point) for point in curve["points"]]
        powers = {name: f"^{power:.2f}" for name, power in curve["exponents"].items()}
        memory = powers.get("memory_mb", "")
        lines.append(["", "grows as size", powers["seconds"], "", powers.get("setup_s", ""), "", memory])
    if "wide" in growth:
        lines.append(_point("rows of 108", growth["wide"]))
    return lines


def _point(axis: str, point: dict[str, Any]) -> list[str]:
    ratio = f"{point['over_blas']:.2f}" if "over_blas" in point else ""
    numbers = (f"{point['data_bytes'] / 1e6:.0f}", f"{point['memory_mb']:.0f}")
    return [axis, f"{point['size']:,}", f"{1e3 * point['seconds']:.3g}", ratio, f"{point['setup_s']:.2f}", *numbers]


def csv_rows(results: dict[int, dict[str, Any]]) -> Rows:
    """Return what reading CSV files took, with ratios."""
    pandas = f"pandas {importlib.metadata.version('pandas')} read_csv"
    lines = [["rows", pandas, "fedvi encode_chunks", "over pandas", "fedvi schema infer", "over pandas"]]
    lines[0] += ["peak, pandas", "peak, encode", "over pandas"]
    for rows, found in results.items():
        seconds, peaks = ({name: found[name][key] for name in found} for key in ("seconds", "peak_bytes"))
        line = [f"{rows:,}", f"{seconds['pandas']:.2f} s"]
        for name in ("fedvi", "infer"):
            line += [f"{seconds[name]:.2f} s", f"{seconds[name] / seconds['pandas']:.2f}"]
        line += [f"{peaks[name] / 2**20:.0f} MiB" for name in ("pandas", "fedvi")]
        lines.append([*line, f"{peaks['fedvi'] / peaks['pandas']:.2f}"])
    return lines


def _digits(value: float) -> str:
    """Return three digits, never as a power of ten."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def write_figures(results: dict[str, Any], directory: Path) -> list[Path]:
    """Write bench.png, and growth.png if growth was measured; return their paths."""
    written = []
    with mpl.rc_context(RC):
        for name, draw in {"bench": draw_steps, "growth": draw_growth}.items():
            if name == "bench" or name in results:
                written.append(directory / f"{name}.png")
                draw(results).savefig(written[-1], dpi=150, metadata={"Software": None})
    return written


def draw_steps(results: dict[str, Any]) -> Figure:
    """Draw a bar for every contender, in units of the floor, fastest first."""
    rows = dict(sorted(results["steps"].items(), key=lambda item: item[1]["over_blas"]))
    figure = Figure(figsize=(8, 0.7 + 0.42 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    ratios = {name: row["over_blas"] for name, row in rows.items()}
    colours = [OWN if name.startswith("fedvi") else FLOOR if ratios[name] == 1 else PEERS for name in rows]
    bars = axes.barh(list(rows), list(ratios.values()), color=colours, height=0.66)
    labels = [f"{_digits(ratios[name])}x   {_digits(row['us'])} µs" for name, row in rows.items()]
    axes.bar_label(bars, labels, padding=5)
    axes.set(xscale="log", xlim=(0.8, 6 * max(ratios.values())))
    axes.set_xlabel("times the four bare products of a step with 79 rows and 108 features; logarithmic")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}x"))
    return figure


def draw_growth(results: dict[str, Any]) -> Figure:
    """Draw one panel per axis: time, set-up and memory against size, each with the slope of its upper half."""
    panels = results["growth"]["axes"]
    figure = Figure(figsize=(2.4 * len(panels), 3.4), layout="constrained")
    every = figure.subplots(1, len(panels), sharey=True)
    for axes, (name, curve) in zip(every, panels.items(), strict=True):
        _panel(axes, name, curve)
    every[0].set_ylabel("seconds, or GB")
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _panel(axes: Axes, name: str, curve: dict[str, Any]) -> None:
    sizes = np.array([point["size"] for point in curve["points"]], float)
    for cost, (label, look) in COSTS.items():
        if cost not in curve["exponents"] and cost == "setup_s":
            continue  # where nothing is set up but the program itself
        unit = 1e-3 if cost == "memory_mb" else 1.0
        values = unit * np.array([point[cost] for point in curve["points"]])
        axes.plot(sizes, values, color=look.colour, marker=look.marker, markersize=5, label=label)
        if cost in curve["exponents"]:
            slope = f" ^{curve['exponents'][cost]:.2f}"
            axes.annotate(slope, (sizes[-1], values[-1]), (4, -4), textcoords="offset points", color=look.colour)
    axes.set(xscale="log", yscale="log", title=name, xlim=(sizes[0] / 2, sizes[-1] * (sizes[-1] / sizes[0]) ** 0.45))
    for axis, labels in ((axes.xaxis, EngFormatter(sep="")), (axes.yaxis, StrMethodFormatter("{x:g}"))):
        axis.set_major_formatter(labels)
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(LogLocator(numticks=5))
