"""Posterior files: arrays and a JSON header in one file, for any reader of safetensors, never pickle."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedvi.errors import InputError
from fedvi.files import write
from fedvi.pytree import is_pytree

KEY = "fedvi"
LARGEST = 1 << 30
"""Bytes; a larger file is no posterior of ours."""


def write_posterior(path: str | os.PathLike[str], header: dict[str, Any], parts: dict[str, Any]) -> None:
    """Write a header and parts, which are arrays or pytrees of them, atomically."""
    from safetensors.numpy import save as to_bytes

    arrays = {name: array for part, tree in parts.items() for name, array in _named(part, tree).items()}
    write(path, to_bytes(arrays, {KEY: json.dumps(header)}))


def _named(name: str, tree: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a pytree by the path of their fields."""
    if not is_pytree(type(tree)):
        return {name: np.asarray(tree, order="C")}
    fields = dataclasses.fields(tree)
    return {
        key: leaf for field in fields for key, leaf in _named(f"{name}.{field.name}", getattr(tree, field.name)).items()
    }


def part_of(name: str, kind: type, arrays: dict[str, np.ndarray], **nested: type) -> Any:
    """Return one part of a file as an object of a class. nested: classes of its fields that are pytrees themselves."""
    return kind(
        **{
            field.name: part_of(f"{name}.{field.name}", nested[field.name], arrays)
            if field.name in nested
            else arrays[f"{name}.{field.name}"]
            for field in dataclasses.fields(kind)
        }
    )


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a posterior file."""
    return read_posterior(Path(path))[0]


def read_posterior(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays, or raise `InputError` if this is no posterior file."""
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"Expected a fedvi posterior of at most {LARGEST} bytes, got {path.stat().st_size}.")
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[KEY])
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except FileNotFoundError:
        raise InputError(f"Expected a posterior file at '{path}', got none. Make one with fedvi fit.") from None
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from None
    except (SafetensorError, KeyError, json.JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"'{path}' is not a fedvi posterior, or it is damaged.") from None
