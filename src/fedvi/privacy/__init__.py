"""Privacy: mechanisms, accounting, budgets and the ledger."""

from fedvi.privacy.accounting import epsilon
from fedvi.privacy.budget import Budget, Plan, calibrate, noise_for
from fedvi.privacy.client_level import ClientLevel
from fedvi.privacy.ledger import Ledger
from fedvi.privacy.mechanism import Batch, FullBatchGaussian, GaussianMechanism, Mechanism, PoissonGaussian

__all__ = [
    "Batch",
    "Budget",
    "ClientLevel",
    "FullBatchGaussian",
    "GaussianMechanism",
    "Ledger",
    "Mechanism",
    "Plan",
    "PoissonGaussian",
    "calibrate",
    "epsilon",
    "noise_for",
]
