"""Tables: a table and a public schema become features x and a target y."""

from __future__ import annotations

from fedvi.lazy import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
