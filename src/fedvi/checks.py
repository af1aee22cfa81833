"""Checks of settings that people type: each names the setting, the value and what was expected.

Settings live in pytrees, and JAX rebuilds a pytree with tracers or placeholders in place of numbers. A check
therefore looks only at plain numbers (and text, which is never right) and lets everything else pass.
"""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from fedvi.errors import InputError


def in_range(name: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False) -> None:
    """Raise unless `low <= value <= high` (or `low < value` with `open_low`) and value is finite.

    >>> in_range("damping", 0.5, 0, 1, open_low=True)
    >>> in_range("damping", 3.0, 0, 1, open_low=True)
    Traceback (most recent call last):
        ...
    fedvi.errors.InputError: Expected 0 < damping <= 1, got 3.0.
    """
    if isinstance(value, str):
        raise InputError(f"Expected a number for {name}, got {value!r}.")
    if not isinstance(value, Real):
        return
    value = float(value)
    above = value > low if open_low else value >= low
    if above and value <= high and math.isfinite(value):
        return
    upper = "" if high == math.inf else f" <= {high:g}"
    raise InputError(f"Expected {low:g} {'<' if open_low else '<='} {name}{upper}, got {value}.")


def positive(name: str, value: object) -> None:
    """Raise unless `value` is a positive finite number."""
    in_range(name, value, 0, open_low=True)


def whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Raise unless `value` is a whole number of at least `low` and, if given, at most `high`."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_whole and value >= low and (high is None or value <= high):  # type: ignore[operator]
        return
    upper = "" if high is None else f" and at most {high}"
    raise InputError(f"Expected {name} to be a whole number of at least {low}{upper}, got {value!r}.")


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise unless `value` is one of the `allowed` words."""
    if value not in allowed:
        raise InputError(f"Expected {name} to be one of {', '.join(allowed)}, got {value!r}.")
