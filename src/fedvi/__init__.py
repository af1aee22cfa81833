"""fedvi: federated, differentially private Bayesian learning by partitioned variational inference.

    server:  q = prior * t_1 * ... * t_M
    client:  cavity = q / t_m;  q' = argmin KL(q' || cavity * likelihood_m);  t_m' = t_m * (q' / q)^damping
    server:  q <- q * t_m' / t_m

Start with `simulate`.
"""

from fedvi.errors import (
    FedviError,
    ImproperError,
    InputError,
    ReleaseRefused,
    ResumeError,
    SimulationInterrupted,
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
)
from fedvi.gaussian import FullGaussian, Gaussian
from fedvi.local import (
    PVI,
    Algorithm,
    CentralisedVI,
    ClientState,
    Committee,
    Exact,
    FullBatch,
    GlobalVI,
    GradientSteps,
    Minibatch,
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

__version__ = "0.1.0.dev0"

__all__ = [
    "PVI",
    "Algorithm",
    "Asynchronous",
    "Bernoulli",
    "Categorical",
    "CentralisedVI",
    "Checkpoint",
    "ClientState",
    "Committee",
    "Coordinator",
    "CustomModel",
    "EventDriven",
    "Exact",
    "FedviError",
    "FullBatch",
    "FullGaussian",
    "GaussHermite",
    "Gaussian",
    "GlobalVI",
    "GradientSteps",
    "History",
    "ImproperError",
    "InputError",
    "LinearPredictorModel",
    "LinearRegression",
    "LogisticRegression",
    "Minibatch",
    "Model",
    "MonteCarlo",
    "Normal",
    "Paced",
    "Release",
    "ReleaseRefused",
    "Result",
    "ResumeError",
    "RoundRobin",
    "Schedule",
    "SimulationInterrupted",
    "Synchronous",
    "Turn",
    "__version__",
    "adagrad",
    "evaluate",
    "simulate",
]
