"""The checker behind jaxtyping's import hook (see conftest.py): shapes and dtypes of arrays, nothing else.

Annotations without an array are mypy's business. Fields of dataclasses are not checked: JAX makes pytrees with leaves
that are no arrays, and stacks them over clients and runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, GenericAlias
from typing import Any, Self, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

import fedvi

WITH_INTEGERS = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float, as for mypy


def modules() -> list[str]:
    """Return the modules of fedvi that have annotations of jaxtyping; fedvi itself may be imported already."""
    source = Path(fedvi.__path__[0])
    paths = [path for path in source.rglob("*.py") if "from jaxtyping import" in path.read_text()]
    return [".".join(["fedvi", *path.relative_to(source).with_suffix("").parts]) for path in paths]


def checked(function: FunctionType) -> Callable[..., Any]:
    """Return the function, which now refuses arrays of other shapes or dtypes than its annotations say."""
    hints = {name: _without_self(hint) for name, hint in function.__annotations__.items() if has_array(hint)}
    if not hints or function.__name__ == "__init__":
        return function
    function.__annotations__ = hints
    return WITH_INTEGERS(function)


def has_array(hint: Any) -> bool:
    """Tell whether jaxtyping has something to check in an annotation."""
    return (inspect.isclass(hint) and issubclass(hint, AbstractArray)) or any(map(has_array, get_args(hint)))


def _without_self(hint: Any) -> Any:
    """Return tuples without `Self`, which beartype knows in classes only that it decorates whole."""
    parts = get_args(hint)
    return hint if Self not in parts else GenericAlias(tuple, tuple(Any if part is Self else part for part in parts))
