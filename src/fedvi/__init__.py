"""fedvi: federated, differentially private Bayesian learning by partitioned variational inference.

    server:  q = prior * t_1 * ... * t_M
    client:  cavity = q / t_m;  q' = argmin KL(q' || cavity * likelihood_m);  t_m' = t_m * (q' / q)^damping
    server:  q <- q * t_m' / t_m

Start with `fit` for tables, with `simulate` for everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvi.compiling import compile_loops_whole
from fedvi.lazy import lazily

compile_loops_whole()

if TYPE_CHECKING:
    from fedvi.data import Schema, infer_schema
    from fedvi.errors import (
        BudgetClosed,
        FedviError,
        ImproperError,
        InputError,
        LedgerError,
        ReleaseRefused,
        ResumeError,
        SimulationInterrupted,
        SimulationsFailed,
    )
    from fedvi.federation import (
        Asynchronous,
        Checkpoint,
        Coordinator,
        EventDriven,
        History,
        Paced,
        Result,
        RoundRobin,
        Schedule,
        Synchronous,
        Turn,
        simulate,
        simulate_all,
    )
    from fedvi.fitting import Fitted, fit
    from fedvi.gaussian import FullGaussian, Gaussian, NoisyGaussian
    from fedvi.local import (
        PVI,
        Algorithm,
        AveragedQuadratics,
        CentralisedVI,
        ClientState,
        Committee,
        Exact,
        FullBatch,
        GlobalVI,
        GradientSteps,
        Minibatch,
        NoiseAwarePVI,
        PrivateClient,
        Release,
        adagrad,
    )
    from fedvi.metrics import evaluate
    from fedvi.models import (
        Bernoulli,
        Categorical,
        CustomModel,
        GaussHermite,
        LinearPredictorModel,
        LinearRegression,
        LogisticRegression,
        Model,
        MonteCarlo,
        Normal,
    )
    from fedvi.privacy import Budget, ClientLevel, FullBatchGaussian, Ledger, PoissonGaussian, calibrate

__version__ = "0.1.0.dev0"

__all__ = [
    "PVI",
    "Algorithm",
    "Asynchronous",
    "AveragedQuadratics",
    "Bernoulli",
    "Budget",
    "BudgetClosed",
    "Categorical",
    "CentralisedVI",
    "Checkpoint",
    "ClientLevel",
    "ClientState",
    "Committee",
    "Coordinator",
    "CustomModel",
    "EventDriven",
    "Exact",
    "FedviError",
    "Fitted",
    "FullBatch",
    "FullBatchGaussian",
    "FullGaussian",
    "GaussHermite",
    "Gaussian",
    "GlobalVI",
    "GradientSteps",
    "History",
    "ImproperError",
    "InputError",
    "Ledger",
    "LedgerError",
    "LinearPredictorModel",
    "LinearRegression",
    "LogisticRegression",
    "Minibatch",
    "Model",
    "MonteCarlo",
    "NoiseAwarePVI",
    "NoisyGaussian",
    "Normal",
    "Paced",
    "PoissonGaussian",
    "PrivateClient",
    "Release",
    "ReleaseRefused",
    "Result",
    "ResumeError",
    "RoundRobin",
    "Schedule",
    "Schema",
    "SimulationInterrupted",
    "SimulationsFailed",
    "Synchronous",
    "Turn",
    "__version__",
    "adagrad",
    "calibrate",
    "evaluate",
    "fit",
    "infer_schema",
    "simulate",
    "simulate_all",
]

_HOMES = ("errors", "gaussian", "models", "data", "privacy", "local", "metrics", "federation", "fitting")
"""Where the names live, lightest first."""

__getattr__, __dir__ = lazily("fedvi", _HOMES, __all__)
