"""Families of distributions: factors, posteriors, and the algebra of natural parameters."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
