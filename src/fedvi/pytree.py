"""Frozen dataclasses that JAX can trace, vmap and scan.

`@pytree` makes a class a frozen dataclass and a JAX pytree. Fields are arrays (or other pytrees); a field declared
with `static()` is part of the structure instead: it is compared and hashed when JAX looks for compiled code.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def precision() -> Any:
    """Return the dtype of real numbers in use: float32, or float64 if JAX is set to it."""
    return jax.dtypes.canonicalize_dtype(float)


def static(**options: Any) -> Any:
    """Declare a field that is part of the pytree's structure; it must be hashable."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass that is a JAX pytree."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True, eq=False)(cls))


def take(tree: T, index: Any) -> T:
    """Return the entry `index` of a pytree whose leaves are stacked along their first axis."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def put(tree: T, index: Any, entry: T) -> T:
    """Return the stacked `tree` with `entry` at `index`."""
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value), tree, entry)


def choose(condition: Any, yes: T, no: T) -> T:
    """Return `yes` where the scalar `condition` holds and `no` elsewhere, leaf by leaf."""
    return jax.tree.map(lambda a, b: jax.lax.select(condition, a, b), yes, no)


def repeat(tree: T, times: int) -> T:
    """Return `times` copies of `tree`, stacked along a new first axis."""
    return jax.tree.map(lambda leaf: jax.numpy.repeat(leaf[None], times, axis=0), tree)
