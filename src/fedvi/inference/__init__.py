"""Inference: the client's update, the server's step, and the algorithms that choose the local problem."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
