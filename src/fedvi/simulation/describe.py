"""Settings as text, to tell whether two runs are the same run.

    describe(PVI(damping=0.5))  ->  "PVI(solver=GradientSteps(steps=20, ...), damping=0.5, repair=True)"

Unlike `repr`, the text is the same in every process, and differs where behaviour may differ: arrays go by a digest, and
functions by their name and a digest of their code, defaults and what they close over.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from types import CodeType, ModuleType
from typing import Any

import jax
import numpy as np


def describe(value: Any) -> str:
    """Return the settings in `value` as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _with_fields(value, {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return repr(value.item()) if value.ndim == 0 else f"{value.dtype}{list(value.shape)} {digest(value)}"
    if isinstance(value, functools.partial):
        return f"partial({describe(value.func)}, {describe(value.args)}, {describe(value.keywords)})"
    if isinstance(value, set | frozenset):
        return describe(sorted(map(describe, value)))
    if isinstance(value, tuple | list):
        return f"[{', '.join(describe(entry) for entry in value)}]"
    if isinstance(value, dict):
        return _with_fields(value, value)
    if isinstance(value, type | ModuleType):
        return value.__name__
    if hasattr(value, "__code__"):
        return _function(value)
    if hasattr(value, "__wrapped__"):
        return describe(value.__wrapped__)
    if getattr(type(value), "__repr__", None) is object.__repr__:
        return _with_fields(value, getattr(value, "__dict__", {}))
    return repr(value)


def digest(*arrays: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the arrays' bytes."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()[:16]


def _with_fields(value: Any, fields: dict[str, Any]) -> str:
    return f"{type(value).__name__}({', '.join(f'{name}={describe(field)}' for name, field in fields.items())})"


def _function(function: Any) -> str:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    behaviour = _code(function.__code__) + describe([cells, function.__defaults__, function.__kwdefaults__])
    return f"{function.__module__}.{function.__qualname__} {hashlib.sha256(behaviour.encode()).hexdigest()[:8]}"


def _code(code: CodeType) -> str:
    constants = [
        _code(constant) if isinstance(constant, CodeType) else describe(constant) for constant in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
