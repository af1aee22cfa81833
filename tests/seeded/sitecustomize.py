"""Makes sites of a federation draw from the streams of a simulation; for test_real_federation.py, on PYTHONPATH only.

Python imports this file at its start. fedvi has no switch for it, on purpose: whoever can choose a site's noise can
take its privacy away.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TARGET = "fedvi.privacy.randomness"
SEED = 11
SITES = ("north", "south")
UPDATE = 1  # the purpose of a stream that fedvi.federation.randomness calls so
numbers = itertools.count(1)


def simulated_generator() -> Any:
    """Return the randomness of this process's next update, as the simulation has it."""
    from fedvi.federation.randomness import stream

    site = Path(os.environ["FEDVI_FLARE_FOLDER"]).parent.name
    return stream(SEED, UPDATE, SITES.index(site), next(numbers))


class Loader(importlib.abc.Loader):
    """Loads the module as it is, and replaces one function."""

    def __init__(self, real: importlib.abc.Loader):
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.real.exec_module(module)
        module.secure_generator = simulated_generator  # type: ignore[attr-defined]


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != TARGET:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


if "FEDVI_FLARE_FOLDER" in os.environ:  # in processes of the engine only
    sys.meta_path.insert(0, Finder())
