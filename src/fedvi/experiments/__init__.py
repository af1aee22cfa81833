"""Experiments as configuration: the paper and others; runs side by side into a directory that can be resumed."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
