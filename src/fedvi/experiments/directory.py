"""The run directory: all that an experiment leaves behind.

    config.toml        what was run; `fedvi simulate config.toml` runs it again
    runs/*.json        one file per finished run, written when it is finished: what the rest is made of
    results.json       {partition: {method: {"acc": [mean, std], "ll": [mean, std], "runs": [...], ...}}}
    history.parquet    every measurement of every run
    spending.parquet   what every client had spent when
    skipped.json       partitions of a sweep that do not exist, and why

Files are written to a temporary name and renamed, so that a crash leaves the old file or the new one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedvi.errors import InputError
from fedvi.experiments.config import Experiment, RunSpec
from fedvi.experiments.runs import file_name, settings_digest
from fedvi.files import replacing, write

RUN_KEYS = ("seed", "communications", "seconds", "updates", "epsilon", "epsilon_pld", "epsilon_proven", "last_update")
SPENDING = {"client": str, "rows": int, "communications": int, "updates": int, "epsilon": float}


@dataclasses.dataclass(frozen=True)
class Results:
    """A run directory as read: see `fedvi.experiments.directory`. history, spending: columns of numbers or names."""

    path: Path
    config: dict[str, Any]
    results: dict[str, dict[str, Any]]
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
        write(path / "config.toml", tomli_w.dumps(experiment.config))
        return cls(path, experiment.config)

    @classmethod
    def reopen(cls, path: Path) -> tuple[RunDirectory, Experiment]:
        """Return a directory that was left unfinished, and its experiment."""
        if not (path / "config.toml").is_file():
            raise InputError(f"Expected a run directory to go on with, got {path}, which has no config.toml.")
        experiment = Experiment.load(path / "config.toml")
        return cls(path, experiment.config), experiment

    def run_file(self, spec: RunSpec) -> Path:
        """Return where a finished run is written."""
        return self.path / "runs" / f"{file_name(spec)}.json"

    def checkpoint(self, spec: RunSpec) -> Path:
        """Return where an interrupted run is kept."""
        return self.path / "runs" / f"{file_name(spec)}.checkpoint.npz"

    def save(self, spec: RunSpec, run: dict[str, Any]) -> None:
        """Write a finished run; its checkpoint is of no more use."""
        write(self.run_file(spec), json.dumps(run))
        self.checkpoint(spec).unlink(missing_ok=True)

    def is_done(self, spec: RunSpec) -> bool:
        """Tell whether a run was finished with these settings; one that failed is tried again."""
        run = self._finished(spec)
        return run is not None and "error" not in run

    def _finished(self, spec: RunSpec) -> dict[str, Any] | None:
        try:
            run: dict[str, Any] = json.loads(self.run_file(spec).read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            raise InputError(f"{self.run_file(spec)} is damaged. Delete it, and the run is made again.") from None
        return run if run.get("settings") == settings_digest(self.config, spec) else None

    def skip(self, skipped: dict[str, str]) -> None:
        """Write down which partitions do not exist."""
        if skipped:
            write(self.path / "skipped.json", json.dumps(skipped, indent=1))

    def collect(self, specs: Iterable[RunSpec]) -> Results:
        """Put the finished runs together, and write results, history and spending."""
        runs = [run for spec in specs if (run := self._finished(spec)) is not None]
        write(self.path / "results.json", json.dumps(_results(runs), indent=1))
        _write_parquet(self.path / "history.parquet", _history(runs))
        _write_parquet(self.path / "spending.parquet", _spending(runs))
        return read(self.path)


def read(path: str | os.PathLike[str]) -> Results:
    """Read a run directory, or raise `InputError` if it is none."""
    path = Path(path)
    if not (path / "results.json").is_file():
        raise InputError(f"Expected a run directory with results.json, got {path}. Finish the run with --resume.")
    skipped = path / "skipped.json"
    return Results(
        path=path,
        config=tomllib.loads((path / "config.toml").read_text(encoding="utf-8")),
        results=json.loads((path / "results.json").read_text()),
        history=_read_parquet(path / "history.parquet"),
        spending=_read_parquet(path / "spending.parquet"),
        skipped=json.loads(skipped.read_text()) if skipped.is_file() else {},
    )


def _results(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["partition"], run["method"]), []).append(run)
    results: dict[str, dict[str, Any]] = {}
    for (partition, method), group in groups.items():
        results.setdefault(partition, {})[method] = _entry(group)
    return results


def _entry(group: list[dict[str, Any]]) -> dict[str, Any]:
    first, done = group[0], [run for run in group if "error" not in run]
    names = [name for name in done[0]["final"] if name not in ("communications", "time")] if done else []
    metrics = {name: _mean_and_std([run["final"][name] for run in done]) for name in names}
    return {
        "acc": metrics.get("accuracy"),
        "ll": metrics.get("log_likelihood"),
        "base": first["base"],
        "label": first["label"],
        "epsilon": first["budget"],
        "swept": first["swept"],
        "partition": first["partition_settings"],
        "metrics": metrics,
        "statement": done[0]["statement"] if done else "",
        "runs": [
            {
                **{key: run[key] for key in RUN_KEYS},
                "acc": run["final"].get("accuracy"),
                "ll": run["final"].get("log_likelihood"),
            }
            for run in done
        ],
        "failed": [{"seed": run["seed"], "error": run["error"]} for run in group if "error" in run],
    }


def _mean_and_std(values: list[float]) -> list[float]:
    return [float(np.mean(values)), float(np.std(values))]


def _history(runs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    done = [run for run in runs if "error" not in run]
    names = list(dict.fromkeys(name for run in done for name in run["records"][0] | run["final"]))
    rows = [(run, record) for run in done for record in run["records"]]
    measured = {name: [record.get(name, float("nan")) for _, record in rows] for name in names}
    return {**{key: [run[key] for run, _ in rows] for key in ("partition", "method", "seed")}, **measured}


def _spending(runs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    rows = [(run, moment) for run in runs for moment in run.get("spending", [])]
    moments = {name: [kind(moment[name]) for _, moment in rows] for name, kind in SPENDING.items()}
    return {**{key: [run[key] for run, _ in rows] for key in ("partition", "method", "seed")}, **moments}


def _write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with replacing(path) as file:
        parquet.write_table(pa.table(columns), file)


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
    from pyarrow import parquet

    table = parquet.read_table(path)
    return {name: np.array(table.column(name).to_pylist()) for name in table.column_names}
