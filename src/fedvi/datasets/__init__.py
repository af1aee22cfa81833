"""Data sets to try things on, and partitions: which row belongs to which client."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
