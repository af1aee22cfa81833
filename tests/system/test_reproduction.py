"""`fedvi reproduce` as people run it, and the paper's numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedvi.experiments import RunDirectory, paper_experiment
from fedvi.experiments.local_pool import execute
from fedvi.experiments.papers import paper_config

ROOT = Path(__file__).parents[2]


def fedvi(*words: object, cwd: Path) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "fedvi", *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=300
    )


def test_quick_reproduction_writes_everything(tmp_path: Path) -> None:
    ran = fedvi("reproduce", "--quick", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    (out,) = (tmp_path / "fedvi-runs").glob("reproduce-*")
    assert f"Report: {out.relative_to(tmp_path)}/report.html" in ran.stdout
    results = json.loads((out / "results.json").read_text())
    assert set(results["C"]) == {
        "pvi",
        "global-vi",
        "dp-pvi@0.50",
        "dp-pvi-strict@0.50",
        "fedvi@0.50",
        "fedvi-splines@0.50",
    }
    for name, entry in results["C"].items():
        assert name in ran.stdout
        assert f"{entry['acc'][0]:.2f}" in ran.stdout
        assert len(entry["runs"]) == 1
    for name in ("config.toml", "history.parquet", "spending.parquet", "report.html"):
        assert (out / name).stat().st_size > 1000
    for figure in ("progress_C", "spending_C"):
        assert (out / "figures" / f"{figure}.png").stat().st_size > 20_000
        assert (out / "figures" / f"{figure}.svg").stat().st_size > 20_000
    page = (out / "report.html").read_text()
    assert "fedvi reproduce --quick" in page
    assert "not private" in page

    again = fedvi("report", out, out.parent / out.name, "--out", tmp_path / "both", cwd=tmp_path)
    assert again.returncode == 2  # the same directory twice
    compared = fedvi("report", out, "--json", cwd=tmp_path)
    assert json.loads(compared.stdout) == results


TOLERANCES = {"pvi": (0.6, 0.012), "dp-pvi@0.50": (1.0, 0.025), "global-vi": (4.0, 0.1)}
"""Of one seed; five are nearer."""

OURS = {"fedvi": (84.95, -0.3212), "fedvi-splines": (85.6, -0.311)}
"""The least accuracy and log-likelihood of fedvi's own methods at epsilon 0.5, on average over five seeds."""


def test_the_paper_is_reproduced_and_beaten(tmp_path: Path) -> None:
    """One seed of the table's A and C at epsilon 0.5, at full length; of our own method, which is fast, five."""

    def run(name: str, methods: list[str], seeds: list[int]) -> Any:
        experiment = paper_experiment(partitions=["A", "C"], methods=methods, epsilons=[0.5], seeds=seeds)
        return execute(RunDirectory.create(tmp_path / name, experiment), experiment, 2, quiet=True)

    outcome = run("theirs", ["pvi", "global-vi", "dp-pvi"], [1])
    for partition, published in paper_config()["reference"].items():
        for method, (points, nats) in TOLERANCES.items():
            if partition in outcome.results:
                entry = outcome.results[partition][method]
                assert abs(entry.acc[0] - published[method]["acc"][0]) < points, (partition, method)
                assert abs(entry.ll[0] - published[method]["ll"][0]) < nats, (partition, method)
    for methods in run("ours", ["fedvi", "fedvi-splines"], [1, 2, 3, 4, 5]).results.values():
        for name, (least_acc, least_ll) in OURS.items():
            ours = methods[f"{name}@0.50"]
            assert ours.acc[0] > least_acc
            assert ours.ll[0] > least_ll
            assert len(ours.runs) == 5
            for each in ours.runs:
                assert max(each.updates.values()) == 30
                assert all(epsilon <= 0.5 for epsilon in each.epsilon_proven.values())
    for methods in outcome.results.values():
        (published_rule,) = methods["dp-pvi@0.50"].runs
        assert all(epsilon > 0.5 for epsilon in published_rule.epsilon.values())


def test_the_documents_show_the_published_results() -> None:
    script = [sys.executable, "-m", "scripts.publish_results", "--check"]
    assert (
        subprocess.run(script, cwd=ROOT, capture_output=True, text=True).stdout == "The documents show the results.\n"
    )
    results = json.loads((ROOT / "docs" / "results.json").read_text())
    for partition in "ABCD":
        strict = [entry for method, entry in results[partition].items() if "strict" in method or "fedvi" in method]
        assert len(strict) == 21
        for method, entry in results[partition].items():
            assert len(entry["runs"]) == 5
            if "strict" in method or "fedvi" in method:
                assert entry["largest_epsilon_proven"] <= float(method.split("@")[1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "--distribution", "E"], "Unknown value 'E' of partition; allowed: A, B, C, D"),
        (["reproduce", "--method", "sgd"], "Unknown value 'sgd' of method; allowed: pvi, global-vi"),
        (["reproduce", "--rule", "lax"], "Expected rule to be one of published, strict, both, got 'lax'"),
        (["reproduce", "--eps", "small"], "Expected a number for --eps, got 'small'"),
        (["reproduce", "--eps", "-1"], "Expected 0 < epsilon, got -1.0"),
        (["reproduce", "--seeds", "few"], "Expected --seeds to be a number or a list such as 1,2,7, got 'few'"),
        (["reproduce", "--seeds", "0"], "Expected at least one seed"),
        (["reproduce", "--heatmap", "--eps", "1"], "--heatmap runs PVI and global VI over a grid"),
        (["reproduce", "--resume"], "Expected a run directory fedvi-runs/reproduce-* to go on with, got none"),
        (["simulate", "nowhere.toml"], "Cannot read nowhere.toml: expected"),
        (["report", "nowhere"], "Expected a run directory with results.json, got 'nowhere'"),
    ],
)
def test_wrong_usage_is_one_line_with_a_remedy(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedvi.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedvi", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    errors = capsys.readouterr().err.strip()
    assert errors.startswith("Error: ")
    assert message in errors
    assert "\n" not in errors
    assert not list(tmp_path.iterdir())


def test_dry_run_shows_what_would_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """With the file that docs/experiments.md shows."""
    from fedvi.cli.main import main

    text = (ROOT / "docs" / "experiments.md").read_text()
    (tmp_path / "sweep.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    monkeypatch.setattr(sys, "argv", ["fedvi", "simulate", str(tmp_path / "sweep.toml"), "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "12 runs. Nothing was run." in printed
    assert "pvi[damping=0.3]" in printed
    assert "noise-aware@0.20" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]
