"""Changes a module of fedvi at the moment when it is loaded."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]


def change_when_loaded(changes: dict[str, Change]) -> None:
    """Call `changes[name]` with the module of that name when it has been loaded."""
    sys.meta_path.insert(0, Finder(changes))


class Loader(importlib.abc.Loader):
    """Loads a module as it is, and changes it."""

    def __init__(self, real: importlib.abc.Loader, change: Change):
        self.real, self.change = real, change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.real.exec_module(module)
        self.change(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be changed."""

    def __init__(self, changes: dict[str, Change]):
        self.changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader, self.changes[name])
        return spec
