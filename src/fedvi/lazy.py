"""Packages whose names are imported on first use, so that `--help` is fast and commands without numerics load no JAX.

A package lists its public names once, as imports in its `__init__.pyi`. Type checkers read that file, and so does
`lazily`. A package exports no name that is also the name of one of its modules: the module would hide it.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_homes: dict[str, dict[str, str]] = {}


def home_of(module: str, name: str) -> str:
    """Return the module that defines a name which a package exports: importing from there loads no JAX."""
    importlib.import_module(module)
    return _homes.get(module, {}).get(name, module)


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package that has an `__init__.pyi`."""
    module = sys.modules[package]
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = _homes[package] = {
        alias.name: str(node.module) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(homes[name]), name)
        from fedvi.pytree import is_pytree, register_waiting

        if is_pytree(found):
            register_waiting()  # whoever asks for the class may give it to `jax.jit`
        setattr(module, name, found)
        return found

    return get, lambda: sorted({*vars(module), *homes}), sorted(homes)
