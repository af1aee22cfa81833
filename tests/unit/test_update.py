"""The client's update: a pure function whose randomness is an argument."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from federations import linear_tables, logistic_tables, pool
from fedvi import PVI, FullGaussian, Gaussian, LinearRegression, LogisticRegression
from fedvi.errors import ImproperError, InputError
from fedvi.inference import Algorithm, ClientState, Draws, Exact, GradientSteps, Public, Release, adagrad
from fedvi.inference import update as client
from fedvi.inference.rows import Rows
from fedvi.inference.update import checked_update, draw, init_client, update
from fedvi.models import Model, MonteCarlo
from fedvi.privacy import FullBatch, Minibatch
from fedvi.privacy.events import NOT_PRIVATE
from fedvi.privacy.sampling import UPDATE, Seeded

DIM, ROWS = 4, 60


def site_of(x: Any, y: Any, offset: int = 0) -> Rows:
    return Rows(
        x=jnp.asarray(x, float),
        y=jnp.asarray(y, float),
        lengths=jnp.zeros(len(y)),
        offset=jnp.int32(offset),
        feature_bound=jnp.asarray(0.0),
    )


@pytest.fixture
def site() -> Rows:
    return site_of(*logistic_tables([ROWS], DIM)["site 0"])


def public(prior: Any, rows: int = ROWS) -> Public:
    return Public(prior, jnp.asarray(1.0), jnp.asarray(float(rows)))


def draws_of(algorithm: Algorithm, model: Model, seed: int = 0, capacity: int | None = None) -> Draws:
    return draw(algorithm, model, public(Gaussian.standard(DIM)), ROWS, ROWS, Seeded(seed, UPDATE), capacity)


def one_update(
    algorithm: Algorithm, site: Rows, q: Any, state: ClientState | None = None, draws: Draws | None = None
) -> tuple[ClientState, Any]:
    model = LogisticRegression()
    state = init_client(algorithm, q) if state is None else state
    draws = draws_of(algorithm, model) if draws is None else draws
    return checked_update(algorithm, model, public(Gaussian.standard(DIM)), q, state, site, draws)


def leaves_equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(s, t) for s, t in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_update_is_a_function_of_its_arguments(site: Rows) -> None:
    algorithm, q = PVI(), Gaussian.standard(DIM)
    first, second = one_update(algorithm, site, q), one_update(algorithm, site, q)
    assert leaves_equal(first, second)
    other = one_update(algorithm, site, q, draws=draws_of(algorithm, LogisticRegression(), seed=1))
    assert leaves_equal(first, other)  # 60 rows fit into one batch of 100: nothing is random
    small = PVI(GradientSteps(mechanism=Minibatch(10)))
    a = one_update(small, site, q, draws=draws_of(small, LogisticRegression(), seed=0))
    b = one_update(small, site, q, draws=draws_of(small, LogisticRegression(), seed=1))
    assert not leaves_equal(a, b)


def test_release_holds_factor_sequence_event_and_hash_of_the_schema_and_nothing_else(site: Rows) -> None:
    assert [field.name for field in dataclasses.fields(Release)] == ["factor", "sequence", "event", "schema"]
    state, release = one_update(PVI(), site, Gaussian.standard(DIM))
    assert isinstance(release, Release)
    assert isinstance(release.factor, Gaussian)
    assert leaves_equal(release.factor, state.factor)
    assert int(release.sequence) == 1
    assert release.event == NOT_PRIVATE
    assert release.schema == ""


def test_padding_changes_nothing(site: Rows) -> None:
    algorithm, q = PVI(GradientSteps(mechanism=Minibatch(10))), Gaussian.standard(DIM)
    plain, padded = (draws_of(algorithm, LogisticRegression(), capacity=capacity) for capacity in (10, 37))
    assert padded.rows.shape[1] == 37
    for a, b in zip(
        jax.tree.leaves(one_update(algorithm, site, q, draws=plain)),
        jax.tree.leaves(one_update(algorithm, site, q, draws=padded)),
        strict=True,
    ):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_rows_that_were_not_drawn_are_not_computed_with(site: Rows) -> None:
    """Masked places repeat a drawn row: a row of NaN elsewhere in the client's data must not show."""
    algorithm, q = PVI(GradientSteps(3, 0.5, Minibatch(5))), Gaussian.standard(DIM)
    seeds = range(9)
    draws = next(d for d in (draws_of(algorithm, LogisticRegression(), s, 9) for s in seeds) if 0 not in d.rows[:, :5])
    absent = np.setdiff1d(np.arange(ROWS), draws.rows[:, :5])
    spoiled = dataclasses.replace(site, x=site.x.at[absent].set(jnp.nan))
    assert leaves_equal(one_update(algorithm, site, q, draws=draws), one_update(algorithm, spoiled, q, draws=draws))


def test_other_clients_rows_in_the_buffer_change_nothing(site: Rows) -> None:
    algorithm, q = PVI(GradientSteps(mechanism=Minibatch(10))), Gaussian.standard(DIM)
    others = jnp.full((13, DIM), jnp.nan), jnp.full(13, jnp.nan)
    buffer = site_of(
        jnp.concatenate([others[0], site.x, others[0]]), jnp.concatenate([others[1], site.y, others[1]]), 13
    )
    assert leaves_equal(one_update(algorithm, site, q), one_update(algorithm, buffer, q))


def test_minibatches_are_distinct_rows_and_uniform() -> None:
    rows, mask = Minibatch(7).draw(Seeded(0, UPDATE), 20, 20, 4000, 7)
    assert mask.all()
    assert all(len(set(batch)) == 7 for batch in rows.tolist())
    counts = np.bincount(rows.ravel(), minlength=20)
    expected = 4000 * 7 / 20
    spread = np.sqrt(4000 * 7 / 20 * 13 / 20)
    assert np.all(np.abs(counts - expected) < 5 * spread)


def test_batch_size_follows_the_paper() -> None:
    sampler = Minibatch(20, 0.02)
    assert [sampler.batch_size(rows) for rows in (3907, 390, 7424, 10)] == [79, 20, 149, 10]
    assert FullBatch().batch_size(123) == 123


def test_batches_are_padded_masked_and_scaled_to_all_rows() -> None:
    rows, mask = FullBatch().draw(Seeded(0, UPDATE), 3, 3, 20, 5)
    assert (rows.tolist(), mask.tolist()) == ([[0, 1, 2, 0, 0]], [[True, True, True, False, False]])
    draws = draws_of(PVI(GradientSteps(mechanism=Minibatch(10))), LogisticRegression(), capacity=15)
    assert draws.mask.sum(axis=1).tolist() == [10] * 20
    assert float(draws.scale) == ROWS / 10


def test_accumulators_persist_between_communications(site: Rows) -> None:
    """With Adagrad's state kept, the second update takes smaller steps than one that starts afresh."""
    algorithm, q = PVI(GradientSteps(5, 0.5, FullBatch())), Gaussian.standard(DIM)
    state, release = one_update(algorithm, site, q)
    q = q * release.factor
    afresh = dataclasses.replace(state, solver=init_client(algorithm, q).solver)
    kept, forgot = (one_update(algorithm, site, q, start)[1].factor for start in (state, afresh))
    move_kept, move_forgot = (float((q * t).kl(q * state.factor)) for t in (kept, forgot))
    assert move_kept < move_forgot


def test_adagrad_is_the_textbook_one() -> None:
    transform = adagrad(0.5)
    state, total, w = transform.init(jnp.zeros(2)), np.zeros(2), np.zeros(2)
    moved = jnp.zeros(2)
    for gradient in ([1e-3, 0.0], [-3.0, 0.0], [0.5, 2.0]):
        updates, state = transform.update(jnp.array(gradient), state)
        moved = optax.apply_updates(moved, updates)
        total += np.square(gradient)
        w -= 0.5 * np.divide(gradient, np.sqrt(total), out=np.zeros(2), where=total > 0)
        assert np.allclose(moved, w, atol=1e-4)


def clipped_adam(learning_rate: Any) -> optax.GradientTransformation:
    return optax.chain(optax.clip(1.0), optax.adam(learning_rate))


@pytest.mark.parametrize("optimizer", [adagrad, optax.adam, optax.sgd, clipped_adam])
def test_any_optax_optimiser_lowers_the_local_objective(site: Rows, optimizer: Any) -> None:
    model, q = LogisticRegression(), Gaussian.standard(DIM)
    algorithm = PVI(GradientSteps(40, 0.02, FullBatch(), optimizer), damping=1.0)
    with jax.numpy_dtype_promotion("standard"):  # inside optax
        _, release = one_update(algorithm, site, q)

    def negative_elbo(posterior: Any) -> float:
        data = model.expected_log_likelihood(posterior, site.x, site.y, jnp.zeros(0))
        return float(posterior.kl(q) - jnp.sum(data))

    assert negative_elbo(q * release.factor) < negative_elbo(q) - 1


def test_a_client_with_nothing_to_say_says_nothing() -> None:
    """A column of zeros carries no information, and rounding errors must not be turned into steps.

    An adaptive optimiser scales any gradient up to the learning rate: an objective written naively moves this
    coordinate by thousands of its standard deviations.
    """
    x, y = logistic_tables([ROWS], DIM)["site 0"]
    x[:, 2] = 0
    q = Gaussian.from_moments([0.1, -0.7, 0.3, 1.1], [0.03, 0.7, 0.011, 0.3])
    _, release = one_update(PVI(), site_of(x, y), q)
    assert abs(float(release.factor.natural_mean[2] / q.natural_mean[2])) < 1e-6
    assert abs(float(release.factor.precision[2] / q.precision[2])) < 1e-6
    assert np.all(np.asarray(release.factor.precision)[[0, 1, 3]] != 0)


def test_repair_is_counted_and_can_be_left_out(site: Rows) -> None:
    """A factor that claims much more than the rows say is corrected downwards, and overshoots below zero."""
    q = Gaussian.from_moments(np.zeros(DIM), np.full(DIM, 1e-4))
    factors, repairs = {}, {}
    for repair in (True, False):
        algorithm = PVI(GradientSteps(1, 3.0, FullBatch()), damping=1.0, repair=repair)
        state = dataclasses.replace(init_client(algorithm, q), factor=Gaussian(jnp.zeros(DIM), jnp.full(DIM, 9000.0)))
        state, release = one_update(algorithm, site, q, state)
        factors[repair], repairs[repair] = np.asarray(release.factor.precision), int(state.repairs)
    assert np.all(factors[False] < 0)
    assert repairs == {True: DIM, False: 0}
    assert np.all(factors[True] == 0)


def test_repair_comes_after_damping_and_counts_over_communications(site: Rows) -> None:
    q = Gaussian.from_moments(np.zeros(DIM), np.full(DIM, 1e-4))
    claim = Gaussian(jnp.zeros(DIM), jnp.full(DIM, 9000.0))
    damped = PVI(GradientSteps(1, 3.0, FullBatch()), damping=0.5)  # towards a negative target, but only halfway
    state, release = one_update(damped, site, q, dataclasses.replace(init_client(damped, q), factor=claim))
    assert int(state.repairs) == 0
    assert np.all((release.factor.precision > 0) & (release.factor.precision < 9000))
    whole = PVI(GradientSteps(1, 3.0, FullBatch()), damping=1.0)
    before = dataclasses.replace(init_client(whole, q), factor=claim, repairs=jnp.int32(100))
    assert int(one_update(whole, site, q, before)[0].repairs) == 100 + DIM


def test_improper_cavity_is_a_clear_error(site: Rows) -> None:
    algorithm, q = PVI(), Gaussian.standard(DIM)
    state = dataclasses.replace(init_client(algorithm, q), factor=q**2)
    with pytest.raises(ImproperError, match="cavity of the client is improper"):
        one_update(algorithm, site, q, state)
    with pytest.raises(ImproperError, match="posterior that the client received is improper"):
        one_update(algorithm, site, q / q**2)
    # compiled code cannot raise: there the release is not a number, and every server refuses it
    model = LogisticRegression()
    _, release, _ = jax.jit(update)(algorithm, model, public(q), q, state, site, draws_of(algorithm, model))
    assert np.all(np.isnan(jax.tree.leaves(release.factor)))


@pytest.mark.parametrize("part", ["rows", "model_noise"])
@pytest.mark.parametrize("step", [0, 1, 4])
def test_every_step_uses_its_own_draws(site: Rows, part: str, step: int) -> None:
    algorithm, model = PVI(GradientSteps(5, 0.5, Minibatch(10))), LogisticRegression(MonteCarlo(3))
    q = Gaussian.standard(DIM)

    def factor(draws: Any) -> Any:
        return checked_update(algorithm, model, public(q), q, init_client(algorithm, q), site, draws)[1].factor

    draws, other = draws_of(algorithm, model), draws_of(algorithm, model, seed=1)
    mixed: Any = np.array(getattr(draws, part))
    mixed[step] = getattr(other, part)[step]
    assert not leaves_equal(factor(draws), factor(dataclasses.replace(draws, **{part: mixed})))


def test_exact_update_finds_the_conjugate_factor() -> None:
    x, y = linear_tables([ROWS], DIM)["site 0"]
    algorithm, model, prior = PVI(Exact(), damping=1.0), LinearRegression(0.5), FullGaussian.standard(DIM)
    state = init_client(algorithm, prior)
    _, release = checked_update(
        algorithm, model, public(prior), prior, state, site_of(x, y), draws_of(algorithm, model)
    )
    assert isinstance(release.factor, FullGaussian)
    assert np.allclose(release.factor.natural_mean, x.T @ y / 0.5, rtol=1e-4)
    assert np.allclose(release.factor.precision, x.T @ x / 0.5, rtol=1e-4, atol=1e-4)


def test_gradient_steps_find_the_same_optimum_as_exact() -> None:
    x, y = linear_tables([ROWS], DIM)["site 0"]
    model, prior = LinearRegression(), Gaussian.standard(DIM)
    factors: list[Any] = []
    for solver in (Exact(), GradientSteps(3000, 0.3, FullBatch())):
        algorithm = PVI(solver, damping=1.0)
        state = init_client(algorithm, prior)
        draws = draws_of(algorithm, model)
        factors.append(checked_update(algorithm, model, public(prior), prior, state, site_of(x, y), draws)[1].factor)
    exact, stepped = (prior * factor for factor in factors)
    assert float(stepped.kl(exact)) < 1e-3 < float(prior.kl(exact))


def test_one_compilation_serves_settings_and_clients_of_any_size() -> None:
    model, prior = LogisticRegression(), Gaussian.standard(DIM)
    x, y = pool(logistic_tables([30, 50], DIM))
    compilations = set()
    for rate, damping, offset, size in ((0.1, 0.5, 0, 30), (0.7, 0.25, 30, 50), (2.0, 1.0, 0, 30)):
        algorithm = PVI(GradientSteps(3, rate, Minibatch(10)), damping)
        site = site_of(x, y, offset)
        draws = draw(algorithm, model, public(prior), size, size, Seeded(0, UPDATE))
        checked_update(algorithm, model, public(prior), prior, init_client(algorithm, prior), site, draws)
        compilations.add(jax.jit(client._without_seen)._cache_size())  # type: ignore[attr-defined]
    assert len(compilations) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PVI(damping=0.0), "Expected 0 < damping <= 1, got 0.0"),
        (lambda: PVI(damping=1.5), "Expected 0 < damping <= 1, got 1.5"),
        (lambda: PVI(damping=np.float32(1.5)), "Expected 0 < damping <= 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: PVI(damping=jnp.float32(1.5)), "Expected 0 < damping <= 1, got 1.5"),
        (lambda: PVI(GradientSteps), r"solver, got the class: write GradientSteps\(...\)"),  # type: ignore[arg-type]
        (lambda: GradientSteps(mechanism=Minibatch), r"write Minibatch\(...\)"),  # type: ignore[arg-type]
        (lambda: GradientSteps(steps=0), "Expected steps to be a whole number of at least 1, got 0"),
        (lambda: GradientSteps(learning_rate=-1.0), "Expected 0 < learning_rate, got -1.0"),
        (lambda: GradientSteps(learning_rate="0.5"), "Expected a number for learning_rate, got '0.5'"),  # type: ignore[arg-type]
        (lambda: GradientSteps(learning_rate=float("nan")), "Expected 0 < learning_rate, got nan"),
        (lambda: Minibatch(0), "Expected minimum"),
        (lambda: Minibatch(10, 1.5), "Expected 0 <= fraction <= 1, got 1.5"),
    ],
)
def test_settings_are_checked(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
