"""Privacy: mechanisms, noise on a lattice, accounting, budgets and the ledger."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
