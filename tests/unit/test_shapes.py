"""jaxtyping's annotations are checked while unit tests run: see `support/shapes.py`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

import shapes
from fedvi import Gaussian, LogisticRegression
from fedvi.numerics import row_lengths


@pytest.mark.parametrize("module", shapes.modules())
def test_annotations_of_arrays_are_understood(module: str) -> None:
    """A name that only type checkers import, or three dots without quotes, would switch the check off."""
    names = vars(importlib.import_module(module))
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    arguments = [each.annotation for node in functions for each in (*node.args.args, *node.args.kwonlyargs)]
    found = [ast.unparse(each) for each in (*arguments, *(node.returns for node in functions)) if each is not None]
    for annotation in found:
        if re.search(r"\b(Float|Int|UInt|Bool)\w*\[", annotation):
            assert shapes.has_array(eval(annotation, names)), annotation


@pytest.mark.parametrize("wrong", [np.float32(1), np.ones((2, 3), int)], ids=["no axis", "whole numbers"])
def test_arrays_of_other_shapes_and_types_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeCheckError, match="row_lengths"):
        row_lengths(wrong)


def test_arrays_that_do_not_fit_each_other_are_refused_also_while_they_are_compiled() -> None:
    model, q = LogisticRegression(), Gaussian.standard(2).coordinates()
    compiled = jax.jit(lambda x, y: model.expected_log_likelihood(q, x, y, jnp.zeros(0)))
    assert compiled(jnp.ones((3, 2)), jnp.ones(3)).shape == (3,)
    with pytest.raises(TypeCheckError, match="expected_log_likelihood"):
        compiled(jnp.ones((3, 2)), jnp.ones(1))
