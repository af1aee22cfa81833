"""Frozen dataclasses that JAX can trace, vmap and scan, and that work with NumPy where JAX is not loaded.

`@pytree` makes a class a frozen dataclass and a JAX pytree. Fields are arrays (or other pytrees); a field declared
with `static()` is part of the structure instead: it is compared and hashed when JAX looks for compiled code.

A class that is made before JAX is loaded waits, and is registered when JAX is first used (`fedvi.compiling`).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast, dataclass_transform

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")

_made: dict[type, tuple[str, ...]] = {}
"""Classes, and the names of their fields that hold data."""

_waiting: list[type] = []


def loaded_jax() -> ModuleType | None:
    """Return JAX, which knows all classes that were made so far; None if nobody has loaded it."""
    if "jax.numpy" not in sys.modules:
        return None
    register_waiting()
    return sys.modules["jax"]


def register_waiting() -> None:
    """Load JAX and register the classes that wait for it."""
    while _waiting:
        _register(_waiting.pop())


def _register(cls: type) -> None:
    """Tell JAX about a class, which is itself part of the structure.

    `jax.tree_util.register_dataclass` would do all but that: to JAX 0.10, structures of two classes with the same
    fields are equal, and differ by their hash alone. So compiled code of the one now and then ran for the other.
    """
    from jax.tree_util import GetAttrKey, register_pytree_with_keys

    fields = [field for field in dataclasses.fields(cls) if field.init]
    data = [field.name for field in fields if "static" not in field.metadata]
    fixed = [field.name for field in fields if "static" in field.metadata]
    keys = [GetAttrKey(name) for name in data]

    def flatten(made: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(made, name) for name in data], (cls, *(getattr(made, name) for name in fixed))

    def with_keys(made: Any) -> tuple[list[tuple[GetAttrKey, Any]], tuple[Any, ...]]:
        parts, structure = flatten(made)
        return list(zip(keys, parts, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], parts: Any) -> Any:
        return cls(**dict(zip(data, parts, strict=True)), **dict(zip(fixed, structure[1:], strict=True)))

    register_pytree_with_keys(cls, with_keys, unflatten, flatten)


def precision() -> np.dtype[Any]:
    """Return the dtype of real numbers in use: float32, or float64 if JAX is loaded and set to it."""
    import numpy as np

    jax = loaded_jax()
    return np.dtype(np.float32) if jax is None else jax.dtypes.canonicalize_dtype(float)


def static(**options: Any) -> Any:
    """Declare a field that is part of the pytree's structure; it must be hashable."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass that is a JAX pytree."""
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    _made[made] = tuple(field.name for field in dataclasses.fields(made) if "static" not in field.metadata)
    _waiting.append(made)
    loaded_jax()
    return cast(type[T], made)


def is_pytree(cls: object) -> bool:
    """Tell whether `@pytree` made this class."""
    return isinstance(cls, type) and cls in _made


def tree_map(function: Callable[..., Any], tree: T, *others: Any) -> T:
    """Apply a function leaf by leaf: `jax.tree.map`, which without JAX knows pytree classes and tuples only."""
    jax = loaded_jax()
    mapped: T = _tree_map(function, tree, *others) if jax is None else jax.tree.map(function, tree, *others)
    return mapped


def _tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    if type(tree) in _made:
        trees = (tree, *others)
        parts = {name: _tree_map(function, *(getattr(each, name) for each in trees)) for name in _made[type(tree)]}
        return dataclasses.replace(tree, **parts)
    if isinstance(tree, tuple):
        return tuple(_tree_map(function, *entries) for entries in zip(tree, *others, strict=True))
    return None if tree is None else function(tree, *others)


def leaves(tree: Any) -> list[Any]:
    """Return the arrays that a tree is made of."""
    found: list[Any] = []
    tree_map(found.append, tree)
    return found


def take(tree: T, index: Any) -> T:
    """Return the entry `index` of a pytree whose leaves are stacked along their first axis."""
    return tree_map(lambda leaf: leaf[index], tree)


def put(tree: T, index: Any, entry: T) -> T:
    """Return the stacked `tree` with `entry` at `index`."""

    def changed(leaf: Any, value: Any) -> Any:
        if hasattr(leaf, "at"):  # an array of JAX
            return leaf.at[index].set(value)
        copied = leaf.copy()
        copied[index] = value
        return copied

    return tree_map(changed, tree, entry)


def choose(condition: Any, yes: T, no: T) -> T:
    """Return `yes` where the scalar `condition` holds and `no` elsewhere, leaf by leaf."""
    jax = loaded_jax()
    if jax is None:
        return yes if condition else no
    return tree_map(lambda a, b: jax.lax.select(condition, a, b), yes, no)


def stack(trees: Any) -> Any:
    """Return one tree whose leaves are those of the trees, stacked along a new first axis."""
    return tree_map(lambda *parts: parts[0].__array_namespace__().stack(parts), *trees)


def repeat(tree: T, times: int) -> T:
    """Return `times` copies of `tree`, stacked along a new first axis."""
    return tree_map(lambda leaf: leaf.__array_namespace__().repeat(leaf[None], times, axis=0), tree)
