from fedvi.experiments.config import Experiment as Experiment
from fedvi.experiments.config import RunSpec as RunSpec
from fedvi.experiments.config import Variant as Variant
from fedvi.experiments.directory import Results as Results
from fedvi.experiments.directory import RunDirectory as RunDirectory
from fedvi.experiments.directory import read as read
from fedvi.experiments.papers import heatmap_experiment as heatmap_experiment
from fedvi.experiments.papers import paper_experiment as paper_experiment
