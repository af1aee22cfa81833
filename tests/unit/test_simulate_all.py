"""`simulate_all`: runs made together are the runs made alone, and end each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from federations import Tables, logistic_tables, same_bits
from fedvi import PVI, Budget, FullGaussian, Gaussian, LogisticRegression, simulate, simulate_all
from fedvi.errors import InputError, ReleaseRefused, SimulationInterrupted, SimulationsFailed
from fedvi.inference import CentralisedVI, GradientSteps
from fedvi.inference.rows import lay_out
from fedvi.privacy import PoissonGaussian
from fedvi.simulation import EventDriven, Result, RoundRobin, Synchronous
from fedvi.simulation.runs import play_blocks

DIM = 4
MODEL = LogisticRegression()


@pytest.fixture
def tables() -> Tables:
    return logistic_tables([60, 25, 90], DIM)


def private(noise: float = 1.5, learning_rate: float = 0.3) -> PVI:
    return PVI(GradientSteps(4, learning_rate, PoissonGaussian(noise_multiplier=noise)))


def same(a: Result, b: Result) -> bool:
    return same_bits(a, b) and a.history == b.history and a.checkpoint.settings == b.checkpoint.settings


def alone(tables: Tables, own: Sequence[dict[str, Any]], **common: Any) -> list[Result]:
    return [simulate(tables, MODEL, **{**common, **each}) for each in own]


DIFFERENCES: dict[str, list[dict[str, Any]]] = {
    "seeds": [{"seed": seed} for seed in (7, 3, 3)],
    "settings": [{"seed": 0, "algorithm": private(*each)} for each in ((1.0, 0.3), (2.0, 0.3), (1.0, 0.05))],
    "schedules": [{"seed": 0, "schedule": each} for each in (RoundRobin(), Synchronous(), EventDriven())],
    "ends": [{"seed": 0, "communications": 7}, {"seed": 0, "until": 3.0}, {"seed": 0, "max_updates": [1, 5, 2]}],
    "budgets": [{"seed": 0, "privacy": Budget(each, "paper"), "communications": None} for each in (1.0, 2.0, 4.0)],
    "priors": [{"seed": 0, "prior": Gaussian.standard(DIM, variance)} for variance in (0.1, 1.0, 2.0)],
    "kinds": [
        {"seed": 0, "prior": FullGaussian.standard(DIM)},
        {"seed": 0, "algorithm": PVI(GradientSteps(2))},
        {"seed": 0, "algorithm": CentralisedVI(GradientSteps(3, 0.1))},
        {"seed": 1, "algorithm": PVI(GradientSteps(2))},
    ],
}


@pytest.mark.parametrize("own", DIFFERENCES.values(), ids=DIFFERENCES)
def test_runs_made_together_are_the_runs_made_alone(tables: Tables, own: list[Any]) -> None:
    common: dict[str, Any] = {
        "algorithm": private(),
        "communications": 30,
        "test": tables["site 1"],
        "evaluate_every": 8,
        "measure": lambda carry: {"version": carry.server.version},
    }
    together = simulate_all(tables, MODEL, own, **common)
    assert len(together) == len(own)
    assert all(map(same, together, alone(tables, own, **common)))


def test_runs_that_differ_in_numbers_share_one_compiled_loop(tables: Tables) -> None:
    def compiled(own: list[Any]) -> int:
        before: int = play_blocks._cache_size()  # type: ignore[attr-defined]
        simulate_all(tables, MODEL, own, communications=9)
        return play_blocks._cache_size() - before  # type: ignore[attr-defined]

    numbers = [{"seed": seed, "algorithm": private(noise)} for seed in (0, 1) for noise in (1.0, 2.0, 3.0)]
    assert compiled(numbers) == 1
    assert compiled(numbers[::-1]) == 0
    assert compiled([{"seed": 0, "algorithm": PVI(GradientSteps(steps))} for steps in (2, 3)]) == 2


def test_rows_are_laid_out_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[Any] = []

    def counted(*rows: Any) -> Any:
        laid_out.append(lay_out(*rows))
        return laid_out[-1]

    monkeypatch.setattr("fedvi.simulation.clients.lay_out", counted)
    own: Any = [{"seed": 0, "algorithm": PVI(damping=damping)} for damping in (0.1, 0.2)]
    simulate_all(tables, MODEL, own, communications=2)
    assert len(laid_out) == 1
    simulate_all(tables, MODEL, [*own, {"seed": 0, "algorithm": private()}], communications=2)
    assert len(laid_out) == 3  # where rows are protected they are on their grid: not the same rows


def test_a_run_that_goes_wrong_does_not_stop_the_others(tables: Tables) -> None:
    own: Any = [{"seed": 1, "algorithm": private(1.0, rate)} for rate in (0.3, 1e30, 0.1)]
    with pytest.raises(SimulationsFailed, match=r"^1 of 3 runs went wrong\. Run 1: .*'site \d'") as failed:
        simulate_all(tables, MODEL, own, communications=40)
    first, wrong, last = failed.value.outcomes
    good = alone(tables, [own[0], own[2]], communications=40)
    assert isinstance(first, Result)
    assert same(first, good[0])
    assert isinstance(last, Result)
    assert same(last, good[1])
    with pytest.raises(ReleaseRefused) as by_itself:
        simulate(tables, MODEL, **own[1], communications=40)
    assert isinstance(wrong, ReleaseRefused)
    assert str(wrong) == str(by_itself.value)
    assert wrong.result is not None
    assert by_itself.value.result is not None
    assert same(wrong.result, by_itself.value.result)


def test_what_fails_while_measuring_ends_that_run_alone(tables: Tables) -> None:
    def picky(carry: Any) -> dict[str, float]:
        if carry.server.version == 10 and carry.server.prior.variance[0] < 0.5:
            raise ValueError("no")
        return {}

    own: Any = [{"seed": 0, "prior": Gaussian.standard(DIM, variance)} for variance in (0.1, 1.0)]
    with pytest.raises(SimulationsFailed, match=r"Run 0: no") as failed:
        simulate_all(tables, MODEL, own, communications=30, evaluate_every=10, measure=picky)
    wrong, good = failed.value.outcomes
    assert isinstance(wrong, ValueError)
    assert isinstance(good, Result)
    assert good.checkpoint.communications == 30


def test_interrupted_runs_go_on_from_where_they_were(tables: Tables) -> None:
    own: Any = [{"seed": 0}, {"seed": 1}, {"seed": 2, "algorithm": PVI(GradientSteps(2))}]
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    with pytest.raises(SimulationInterrupted) as interrupted:
        simulate_all(tables, MODEL, own, communications=50, evaluate_every=10, stop=stop)
    done = [outcome.checkpoint for outcome in interrupted.value.outcomes]
    assert done[0].communications == done[1].communications > done[2].communications == 0
    again: Any = [{**each, "resume": checkpoint} for each, checkpoint in zip(own, done, strict=True)]
    resumed = simulate_all(tables, MODEL, again, communications=50, evaluate_every=10)
    assert all(map(same, resumed, alone(tables, own, communications=50, evaluate_every=10)))


def test_an_error_that_concerns_all_runs_ends_them_and_keeps_what_was_done(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def out_of_memory(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError("no room")
        return play_blocks(*given)

    monkeypatch.setattr("fedvi.simulation.loop.play_blocks", out_of_memory)
    own: Any = [{"seed": 0}, {"seed": 1}]
    with pytest.raises(MemoryError, match="no room") as failed:
        simulate_all(tables, MODEL, own, communications=50)
    error: Any = failed.value
    done = [outcome.checkpoint.communications for outcome in error.outcomes]
    assert done[0] == done[1] > 0
    assert error.result.checkpoint.communications == done[0]
    monkeypatch.undo()
    again: Any = [{**each, "resume": left.checkpoint} for each, left in zip(own, error.outcomes, strict=True)]
    resumed = simulate_all(tables, MODEL, again, communications=50)
    assert all(map(same, resumed, alone(tables, own, communications=50)))


def test_no_runs_are_no_results(tables: Tables) -> None:
    assert simulate_all(tables, MODEL, []) == []


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ([{"seed": 0}, {"seed": -1}], r"seed"),
        ([{"seed": 0}, {}], r"Expected a seed for every run.*got communications"),
        ([{"seed": 0, "sede": 1}], r"at most seed, prior, .*got communications, seed, sede"),
        ([{"seed": 0, "communications": 0}], r"communications.*got 0"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(tables: Tables, own: Any, message: str) -> None:
    def never(carry: Any) -> dict[str, float]:
        raise AssertionError(carry)

    with pytest.raises(InputError, match=message):
        simulate_all(tables, MODEL, own, communications=3, measure=never)
