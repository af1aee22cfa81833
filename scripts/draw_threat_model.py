"""Draws docs/images/threat_model.png: who holds what, what crosses which border, and who may be an enemy.

python scripts/draw_threat_model.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

SAFE, ENEMY, INK = "#0072B2", "#D55E00", "#222222"
OUT = Path(__file__).parent.parent / "docs" / "images" / "threat_model.png"


def box(
    axes: Axes, x: float, y: float, lines: list[str], colour: str, width: float = 2.9, height: float = 1.25
) -> None:
    """Draw a party: its name, then what it holds."""
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0.02,rounding_size=0.12"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, fc=colour + "18", ec=colour, lw=1.6))
    axes.text(x, y + 0.32, lines[0], ha="center", va="center", weight="bold", color=colour, size=10)
    axes.text(x, y - 0.18, "\n".join(lines[1:]), ha="center", va="center", color=INK, size=8.5)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw a message."""
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=INK, lw=1.4))


def main() -> None:
    """Draw."""
    figure, axes = plt.subplots(figsize=(9.2, 5.6), layout="constrained")
    axes.set(xlim=(-5.4, 5.4), ylim=(-3.45, 3.3), aspect="equal")
    axes.axis("off")
    box(
        axes,
        0,
        0,
        ["Coordinator, not trusted", "answers, q, declared budgets", "may keep and misuse all of it"],
        ENEMY,
        3.3,
    )
    for x, y, name in ((-3.6, 2.2, "Site 1"), (3.6, 2.2, "Site 2")):
        box(axes, x, y, [name, "rows and ledger never leave;", "noise is added here"], SAFE)
    box(
        axes,
        -3.6,
        -2.2,
        ["Site 3, an enemy in disguise", "gets the questions;", "may send any answer"],
        ENEMY,
        3.2,
    )
    box(axes, 3.6, -2.2, ["Whoever gets the model", "q, or predictions,", "and anything else they know"], ENEMY)
    for x, y in ((-1, 1), (1, 1), (-1, -1)):
        at_site, at_coordinator = (2.45 * x, 1.52 * y), (1.25 * x, 0.68 * y)
        arrow(axes, at_site, at_coordinator)
        arrow(axes, (at_coordinator[0] + 0.4 * x, at_coordinator[1]), (at_site[0] + 0.4 * x, at_site[1]))
    arrow(axes, (1.4, -0.68), (2.6, -1.52))
    axes.text(
        0,
        1.95,
        "to the coordinator: an answer, paid for in\nthe site's ledger before its noise was drawn\nback: a question",
        ha="center",
        size=8.5,
    )
    axes.text(
        0,
        -1.75,
        "signed messages over TLS: who is who,\nand nothing changed on its way",
        ha="center",
        va="center",
        size=8.5,
        color=INK,
    )
    axes.text(
        0,
        -3.1,
        "An eavesdropper who breaks TLS sees questions and answers: they are private already.",
        ha="center",
        size=9,
        color=ENEMY,
    )
    axes.text(-5.3, 3.05, "blue: trusted by its own people only", color=SAFE, size=8.5)
    axes.text(5.3, 3.05, "orange: may be an adversary, also all together", color=ENEMY, size=8.5, ha="right")
    figure.savefig(OUT, dpi=130)
    print(f"Picture: {OUT.relative_to(Path.cwd()) if OUT.is_relative_to(Path.cwd()) else OUT}")


if __name__ == "__main__":
    main()
