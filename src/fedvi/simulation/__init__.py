"""Simulation: many clients in one process; seeded, compiled, resumable."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
