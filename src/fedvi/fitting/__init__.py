"""From a schema and tables to a posterior that predicts: fit, posterior files, predictions, coefficients."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
