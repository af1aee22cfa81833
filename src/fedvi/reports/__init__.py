"""Reports: a run directory becomes a table, figures and one self-contained page."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
