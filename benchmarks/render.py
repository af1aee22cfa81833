"""The results of the bench for people: rows of text, and tables of Rich made of them.

The same rows make the tables in docs/speed.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

Rows = list[list[str]]
"""A table: its head, then its lines."""


def step_rows(results: dict[str, Any]) -> Rows:
    """Return every contender with its time and ratios."""
    lines = [["one step", "µs", "over bare products", "of the best blocks", "over fedvi, private"]]
    for name, row in results["steps"].items():
        ratios = (f"{row[key]:.2f}" for key in ("over_blas", "over_blas_of_best", "over_fedvi"))
        lines.append([name, f"{row['us']:.1f}", *ratios])
    return lines


def other_rows(results: dict[str, Any]) -> Rows:
    """Return what is not a step: accountant, cold start, memory."""
    named = {
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
    return [["cost", "", ""], *([name, digits(results[key]), unit] for name, (key, unit) in named.items())]


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


def digits(value: float) -> str:
    """Return three digits, never as a power of ten."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _point(axis: str, point: dict[str, Any]) -> list[str]:
    ratio = f"{point['over_blas']:.2f}" if "over_blas" in point else ""
    numbers = (f"{point['data_bytes'] / 1e6:.0f}", f"{point['memory_mb']:.0f}")
    return [axis, f"{point['size']:,}", f"{1e3 * point['seconds']:.3g}", ratio, f"{point['setup_s']:.2f}", *numbers]


def render(results: dict[str, Any]) -> list[Table]:
    """Return the tables for a terminal."""
    machine = results["machine"]
    tables = [
        _table(step_rows(results), f"One local step on one thread of {machine['cpu']}"),
        _table(other_rows(results), "Everything else"),
    ]
    if "growth" in results:
        tables.append(_table(growth_rows(results), "How cost grows"))
    return tables


def _table(rows: Rows, title: str) -> Table:
    from rich.table import Table

    head, *lines = rows
    table = Table(title=title)
    for index, name in enumerate(head):
        table.add_column(name, justify="left" if index == 0 else "right")
    for line in lines:
        table.add_row(*line)
    return table
