"""The experiment of Sharma et al. (2019), from `sharma2019.toml`, or the parts of it that are asked for."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fedvi.checks import one_of, unknown
from fedvi.experiments.config import Experiment

RULES = {
    "published": ("pvi", "global-vi", "dp-pvi"),
    "strict": ("pvi", "global-vi", "dp-pvi-strict", "fedvi", "fedvi-splines"),
    "both": ("pvi", "global-vi", "dp-pvi", "dp-pvi-strict", "fedvi", "fedvi-splines"),
}
"""Methods of each rule: the paper's way to stop and to account, ours, or both."""

PARTITIONS = ("A", "B", "C")
GRID, GRID_METHODS, GRID_SEEDS = "grid", ("pvi", "global-vi"), 3
QUICK: dict[str, dict[str, Any]] = {
    "pvi": {"communications": 300},
    "global-vi": {"communications": 1000, "evaluate_every": 50},
    "dp-pvi-strict": {"until": 30},
}
QUICK_EPSILON = 0.5
QUICK_PARTITIONS = ("C",)


def paper_config() -> dict[str, Any]:
    """Return the whole of `sharma2019.toml`."""
    return tomllib.loads((resources.files("fedvi.experiments") / "sharma2019.toml").read_text(encoding="utf-8"))


def paper_experiment(
    *,
    rule: str = "both",
    partitions: Sequence[str] = (),
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
    seeds: Sequence[int] = (),
    quick: bool = False,
    command: str = "fedvi reproduce",
) -> Experiment:
    """Return the paper's experiment, or a part of it.

    partitions: A, B and C if none is named. methods: all of the rule's if none is named. epsilons: budgets, instead
    of the paper's.
    quick: the paper's main partition C, one seed, one budget and few communications: to see that everything works,
    not to compare numbers.
    command: what people type to run it, for the report.
    """
    one_of("rule", rule, tuple(RULES))
    config = {"command": command, **paper_config()}
    named = [name for name in config["partition"] if name != GRID]
    for role, given, known in (("partition", partitions, named), ("method", methods, config["method"])):
        for name in given:
            if name not in known:
                raise unknown(role, name, known)
    partitions, wanted = partitions or (QUICK_PARTITIONS if quick else PARTITIONS), methods or RULES[rule]
    config["partition"] = {name: config["partition"][name] for name in dict.fromkeys(partitions)}
    config["method"] = {name: table for name, table in config["method"].items() if name in wanted}
    if quick:
        for name, few in QUICK.items():
            config["method"].get(name, {}).update(few)
        epsilons, seeds = epsilons or [QUICK_EPSILON], seeds or [1]
    if epsilons:
        for table in config["method"].values():
            if "privacy" in table:
                table["privacy"]["epsilon"] = list(dict.fromkeys(float(epsilon) for epsilon in epsilons))
    if seeds:
        config["seeds"] = list(seeds)
    return Experiment.of(config)


def heatmap_experiment(seeds: Sequence[int] = (), command: str = "fedvi reproduce --heatmap") -> Experiment:
    """Return PVI and global VI over the paper's grid of client sizes and classes."""
    config = {"command": command, **paper_config()}
    config["title"] += ": who holds how much of what"
    config["partition"] = {GRID: config["partition"][GRID]}
    config["method"] = {name: config["method"][name] for name in GRID_METHODS}
    config["seeds"] = list(seeds) or config["seeds"][:GRID_SEEDS]
    del config["reference"]
    return Experiment.of(config)
