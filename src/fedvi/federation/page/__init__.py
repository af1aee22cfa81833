"""The live page of a running federation: what the coordinator knows, shown in a browser."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
