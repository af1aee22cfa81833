"""Objects from plain values, and back: what TOML and JSON files, messages and digests hold.

    build({"kind": "PVI", "damping": 0.5}, "algorithm")   ->  PVI(damping=0.5)
    plain(PVI(damping=0.5))                               ->  {"kind": "PVI", "solver": {...}, "damping": 0.5, ...}

`build(plain(object), role)` gives an object like the first one. A table names a class by its `kind`: fedvi's own by a
short name, any other as "module:Class", or "module:function" where a function belongs. The name alone stands for a
table without arguments. Nothing is imported before it is named.

Importing a module runs its code. What another party sent is therefore built with `allow`: kinds that are neither
fedvi's own nor in that list are refused before anything is imported.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from fedvi.checks import near, unknown
from fedvi.errors import InputError
from fedvi.lazy import home_of

T = TypeVar("T")

AUTO = "auto"
"""A noise multiplier that follows from the budget: None in Python."""

Allow = Collection[str] | None
"""Kinds beside fedvi's own that may be built, as "module:Class"; None for all."""

PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclasses.dataclass(frozen=True)
class Role:
    """What belongs in one place of a table.

    what: for messages. asks: the method that such a class has; empty for functions. kinds: fedvi's own, with places.
    """

    what: str
    asks: str
    kinds: Mapping[str, str]


def _in(module: str, *names: str) -> dict[str, str]:
    return {name: f"fedvi.{module}:{name}" for name in names}


ADULT, NUMBERS, TARGETS = "fedvi.datasets.adult", "fedvi.tables.numbers", "fedvi.tables.targets"

ROLES = {
    "data": Role("a source of rows", "load", {"Adult": f"{ADULT}:AdultData", "Npz": f"{ADULT}:NpzData"}),
    "partition": Role(
        "a partition", "split", _in("datasets", "PaperPartition", "Iid", "DirichletLabels", "QuantitySkew", "ByColumn")
    ),
    "model": Role(
        "a model", "expected_log_likelihood", _in("models", "LogisticRegression", "LinearRegression", "CustomModel")
    ),
    "expectation": Role("an expectation", "points", _in("models", "GaussHermite", "MonteCarlo")),
    "family": Role(
        "a family of factors",
        "posterior",
        _in("families", "Gaussian", "FullGaussian", "Messages"),
    ),
    "prior": Role("a prior", "over", _in("inference.spec", "Prior")),
    "algorithm": Role(
        "an algorithm", "problem", _in("inference", "PVI", "GlobalVI", "CentralisedVI", "Committee", "NoiseAwarePVI")
    ),
    "solver": Role("a solver", "solve", _in("inference", "GradientSteps", "Exact", "Answers")),
    "mechanism": Role(
        "a mechanism",
        "draw",
        _in("privacy", "Minibatch", "FullBatch", "PoissonGaussian", "FullBatchGaussian")
        | _in("privacy.published", "FixedSizeGaussian"),
    ),
    "client_level": Role("a mechanism for whole clients", "protect", _in("privacy", "ClientLevel")),
    "optimizer": Role(
        "an optimiser: a function of the learning rate",
        "",
        _in("inference.local_problem", "adagrad", "forgetful_adam") | {"adam": "optax:adam", "sgd": "optax:sgd"},
    ),
    "schedule": Role(
        "a schedule", "turns", _in("simulation", "Asynchronous", "RoundRobin", "Synchronous", "Paced", "EventDriven")
    ),
    "privacy": Role("a budget", "most_updates", _in("privacy", "Budget") | _in("privacy.published", "PublishedRule")),
    "column": Role(
        "a column",
        "encode",
        {"number": f"{NUMBERS}:Number", "date": f"{NUMBERS}:Date", "category": "fedvi.tables.columns:Category"},
    ),
    "target": Role("a target", "encode", {"category": f"{TARGETS}:BinaryTarget", "number": f"{TARGETS}:NumberTarget"}),
}
"""By the key under which it stands in a table."""

OWN = {kind: place for role in ROLES.values() for kind, place in role.kinds.items()}
"""All kinds of fedvi's own, and where they are."""

PLACES = {place: kind for role in ROLES.values() for kind, place in role.kinds.items()}
"""Where fedvi's own kinds are, and their names: two roles may share a name, but not a place."""


def build(table: Any, role: str, path: str = "", allow: Allow = None) -> Any:
    """Return the object that a table describes, or raise `InputError` naming the key, the value and what is allowed.

    role: a key of `ROLES`. path: where the table stands in its file. allow: see `Allow`.
    """
    path = path or role
    table = {"kind": table} if isinstance(table, str) else table
    if not isinstance(table, Mapping):
        raise InputError(f"Expected {path} to be a table or the name of a kind, got {table!r}.")
    if "kind" not in table:
        raise InputError(f"Expected {path}.kind to be one of {', '.join(known(role))}, or module:Class; got nothing.")
    made = find(table["kind"], role, f"{path}.kind", allow)
    arguments = {key: value for key, value in table.items() if key != "kind"}
    if not isinstance(made, type):
        check_keys(arguments, (), path)
        return made
    if not dataclasses.is_dataclass(made):
        raise InputError(f"Expected {path}.kind to be a dataclass, got {table['kind']}. Decorate it with @pytree.")
    fields = {field.name: field for field in dataclasses.fields(made) if field.init}
    _check_fields(arguments, fields, path)
    values = {key: _value(value, key, fields[key].type, f"{path}.{key}", allow) for key, value in arguments.items()}
    try:
        return made(**values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except TypeError as error:
        raise InputError(f"{path} ({table['kind']}): {error}") from None


def _value(value: Any, key: str, declared: Any, path: str, allow: Allow) -> Any:
    """Return one argument of a class; `declared` is the type of its field."""
    if key == "noise_multiplier" and value == AUTO:
        return None
    if isinstance(value, Mapping) and "kind" in value:
        return build(value, key if key in ROLES else "", path, allow)
    if key in ROLES and value is not None and declared not in (str, "str"):
        return build(value, key, path, allow)
    if isinstance(value, Mapping):
        raise InputError(f"Expected one value for {path}, got a table.")
    if isinstance(value, list | tuple):
        return tuple(_value(item, "", "", f"{path}[{number}]", allow) for number, item in enumerate(value))
    return value


def plain(value: Any) -> Any:
    """Return an object as tables, lists, texts and numbers, every field included; the inverse of `build`.

    >>> from fedvi.privacy.budget import Budget
    >>> plain(Budget(0.5))
    {'kind': 'Budget', 'epsilon': 0.5, 'delta': 'auto', 'accountant': 'pld'}
    """
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy and JAX
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {"kind": kind_of(type(value)), **{name: plain(getattr(value, name)) for name in fields}}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if callable(value):
        return {"kind": kind_of(value)}
    raise InputError(f"Expected a dataclass, a function at the top of a module or a plain value, got {value!r}.")


def kind_of(made: Any) -> str:
    """Return the kind of a class or function: a short name, or "module:name"."""
    name = getattr(made, "__qualname__", "<unknown>")
    place = f"{made.__module__}:{name}"
    if name in OWN and find(name) is made:
        return str(name)
    short = PLACES.get(place)
    if short is None and not PLACE.fullmatch(place):
        raise InputError(f"Expected a class or function at the top of a module, got {place}: no file can name it.")
    return short or place


def find(kind: Any, role: str = "", path: str = "kind", allow: Allow = None) -> Any:
    """Return the class or function that a kind names; imported only if it is fedvi's own or allowed."""
    made = _imported(_place(kind, role, path, allow), path)
    asked = ROLES[role].asks if role else ""
    if role and not (callable(getattr(made, asked, None)) if asked else callable(made) and not isinstance(made, type)):
        having = f", a class with the method {asked}" if asked else ""
        raise InputError(f"Expected {path} to be {ROLES[role].what}{having}; got {kind}, which is none.")
    return made


def check_kinds(value: Any, role: str, path: str = "", allow: Allow = None) -> None:
    """Raise `InputError` if plain values name a kind that is unknown or not allowed. Nothing is imported."""
    path = path or role
    if isinstance(value, Mapping):
        if "kind" in value:
            _place(value["kind"], role, f"{path}.kind", allow)
        for key, item in value.items():
            check_kinds(item, key if key in ROLES else "", f"{path}.{key}", allow)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            check_kinds(item, "", f"{path}[{number}]", allow)


def _place(kind: Any, role: str, path: str, allow: Allow) -> str:
    """Return where a kind is, as "module:Class", or raise `InputError` if it is unknown or not allowed."""
    place = known(role).get(kind, kind) if isinstance(kind, str) else ""
    if not PLACE.fullmatch(place):
        raise unknown(path, kind, known(role))
    if allow is not None and place not in PLACES and place not in allow:
        raise InputError(
            f"Refused {path} = {kind!r}: it is none of fedvi's own kinds, and building it would run its code. If you "
            f"know and trust that code, allow it: kinds = [{kind!r}] in your policy file, or the option --kind {kind}."
        )
    return place


def known(role: str) -> Mapping[str, str]:
    """Return fedvi's own kinds of a role, or all of them."""
    return ROLES[role].kinds if role else OWN


def _imported(place: str, path: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(home_of(module, name)))
    except AttributeError:
        hint = near(name, vars(importlib.import_module(module)))
        raise InputError(f"Expected {name!r} in the module {module!r} for {path}, got none.{hint}") from None
    except ImportError as error:
        raise InputError(
            f"Cannot import {module!r} for {path}: {error}. Install it, or put its file beside the configuration or "
            "into the current directory."
        ) from None


def search(folder: str | PathLike[str]) -> None:
    """Let own kinds be found in a folder too, after everything that is installed."""
    if (place := str(Path(folder).resolve())) not in sys.path:
        sys.path.append(place)


def read_toml(path: str | PathLike[str], what: str) -> dict[str, Any]:
    """Return the content of a TOML file, or raise `InputError`; what: the file's purpose, for messages."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"Cannot read {path}: expected {what} there, got no such file.") from None
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"Cannot read {path} as {what}: {error}.") from None


def fill(made: type[T], table: Mapping[str, Any], path: str = "", **given: Any) -> T:
    """Return a dataclass from a table of exactly its fields and types; given: fields that the table must not have."""
    fields = {field.name: field for field in dataclasses.fields(made) if field.name not in given}  # type: ignore[arg-type]
    _check_fields(table, fields, path)
    return made(**convert(made, table, path), **given)


def convert(made: type, table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return values of a table in the types of a dataclass's fields, or raise `InputError` if one is of another."""
    import msgspec

    types, values = get_type_hints(made), {}
    for name, value in table.items():
        try:
            values[name] = msgspec.convert(value, types[name], dec_hook=lambda kind, text: kind(text))
        except msgspec.ValidationError as error:
            raise InputError(f"{_join(path, name)} = {value!r}: {str(error).replace('`', '')}.") from None
    return values


def check_keys(table: Iterable[str], allowed: Iterable[str], path: str = "") -> None:
    """Raise `InputError` for a key that is not allowed, with the allowed ones."""
    for key in table:
        if key not in allowed:
            raise unknown(_join(path, key), None, allowed)


def _check_fields(table: Mapping[str, Any], fields: Mapping[str, dataclasses.Field[Any]], path: str) -> None:
    check_keys(table, fields, path)
    for name, field in fields.items():
        if name not in table and field.default is MISSING and field.default_factory is MISSING:
            raise InputError(f"Expected {_join(path, name)}, got {', '.join(table) or 'nothing'}.")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
