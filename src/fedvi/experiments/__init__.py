"""Experiments as configuration: the paper's and anybody's; runs side by side into a directory that can be resumed."""

from fedvi.experiments.config import Experiment, RunSpec, Variant
from fedvi.experiments.directory import Outcome, RunDirectory, read
from fedvi.experiments.execute import execute
from fedvi.experiments.paper import heatmap_experiment, paper_experiment

__all__ = [
    "Experiment",
    "Outcome",
    "RunDirectory",
    "RunSpec",
    "Variant",
    "execute",
    "heatmap_experiment",
    "paper_experiment",
    "read",
]
