"""Gaussians in natural parameters, against scipy, dense linear algebra and laws."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import kstest, multivariate_normal

from federations import relative_error
from fedvi import FullGaussian, Gaussian
from fedvi.errors import ImproperError, InputError
from fedvi.families import Factor, GaussianFamily
from fedvi.families.base import require_proper

DIM = 4
FAMILIES = [Gaussian, FullGaussian]


def random_moments(family: type, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(DIM, DIM))
    spread = root @ root.T + 0.5 * np.eye(DIM)
    return rng.normal(size=DIM), np.diag(spread).copy() if family is Gaussian else spread


def random_gaussian(family: Any, seed: int) -> Any:
    return family.from_moments(*random_moments(family, seed))


def dense(q: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(q.mean, float), np.asarray(q.covariance, float)


@pytest.mark.parametrize("family", FAMILIES)
def test_conversion_to_moments_and_back(family: Any, x64: bool) -> None:
    mean, spread = random_moments(family, 0)
    q = family.from_moments(mean, spread)
    tolerance = 1e-12 if x64 else 1e-5
    assert q.natural_mean.dtype == (jnp.float64 if x64 else jnp.float32)
    assert relative_error(q.mean, mean) < tolerance
    assert relative_error(q.variance if family is Gaussian else q.covariance, spread) < tolerance
    back = q.coordinates().natural()
    assert relative_error(back.natural_mean, np.asarray(q.natural_mean)) < tolerance
    assert relative_error(back.precision, np.asarray(q.precision)) < tolerance


@pytest.mark.parametrize("family", FAMILIES)
@given(seeds=st.tuples(st.integers(0, 99), st.integers(100, 199), st.integers(200, 299)), power=st.floats(-2, 2))
def test_factors_form_an_abelian_group_with_powers(family: Any, seeds: tuple[int, int, int], power: float) -> None:
    a, b, c = (random_gaussian(family, seed) for seed in seeds)

    def same(p: Any, q: Any) -> bool:
        return all(np.allclose(s, t, rtol=1e-4, atol=1e-4) for s, t in zip(*map(jax.tree.leaves, (p, q)), strict=True))

    assert same(a * b, b * a)
    assert same((a * b) * c, a * (b * c))
    assert same((a * b) / b, a)
    assert same(a * a.one(), a)
    assert same((a * b) ** power, a**power * b**power)
    assert same(a**2, a * a)


@pytest.mark.parametrize("family", FAMILIES)
def test_product_adds_log_densities(family: Any, x64: bool) -> None:
    a, b = random_gaussian(family, 1), random_gaussian(family, 2)
    points = np.random.default_rng(0).normal(size=(5, DIM))
    both = np.array([(a * b).log_prob(jnp.asarray(w, float)) for w in points])
    apart = np.array([a.log_prob(jnp.asarray(w, float)) + b.log_prob(jnp.asarray(w, float)) for w in points])
    constant = both - apart  # the normaliser: the same everywhere
    assert np.ptp(constant) < (1e-10 if x64 else 1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_prob_and_entropy_equal_scipy(family: Any, x64: bool) -> None:
    q = random_gaussian(family, 3)
    oracle = multivariate_normal(*dense(q))
    w = np.random.default_rng(0).normal(size=DIM)
    tolerance = 1e-10 if x64 else 1e-4
    assert abs(float(q.log_prob(jnp.asarray(w, float))) - oracle.logpdf(w)) < tolerance * 10
    assert abs(float(q.entropy()) - oracle.entropy()) < tolerance


@pytest.mark.parametrize("family", FAMILIES)
def test_kl_equals_the_dense_formula(family: Any, x64: bool) -> None:
    q, p = random_gaussian(family, 4), random_gaussian(family, 5)
    (mean_q, cov_q), (mean_p, cov_p) = dense(q), dense(p)
    ratio = np.linalg.solve(cov_p, cov_q)
    shift = mean_p - mean_q
    oracle = 0.5 * (np.trace(ratio) - DIM - np.linalg.slogdet(ratio)[1] + shift @ np.linalg.solve(cov_p, shift))
    assert abs(float(q.kl(p)) / oracle - 1) < (1e-10 if x64 else 1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_kl_and_its_gradient_vanish_exactly_where_the_two_agree(family: Any) -> None:
    coordinates = random_gaussian(family, 6).coordinates()
    value, gradient = jax.value_and_grad(lambda c: c.kl(coordinates))(coordinates)
    assert float(value) == 0
    assert all(not np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("family", FAMILIES)
def test_kl_is_cross_energy_minus_entropy(family: Any, x64: bool) -> None:
    """KL(u || a) - KL(u || b) = E_u[log b - log a] up to normalisers: what the local objective relies on."""
    a, b = random_gaussian(family, 7), random_gaussian(family, 8)

    def by_kl(u: Any) -> Any:
        return u.kl(a.coordinates()) - u.kl(b.coordinates())

    def by_factor(u: Any) -> Any:
        return u.expected_log(b / a)

    u = random_gaussian(family, 9).coordinates()
    for left, right in zip(*(jax.tree.leaves(jax.grad(f)(u)) for f in (by_kl, by_factor)), strict=True):
        assert np.allclose(left, right, atol=1e-10 if x64 else 1e-3, rtol=1e-10 if x64 else 1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_project_gives_moments_of_linear_predictor(family: Any, x64: bool) -> None:
    q = random_gaussian(family, 10)
    x = np.random.default_rng(0).normal(size=(6, DIM))
    mean, variance = q.project(jnp.asarray(x, float))
    truth_mean, truth_covariance = dense(q)
    tolerance = 1e-10 if x64 else 1e-4
    assert relative_error(mean, x @ truth_mean) < tolerance
    assert relative_error(variance, np.einsum("ni,ij,nj->n", x, truth_covariance, x)) < tolerance


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_have_the_right_distribution_and_a_wrong_one_is_rejected(family: Any) -> None:
    q = random_gaussian(family, 11)
    mean, covariance = dense(q)
    draws = np.asarray(q.sample(jax.random.key(0), (4000,)), float)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T).ravel()
    assert kstest(whitened, "norm").pvalue > 1e-3
    assert kstest(whitened * 1.05, "norm").pvalue < 1e-3
    assert relative_error(np.cov(draws.T), covariance) < 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_vmap_and_batched_arrays_agree_with_one_at_a_time(family: Any) -> None:
    gaussians = [random_gaussian(family, seed) for seed in range(3)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *gaussians)
    other = jax.tree.map(lambda *leaves: jnp.stack(leaves), *gaussians[::-1])
    one_by_one = np.array([p.kl(q) for p, q in zip(gaussians, gaussians[::-1], strict=True)])
    assert np.allclose(jax.vmap(lambda p, q: p.kl(q))(batch, other), one_by_one, rtol=1e-5)
    assert np.allclose(batch.kl(other), one_by_one, rtol=1e-5)
    assert np.allclose(batch.entropy(), [q.entropy() for q in gaussians], rtol=1e-5)
    assert np.allclose(batch.covariance, [q.covariance for q in gaussians], rtol=1e-4, atol=1e-5)
    assert batch.is_proper().tolist() == [True] * 3
    assert batch.sample(jax.random.key(0), (7,)).shape == (7, 3, DIM)


def test_improper_factors_are_legal_and_told_apart() -> None:
    good, bad = Gaussian.standard(3), Gaussian(jnp.zeros(3), jnp.array([1.0, -2.0, 1.0]))
    assert bool(good.is_proper())
    assert not bool(bad.is_proper())
    assert bool((bad * good**3).is_proper())
    indefinite = FullGaussian(jnp.zeros(2), jnp.array([[1.0, 2.0], [2.0, 1.0]]))
    assert not bool(indefinite.is_proper())
    for leaf in ("natural_mean", "precision"):
        fields = {"natural_mean": jnp.zeros(3), "precision": jnp.ones(3), leaf: jnp.array([1.0, jnp.nan, 1.0])}
        assert not bool(Gaussian(**fields).is_proper())
    require_proper(good, "posterior")
    with pytest.raises(ImproperError, match=r"cavity is improper.*-2"):
        require_proper(bad, "cavity")


def test_repair_sets_negative_entries_to_one_and_counts_them() -> None:
    factor = Gaussian(jnp.array([5.0, 6.0, 7.0]), jnp.array([1.0, -0.1, 0.0]))
    repaired, count = factor.repaired()
    assert int(count) == 1
    assert repaired.natural_mean.tolist() == [5.0, 0.0, 7.0]
    assert repaired.precision.tolist() == [1.0, 0.0, 0.0]


def test_full_repair_removes_just_the_negative_directions() -> None:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    values, along = np.array([2.0, -1.0, 0.5]), np.array([1.0, 2.0, 3.0])
    factor = FullGaussian(jnp.asarray(vectors @ along, float), jnp.asarray((vectors * values) @ vectors.T, float))
    repaired, count = factor.repaired()
    assert int(count) == 1
    assert np.allclose(repaired.precision, (vectors * np.array([2.0, 0.0, 0.5])) @ vectors.T, atol=1e-5)
    assert np.allclose(repaired.natural_mean, vectors @ np.array([1.0, 0.0, 3.0]), atol=1e-5)


def test_full_repair_leaves_a_rank_deficient_factor_alone() -> None:
    x = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    factor = FullGaussian(jnp.zeros(6), jnp.asarray(x.T @ x))
    repaired, count = factor.repaired()
    assert int(count) == 0
    assert np.array_equal(repaired.precision, factor.precision)


@pytest.mark.parametrize("family", FAMILIES)
def test_best_factor_minimises_kl_to_the_product(family: Any) -> None:
    rng = np.random.default_rng(0)
    prior = random_gaussian(family, 12)
    x = rng.normal(size=(10, DIM))
    with jax.enable_x64(True):
        prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), prior)
        likelihood = FullGaussian(jnp.asarray(x.T @ rng.normal(size=10)), jnp.asarray(x.T @ x))
        dense_prior = FullGaussian.from_moments(prior.mean, prior.covariance)
        product = dense_prior * likelihood
        best = prior * prior.best_factor(likelihood.natural_mean, likelihood.precision)

        def divergence(coordinates: Any) -> Any:
            q = coordinates.natural()
            return FullGaussian.from_moments(q.mean, q.covariance).kl(product)

        flat, restore = jax.flatten_util.ravel_pytree(prior.coordinates())
        found = minimize(jax.jit(jax.value_and_grad(lambda v: divergence(restore(v)))), flat, jac=True, tol=1e-12)
        optimum = restore(jnp.asarray(found.x)).natural()
        assert float(divergence(best.coordinates())) <= found.fun + 1e-9
        assert relative_error(best.mean, np.asarray(optimum.mean)) < 1e-4
        assert relative_error(best.variance, np.asarray(optimum.variance)) < 1e-4


def test_mixing_families_or_sizes_is_an_error() -> None:
    with pytest.raises(TypeError, match="Cannot multiply Gaussian and FullGaussian"):
        Gaussian.standard(2) * FullGaussian.standard(2)  # type: ignore[operator]
    with pytest.raises(ValueError, match="Cannot divide factors over 3 and 1 parameters"):
        Gaussian.standard(3) / Gaussian.standard(1)


def test_moments_of_the_wrong_shape_are_explained() -> None:
    assert Gaussian.from_moments([0.0, 0.0], 4.0).precision.tolist() == [0.25, 0.25]
    with pytest.raises(InputError, match=r"one variance, or one per mean \(2,\), got shape \(3,\)"):
        Gaussian.from_moments([0.0, 0.0], [1.0, 1.0, 1.0])
    with pytest.raises(InputError, match=r"covariance matrix for mean \(2,\), got shape \(2,\)"):
        FullGaussian.from_moments([0.0, 0.0], [1.0, 1.0])


def test_every_family_offers_the_same_interface() -> None:
    names = {name for name in (*vars(Factor), *vars(GaussianFamily)) if not name.startswith("_")}
    for family in (Gaussian, FullGaussian):
        own = {name for name in vars(family) if not name.startswith("_")}
        assert own <= names
        assert [field.name for field in dataclasses.fields(family)] == ["natural_mean", "precision"]
