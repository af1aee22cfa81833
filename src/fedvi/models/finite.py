"""Whether a model gives numbers: rows for which its expectation or its gradient is NaN, and the line that makes it so.

Private sums let such rows count as nothing, because a site must not fail by what a row holds. So a likelihood that is
NaN for many rows would give a posterior that looks like any other. Simulations refuse it; sites tell their own people.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fedvi
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.models.base import Model

AT_ONCE = 4096
"""Rows that are looked at together."""

SEED = 0
"""Of the draws that a model averages over."""

NOT_THEIR_CODE = ("site-packages", "dist-packages", str(Path(fedvi.__file__).parent))


def is_proven(model: Model) -> bool:
    """Tell whether a model's own class says that no row can make it NaN."""
    return bool(vars(type(model)).get("proven_finite", False))


def rows_without_number(model: Model, q: GaussianFamily, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows for which the model is NaN under q, or finite with a gradient that is NaN."""
    if is_proven(model):
        return np.zeros(0, int)
    coordinates, z = q.coordinates(), _draws(model, q)
    found = []
    for start in range(0, len(x), AT_ONCE):
        rows = jnp.asarray(x[start : start + AT_ONCE]), jnp.asarray(y[start : start + AT_ONCE])
        if not bool(jax.jit(_all_finite)(model, coordinates, *rows, z)):
            found.append(start + np.flatnonzero(~np.asarray(jax.jit(_rows_with_numbers)(model, coordinates, *rows, z))))
    return np.concatenate(found) if found else np.zeros(0, int)


def check_finite(model: Model, q: GaussianFamily, x: np.ndarray, y: np.ndarray, where: str) -> None:
    """Raise `InputError` with the line of the model that gives NaN for a row. where: which q, for the message."""
    bad = rows_without_number(model, q, x, y)
    if len(bad):
        row = int(bad[0])
        line = line_of(model, q, x[row : row + 1], y[row : row + 1])
        raise InputError(
            f"Expected the model to give a number for every row, got NaN for {len(bad)} of {len(x)} "
            f"rows {where}{f', from {line}' if line else ''}. Private steps would leave such rows out without a word. "
            "Correct the likelihood, such as log(x) where x may be 0 or negative."
        )


def line_of(model: Model, q: GaussianFamily, x: np.ndarray, y: np.ndarray) -> str:
    """Return the line of a person's own code that first gives NaN for these rows; empty if it cannot be told."""
    with contextlib.suppress(Exception):  # it is for people only: nothing may fail by it
        return _line_of(model, q, x, y)
    return ""


def _line_of(model: Model, q: GaussianFamily, x: np.ndarray, y: np.ndarray) -> str:
    checkify = importlib.import_module("jax.experimental.checkify")
    rows = jnp.asarray(x), jnp.asarray(y), _draws(model, q)
    both = functools.partial(_value_and_gradient, model, q.coordinates())
    error, _ = jax.jit(checkify.checkify(both, errors=checkify.nan_checks))(*rows)
    trace = getattr(error.get_exception(), "traceback_info", None)
    for frame in getattr(trace, "frames", ()):
        if not any(part in frame.file_name for part in NOT_THEIR_CODE):
            path = Path(frame.file_name)
            code = path.read_text(encoding="utf-8").splitlines()[frame.line_num - 1].strip() if path.is_file() else ""
            return f"line {frame.line_num} of {frame.file_name}" + (f": {code}" if code else "")
    return ""


def _draws(model: Model, q: GaussianFamily) -> Any:
    shape = model.noise_shape(q.dim)
    normals = np.random.default_rng(SEED).standard_normal(shape) if all(shape) else np.zeros(shape)
    return jnp.asarray(normals, jnp.asarray(q.natural_mean).dtype)


def _all_finite(model: Any, q: Any, x: Any, y: Any, z: Any) -> Any:
    """Tell whether all values and their gradient are finite: then no row has to be looked at by itself."""
    value, gradient = _value_and_gradient(model, q, x, y, z)
    return jnp.all(jnp.isfinite(value)) & _all(jnp.isfinite, gradient)


def _rows_with_numbers(model: Any, q: Any, x: Any, y: Any, z: Any) -> Any:
    """Tell for every row whether its value is a number, and so is its gradient unless the value is infinite."""

    def of_row(row: tuple[Any, Any]) -> Any:
        value, gradient = _value_and_gradient(model, q, row[0][None], row[1][None], z)
        fine = _all(lambda leaf: ~jnp.isnan(leaf), gradient)
        return ~jnp.isnan(value[0]) & (fine | jnp.isinf(value[0]))

    return jax.lax.map(of_row, (x, y), batch_size=256)


def _value_and_gradient(model: Any, q: Any, x: Any, y: Any, z: Any) -> Any:
    dtype = jax.tree.leaves(q)[0].dtype
    return model.expected_log_likelihood(q, x, y, z), model.gradient(q, x, y, jnp.ones(x.shape[0], dtype), z)


def _all(holds: Callable[[Any], Any], tree: Any) -> Any:
    return jnp.all(jnp.stack([jnp.all(holds(leaf)) for leaf in jax.tree.leaves(tree)]))
