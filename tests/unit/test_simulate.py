"""`simulate`: resumable, interruptible, checked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from federations import Tables, logistic_tables, same_bits
from fedvi import PVI, CustomModel, FullGaussian, Gaussian, LogisticRegression, simulate
from fedvi.errors import InputError, ReleaseRefused, ResumeError, SimulationInterrupted
from fedvi.inference import CentralisedVI, Committee, GradientSteps, evaluate
from fedvi.privacy import Minibatch
from fedvi.simulation import Asynchronous, Checkpoint, EventDriven, Result, RoundRobin, Synchronous, Turn

DIM = 3


@pytest.fixture
def tables() -> Tables:
    return logistic_tables([30, 8, 55], DIM)


def run(tables: Tables, **options: Any) -> Result:
    options = {"seed": 5, "test": tables["site 2"], "evaluate_every": 40, **options}
    return simulate(tables, LogisticRegression(), **options)


@pytest.mark.parametrize(
    "schedule", [Asynchronous(), Synchronous(), EventDriven(jitter=0.3)], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("cut", [1, 40, 137])
def test_resumed_run_equals_uninterrupted_one(tables: Tables, tmp_path: Path, schedule: Any, cut: int) -> None:
    whole = run(tables, schedule=schedule, communications=200)
    first = run(tables, schedule=schedule, communications=cut)
    first.checkpoint.save(tmp_path / "run.npz")
    second = run(tables, schedule=schedule, communications=200, resume=tmp_path / "run.npz")
    assert same_bits(whole, second)
    assert second.history == whole.history
    assert not same_bits(whole, first)


def test_resuming_a_run_that_is_done_measures_it_again(tables: Tables) -> None:
    done = run(tables, communications=25)
    again = run(tables, communications=25, resume=done.checkpoint)
    assert again.history == done.history
    assert again.history["time"][-1] > 0


def test_resume_works_in_float64_too(tables: Tables) -> None:
    with jax.enable_x64(True):
        whole = run(tables, communications=60)
        assert same_bits(whole, run(tables, communications=60, resume=run(tables, communications=25).checkpoint))


def test_interrupted_run_loses_nothing_and_goes_on(tables: Tables) -> None:
    calls = 0

    def interrupt(carry: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return {"version": float(carry.server.version)}

    with pytest.raises(SimulationInterrupted, match="after 120 communications") as stopped:
        run(tables, communications=200, measure=interrupt)
    partial = stopped.value.result
    assert partial.history["version"].tolist() == [0, 40, 80]
    assert len(partial.history.turns) == 120

    def version(carry: Any) -> dict[str, float]:
        return {"version": float(carry.server.version)}

    rest = run(tables, communications=200, resume=partial.checkpoint, measure=version)
    assert same_bits(rest, run(tables, communications=200))
    assert rest.history["version"].tolist() == [0, 40, 80, 120, 160, 200]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"seed": 6}, "seed"),
        ({"schedule": RoundRobin()}, "schedule"),
        ({"algorithm": PVI(damping=0.2)}, "algorithm"),
        ({"algorithm": PVI(GradientSteps(mechanism=Minibatch(7)))}, "algorithm"),
        ({"prior": Gaussian.standard(DIM, 2.0)}, "prior"),
        ({"prior": FullGaussian.standard(DIM)}, "prior"),
        ({"max_updates": 50}, "max_updates"),
    ],
)
def test_resume_with_other_settings_is_refused(tables: Tables, change: dict[str, Any], name: str) -> None:
    saved = run(tables, communications=20).checkpoint
    with pytest.raises(ResumeError, match=f"The saved run has {name} = .*, this one has {name} = "):
        run(tables, communications=40, resume=saved, **change)


def test_resume_with_other_data_is_refused(tables: Tables) -> None:
    saved = run(tables, communications=20).checkpoint
    x, y = tables["site 0"]
    changed = {**tables, "site 0": (x + np.float64(1e-3), y)}
    with pytest.raises(ResumeError, match="data"):
        run(changed, communications=40, resume=saved)
    with pytest.raises(InputError, match="The saved run has 20 communications, more than 10"):
        run(tables, communications=10, resume=saved)


def test_files_that_are_not_checkpoints_are_refused(tables: Tables, tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    run(tables, communications=20).checkpoint.save(good)
    content = good.read_bytes()
    bad = tmp_path / "bad.npz"
    for damaged in (b"", b"hello", content[: len(content) // 2]):
        bad.write_bytes(damaged)
        with pytest.raises(ResumeError, match=r"Cannot read .*bad.npz' as a fedvi checkpoint"):
            Checkpoint.load(bad)
    with pytest.raises(ResumeError, match="Cannot read"):
        Checkpoint.load(tmp_path / "missing.npz")
    np.savez(bad, header=np.array(json.dumps({"format": 99})))
    with pytest.raises(ResumeError, match="Expected checkpoint format 1, got 99"):
        Checkpoint.load(bad)
    loaded = Checkpoint.load(good)
    cut = dataclasses.replace(loaded, leaves=loaded.leaves[:-1])
    with pytest.raises(ResumeError, match="damaged"):
        run(tables, communications=40, resume=cut)


def test_saving_replaces_the_file_as_a_whole(tables: Tables, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    for communications in (10, 20):
        run(tables, communications=communications).checkpoint.save(path)
    assert Checkpoint.load(path).communications == 20
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]


def test_history_measures_start_intervals_and_end(tables: Tables) -> None:
    result = run(tables, communications=90)
    assert result.history["communications"].tolist() == [0, 40, 80, 90]
    expected = evaluate(LogisticRegression(), result.posterior, *tables["site 2"])
    assert {name: result.history[name][-1] for name in expected} == expected
    assert set(expected) == {"log_likelihood", "accuracy", "brier", "ece"}
    with pytest.raises(KeyError, match=r"epsilon.*measured were communications, time, repairs, change"):
        result.history["epsilon"]


def test_stopping_rules(tables: Tables) -> None:
    by_time = run(tables, schedule=RoundRobin(), until=2.0)
    assert [turn.client for turn in by_time.history.turns] == [0, 1, 2, 0, 1, 2]
    by_budget = run(tables, schedule=RoundRobin(), max_updates=[2, 0, 1])
    assert [int(state.sequence) for state in by_budget.clients.values()] == [2, 0, 1]
    both = run(tables, schedule=RoundRobin(), max_updates=5, communications=4)
    assert len(both.history.turns) == 4


def test_clients_may_come_without_names(tables: Tables) -> None:
    result = simulate(list(tables.values()), LogisticRegression(), seed=5, communications=5)
    assert list(result.clients) == ["client 0", "client 1", "client 2"]


def test_centralised_vi_pools_the_clients(tables: Tables) -> None:
    result = run(tables, algorithm=CentralisedVI(GradientSteps()), communications=10)
    assert list(result.clients) == ["pooled"]


def test_diverging_run_says_who_and_keeps_what_was_done(tables: Tables) -> None:
    """The third client's data make its first update overflow; by then the first two have communicated 10 times each."""
    x, y = tables["site 2"]
    tables["site 2"] = (np.full_like(x, 9e3), y)

    def late(rows: Any, max_updates: Any, rng: Any) -> Any:  # noqa: ARG001
        yield from (Turn(index % 2, float(index), (index % 2,)) for index in range(20))
        yield Turn(2, 20.0, (2,))

    schedule, model = SimpleNamespace(turns=late), CustomModel(lambda w, x, y: y * jnp.exp(x @ w))
    with pytest.raises(ReleaseRefused, match="Release 1 of client 'site 2' holds NaN or infinity") as refused:
        simulate(tables, model, seed=0, algorithm=PVI(GradientSteps(2, 0.1)), schedule=schedule, communications=50)
    assert refused.value.result is not None
    assert refused.value.result.checkpoint.communications == 20
    assert [int(state.sequence) for state in refused.value.result.clients.values()] == [10, 10, 0]


def test_error_of_the_callers_own_keeps_what_was_done(tables: Tables) -> None:
    def fail(carry: Any) -> dict[str, float]:
        if int(carry.server.version) == 80:
            raise ZeroDivisionError
        return {"version": carry.server.version}

    with pytest.raises(ZeroDivisionError) as failed:
        run(tables, communications=200, measure=fail)
    result = failed.value.result  # type: ignore[attr-defined]
    assert result.history["version"].tolist() == [0, 40]
    assert result.checkpoint.communications == 80


def test_checkpoint_holds_what_was_measured_whatever_its_type(tables: Tables, tmp_path: Path) -> None:
    result = run(tables, communications=40, measure=lambda carry: {"version": carry.server.version, "f": np.float32(1)})
    result.checkpoint.save(tmp_path / "run.npz")
    assert Checkpoint.load(tmp_path / "run.npz").records == result.history.records


def test_change_between_records_goes_to_zero(tables: Tables) -> None:
    change = run(tables, communications=2000, evaluate_every=200).history["change"]
    assert change[0] == 0
    assert change[1] > 1
    assert change[-1] < 0.05


def likelihood_with(scale: float) -> Any:
    return lambda w, x, y: -jnp.logaddexp(0.0, -scale * y * (x @ w))


def test_resume_tells_likelihoods_of_the_same_name_apart(tables: Tables) -> None:
    saved = simulate(tables, CustomModel(likelihood_with(1.0)), seed=0, communications=5).checkpoint
    simulate(tables, CustomModel(likelihood_with(1.0)), seed=0, communications=6, resume=saved)
    with pytest.raises(ResumeError, match="model"):
        simulate(tables, CustomModel(likelihood_with(2.0)), seed=0, communications=6, resume=saved)


def test_committee_ends_by_itself(tables: Tables) -> None:
    committee = Committee(GradientSteps(5, 0.1))
    result = simulate(tables, LogisticRegression(), seed=0, algorithm=committee)
    assert [int(state.sequence) for state in result.clients.values()] == [1, 1, 1]


def test_prior_takes_the_precision_in_use(tables: Tables) -> None:
    prior = Gaussian.standard(DIM)
    with jax.enable_x64(True):
        assert (
            simulate(tables, LogisticRegression(), seed=0, prior=prior, communications=2).posterior.mean.dtype == float
        )


def test_progress_bar_is_shown_on_request_only(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    run(tables, communications=10, progress=False)
    run(tables, communications=10)  # no terminal here
    assert capsys.readouterr() == ("", "")
    run(tables, communications=10, progress=True)
    run(tables, until=2.0, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "10/10 communications" in err
