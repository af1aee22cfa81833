"""Experiments from configuration: what is accepted, what runs, what is written, and that nothing is lost."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedvi import PVI, Budget, NoiseAwarePVI, simulate
from fedvi.config import build
from fedvi.datasets import PARTITIONS, Iid, distribute
from fedvi.errors import InputError
from fedvi.experiments import Experiment, Results, RunDirectory, heatmap_experiment, paper_experiment, read
from fedvi.experiments.config import data_of, prior_of, shown
from fedvi.experiments.local_pool import execute
from fedvi.experiments.papers import paper_config
from fedvi.experiments.runs import load_rows, make_runs, settings_digest
from fedvi.inference import GlobalVI, GradientSteps
from fedvi.privacy import Minibatch
from fedvi.privacy.published import FixedSizeGaussian, PublishedRule
from fedvi.reports import render
from sweeps import EPSILONS, command, run_here, small_config, write_rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.npz")


@pytest.fixture(scope="module")
def alone(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What comes out of the small experiment in one process."""
    return run_here(small_config(rows), tmp_path_factory.mktemp("alone") / "out")


# The paper


def test_the_published_rule_is_the_papers_75_runs() -> None:
    runs = paper_experiment(rule="published").runs()
    assert len(runs) == 75
    methods = ["pvi", "global-vi", *(f"dp-pvi@{epsilon:.2f}" for epsilon in EPSILONS)]
    assert {(run.partition.name, run.method.name) for run in runs} == {(d, m) for d in "ABC" for m in methods}
    assert {run.seed for run in runs} == {1, 2, 3, 4, 5}


def test_the_papers_settings_are_those_of_its_published_runs() -> None:
    config = paper_config()
    made = {name: build(table["algorithm"], "algorithm", name) for name, table in config["method"].items()}
    assert repr(made["pvi"]) == repr(PVI(GradientSteps(20, 2.0, Minibatch(100)), 0.1))
    assert repr(made["global-vi"]) == repr(GlobalVI(GradientSteps(1, 0.05, Minibatch(100)), 1.0))
    assert repr(made["dp-pvi"]) == repr(PVI(GradientSteps(25, 0.5, FixedSizeGaussian(5.0, 75.0)), 0.1))
    assert repr(made["fedvi"]) == repr(made["fedvi-splines"]) == repr(NoiseAwarePVI())
    assert isinstance(build({"kind": "PublishedRule", "epsilon": 0.5}, "privacy", ""), PublishedRule)
    limits = {name: (table.get("communications"), table.get("until")) for name, table in config["method"].items()}
    assert limits["pvi"] == (1000, None)
    assert limits["global-vi"] == (10_000, None)
    assert limits["dp-pvi"] == limits["dp-pvi-strict"] == (None, 1000)
    for name, partition in PARTITIONS.items():
        assert build(config["partition"][name], "partition", name) == partition


def test_only_what_is_asked_for_is_run() -> None:
    some = paper_experiment(partitions=["D"], methods=["fedvi"], epsilons=[0.125, 0.5], seeds=[7])
    assert [run.name for run in some.runs()] == ["D fedvi@0.125 seed 7", "D fedvi@0.50 seed 7"]
    assert len(heatmap_experiment().runs()) == 60 * 2 * 3
    assert [run.partition.name for run in paper_experiment(quick=True).runs()] == ["C"] * 6
    with pytest.raises(InputError, match="Unknown value 'E' of partition; allowed: A, B, C, D"):
        paper_experiment(partitions=["E"])
    with pytest.raises(InputError, match=r"Unknown value 'dp_pvi' of method.*Did you mean 'dp-pvi'"):
        paper_experiment(methods=["dp_pvi"])
    with pytest.raises(InputError, match="rule"):
        paper_experiment(rule="lax")


@pytest.mark.parametrize(
    ("epsilon", "name"), [(0.5, "0.50"), (1.0, "1.00"), (2, "2.00"), (0.05, "0.05"), (0.125, "0.125")]
)
def test_epsilons_in_names(epsilon: float, name: str) -> None:
    assert shown(epsilon) == name


def test_a_method_may_have_columns_and_a_prior_of_its_own(tmp_path: Path) -> None:
    config = {
        "data": "Adult",
        "model": "LogisticRegression",
        "partition": {"two": {"kind": "Iid", "clients": 2}},
        "method": {
            "paper": {"algorithm": "PVI", "communications": 1},
            "splines": {
                "algorithm": "PVI",
                "communications": 1,
                "data": {"kind": "Adult", "columns": "splines", "limit": 3.0},
                "prior": {"kind": "Gaussian", "intercept": 100.0, "levels": 0.25, "hats": 0.5},
            },
        },
    }
    paper, splines = Experiment.of(config).runs()
    assert settings_digest(config, paper) != settings_digest(config, splines)
    layout = build(config["method"]["splines"]["data"], "data").load().layout  # type: ignore[index]
    variances = 1 / np.asarray(prior_of(config, splines.method).over(143, layout).precision)
    assert set(np.round(variances[layout.are("level")], 6)) == {0.25}
    assert set(np.round(variances[layout.are("hat")], 6)) == {0.5}
    assert set(np.round(variances[layout.are("number")], 6)) == {1.0}
    assert variances[0] == pytest.approx(100)
    for spec, columns in ((paper, 108), (splines, 143)):
        (run,) = make_runs(config, [spec], [tmp_path / "checkpoint.npz"])
        assert not run.error
        assert run.communications == 1
        assert load_rows(json.dumps(data_of(config, spec.method))).train[0].shape[1] == columns


# Configuration


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"seed": 3}, "Unknown key seed; allowed: title, remark, command, seeds, .* Did you mean 'seeds'?"),
    ({"seeds": 3}, "Expected seeds to be a list of whole numbers, got 3"),
    ({"seeds": [1.5]}, "Expected seeds to be a whole number"),
    ({"model": "Logistic"}, "Unknown value 'Logistic' of model.kind; allowed: LogisticRegression, LinearRegression"),
    ({"data": {"kind": "Adult", "part": "all"}}, "data: Expected part to be one of test, validation, got 'all'"),
    ({"partition": {}}, "Expected partition in the configuration"),
    ({"partition": {"A": {"rho": 0.5}}}, "Expected partition.A.kind to be one of PaperPartition, Iid"),
    ({"partition": {"A": {"kind": "Iid", "clients": 0}}}, "partition.A: Expected clients"),
    ({"partition": {"A": {"kind": "PaperPartition"}}}, "Expected partition.A.rho, got nothing"),
    ({"method": {"m": {}}}, "Expected method.m.algorithm, got nothing"),
    ({"method": {"m": {"algorithm": "PVI", "data": {"kind": "Adult", "columns": "all"}}}}, "method.m.data: .*columns"),
    ({"method": {"m": {"algorithm": "PVI", "prior": {"levels": 0}}}}, "method.m.prior: Expected 0 < levels"),
    ({"method": {"m": {"algorithm": "PVI", "epochs": 3}}}, "Unknown key method.m.epochs; allowed: label, algorithm"),
    (
        {"method": {"m": {"algorithm": {"kind": "PVI", "dampng": 1}}}},
        "Unknown key method.m.algorithm.dampng.*'damping'",
    ),
    (
        {"method": {"m": {"algorithm": {"kind": "PVI", "damping": 2.0}}}},
        "method.m.algorithm: Expected 0 < damping <= 1",
    ),
    ({"method": {"m": {"algorithm": {"kind": "PVI", "damping": "high"}}}}, "method.m.algorithm: Expected a number"),
    ({"method": {"m": {"algorithm": {"kind": "PVI", "solver": "Adam"}}}}, "method.m.algorithm.solver.kind; allowed"),
    ({"method": {"m": {"algorithm": {"kind": "PVI", "damping": []}}}}, "Expected values in the list algorithm.damping"),
    ({"method": {"m": {"algorithm": {"kind": "PVI", "damping": [0.1, 0.1]}}}}, "twice: values in a list must differ"),
    (
        {"method": {"m": {"algorithm": {"kind": "PVI", "damping": {"value": 1}}}}},
        "one value for .*damping, got a table",
    ),
    ({"method": {"m": {"algorithm": 3}}}, "Expected method.m.algorithm to be a table or the name of a kind, got 3"),
    ({"method": {"m": {"algorithm": "PVI", "communications": 0}}}, "method.m.communications"),
    ({"method": {"m": 3}}, r"Expected tables \[method.NAME\]"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes_are_named_with_their_key_and_what_is_allowed(
    changes: dict[str, Any], message: str, rows: Path
) -> None:
    with pytest.raises(InputError, match=message):
        Experiment.of({**small_config(rows), **changes})


def test_lists_are_swept() -> None:
    algorithm = {"kind": "PVI", "damping": [0.1, 0.5], "solver": {"kind": "GradientSteps", "steps": [5, 10]}}
    budget = {"kind": "Budget", "epsilon": [0.5, 2.0]}
    config = {
        "data": "Adult",
        "model": "LogisticRegression",
        "partition": {"some": {"kind": "Iid", "clients": [2, 3]}},
        "method": {"m": {"algorithm": algorithm, "privacy": budget, "communications": 5}},
    }
    experiment = Experiment.of(config)
    assert [partition.name for partition in experiment.partitions] == ["some[clients=2]", "some[clients=3]"]
    names = [method.name for method in experiment.methods]
    assert len(names) == 8
    assert names[0] == "m@0.50[damping=0.1,steps=5]"
    assert experiment.methods[-1].table["algorithm"]["solver"]["steps"] == 10
    assert experiment.methods[-1].swept == {
        "algorithm.damping": 0.5,
        "algorithm.solver.steps": 10,
        "privacy.epsilon": 2.0,
    }
    assert config["method"]["m"]["algorithm"]["damping"] == [0.1, 0.5]  # type: ignore[index]


@pytest.mark.parametrize("content", ["seeds = [1", b"\xff\xfe", None])
def test_files_that_are_no_toml_are_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=r"Cannot read .*config\.toml"):
        Experiment.load(path)


@pytest.mark.parametrize("arrays", [{}, {"x": np.zeros((4, 2))}, {"y": np.zeros(3)}])
def test_npz_files_without_rows_are_refused(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", allow_pickle=False, **arrays)
    with pytest.raises(InputError, match="Expected arrays x and y"):
        build({"kind": "Npz", "path": str(tmp_path / "rows.npz")}, "data", "data").load()
    with pytest.raises(InputError, match=r"Cannot read 'nowhere\.npz'"):
        build({"kind": "Npz", "path": "nowhere.npz"}, "data", "data").load()


def test_test_rows_of_an_npz_file_are_used_or_held_out(tmp_path: Path) -> None:
    x, y = np.arange(20.0).reshape(10, 2), np.ones(10)
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x[:3], y_test=y[:3])
    np.savez(tmp_path / "b.npz", x=x, y=y)
    given = build({"kind": "Npz", "path": str(tmp_path / "a.npz")}, "data", "data").load()
    assert len(given.train[0]) == 10
    assert np.array_equal(given.test[0], x[:3])
    held = build({"kind": "Npz", "path": str(tmp_path / "b.npz"), "test_fraction": 0.3}, "data", "data").load()
    assert sorted(np.concatenate([held.train[0], held.test[0]])[:, 0]) == x[:, 0].tolist()
    assert len(held.test[0]) == 3


# Runs


def test_a_run_is_what_simulate_returns(rows: Path, alone: Results) -> None:
    config = small_config(rows)
    data = build(config["data"], "data", "data").load()
    clients = distribute(Iid(4), *data.train)
    algorithm = build(config["method"]["private"]["algorithm"], "algorithm", "a")
    schedule = build("RoundRobin", "schedule", "s")
    model = build("LogisticRegression", "model", "m")
    for seed in (1, 2):
        truth = simulate(
            clients,
            model,
            seed=seed,
            algorithm=algorithm,
            schedule=schedule,
            privacy=Budget(0.5, "paper"),
            max_updates=10,
            test=data.test,
        )
        run = alone.results["even"]["private@0.50"].runs[seed - 1]
        assert run.seed == seed
        assert run.acc == pytest.approx(100 * truth.history["accuracy"][-1])
        assert run.ll == truth.history["log_likelihood"][-1]
        assert run.epsilon == {name: spent.epsilon for name, spent in truth.privacy.items()}
        assert run.updates == {name: spent.updates for name, spent in truth.privacy.items()}
        assert run.communications == truth.checkpoint.communications


def test_the_directory_holds_everything(rows: Path, alone: Results) -> None:
    out, outcome = alone.path, alone
    assert tomllib.loads((out / "config.toml").read_text()) == {"format": 1, **small_config(rows)}
    assert {(p, m) for p, methods in outcome.results.items() for m in methods} == {
        (p, m) for p in ("even", "skewed") for m in ("pvi", "private@0.50", "private@1.00")
    }
    entry = outcome.results["even"]["private@1.00"]
    accuracies = [run.acc or 0 for run in entry.runs]
    assert entry.acc == pytest.approx([np.mean(accuracies), np.std(accuracies)])
    assert entry.epsilon == 1.0
    assert "simulation: seeded noise, not private" in entry.statement
    assert "client 1, client 2, client 3, client 4" in entry.statement
    for methods in outcome.results.values():
        for method, part in methods.items():
            for run in part.runs:
                assert all(epsilon <= (part.epsilon or 0) for epsilon in run.epsilon.values())
                assert bool(run.epsilon) == (method != "pvi")
                assert run.epsilon == run.epsilon_pld == run.epsilon_proven
                assert max(run.last_update.values()) == run.communications
    history, spending = outcome.history, outcome.spending
    last = (history["partition"] == "even") & (history["method"] == "private@1.00") & (history["seed"] == 2)
    assert history["accuracy"][last][-1] == accuracies[1]
    assert history["communications"][last].tolist() == [0, 10, 20, 30, 40]
    assert history["communications"].dtype.kind == "i"
    assert set(spending["method"]) == {"private@0.50", "private@1.00"}
    own = (spending["client"] == "client 1") & (spending["seed"] == 1) & (spending["method"] == "private@0.50")
    own &= spending["partition"] == "even"
    assert np.all(np.diff(spending["epsilon"][own]) > 0)
    assert spending["epsilon"][own][-1] == outcome.results["even"]["private@0.50"].runs[0].epsilon["client 1"]
    again = read(out)
    assert again.results == outcome.results
    assert np.array_equal(again.history["log_likelihood"], history["log_likelihood"])


def test_the_published_rule_exceeds_its_budget_and_less_is_proven(tmp_path: Path) -> None:
    experiment = paper_experiment(partitions=["B"], methods=["dp-pvi"], epsilons=[0.5], seeds=[1])
    outcome = execute(RunDirectory.create(tmp_path / "out", experiment), experiment, 1, quiet=True)
    (run,) = outcome.results["B"]["dp-pvi@0.50"].runs
    assert run.updates["small 1"] == 7
    assert run.epsilon["small 1"] == pytest.approx(0.533, abs=5e-4)
    assert run.epsilon_pld["small 1"] < 0.5 < 1 < run.epsilon_proven["small 1"]
    assert run.acc == pytest.approx(84.43, abs=1.0)
    assert run.ll == pytest.approx(-0.3379, abs=0.02)


def test_partitions_of_a_sweep_that_do_not_exist_are_skipped_with_the_reason(tmp_path: Path) -> None:
    config = heatmap_experiment(seeds=[1]).config
    config["partition"]["grid"] |= {"rho": [0.0, 0.5], "kappa": [-3.0, 0.0]}
    for method in config["method"].values():
        method |= {"communications": 20, "evaluate_every": 10}
    outcome = run_here(config, tmp_path / "out")
    assert set(outcome.skipped) == {"grid[rho=0.0,kappa=-3.0]"}
    assert "9363" in outcome.skipped["grid[rho=0.0,kappa=-3.0]"].replace(",", "")
    assert len(outcome.results) == 3
    config["partition"] = {"bad": {"kind": "PaperPartition", "rho": 0.0, "kappa": -3.0}}
    with pytest.raises(InputError, match=r"partition\.bad: "):
        run_here(config, tmp_path / "other")


def test_a_run_that_diverges_is_reported_and_the_others_go_on(rows: Path, tmp_path: Path) -> None:
    config = small_config(rows)
    config["method"]["wild"] = copy.deepcopy(config["method"]["pvi"])
    config["method"]["wild"]["algorithm"]["solver"]["learning_rate"] = 1e30
    outcome = run_here(config, tmp_path / "out")
    wild = outcome.results["even"]["wild"]
    assert wild.acc is None
    assert [failure.seed for failure in wild.failed] == [1, 2]
    assert "client" in wild.failed[0].error
    private = outcome.results["even"]["private@0.50"].acc
    assert private is not None
    assert private[0] > 60


def test_regression_is_measured_by_its_error(rows: Path, tmp_path: Path) -> None:
    config = small_config(rows) | {"model": "LinearRegression", "prior": {"kind": "FullGaussian", "variance": 10.0}}
    config["partition"] = {"even": {"kind": "Iid", "clients": [2, 3]}}
    exact = {
        "algorithm": {"kind": "PVI", "damping": 1.0, "solver": "Exact"},
        "schedule": "RoundRobin",
        "max_updates": 1,
    }
    outcome = run_here(config | {"method": {"exact": exact}}, tmp_path / "out")
    two, three = (outcome.results[f"even[clients={count}]"]["exact"] for count in (2, 3))
    assert two.acc is None
    assert two.metrics["rmse"][0] == pytest.approx(three.metrics["rmse"][0], rel=1e-5)  # pooling, either way
    table = render(outcome)
    assert [column.header for column in table.columns] == ["", "method", "rmse", "log-lik", "updates"]
    assert table.row_count == 2
    assert [column.header for column in render(outcome, width=80).columns] == ["", "method", "rmse", "log-lik"]


def test_methods_with_similar_names_are_kept_apart(rows: Path, tmp_path: Path) -> None:
    config = small_config(rows)
    private = config["method"].pop("private")
    private["privacy"]["epsilon"] = 0.5
    private["algorithm"]["solver"]["mechanism"] = {"kind": "FixedSizeGaussian", "noise_multiplier": "auto"}
    config["method"] = {"a b": config["method"]["pvi"], "a_b": private}
    config["partition"] = {"even": config["partition"]["even"]}
    outcome = run_here(config, tmp_path / "out")
    assert [len(outcome.results["even"][name].runs) for name in ("a b", "a_b")] == [2, 2]
    assert outcome.results["even"]["a_b"].runs[0].epsilon_proven["client 1"] > 0.5


# Nothing is lost


def test_runs_of_other_settings_do_not_count(rows: Path, tmp_path: Path) -> None:
    config = small_config(rows)
    config["partition"] = {"even": config["partition"]["even"]}
    config["method"] = {"pvi": config["method"]["pvi"]}
    run_here(config, tmp_path / "out")
    config["method"]["pvi"]["communications"] = 20
    (tmp_path / "out" / "config.toml").write_text(tomli_w.dumps(config))
    directory, experiment = RunDirectory.reopen(tmp_path / "out")
    outcome = execute(directory, experiment, 1, quiet=True)
    assert [run.communications for run in outcome.results["even"]["pvi"].runs] == [20, 20]


def test_a_directory_that_is_there_is_not_overwritten(rows: Path, tmp_path: Path) -> None:
    experiment = Experiment.of(small_config(rows))
    RunDirectory.create(tmp_path / "out", experiment)
    with pytest.raises(InputError, match=r"is there already. Add --resume"):
        RunDirectory.create(tmp_path / "out", experiment)
    with pytest.raises(InputError, match=r"has no config\.toml"):
        RunDirectory.reopen(tmp_path)
    with pytest.raises(InputError, match=r"Expected a run directory with results\.json"):
        read(tmp_path)


def test_directories_of_another_format_are_refused_and_those_without_a_number_are_read(
    rows: Path, alone: Results, tmp_path: Path
) -> None:
    config = alone.path / "config.toml"
    text = config.read_text()
    assert text.startswith("format = 1\n")
    try:
        config.write_text(text.removeprefix("format = 1\n"))  # as 0.2.0.dev0 wrote it
        directory, experiment = RunDirectory.reopen(alone.path)
        assert all(directory.is_done(spec) for spec in experiment.runs())
        assert read(alone.path).config == small_config(rows)
        config.write_text(text.replace("format = 1", "format = 2"))
        for opened in (read, RunDirectory.reopen, lambda path: Experiment.load(path / "config.toml")):
            with pytest.raises(InputError, match=r"Expected format = 1 in .*config\.toml, got 2: .* Use that version"):
                opened(alone.path)
    finally:
        config.write_text(text)
    (tmp_path / "c.toml").write_text(text)  # `fedvi simulate config.toml` runs it again
    assert Experiment.load(tmp_path / "c.toml").config == small_config(rows)


def test_runs_of_a_directory_without_a_number_count(alone: Results, tmp_path: Path) -> None:
    """Their files have no key `error` unless they failed, and the last record twice instead of acc and ll."""
    out = tmp_path / "out"
    shutil.copytree(alone.path, out)
    (out / "config.toml").write_text((out / "config.toml").read_text().removeprefix("format = 1\n"))
    for path in (out / "runs").glob("*.json"):
        run = json.loads(path.read_text())
        assert run.pop("error") == ""
        assert run.pop("acc") == run["records"][-1]["accuracy"]
        assert run.pop("ll") == run["records"][-1]["log_likelihood"]
        path.write_text(json.dumps({**run, "final": run["records"][-1]}))
    directory, experiment = RunDirectory.reopen(out)
    assert all(directory.is_done(spec) for spec in experiment.runs())
    assert directory.collect(experiment.runs(), {}).results == alone.results
    some = next((out / "runs").glob("*.json"))
    some.write_text(some.read_text()[:-20])
    with pytest.raises(InputError, match=r"is damaged\. Delete it"):
        directory.collect(experiment.runs(), {})
    (out / "results.json").write_text('{"even": {"pvi": {"runs": 3}}}')
    with pytest.raises(InputError, match=r"results\.json is damaged"):
        read(out)


def test_resuming_with_other_settings_is_refused(rows: Path, tmp_path: Path) -> None:
    config = small_config(rows)
    RunDirectory.create(tmp_path / "out", Experiment.of(config))
    (tmp_path / "c.toml").write_text(tomli_w.dumps({**config, "seeds": [1, 2, 3]}))
    process = command("simulate", tmp_path / "c.toml", "--out", tmp_path / "out", "--resume")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "was started with other settings (seeds)" in errors


OWN = """
from fedvi.models import LogisticRegression
from fedvi.pytree import pytree, static
from fedvi.simulation import RoundRobin

@pytree
class Halved(LogisticRegression):
    power: float = static(default=0.5)

@pytree
class Once(RoundRobin):
    def turns(self, rows, max_updates, rng):
        return super().turns(rows, [1] * len(rows), rng)
"""


def test_a_sweep_names_own_classes_in_its_folder_also_for_other_processes(rows: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "own_parts_of_a_sweep.py").write_text(OWN)
    config = small_config(rows)
    del config["partition"]["skewed"], config["method"]["private"]
    config["model"] = {"kind": "own_parts_of_a_sweep:Halved", "power": 0.25}
    config["method"]["pvi"]["schedule"] = "own_parts_of_a_sweep:Once"
    (folder / "c.toml").write_text(tomli_w.dumps(config))
    process = command("simulate", folder / "c.toml", "--out", tmp_path / "out", "--workers", 2, cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert [run.communications for run in read(tmp_path / "out").results["even"]["pvi"].runs] == [4, 4]


def test_runs_count_only_if_all_settings_are_the_same_defaults_included(rows: Path) -> None:
    config = small_config(rows)
    experiment = Experiment.of(config)
    (spec, *_) = experiment.runs()
    before = settings_digest(config, spec)
    said = {"kind": "LogisticRegression", "predictive_link": "probit"}  # as it is without words
    assert settings_digest({**config, "model": said}, spec) == before
    assert settings_digest({**config, "model": {**said, "predictive_link": "exact"}}, spec) != before
    assert settings_digest({**config, "prior": {"kind": "Gaussian", "variance": 2.0}}, spec) != before
    assert settings_digest(config, dataclasses.replace(spec, seed=9)) != before
