"""The run directory: all that an experiment leaves behind.

    config.toml        what was run, and the directory's format; `fedvi simulate config.toml` runs it again
    runs/*.json        one `RunRecord` per finished run, written when it is finished: what the rest is made of
    results.json       {partition: {method: MethodResult}}
    history.parquet    every measurement of every run
    spending.parquet   what every client had spent when
    skipped.json       partitions of a sweep that do not exist, and why

Files are written to a temporary name and renamed, so that a crash leaves the old file or the new one.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tomli_w

from fedvi.errors import InputError
from fedvi.experiments.config import FORMAT, Experiment, RunSpec, read_config
from fedvi.experiments.runs import RunRecord, RunResult, Spending, settings_digest
from fedvi.files import digest, replacing, write

MeanAndStd = tuple[float, float]
"""Over seeds."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that went wrong, and why."""

    seed: int
    error: str


@dataclasses.dataclass(frozen=True)
class MethodResult:
    """What results.json says of one method on one partition. acc: in percent. epsilon: the budget."""

    acc: MeanAndStd | None = None
    ll: MeanAndStd | None = None
    base: str = ""
    label: str = ""
    epsilon: float | None = None
    swept: dict[str, Any] = dataclasses.field(default_factory=dict)
    partition: dict[str, Any] = dataclasses.field(default_factory=dict)
    metrics: dict[str, MeanAndStd] = dataclasses.field(default_factory=dict)
    statement: str = ""
    runs: list[RunResult] = dataclasses.field(default_factory=list)
    failed: list[Failure] = dataclasses.field(default_factory=list)


MethodResults = dict[str, dict[str, MethodResult]]
"""By partition and method."""


@dataclasses.dataclass(frozen=True)
class Results:
    """A run directory as read: see `fedvi.experiments.directory`. history, spending: columns of numbers or names."""

    path: Path
    config: dict[str, Any]
    results: MethodResults
    history: dict[str, np.ndarray]
    spending: dict[str, np.ndarray]
    skipped: dict[str, str]


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A directory that an experiment writes to."""

    path: Path
    config: dict[str, Any]

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> RunDirectory:
        """Make the directory and write the configuration, or raise if something is there."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} is there already. Add --resume to go on with it, or give another --out.")
        (path / "runs").mkdir(parents=True)
        write(path / "config.toml", tomli_w.dumps({"format": FORMAT, **experiment.config}))
        return cls(path, experiment.config)

    @classmethod
    def reopen(cls, path: Path) -> tuple[RunDirectory, Experiment]:
        """Return a directory that was left unfinished, and its experiment."""
        if not (path / "config.toml").is_file():
            raise InputError(f"Expected a run directory to go on with, got {path}, which has no config.toml.")
        experiment = Experiment.load(path / "config.toml")
        return cls(path, experiment.config), experiment

    def checkpoint(self, spec: RunSpec) -> Path:
        """Return where an interrupted run is kept."""
        return self._file(spec, "checkpoint.npz")

    def _file(self, spec: RunSpec, ending: str = "json") -> Path:
        """Return a path in `runs`; different runs have different ones."""
        readable = "".join(letter if letter.isalnum() or letter in "@.-=" else "_" for letter in spec.name)
        return self.path / "runs" / f"{readable[:100]}_{digest(spec.name)[:8]}.{ending}"

    def save(self, spec: RunSpec, run: RunRecord) -> None:
        """Write a finished run; its checkpoint is of no more use."""
        write(self._file(spec), json.dumps(msgspec.to_builtins(run)))
        self.checkpoint(spec).unlink(missing_ok=True)

    def is_done(self, spec: RunSpec) -> bool:
        """Tell whether a run was finished with these settings; one that failed is tried again."""
        run = self._finished(spec)
        return run is not None and not run.error

    def _finished(self, spec: RunSpec) -> RunRecord | None:
        try:
            run = json.loads(self._file(spec).read_text())
            if run.get("settings") != settings_digest(self.config, spec):
                return None
            final = run.get("final", {})  # in directories without a format number
            old = {"acc": final.get("accuracy"), "ll": final.get("log_likelihood")}
            return msgspec.convert({**old, **run}, RunRecord)
        except FileNotFoundError:
            return None
        except (ValueError, msgspec.ValidationError):
            raise InputError(f"{self._file(spec)} is damaged. Delete it, and the run is made again.") from None

    def collect(self, specs: Iterable[RunSpec], skipped: dict[str, str]) -> Results:
        """Put the finished runs together, and write results, history, spending and skipped partitions."""
        if skipped:
            write(self.path / "skipped.json", json.dumps(skipped, indent=1))
        runs = [run for spec in specs if (run := self._finished(spec)) is not None]
        groups: dict[str, dict[str, list[RunRecord]]] = {}
        for run in runs:
            groups.setdefault(run.partition, {}).setdefault(run.method, []).append(run)
        results = {place: {name: _together(own) for name, own in methods.items()} for place, methods in groups.items()}
        write(self.path / "results.json", json.dumps(msgspec.to_builtins(results), indent=1))
        measured = [(run, record) for run in runs for record in run.records]
        names = dict.fromkeys(name for _, record in measured for name in record)
        _write_table(self.path / "history.parquet", measured, names)
        spent = [(run, vars(moment)) for run in runs for moment in run.spending]
        _write_table(self.path / "spending.parquet", spent, [field.name for field in dataclasses.fields(Spending)])
        return read(self.path)


def read(path: str | os.PathLike[str]) -> Results:
    """Read a run directory, or raise `InputError` if it is none."""
    path = Path(path)
    if not (path / "results.json").is_file():
        raise InputError(
            f"Expected a run directory with results.json, got {str(path)!r}. Finish the run with --resume."
        )
    skipped = path / "skipped.json"
    try:
        results = msgspec.convert(json.loads((path / "results.json").read_text()), MethodResults)
    except (ValueError, msgspec.ValidationError):
        raise InputError(f"{path / 'results.json'} is damaged. Make it again from the runs with --resume.") from None
    return Results(
        path=path,
        config=read_config(path / "config.toml"),
        results=results,
        history=_read_table(path / "history.parquet"),
        spending=_read_table(path / "spending.parquet"),
        skipped=json.loads(skipped.read_text()) if skipped.is_file() else {},
    )


def _together(group: list[RunRecord]) -> MethodResult:
    """Return what runs of one method with different seeds have in common."""
    first, done = group[0], [run for run in group if not run.error]
    names = [name for name in done[0].records[-1] if name not in ("communications", "time")] if done else []
    finals = {name: [run.records[-1][name] for run in done] for name in names}
    metrics = {name: (float(np.mean(values)), float(np.std(values))) for name, values in finals.items()}
    return MethodResult(
        acc=metrics.get("accuracy"),
        ll=metrics.get("log_likelihood"),
        base=first.base,
        label=first.label,
        epsilon=first.budget,
        swept=first.swept,
        partition=first.partition_settings,
        metrics=metrics,
        statement=done[0].statement if done else "",
        runs=[msgspec.convert(run, RunResult, from_attributes=True) for run in done],
        failed=[Failure(run.seed, run.error) for run in group if run.error],
    )


def _write_table(path: Path, rows: list[tuple[RunRecord, dict[str, Any]]], names: Iterable[str]) -> None:
    """Write rows with the names of their runs; what a row lacks is NaN."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {key: [getattr(run, key) for run, _ in rows] for key in ("partition", "method", "seed")}
    columns |= {name: [row.get(name, float("nan")) for _, row in rows] for name in names}
    with replacing(path) as file:
        parquet.write_table(pa.table(columns), file)


def _read_table(path: Path) -> dict[str, np.ndarray]:
    from pyarrow import parquet

    table = parquet.read_table(path)
    return {name: np.array(table.column(name).to_pylist()) for name in table.column_names}
