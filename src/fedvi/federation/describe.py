"""Settings as text, to tell whether two runs are the same run.

    describe(PVI(damping=0.5))  ->  "PVI(solver=GradientSteps(steps=20, ...), damping=0.5, repair=True)"

Unlike `repr`, the text is the same in every process: functions go by their names and arrays by a digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import jax
import numpy as np


def describe(value: Any) -> str:
    """Return the settings in `value` as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f"{field.name}={describe(getattr(value, field.name))}" for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, jax.Array | np.ndarray):
        return repr(value.item()) if value.ndim == 0 else f"{value.dtype}{list(value.shape)} {digest(value)}"
    if callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return repr(value)


def digest(*arrays: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the arrays' bytes."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]
