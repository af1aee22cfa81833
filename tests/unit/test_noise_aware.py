"""Noise-aware factors: how they are read, what a row can do to them, how noise averages out, and that it pays."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federations import Tables, linear_tables, logistic_tables, pool, relative_error
from fedvi import (
    PVI,
    Budget,
    CustomModel,
    FullGaussian,
    Gaussian,
    LinearRegression,
    LogisticRegression,
    NoiseAwarePVI,
    simulate,
)
from fedvi.errors import ImproperRelease, InputError, ResumeError
from fedvi.families import NoisyGaussian
from fedvi.inference import (
    AveragedQuadratics,
    GradientSteps,
    PrivateClient,
    Public,
    Release,
    Server,
    evaluate,
)
from fedvi.inference.noise_aware import Quadratic, QuadraticPart
from fedvi.inference.rows import Rows
from fedvi.inference.update import draw, init_client, update
from fedvi.numerics import Bounds, double_precision, on_row_grid, row_lengths, widen
from fedvi.privacy import ClientLevel, FullBatch, FullBatchGaussian, PoissonGaussian
from fedvi.privacy.budget import least_noise
from fedvi.privacy.clipping import clipped_sums, in_units
from fedvi.privacy.sampling import UPDATE, Seeded
from fedvi.pytree import pytree
from fedvi.simulation import Asynchronous, EventDriven, Paced, RoundRobin, Synchronous

DIM = 3
PLAIN = NoiseAwarePVI(AveragedQuadratics(mechanism=FullBatch()), damping=0.5)
BUDGET = Budget(1.0, 1e-4)
BOUND = 64.0


def on_grid(x: Any, bound: float = BOUND) -> Any:
    return on_row_grid(np.asarray(x, np.float32), bound)[0]


def site_of(x: Any, y: Any) -> Rows:
    rows = on_grid(x)
    return Rows(
        x=jnp.asarray(rows),
        y=jnp.asarray(y, float),
        lengths=jnp.asarray(row_lengths(rows)),
        offset=jnp.int32(0),
        feature_bound=jnp.asarray(BOUND),
    )


def private_sums(
    part: QuadraticPart, q: Any, x: Any, y: Any, mask: Any, clip: Any, bound: float = BOUND, lengths: Any = None
) -> tuple[Any, Any]:
    """Return the sums over rows on their grid as whole numbers, and in their units."""
    lengths = jnp.asarray(row_lengths(np.asarray(x))) if lengths is None else lengths
    with double_precision():
        bounds = Bounds(widen(clip), widen(bound), len(y))
        parts = part.row_vectors(q, jnp.zeros(0, jnp.float32), jnp.asarray(bound, jnp.float32))(x, y, lengths)
        sums = clipped_sums(parts, widen(mask), bounds)
        return sums, in_units(sums, parts, bounds)


# Reading


@given(st.floats(-30, 30), st.floats(0.01, 50), st.floats(0, 500), st.floats(-2, 2), st.floats(0.1, 5))
def test_a_product_is_read_as_bayes_rule_reads_the_noisy_observation(
    m: float, precision: float, noise: float, prior_mean: float, prior_variance: float
) -> None:
    """By quadrature: w ~ N(prior), m | w ~ N(S w, S + V)."""
    prior = Gaussian.from_moments([prior_mean], [prior_variance])
    product = NoisyGaussian(jnp.array([m]), jnp.array([precision]), jnp.array([noise]))
    q = product.posterior(prior)
    error = np.sqrt(precision + noise)
    centre, width = float(q.mean[0]), float(q.std[0])
    w = centre + width * np.linspace(-12, 12, 20_001)
    log_density = -0.5 * ((m - precision * w) / error) ** 2 - 0.5 * (w - prior_mean) ** 2 / prior_variance
    weights = np.exp(log_density - log_density.max())
    mean = np.average(w, weights=weights)
    assert abs(mean - centre) < 1e-3 * width
    assert np.sqrt(np.average((w - mean) ** 2, weights=weights)) == pytest.approx(width, rel=1e-3)


def test_without_noise_it_is_the_ordinary_product() -> None:
    rng = np.random.default_rng(0)
    mean, precision = jnp.asarray(rng.normal(size=(2, DIM)) + 3, float)
    noisy = NoisyGaussian(mean, precision, jnp.zeros(DIM)).posterior(Gaussian.standard(DIM))
    plain = Gaussian.standard(DIM) * Gaussian(mean, precision)
    assert relative_error(noisy.mean, np.asarray(plain.mean)) < 1e-6
    assert relative_error(noisy.variance, np.asarray(plain.variance)) < 1e-6


@pytest.mark.parametrize("precision", [0.0, -5.0])
@pytest.mark.parametrize("noise", [0.0, 7.0, -7.0])
def test_where_nothing_is_known_the_posterior_is_the_prior(precision: float, noise: float) -> None:
    product = NoisyGaussian(jnp.array([100.0]), jnp.array([precision]), jnp.array([noise]))
    q = product.posterior(Gaussian.standard(1))
    assert (float(q.mean[0]), float(q.variance[0])) == (0.0, 1.0)


# What rows can do


def sums_by_hand(x: np.ndarray, slopes: np.ndarray, clip: float, share: float, weight: float) -> tuple[Any, Any]:
    def clipped(vector: np.ndarray, limit: float) -> np.ndarray:
        return vector * min(1.0, limit / max(float(np.linalg.norm(vector)), 1e-300))

    pairs = zip(x, slopes, strict=True)
    slope = sum(clipped(a * row, clip * np.sqrt(1 - share)) for row, a in pairs)
    return slope, sum(clipped(weight * row**2, clip * np.sqrt(share)) for row in x)


@pytest.mark.parametrize("model", [LogisticRegression(), LinearRegression(0.5)])
def test_clipped_sums_are_those_of_a_plain_loop(model: Any) -> None:
    bound = 4.0
    raw, labels = pool(logistic_tables([40], DIM))
    x, y = jnp.asarray(on_grid(np.round(32 * raw) / 32, bound)), jnp.asarray(labels, float)
    q = Gaussian.from_moments([0.3, -0.2, 1.0], [0.5, 1.0, 2.0]).coordinates()
    projection = q.projection(x)
    slopes, _ = model.slopes(projection.mean, projection.variance, y, jnp.zeros(0))
    part = QuadraticPart(model, 0.2, 0.7)
    mask = jnp.ones(40).at[:5].set(0.0)
    _, found = private_sums(part, q, x, y, mask, 0.8, bound)
    slope, curvature = sums_by_hand(np.asarray(x[5:], float), np.asarray(slopes[5:], float), 0.8, 0.2, 0.7)
    assert found.slope.dtype == found.curvature.dtype == jnp.float64
    assert relative_error(found.slope, slope) < 1e-5
    assert relative_error(found.curvature, curvature) < 1e-5
    _, wide = private_sums(part, q, x, y, mask, 100.0, bound)
    plain = part.gradient(q, x, y, mask, jnp.zeros(0))
    assert relative_error(wide.slope, np.asarray(plain.slope)) < 1e-4
    assert relative_error(wide.curvature, np.asarray(plain.curvature)) < 1e-4


@given(
    row=st.lists(st.floats(width=32), min_size=DIM, max_size=DIM),
    target=st.sampled_from([1.0, -1.0, 1e30, float("nan")]),
    share=st.floats(0.01, 0.5),
    clip=st.floats(1e-3, 1e3),
)
def test_no_row_moves_slope_and_curvature_by_more_than_the_clip_norm(
    row: list[float], target: float, share: float, clip: float
) -> None:
    x = jnp.asarray(on_grid(np.vstack([np.ones((4, DIM)), row])))
    y = jnp.asarray([1.0, -1.0, 1.0, 1.0, target], float)
    q = Gaussian.from_moments([2.0, -1.0, 0.0], [1.0, 0.1, 3.0]).coordinates()
    for model in (LogisticRegression(), LinearRegression()):
        part = QuadraticPart(model, share, 0.3)
        last = np.arange(5) == 4
        everybody, others, own = (
            private_sums(part, q, x, y, jnp.asarray(mask, float), jnp.float32(clip))
            for mask in (last | True, ~last, last)
        )
        for all_rows, all_others, alone in zip(*map(jax.tree.leaves, (everybody[0], others[0], own[0])), strict=True):
            assert np.array_equal(all_rows - all_others, alone)  # by exactly its own numbers
        both = everybody[1], others[1]
        moved = np.concatenate([np.asarray(a - b) for a, b in zip(*map(jax.tree.leaves, both), strict=True)])
        assert np.linalg.norm(moved) <= np.float32(clip)


# How noise averages out


def test_the_factor_says_how_much_noise_is_in_it() -> None:
    """Over 500 clients with the same rows and a q around zero, after each of three updates."""
    x, y = pool(logistic_tables([30], DIM))
    algorithm = NoiseAwarePVI(AveragedQuadratics(mechanism=FullBatchGaussian(3.0, 1.0), memory=3.0), damping=1.0)
    prior = Gaussian.standard(DIM)
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(30.0))
    site = site_of(x, y)

    def three_updates(draws: Any) -> Any:
        def one_update(state: Any, own: Any) -> Any:
            new, release, _ = update(algorithm, LogisticRegression(), public, prior, state, site, own)
            return new, release.factor

        return jax.lax.scan(one_update, init_client(algorithm, prior), draws)[1]

    source = Seeded(0, UPDATE)
    drawn = [[draw(algorithm, LogisticRegression(), public, 30, 30, source) for _ in range(3)] for _ in range(500)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves).reshape(500, 3, *leaves[0].shape), *itertools.chain(*drawn))
    factors = jax.lax.map(three_updates, stacked)
    claimed = np.asarray(factors.noise)
    assert np.all(claimed == claimed[:1, :, :1])
    assert claimed[0, :, 0] == pytest.approx([9.0, 9 * (0.25**2 + 0.75**2), 9 * (0.16 * 0.625 + 0.36)], rel=1e-5)
    found = np.asarray(factors.natural_mean).var(axis=0)
    spread = np.sqrt(2 / 500)
    assert np.all(np.abs(found / claimed[0] - 1) < 5 * spread)
    assert np.all(
        np.abs(factors.precision.var(axis=0) / factors.precision.var(axis=0)[:1] - 1 / np.array([[1], [2], [3]])) < 0.3
    )


def test_several_sampled_steps_are_averaged() -> None:
    x, y = pool(logistic_tables([200], DIM))
    site = site_of(x, y)
    prior, model = Gaussian.standard(DIM), LogisticRegression()
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(200.0))
    sampled = PoissonGaussian(2.0, 1.0, fraction=0.2)
    algorithm = NoiseAwarePVI(AveragedQuadratics(50, sampled), damping=1.0)
    own = draw(algorithm, model, public, 200, 200, Seeded(0, UPDATE))
    _, release, _ = jax.jit(update)(algorithm, model, public, prior, init_client(algorithm, prior), site, own)
    assert release.factor.noise == pytest.approx(np.full(DIM, (5 * 2.0) ** 2 / 50), rel=1e-5)
    exact = NoiseAwarePVI(AveragedQuadratics(mechanism=FullBatchGaussian(1e-3, 1.0)), damping=1.0)
    own = draw(exact, model, public, 200, 200, Seeded(0, UPDATE))
    _, truth, _ = jax.jit(update)(exact, model, public, prior, init_client(exact, prior), site, own)
    error = np.abs(np.asarray(release.factor.natural_mean - truth.factor.natural_mean))
    assert np.all(error < 5 * np.sqrt(100 / 50 + 25 * 200 * 0.2 * 0.8 / 50))


# Whole federations


def test_without_privacy_the_mean_is_stationary() -> None:
    """At the end the slope of all rows' expected log-likelihood balances the prior's pull."""
    tables = logistic_tables([60, 25, 90], DIM)
    result = simulate(tables, LogisticRegression(), seed=0, algorithm=PLAIN, schedule=RoundRobin(), max_updates=300)
    x, y = (jnp.asarray(part, float) for part in pool(tables))
    q: Any = result.posterior
    pull = LogisticRegression().gradient(q.coordinates(), x, y, jnp.ones(len(y)), jnp.zeros(0)).mean
    assert relative_error(pull, np.asarray(q.mean)) < 5e-2
    assert np.max(np.abs(np.asarray(pull - q.mean))) < 0.05


def test_without_privacy_linear_regression_has_the_exact_mean_and_the_mean_field_variances() -> None:
    tables = linear_tables([50, 20, 80], DIM)
    algorithm = NoiseAwarePVI(AveragedQuadratics(mechanism=FullBatch(), memory=6.0), damping=0.5)
    result = simulate(tables, LinearRegression(), seed=0, algorithm=algorithm, schedule=RoundRobin(), max_updates=600)
    x, y = pool(tables)
    precision = np.eye(DIM) + x.T @ x
    assert relative_error(result.posterior.mean, np.linalg.solve(precision, x.T @ y)) < 1e-2
    assert relative_error(1 / result.posterior.variance, np.diag(precision)) < 1e-5


@pytest.mark.parametrize(
    "schedule",
    [Asynchronous(), RoundRobin(), Synchronous(), Paced(), EventDriven(jitter=0.3)],
    ids=lambda s: type(s).__name__,
)
@pytest.mark.parametrize("model", [LogisticRegression(), LinearRegression()], ids=lambda m: type(m).__name__)
def test_on_every_schedule_q_is_read_from_the_sum_of_the_clients_factors(schedule: Any, model: Any) -> None:
    tables = (logistic_tables if isinstance(model, LogisticRegression) else linear_tables)([200, 90, 400], DIM)
    result = simulate(
        tables, model, seed=3, algorithm=NoiseAwarePVI(), schedule=schedule, max_updates=5, privacy=Budget(1.0)
    )
    assert {name: spent.updates for name, spent in result.privacy.items()} == dict.fromkeys(tables, 5)
    assert all(0.99 < spent.epsilon <= 1.0 for spent in result.privacy.values())
    total = jax.tree.map(
        lambda *parts: jnp.asarray(np.sum(parts, axis=0)), *(s.factor for s in result.clients.values())
    )
    assert isinstance(total, NoisyGaussian)
    q = total.posterior(Gaussian.standard(DIM))
    assert relative_error(result.posterior.natural_mean, np.asarray(q.natural_mean)) < 1e-5
    assert relative_error(result.posterior.precision, np.asarray(q.precision)) < 1e-5


@pytree
class Forgetful(NoiseAwarePVI):
    """A wrong algorithm: its factors do not say that they are noisy."""

    def change(self, factor: Any, target: Any) -> Any:
        return dataclasses.replace(super().change(factor, target), noise=jnp.zeros_like(target.noise))


def rare_features(seed: int, rows: int = 4000, dim: int = 60) -> tuple[Tables, tuple[np.ndarray, np.ndarray]]:
    """Return clients with a constant, and features that one row in a hundred has."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.ones((rows, 1)), rng.random((rows, dim)) < 0.01], axis=1)
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-x @ np.r_[0.5, rng.normal(size=dim)])), 1.0, -1.0)
    parts = np.array_split(np.arange(rows // 2), 4)
    return {f"site {m}": (x[p], y[p]) for m, p in enumerate(parts)}, (x[rows // 2 :], y[rows // 2 :])


def test_knowing_the_noise_pays_where_features_are_rare() -> None:
    scores = {}
    for algorithm in (NoiseAwarePVI(), Forgetful()):
        values = []
        for seed in range(3):
            tables, test = rare_features(seed)
            result = simulate(
                tables, LogisticRegression(), seed=seed, algorithm=algorithm, max_updates=20, privacy=Budget(0.5, 1e-4)
            )
            values.append(evaluate(LogisticRegression(), result.posterior, *test)["log_likelihood"])
        scores[type(algorithm).__name__] = np.mean(values)
    assert scores["NoiseAwarePVI"] > scores["Forgetful"] + 0.02
    assert scores["NoiseAwarePVI"] > -0.68


# Noise that fits the budget


def test_every_client_gets_the_noise_that_its_own_budget_needs() -> None:
    tables = logistic_tables([200, 90, 400], DIM)
    budgets = {"site 0": Budget(0.2, 1e-3), "site 1": Budget(1.0, 1e-3), "site 2": Budget(3.0, 1e-5, "rdp")}
    result = simulate(
        tables,
        LogisticRegression(),
        seed=0,
        algorithm=NoiseAwarePVI(),
        schedule=Paced(),
        max_updates=8,
        privacy=budgets,
    )
    for name, spent in result.privacy.items():
        assert spent.updates == 8
        assert 0.995 * budgets[name].epsilon < spent.epsilon <= budgets[name].epsilon
    factors: Any = [state.factor for state in result.clients.values()]
    noise = [float(factor.noise[0]) for factor in factors]
    assert noise[0] > noise[1] > noise[2] > 0


def test_gradient_steps_and_client_level_can_leave_their_noise_open_too() -> None:
    tables = logistic_tables([200, 90], DIM)
    steps = PVI(GradientSteps(5, 0.2, PoissonGaussian(None, 1.0, minimum=10)))
    whole = PVI(GradientSteps(5, 0.2, FullBatch()), client_level=ClientLevel(None, 0.1))
    for algorithm in (steps, whole):
        result = simulate(tables, LogisticRegression(), seed=0, algorithm=algorithm, max_updates=4, privacy=BUDGET)
        assert all(spent.updates == 4 and 0.99 < spent.epsilon <= 1 for spent in result.privacy.values())


def test_open_noise_needs_a_budget_and_a_number_of_updates() -> None:
    tables = logistic_tables([200, 90], DIM)
    for settings in ({"max_updates": 5}, {"privacy": BUDGET}, {"communications": 5}):
        with pytest.raises(InputError, match=r"leaves its noise open .* give a budget and a number of updates"):
            simulate(tables, LogisticRegression(), seed=0, algorithm=NoiseAwarePVI(), **settings)
    with pytest.raises(InputError, match="Expected a noise_multiplier, got None"):
        NoiseAwarePVI().event(Gaussian.standard(DIM), 100)


def test_a_real_client_pays_for_noise_aware_releases(tmp_path: Path) -> None:
    x, y = pool(logistic_tables([500], DIM))
    prior = Gaussian.standard(DIM)
    public = Public(prior, jnp.asarray(2.0), jnp.asarray(1000.0))
    settings = (tmp_path / "a.ledger", (x, y), LogisticRegression(), NoiseAwarePVI(), public, BUDGET)
    with pytest.raises(InputError, match="leaves its noise open"):
        PrivateClient.open(*settings)
    with PrivateClient.open(*settings, updates=3) as client:
        assert client.remaining == 3
        releases = [client.update(prior) for _ in range(3)]
        assert client.remaining == 0
    factors: Any = [release.factor for release in releases]
    noise = [float(factor.noise[0]) for factor in factors]
    assert noise[0] > noise[1] > noise[2] > 0
    assert not np.array_equal(releases[0].factor.natural_mean, releases[1].factor.natural_mean)


# Requests that make no sense


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": CustomModel(lambda w, x, y: -((y - x @ w) ** 2))}, "model in which y depends on w'x alone"),
        ({"prior": FullGaussian.standard(DIM)}, "Noise-aware factors are mean-field"),
    ],
)
def test_models_and_priors_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"model": LogisticRegression(), **changes}
    with pytest.raises(InputError, match=message):
        simulate(
            logistic_tables([20, 20], DIM), seed=0, algorithm=NoiseAwarePVI(), max_updates=2, privacy=BUDGET, **settings
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AveragedQuadratics(memory=0.5), "1 <= memory"),
        (lambda: AveragedQuadratics(share=0.0), "0 < share"),
        (lambda: AveragedQuadratics(weight=-1.0), "0 < weight"),
        (lambda: AveragedQuadratics(mechanism=FullBatchGaussian(1.0, clips="loss")), "clips='likelihood'"),
        (lambda: AveragedQuadratics(steps=0), "steps"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_quadratics_are_plain_pytrees() -> None:
    assert jax.tree.leaves(Quadratic(jnp.zeros(2), jnp.ones(2)))[1].tolist() == [1.0, 1.0]


# What a hostile reviewer found


@pytest.mark.parametrize("share", [1.5, 4.0, -3.0, float("nan")])
def test_a_share_that_makes_no_sense_protects_all_the_same(share: float) -> None:
    x, y = jnp.asarray(on_grid(np.full((1, DIM), 1e4))), -jnp.ones(1)
    lengths = jnp.asarray(row_lengths(np.asarray(x)))
    q = Gaussian.standard(DIM).coordinates()

    @jax.jit
    def summed(share: Any, mask: Any) -> Quadratic:
        part = QuadraticPart(LogisticRegression(), share, 1.0)
        return private_sums(part, q, x, y, mask, 1.0, lengths=lengths)[1]

    with double_precision():
        present, absent = (
            np.concatenate(jax.tree.leaves(summed(jnp.float32(share), jnp.full(1, mask, jnp.float32))))
            for mask in (1.0, 0.0)
        )
    same = np.array_equal(present, absent, equal_nan=True)  # nothing at all, or what is no number, in both cases
    assert same or np.linalg.norm(present - absent) <= 1
    assert np.all(np.isfinite(present))


def test_settings_of_a_real_client_cannot_be_changed_after_it_was_opened(tmp_path: Path) -> None:
    x, y = pool(logistic_tables([500], DIM))
    prior, share = Gaussian.standard(DIM), cast(Any, np.array(0.1))
    public = Public(prior, jnp.asarray(2.0), jnp.asarray(1000.0))
    algorithm = NoiseAwarePVI(AveragedQuadratics(mechanism=FullBatchGaussian(5.0, 2.0), share=share))
    with PrivateClient.open(tmp_path / "a", (x, y), LogisticRegression(), algorithm, public, BUDGET) as client:
        share[...] = 0.4
        assert float(client._algorithm.solver.share) == 0.1  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"Expected updates to be a whole number of at least 1, got 0\.5"):
        PrivateClient.open(
            tmp_path / "b",
            (x, y),
            LogisticRegression(),
            NoiseAwarePVI(),
            public,
            BUDGET,
            updates=0.5,  # type: ignore[arg-type]
        )


def test_the_server_refuses_negative_noise_and_means_that_overflow() -> None:
    honest = NoisyGaussian(jnp.array([300.0]), jnp.array([5.0]), jnp.array([1e4]))
    coordinator = Server.start(Gaussian.standard(1, 1e4), ["a", "b"], honest.one())
    huge = NoisyGaussian(jnp.array([3e38]), jnp.array([1e-6]), jnp.array([0.0]))
    with pytest.raises(ImproperRelease):
        coordinator.receive("b", Release(huge, jnp.int32(1)))
    coordinator = coordinator.receive("a", Release(honest, jnp.int32(1)))
    hiding = NoisyGaussian(jnp.array([0.0]), jnp.array([0.0]), jnp.array([-1e9]))
    with pytest.raises(ImproperRelease):
        coordinator.receive("b", Release(hiding, jnp.int32(1)))
    assert float(coordinator.posterior.mean[0]) == pytest.approx(300 * 5 / 10005 / (1e-4 + 25 / 10005), rel=1e-4)


def test_a_client_recovers_from_a_posterior_that_made_no_sense() -> None:
    x, y = pool(logistic_tables([30], DIM))
    algorithm = NoiseAwarePVI(AveragedQuadratics(mechanism=FullBatchGaussian(3.0, 1.0)))
    prior, model = Gaussian.standard(DIM), LogisticRegression()
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(30.0))
    site = site_of(x, y)
    source, state = Seeded(0, UPDATE), init_client(algorithm, prior)
    bad = Gaussian(jnp.full(DIM, 3e38), jnp.full(DIM, 1e-3))
    for q, sensible in ((bad, False), (prior, True)):
        own = draw(algorithm, model, public, 30, 30, source)
        state, release, _ = jax.jit(update)(algorithm, model, public, q, state, site, own)
        state = state if sensible else dataclasses.replace(state, factor=NoisyGaussian.one_like(prior))
        assert bool(np.all(np.isfinite(release.factor.natural_mean))) == sensible


def test_a_run_is_not_resumed_with_other_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {
        "clients": logistic_tables([200, 90], DIM),
        "model": LogisticRegression(),
        "seed": 0,
        "algorithm": NoiseAwarePVI(),
        "max_updates": 6,
        "privacy": BUDGET,
    }
    half = simulate(**settings, communications=4)
    monkeypatch.setattr("fedvi.inference.algorithms.least_noise", lambda *given: 1.3 * least_noise(*given))
    with pytest.raises(ResumeError, match="The saved run has"):
        simulate(**settings, resume=half.checkpoint)


@pytest.mark.parametrize("noise", [np.int64(2**32 + 1), np.array(2**32 + 1), 1e7])
def test_noise_that_compiled_code_could_not_hold_is_refused(noise: Any) -> None:
    for make in (FullBatchGaussian, PoissonGaussian, ClientLevel):
        with pytest.raises(InputError, match="noise_multiplier <= 1e"):
            make(noise)
    with pytest.raises(InputError, match="client_level"):
        NoiseAwarePVI(client_level=ClientLevel())  # type: ignore[arg-type]
