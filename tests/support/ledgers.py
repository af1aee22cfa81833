"""A budget, an update and rows for tests of ledgers."""

from __future__ import annotations

import numpy as np

from fedvi import Budget
from fedvi.privacy.events import poisson_gaussian
from fedvi.privacy.ledger.overlap import rows_digest

UPDATE = poisson_gaussian(5.0, 0.02, 25, numbers=14)
BUDGET = Budget(0.5, 1e-4)
DATA = rows_digest(np.arange(6.0).reshape(3, 2), np.ones(3))
