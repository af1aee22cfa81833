"""Frozen dataclasses as JAX sees them: the class itself is part of the structure."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedvi.pytree import pytree, static


@pytree
class Scale:
    """Multiplies by a factor."""

    factor: Any
    times: int = static(default=1)

    def apply(self, x: Any) -> Any:
        return x * self.factor**self.times


@pytree
class Shift(Scale):
    """Has the fields of the other, and does something else."""

    def apply(self, x: Any) -> Any:
        return x + self.factor


def test_classes_with_the_same_fields_have_different_structures() -> None:
    """JAX finds compiled code by structure: were they equal, code of one class could run for the other."""
    scale: object = jax.tree.structure(Scale(2.0))
    assert scale != jax.tree.structure(Shift(2.0))
    assert scale == jax.tree.structure(Scale(3.0))
    assert scale != jax.tree.structure(Scale(2.0, times=2))
    compiled = jax.jit(lambda change: change.apply(jnp.float32(3)))
    assert [float(compiled(change)) for change in (Scale(2.0), Shift(2.0), Scale(2.0, times=2))] == [6.0, 5.0, 12.0]


def test_a_tree_comes_back_whole_and_its_parts_have_names() -> None:
    leaves, structure = jax.tree.flatten(Shift(2.0, times=3))
    again = jax.tree.unflatten(structure, leaves)
    assert (type(again), again.factor, again.times) == (Shift, 2.0, 3)
    ((path, leaf),) = jax.tree_util.tree_leaves_with_path(again)
    assert (jax.tree_util.keystr(path), leaf) == (".factor", 2.0)
