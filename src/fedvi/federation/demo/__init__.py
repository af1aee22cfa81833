"""A whole federation on one machine: real processes, real certificates, random kills, and a clock."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
