"""Answers to questions: what rows add, that no weight looks at the outcome, and that sums are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from fedvi import FullGaussian, Gaussian, LinearRegression, LogisticRegression, NoiseAwarePVI
from fedvi.compiling import jax, jnp
from fedvi.errors import ImproperError, InputError
from fedvi.inference.questions import AnswerSums, Question, numbers_of
from fedvi.models.linear import WINDOW
from fedvi.numerics import on_row_grid, row_lengths
from fedvi.privacy.clipping import Batch
from fedvi.privacy.lattice import from_words
from fedvi.privacy.mechanism import FullBatchGaussian

DIM, ROWS = 4, 61
BOUND = 64.0
GRID = 2.0**-45  # half of the least unit of what is summed here


def question(full: bool = True, seed: int = 0, **numbers: float) -> Question:
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(size=DIM) / 4, rng.normal(size=(DIM, DIM))
    q: Any = FullGaussian.from_moments(mean, root @ root.T / 80) if full else Gaussian.from_moments(mean, 0.03)
    whitening = rng.normal(size=(DIM, DIM)) if full else 0.5 + rng.random(DIM)
    given = {"reach": 2.0, "slope_weight": 1.0, "curvature_weight": 0.4, "extra_weight": 0.0, "moments": 0.0}
    given |= {"noise_variance": 1.0} | numbers
    values = {name: jnp.asarray(value, jnp.float32) for name, value in given.items()}
    return Question(centre=jnp.asarray(rng.normal(size=DIM)), whitening=jnp.asarray(whitening), q=q, **values)


def table(seed: int = 1, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = on_row_grid(rng.normal(size=(rows, DIM)).astype(np.float32) * 2, BOUND)[0]
    return x, rng.choice([-1.0, 1.0], rows).astype(np.float32)


@jax.jit
def noisy(sums: AnswerSums, batch: Batch) -> Any:
    return FullBatchGaussian(1.0, 1.0).noisy_sum(sums, sums.question, batch, jnp.asarray(1.0), None)[1]


def answer(asked: Question, x: np.ndarray, y: np.ndarray, model: Any = None, room: int = 80) -> np.ndarray:
    """Return the whole-number sum without noise, as doubles."""
    count, numbers = len(x), numbers_of(DIM, full=asked.full)
    rows = np.zeros((room, DIM), np.float32), np.zeros(room, np.float32)
    rows[0][:count], rows[1][:count] = x, y
    batch: Any = Batch(
        x=jnp.asarray(rows[0]),
        y=jnp.asarray(rows[1]),
        lengths=jnp.asarray(row_lengths(rows[0])),
        rows=jnp.arange(room),
        mask=jnp.asarray(np.arange(room) < count, jnp.float32),
        feature_bound=jnp.asarray(BOUND),
        scale=jnp.asarray(1.0),
        total=jnp.asarray(float(count)),
        grid=jnp.asarray(GRID),
        model_noise=jnp.zeros(0),
        privacy_noise=jnp.zeros((numbers, 2), jnp.uint32),
    )
    return from_words(noisy(AnswerSums(model or LogisticRegression(), asked, True), batch))


def naive(asked: Question, x: np.ndarray, psi: Any, largest: Any, curvature: Any, extra: Any) -> np.ndarray:
    """Return the same by loops over rows, in NumPy."""
    centre, whitening = (np.asarray(part, np.float64) for part in (asked.centre, asked.whitening))
    total = np.zeros(numbers_of(DIM, full=asked.full))
    weights = [float(w) for w in (asked.slope_weight, asked.curvature_weight, asked.extra_weight)]
    for i, row in enumerate(x.astype(np.float64)):
        z = (row - centre) @ whitening if asked.full else (row - centre) * whitening
        matrix = np.outer(z, z) if asked.full else np.diag(z**2)
        norm_ = np.sqrt(
            (weights[0] * largest[i]) ** 2 * (z @ z)
            + (weights[1] * curvature[i]) ** 2 * np.sum(matrix**2)
            + weights[2] ** 2
        )
        s = min(1.0, float(asked.reach) / norm_) / float(asked.reach)
        if asked.full:
            packed = [matrix[j, k] * (1 if j == k else 2**0.5) for j in range(DIM) for k in range(j, DIM)]
        else:
            packed = list(np.diag(matrix))
        own = [weights[0] * psi[i] * z, weights[1] * curvature[i] * np.array(packed), [weights[2] * extra[i]]]
        total += s * np.concatenate(own)
    return total


def predictors(asked: Question, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre, whitening = (np.asarray(part, np.float64) for part in (asked.centre, asked.whitening))
    z = (x - centre) @ whitening if asked.full else (x - centre) * whitening
    mean, covariance = np.asarray(asked.q.mean, np.float64), np.asarray(asked.q.covariance, np.float64)
    return z @ mean, np.einsum("ij,jk,ik->i", z, covariance, z)


@pytest.mark.parametrize("full", [True, False])
def test_an_answer_is_the_sum_of_weighted_slopes_and_curvatures(full: bool) -> None:
    asked, (x, y) = question(full), table()
    eta, v = predictors(asked, x)

    def expected(function: Any, m: float, variance: float) -> float:
        return quad(lambda t: function(m + variance**0.5 * t) * norm.pdf(t), -12, 12, limit=200)[0]

    p = np.array([expected(expit, m, s) for m, s in zip(eta, v, strict=True)])
    a = np.array([expected(lambda t: expit(t) * expit(-t), m, s) for m, s in zip(eta, v, strict=True)])
    wanted = naive(asked, x, (y > 0) - p, np.maximum(p, 1 - p), a, np.zeros(len(x)))
    np.testing.assert_allclose(answer(asked, x, y), wanted, atol=3e-4)


@pytest.mark.parametrize("full", [True, False])
def test_moments_have_slope_and_curvature_one(full: bool) -> None:
    asked, (x, y) = question(full, moments=1.0), table()
    one = np.ones(len(x))
    np.testing.assert_allclose(answer(asked, x, y), naive(asked, x, one, one, one, 0 * one), atol=1e-4)
    np.testing.assert_array_equal(answer(asked, x, y), answer(asked, x, -y))


def test_linear_answers_have_a_symmetric_window_and_say_how_large_residuals_are() -> None:
    asked, (x, _) = question(noise_variance=0.49, extra_weight=0.5), table()
    y = np.random.default_rng(3).normal(size=len(x)).astype(np.float32) * 3
    eta, v = predictors(asked, x)
    spread, residual = np.sqrt(1 + v / 0.49), (y - eta) / 0.7
    psi, largest = np.clip(residual, -WINDOW * spread, WINDOW * spread), WINDOW * spread
    inside = np.full(len(x), 2 * norm.cdf(WINDOW) - 1)
    wanted = naive(asked, x, psi, largest, inside, np.minimum(np.abs(residual) / (2 * spread), 1))
    np.testing.assert_allclose(answer(asked, x, y, LinearRegression()), wanted, atol=1e-3)


@pytest.mark.parametrize("full", [True, False])
def test_weights_do_not_look_at_the_outcome(full: bool) -> None:
    asked, (x, y) = question(full, reach=0.5), table()
    one, other = answer(asked, x, y), answer(asked, x, -y)
    np.testing.assert_array_equal(one[DIM:], other[DIM:])  # curvatures
    assert np.abs(one[:DIM] - other[:DIM]).max() > 0.1


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("model", [LogisticRegression(), LinearRegression()])
def test_one_row_moves_an_answer_by_its_own_whole_numbers_and_by_at_most_one(full: bool, model: Any) -> None:
    asked, (x, y) = question(full, reach=0.3, extra_weight=0.2), table()
    rng = np.random.default_rng(4)
    for trial in range(20):
        order = rng.permutation(len(x))
        gone = int(order[0])
        own = answer(asked, x[gone : gone + 1], y[gone : gone + 1], model)
        without = answer(asked, x[order[1:]], y[order[1:]], model)
        found = answer(asked, x, y, model)
        np.testing.assert_allclose(found, without + own, rtol=0, atol=1.5 * GRID, err_msg=str(trial))
        assert np.linalg.norm(own) <= 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, -64.0, 0.0])
def test_a_row_that_is_no_number_moves_an_answer_by_at_most_one(value: float) -> None:
    asked, (x, y) = question(), table()
    x, y = x.copy(), y.copy()
    x[0], y[1] = value, value
    with np.errstate(over="ignore"):
        found, without = answer(asked, x, y), answer(asked, x[2:], y[2:])
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - without) <= 2


def test_without_privacy_nothing_is_bounded() -> None:
    asked, (x, y) = question(reach=1e-9), table()
    sums = AnswerSums(LogisticRegression(), asked, False)
    found = sums.gradient(asked, jnp.asarray(x), jnp.asarray(y), jnp.ones(len(x)), jnp.zeros(0))
    eta, v = predictors(asked, x)
    probabilities = np.array(
        [quad(lambda t, m=m, s=s: expit(m + s**0.5 * t) * norm.pdf(t), -12, 12)[0] for m, s in zip(eta, v, strict=True)]
    )
    centre, whitening = (np.asarray(part, np.float64) for part in (asked.centre, asked.whitening))
    wanted = ((y > 0) - probabilities) @ ((x - centre) @ whitening)
    np.testing.assert_allclose(np.asarray(found.slope), wanted, rtol=1e-4, atol=1e-3)


scales = st.sampled_from([0.0, 1e-30, 1e-4, 0.3, 1.0, 70.0, 1e6, 1e19, 3e37])
signed = st.builds(lambda scale, sign: scale * sign, scales, st.sampled_from([-1.0, 1.0]))


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.booleans(),
    st.sampled_from([LogisticRegression(), LinearRegression()]),
    st.tuples(scales, scales, signed, st.sampled_from([1e-12, 1e-3, 1.0, 1e5])),
    st.tuples(signed, signed, signed, signed, st.sampled_from([0.0, 1.0, -3.0, 0.5]), signed),
    st.integers(0, 50),
)
def test_one_row_moves_an_answer_by_at_most_one_whatever_question_is_sent(
    full: bool, model: Any, sizes: tuple[float, ...], numbers: tuple[float, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    centre, whitening, mean, variance = sizes
    with np.errstate(all="ignore"):
        spread = variance * np.eye(DIM) if full else np.full(DIM, variance)
        q: Any = (FullGaussian if full else Gaussian).from_moments(mean * rng.normal(size=DIM), spread)
        mapped = whitening * rng.normal(size=(DIM, DIM) if full else DIM)
        parts: list[Any] = [jnp.asarray(part, jnp.float32) for part in (centre * rng.normal(size=DIM), mapped)]
        parts += [q, *(jnp.asarray(number, jnp.float32) for number in numbers)]
        asked = Question(*parts)
    try:
        NoiseAwarePVI().check_sent(asked, BOUND)
    except (InputError, ImproperError):
        return  # no site answers it
    x, y = table(seed, 30)
    gone = seed % len(x)
    rest = np.arange(len(x)) != gone
    found, without = answer(asked, x, y, model), answer(asked, x[rest], y[rest], model)
    own = answer(asked, x[~rest], y[~rest], model)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, without + own, rtol=0, atol=1.5 * GRID)
    assert np.linalg.norm(own) <= 1
