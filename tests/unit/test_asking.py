"""Noise-aware PVI by questions: simulations, servers and private clients go the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import PVI, Budget, Gaussian, LogisticRegression, NoiseAwarePVI, simulate, simulate_all
from fedvi.audit.parts import audit_parts
from fedvi.audit.subject import Subject
from fedvi.compiling import jnp
from fedvi.errors import InputError
from fedvi.families import FullGaussian
from fedvi.inference import PrivateClient, Public, Server
from fedvi.inference.questions import Answers
from fedvi.models.linear import LinearRegression
from fedvi.privacy import FullBatch
from fedvi.privacy.mechanism import FullBatchGaussian
from fedvi.privacy.sampling import System
from fedvi.simulation import Asynchronous, Checkpoint, RoundRobin
from fedvi.tables import BinaryTarget, Category, Number, Schema

DIM, QUESTIONS = 3, 5
FEW = NoiseAwarePVI(questions=QUESTIONS, moments=1, intercept=True, covariance="full")
EXACT = NoiseAwarePVI(Answers(FullBatch()), intercept=True)
TRUE = np.array([0.3, 1.0, -1.0])


def tables(*sizes: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    made = []
    for size in sizes:
        x = np.column_stack([np.ones(size), np.clip(rng.normal(size=(size, DIM - 1)), -3, 3)])
        made.append((x, (rng.random(size) < 1 / (1 + np.exp(-x @ TRUE))).astype(float)))
    return made


def run(sites: Any, algorithm: NoiseAwarePVI = FEW, **settings: Any) -> Any:
    given: dict[str, Any] = {"seed": 1, "privacy": Budget(2.0), "progress": False, **settings}
    return simulate(sites, LogisticRegression(), algorithm=algorithm, **given)


def test_all_clients_answer_all_questions_and_the_noise_fits_the_budget() -> None:
    result = run(tables(400, 300))
    assert [int(state.sequence) for state in result.clients.values()] == [QUESTIONS, QUESTIONS]
    for spent in result.privacy.values():
        assert 0.99 * spent.epsilon_max < spent.epsilon <= spent.epsilon_max
    asked = result.asked
    assert int(asked.count) == QUESTIONS
    assert isinstance(result.posterior, FullGaussian)
    np.testing.assert_array_equal(np.asarray(result.posterior.precision), np.asarray(asked.posterior.precision))
    assert result.converged is not None


def test_a_plan_knows_what_is_public_about_the_columns() -> None:
    schema = Schema((Number("a", 0, 6, 0, 2), Category("c", ("p", "q", "r"))), BinaryTarget("y", ("no", "yes")))
    plan = NoiseAwarePVI(questions=4, moments=1, covariance="full").laid_out(schema.layout).plan
    assert (plan.intercept, plan.bound, plan.exclusive) == (True, 3, ((2, 3),))
    others = PVI()
    assert others.laid_out(schema.layout) is others


def test_private_posteriors_know_what_noise_has_taken() -> None:
    sites = tables(2000, 1000)
    exact = simulate(sites, LogisticRegression(), seed=0, algorithm=EXACT, progress=False)
    assert exact.converged
    loud, quiet = run(sites, privacy=Budget(0.3)), run(sites, privacy=Budget(8.0))
    stds = [np.asarray(each.posterior.std) for each in (exact, quiet, loud)]
    assert (stds[0] < stds[1]).all()
    assert (stds[1] < stds[2]).all()
    kept = [float(np.mean(each.asked.evidence_kept)) for each in (loud, quiet)]
    assert kept[0] < kept[1] <= 1
    assert np.abs((np.asarray(quiet.posterior.mean) - TRUE) / stds[1]).max() < 4


def test_schedules_do_not_matter_where_everybody_answers_in_turn() -> None:
    sites = tables(200, 300)
    first, other = run(sites), run(sites, schedule=RoundRobin())
    np.testing.assert_allclose(np.asarray(first.posterior.mean), np.asarray(other.posterior.mean), atol=1e-5)


def test_a_client_that_comes_late_answers_the_old_questions() -> None:
    result = run(tables(100, 2000), schedule=Asynchronous())
    assert [int(state.sequence) for state in result.clients.values()] == [QUESTIONS, QUESTIONS]
    assert np.isfinite(np.asarray(result.posterior.mean)).all()
    rows = sum(np.asarray(state.factor.rows) for state in result.clients.values())
    np.testing.assert_allclose(rows, 2100)


def test_runs_together_and_resumed_are_the_same_as_alone(tmp_path: Path) -> None:
    sites = tables(150, 100)
    alone = run(sites, seed=4)
    together = simulate_all(
        sites, LogisticRegression(), [{"seed": 3}, {"seed": 4}], algorithm=FEW, privacy=Budget(2.0), progress=False
    )[1]
    part = run(sites, seed=4, communications=5)
    part.checkpoint.save(tmp_path / "run.npz")
    resumed = run(sites, seed=4, resume=Checkpoint.load(tmp_path / "run.npz"))
    for other in (together, resumed):
        np.testing.assert_array_equal(np.asarray(alone.posterior.precision), np.asarray(other.posterior.precision))
        np.testing.assert_array_equal(
            np.asarray(alone.posterior.natural_mean), np.asarray(other.posterior.natural_mean)
        )


def test_a_server_asks_when_all_have_answered_or_when_it_is_told_to(tmp_path: Path) -> None:
    prior, model = Gaussian.standard(DIM), LogisticRegression()
    sites = dict(zip(("a", "b"), tables(300, 200), strict=True))
    public = Public(prior, jnp.asarray(2.0), jnp.asarray(500.0))
    server = Server.start(prior, sites, algorithm=FEW, model=model)
    clients = {
        name: PrivateClient.open(tmp_path / name, rows, model, FEW, public, Budget(2.0), updates=QUESTIONS)
        for name, rows in sites.items()
    }
    for number in range(QUESTIONS):
        for name, client in clients.items():
            question = server.sent_to(name)
            server = server.receive(name, client.update(question))
            assert (server.sent_to(name) is None) == (name == "a" or number == QUESTIONS - 1)
    assert int(server.state.asked.count) == QUESTIONS
    assert np.isfinite(np.asarray(server.posterior.mean)).all()
    for client in clients.values():
        client.close()
    early = Server.start(prior, sites, algorithm=FEW, model=model).asking()
    assert int(early.state.asked.count) == 2  # nobody has answered the first


def test_without_a_plan_nothing_is_asked() -> None:
    with pytest.raises(InputError, match="planned"):
        NoiseAwarePVI().first_factor(Gaussian.standard(2))
    planned = NoiseAwarePVI().planned(50, [1000, 1000], [Budget(1.0).fixed(1000)] * 2)
    assert (planned.covariance, planned.questions) == ("diagonal", 30)
    assert NoiseAwarePVI().planned(10, [1000], [Budget(1.0).fixed(1000)]).covariance == "full"
    with pytest.raises(InputError, match="budget"):
        run(tables(50), algorithm=NoiseAwarePVI(), privacy=None)


@pytest.mark.parametrize("model", [LogisticRegression(), LinearRegression()])
def test_audits_find_nothing_in_answers(model: Any) -> None:
    algorithm = NoiseAwarePVI(Answers(FullBatchGaussian(5.0, 1.0)), covariance="full", questions=14, moments=3)
    findings = audit_parts(Subject(algorithm, System, model), updates=20)
    assert [finding for finding in findings if not finding.passed] == []
