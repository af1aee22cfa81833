"""Names of a package that are imported when they are first used: help stays instant, and who needs no JAX gets none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any


def lazily(
    package: str, homes: Sequence[str], names: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names live in modules below it.

    homes: the modules, in the order in which they are looked through.
    """

    def get(name: str) -> Any:
        if name in names:
            for home in homes:
                module = importlib.import_module(f"{package}.{home}")
                if hasattr(module, name):
                    found = getattr(module, name)
                    setattr(sys.modules[package], name, found)
                    return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: names
