"""The client's side: local problem, solver, algorithm, one update."""

from fedvi.local.algorithm import PVI, Algorithm, CentralisedVI, Committee, GlobalVI
from fedvi.local.client import ClientState, Release, client_step, draw, init_client, update
from fedvi.local.noise_aware import AveragedQuadratics, NoiseAwarePVI
from fedvi.local.private import PrivateClient
from fedvi.local.problem import Draws, Problem, Public
from fedvi.local.sampling import FullBatch, Minibatch
from fedvi.local.solver import Exact, GradientSteps, Solver, adagrad

__all__ = [
    "PVI",
    "Algorithm",
    "AveragedQuadratics",
    "CentralisedVI",
    "ClientState",
    "Committee",
    "Draws",
    "Exact",
    "FullBatch",
    "GlobalVI",
    "GradientSteps",
    "Minibatch",
    "NoiseAwarePVI",
    "PrivateClient",
    "Problem",
    "Public",
    "Release",
    "Solver",
    "adagrad",
    "client_step",
    "draw",
    "init_client",
    "update",
]
