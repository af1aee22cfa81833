"""From tables of a configuration file to fedvi's own objects.

A table names a class by its `kind` and gives its arguments; the file mirrors the Python interface:

    algorithm = { kind = "PVI", damping = 0.1, solver = { kind = "GradientSteps", steps = 20 } }
    schedule = "Paced"                                       short for { kind = "Paced" }

`build` makes the object and names the key, the value and what is allowed when it cannot.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterable
from typing import Any

from fedvi import datasets, inference, models, privacy, simulation
from fedvi.datasets.sources import AdultData, NpzData, Prior
from fedvi.errors import InputError
from fedvi.privacy.published import FixedSizeGaussian, PublishedRule

AUTO = "auto"


@functools.cache
def roles() -> dict[str, dict[str, Any]]:
    """Return what may be named where: role, then kind, then class; of optimisers, the function."""
    import optax

    def named(*classes: Any) -> dict[str, Any]:
        return {kind.__name__: kind for kind in classes}

    return {
        "data": {"Adult": AdultData, "Npz": NpzData},
        "prior": {
            "Gaussian": functools.partial(Prior, "Gaussian"),
            "FullGaussian": functools.partial(Prior, "FullGaussian"),
        },
        "model": named(models.LogisticRegression, models.LinearRegression),
        "expectation": named(models.GaussHermite, models.MonteCarlo),
        "partition": named(
            datasets.PaperPartition, datasets.Iid, datasets.DirichletLabels, datasets.QuantitySkew, datasets.ByColumn
        ),
        "algorithm": named(
            inference.PVI, inference.GlobalVI, inference.CentralisedVI, inference.Committee, inference.NoiseAwarePVI
        ),
        "solver": named(inference.GradientSteps, inference.Exact, inference.AveragedQuadratics),
        "mechanism": named(
            privacy.Minibatch, privacy.FullBatch, privacy.PoissonGaussian, privacy.FullBatchGaussian, FixedSizeGaussian
        ),
        "client_level": named(privacy.ClientLevel),
        "optimizer": {"adagrad": inference.adagrad, "adam": optax.adam, "sgd": optax.sgd},
        "schedule": named(
            simulation.Asynchronous,
            simulation.RoundRobin,
            simulation.Synchronous,
            simulation.Paced,
            simulation.EventDriven,
        ),
        "privacy": named(privacy.Budget, PublishedRule),
    }


def build(role: str, table: Any, path: str) -> Any:
    """Return the object that a table describes; `path` is where the table stands in the file."""
    if isinstance(table, str):
        table = {"kind": table}
    if not isinstance(table, dict):
        raise InputError(f"Expected {path} to be a table or the name of a kind, got {table!r}.")
    kinds = roles()[role]
    if "kind" not in table:
        raise InputError(f"Expected {path}.kind to be one of {', '.join(kinds)}, got nothing.")
    if table["kind"] not in kinds:
        raise unknown(f"{path}.kind", table["kind"], kinds)
    make = kinds[table["kind"]]
    if role == "optimizer":
        check_keys(table, ("kind",), path)
        return make
    arguments = {key: value for key, value in table.items() if key != "kind"}
    check_keys(arguments, arguments_of(make), path)
    values = {key: _value(key, value, f"{path}.{key}") for key, value in arguments.items()}
    try:
        return make(**values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except TypeError as error:
        raise InputError(f"{path} ({table['kind']}): {error}") from None


def arguments_of(kind: Any) -> list[str]:
    """Return the names of the arguments that a kind takes."""
    fixed = len(kind.args) if isinstance(kind, functools.partial) else 0
    made: Any = kind.func if isinstance(kind, functools.partial) else kind
    return [field.name for field in dataclasses.fields(made)][fixed:]


def check_keys(table: dict[str, Any], allowed: Iterable[str], path: str) -> None:
    """Raise `InputError` for a key that is not allowed, with the allowed ones."""
    for key in table:
        if key not in allowed:
            raise unknown(f"{path}.{key}" if path else key, None, allowed)


def unknown(path: str, value: object, allowed: Iterable[str]) -> InputError:
    """Return the error for an unknown key, or for an unknown value of a key."""
    allowed = list(allowed)
    near = difflib.get_close_matches(path.rsplit(".", 1)[-1] if value is None else str(value), allowed, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    what = f"Unknown key {path}" if value is None else f"Unknown value {value!r} of {path}"
    return InputError(f"{what}; allowed: {', '.join(allowed)}.{hint}")


def _value(key: str, value: Any, path: str) -> Any:
    if key in roles():
        return build(key, value, path)
    if key == "noise_multiplier" and value == AUTO:
        return None
    if isinstance(value, dict):
        raise InputError(f"Expected one value for {path}, got a table.")
    return value
