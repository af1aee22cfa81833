"""Privacy: mechanisms, accounting, budgets and the ledger. Names are imported on first use: budgets need no JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvi.lazy import lazily

if TYPE_CHECKING:
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

_HOMES = ("accounting", "budget", "ledger", "mechanism", "client_level")
"""Where the names live, lightest first."""

__getattr__, __dir__ = lazily("fedvi.privacy", _HOMES, __all__)
