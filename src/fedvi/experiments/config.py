"""An experiment as a file: what is run on which data, with which methods, over which seeds.

    title = "Damping"
    seeds = [1, 2, 3]
    data = "Adult"
    model = "LogisticRegression"
    [partition.C]
    kind = "PaperPartition"
    rho = 0.7
    kappa = -3.0
    [method.pvi]
    algorithm = { kind = "PVI", damping = [0.1, 0.5] }       a list: one method for each value
    communications = 1000

A method may have `data` and `prior` of its own: other columns of the same rows.

Runs are all combinations of partitions, methods and seeds. A list where one value is expected is swept, also in
partitions. `Experiment.check` builds every object once, so that a mistake is found before the first run.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedvi.checks import whole
from fedvi.config import build, check_keys, find, read_toml, search
from fedvi.errors import InputError
from fedvi.inference.spec import Prior

if TYPE_CHECKING:
    from fedvi.simulation.simulate import RunSettings

KEYS = ("title", "remark", "command", "seeds", "data", "model", "prior", "partition", "method", "reference")
PARTS = ("algorithm", "schedule", "privacy")
OWN = ("data", "prior")
"""What a method may have of its own: other columns of the same rows, and a prior over their weights."""

LIMITS = ("communications", "until", "max_updates", "evaluate_every")
EPSILON = "privacy.epsilon"
FORMAT = 1
"""Of a run directory, in its config.toml."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A partition or a method with one value for every setting.

    name: as it stands in results, such as `dp-pvi@0.50`. base: the name of its table in the file.
    swept: the values that were picked from lists, by path.
    """

    name: str
    base: str
    table: dict[str, Any]
    swept: dict[str, Any]

    def parts(self) -> RunSettings:
        """Return a method's algorithm, schedule and budget: those that its table has."""
        found = [role for role in PARTS if role in self.table]
        made = {role: build(self.table[role], role, f"method.{self.base}.{role}") for role in found}
        return cast("RunSettings", made)

    def limits(self) -> dict[str, Any]:
        """Return when a method stops, and how often it is measured."""
        return {key: self.table[key] for key in LIMITS if key in self.table}

    def described(self) -> tuple[str, str]:
        """Return a method's name and what its objects are, for people to read before a long run."""
        limits = [f"{key}={value}" for key, value in self.limits().items() if key != "evaluate_every"]
        return self.name, ", ".join([*map(repr, self.parts().values()), *limits])


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run: a partition, a method and a seed of an experiment."""

    partition: Variant
    method: Variant
    seed: int

    @property
    def name(self) -> str:
        """How people and files call the run."""
        return f"{self.partition.name} {self.method.name} seed {self.seed}"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A configuration that has been looked through; `config` is the file as plain values."""

    config: dict[str, Any]
    partitions: tuple[Variant, ...]
    methods: tuple[Variant, ...]
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, config: dict[str, Any], folder: str | os.PathLike[str] = ".") -> Experiment:
        """Check the configuration's keys and values, and spread out its sweeps. Paths of data start in the folder."""
        check_keys(config, KEYS, "")
        config = _with_whole_paths(config, folder)
        for key in ("data", "model", "partition", "method"):
            if not config.get(key):
                raise InputError(
                    f"Expected {key} in the configuration, got nothing. Required: data, model, partition, method."
                )
        for key in ("partition", "method"):
            if not isinstance(config[key], dict) or not all(isinstance(part, dict) for part in config[key].values()):
                raise InputError(f"Expected tables [{key}.NAME], got {config[key]!r}.")
        seeds = config.get("seeds", [1])
        if not isinstance(seeds, list) or not seeds:
            raise InputError(f"Expected seeds to be a list of whole numbers, got {seeds!r}.")
        for seed in seeds:
            whole("seeds", seed, 0)
        build(config["data"], "data")
        build(config["model"], "model")
        partitions, methods = _variants("partition", config["partition"]), _variants("method", config["method"])
        for method in methods:
            path = f"method.{method.base}"
            check_keys(method.table, ("label", *PARTS, *LIMITS, *OWN), path)
            if "algorithm" not in method.table:
                raise InputError(f"Expected {path}.algorithm, got nothing.")
            method.parts()
            if "data" in method.table:
                build(method.table["data"], "data", f"{path}.data")
            prior_of(config, method)
            for key in ("communications", "max_updates", "evaluate_every"):
                if key in method.table:
                    whole(f"{path}.{key}", method.table[key], 1)
        for partition in partitions:
            build(partition.table, "partition", f"partition.{partition.base}")
        return cls(config, partitions, methods, tuple(dict.fromkeys(seeds)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Experiment:
        """Read a TOML file, or raise `InputError`. Own kinds may be in its folder or in the current directory.

        Paths of data in it are relative to its folder.
        """
        config, folder = read_config(path), Path(path).parent
        for place in (folder, Path()):
            search(place)
        return cls.of(config, folder)

    def runs(self) -> list[RunSpec]:
        """Return all runs, those that share compiled code one after the other."""
        return [RunSpec(*each) for each in itertools.product(self.partitions, self.methods, self.seeds)]


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the TOML file of an experiment as plain values, without its format number, or raise `InputError`."""
    config = read_toml(path, "the TOML file of an experiment")
    found = config.pop("format", FORMAT)
    if found != FORMAT:
        raise InputError(
            f"Expected format = {FORMAT} in {path}, got {found!r}: this run directory was made by another version of "
            "fedvi. Use that version, or run the experiment again."
        )
    return config


def _with_whole_paths(table: dict[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a table in which no path of data depends on where it is read from."""

    def whole_path(key: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if key == "data" and isinstance(value.get("path"), str):
            return {**value, "path": os.path.abspath(os.path.join(folder, value["path"]))}
        return _with_whole_paths(value, folder)

    return {key: whole_path(key, value) for key, value in table.items()}


def data_of(config: dict[str, Any], method: Variant) -> Any:
    """Return the table of the rows that a method learns from: its own, or that of the experiment."""
    return method.table.get("data", config["data"])


def prior_of(config: dict[str, Any], method: Variant) -> Prior:
    """Return the prior of a method, its own or the experiment's: a Gaussian around zero, whose kind is its family."""
    own = "prior" in method.table
    table = method.table["prior"] if own else config.get("prior", {})
    table = {"kind": table} if isinstance(table, str) else table
    if isinstance(table, dict):
        family = {"family": table["kind"]} if "kind" in table else {}
        table = {**family, **table, "kind": "Prior"}
    path = f"method.{method.base}.prior" if own else "prior"
    prior: Prior = build(table, "prior", path)
    find(prior.family, "family", f"{path}.kind")
    return prior


def _variants(role: str, tables: dict[str, Any]) -> tuple[Variant, ...]:
    """Return all tables with one value for every list in them."""
    variants = [
        Variant(_name(base, swept), base, single, swept)
        for base, table in tables.items()
        for single, swept in _spread(table)
    ]
    names = [variant.name for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"Expected every {role} once, got {name!r} twice: values in a list must differ.")
    return tuple(variants)


def _spread(table: dict[str, Any], path: str = "") -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield a table once for every combination of values in its lists, and the picked values by path."""
    choices: list[list[tuple[Any, dict[str, Any]]]] = []
    for key, value in table.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, list) and not value:
            raise InputError(f"Expected values in the list {here}, got none.")
        several = [(one, {here: one}) for one in value] if isinstance(value, list) else [(value, {})]
        choices.append(list(_spread(value, here)) if isinstance(value, dict) else several)
    for picked in itertools.product(*choices):
        single = dict(zip(table, (value for value, _ in picked), strict=True))
        yield single, {place: value for _, swept in picked for place, value in swept.items()}


def _name(base: str, swept: dict[str, Any]) -> str:
    epsilon = f"@{shown(swept[EPSILON])}" if EPSILON in swept else ""
    others = {path: value for path, value in swept.items() if path != EPSILON}
    last = [path.rsplit(".", 1)[-1] for path in others]
    keys = last if len(set(last)) == len(last) else list(others)
    words = [value.get("kind", value) if isinstance(value, dict) else value for value in others.values()]
    settings = ",".join(f"{key}={word}" for key, word in zip(keys, words, strict=True))
    return base + epsilon + (f"[{settings}]" if settings else "")


def shown(epsilon: float) -> str:
    """Return epsilon as it stands in names: two decimals, or as many as it has."""
    return f"{epsilon:.2f}" if round(epsilon, 2) == epsilon else repr(epsilon)
