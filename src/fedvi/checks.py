"""Checks of settings that people type: each names the setting, the value and what was expected.

Settings live in pytrees, and JAX rebuilds a pytree with tracers or placeholders in place of numbers. A check of a
number therefore looks only at numbers (and text, which is never right) and lets everything else pass.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from fedvi.compiling import jax
from fedvi.errors import InputError
from fedvi.pytree import loaded_jax

LARGEST_FEATURE_BOUND = 8192.0
"""Of entries of x: private sums of larger ones would run out of bits."""


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
    if not isinstance(value, Real | np.ndarray) and not _is_jax_array(value):
        return
    numbers = np.asarray(value, float)
    above = numbers > low if open_low else numbers >= low
    if np.all(above & (numbers <= high) & np.isfinite(numbers)):
        return
    upper = "" if high == math.inf else f" <= {high:g}"
    raise InputError(f"Expected {low:g} {'<' if open_low else '<='} {name}{upper}, got {value}.")


def _is_jax_array(value: object) -> bool:
    """Tell whether this is an array of JAX with numbers in it, without importing JAX for the question."""
    return loaded_jax() is not None and isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def positive(name: str, value: object) -> None:
    """Raise unless `value` is a positive finite number."""
    in_range(name, value, 0, open_low=True)


def one_number(name: str, value: Any) -> None:
    """Raise unless `value` is a single number; also inside compiled code, where arrays of settings are batched."""
    if np.ndim(value) != 0:
        raise InputError(f"Expected one number for {name}, got shape {np.shape(value)}.")


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
        raise InputError(f"Expected {name} to be one of {', '.join(filter(None, allowed))}, got {value!r}.")


def instance(name: str, value: object, kind: type) -> None:
    """Raise unless `value` is an instance of `kind`."""
    if isinstance(value, kind):
        not_a_class(name, value)  # a class may look like an instance of a protocol
        return
    not_a_class(name, value)
    raise InputError(f"Expected {name} to be a {kind.__name__}, got {value!r}.")


def not_a_class(name: str, value: object) -> None:
    """Raise if `value` is a class, where an instance was meant."""
    if isinstance(value, type):
        raise InputError(f"Expected an instance for {name}, got the class: write {value.__name__}(...).")


def registered(name: str, value: object) -> None:
    """Raise unless JAX knows how to take `value` apart."""
    if jax.tree_util.all_leaves([value]):
        raise InputError(
            f"Expected {name} to be a pytree, got {type(value).__name__}: decorate its class with @fedvi.pytree.pytree."
        )


def unknown(path: str, value: object, allowed: Iterable[str]) -> InputError:
    """Return the error for an unknown key, or for an unknown value of a key."""
    names = list(allowed)
    hint = near(path.rsplit(".", 1)[-1] if value is None else str(value), names)
    what = f"Unknown key {path}" if value is None else f"Unknown value {value!r} of {path}"
    return InputError(f"{what}; allowed: {', '.join(names) or 'none'}.{hint}")


def near(name: str, allowed: Iterable[str]) -> str:
    """Return ` Did you mean 'age'?`, or nothing if no name is near.

    >>> near("Agee", ["age", "sex"])
    " Did you mean 'age'?"
    """
    by_lower = {other.lower(): other for other in allowed}
    found = difflib.get_close_matches(name.lower().strip(), by_lower, 1)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""
