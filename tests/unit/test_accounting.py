"""Accounting: the numbers of the specification, independent computations, and laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from fedvi import Budget
from fedvi.errors import InputError
from fedvi.privacy import Calibration, FullBatchGaussian, PoissonGaussian, calibrate, epsilon, noise_for
from fedvi.privacy.accounting import SUBSTITUTE
from fedvi.privacy.budget import _largest_within
from fedvi.privacy.events import (
    NOT_PRIVATE,
    describe,
    from_json,
    gaussian,
    poisson_gaussian,
    to_json,
)
from fedvi.privacy.published import FixedSizeGaussian, PublishedRule

UPDATE = poisson_gaussian(noise_multiplier=5.0, sampling_rate=0.02, steps=25)
DELTA = 1e-4


@pytest.mark.parametrize(
    ("accountant", "updates"),
    [("moments", (30, 70, 124)), ("rdp", (56, 117, 197)), ("pld", (69, 143, 239)), ("filter", (55, 115, 194))],
)
def test_updates_within_a_budget_are_those_of_the_specification(accountant: str, updates: tuple[int, ...]) -> None:
    """The filter is not among them; it pays for its freedom with an order and a part of delta fixed in advance."""
    found = tuple(Budget(eps, DELTA, accountant).most_updates(UPDATE) for eps in (0.5, 0.75, 1.0))
    assert found == updates


def test_updates_under_substitution_are_those_of_the_specification() -> None:
    def most(target: float) -> int:
        return _largest_within(lambda n: epsilon({UPDATE: n}, DELTA, relation=SUBSTITUTE), target, 10**6)

    assert [most(target) for target in (0.5, 0.75, 1.0)] == [17, 37, 61]


@pytest.mark.parametrize(
    ("updates", "spent"), [(1, 0.0468), (10, 0.169), (50, 0.416), (69, 0.497), (100, 0.612), (239, 0.998)]
)
def test_epsilon_after_updates_is_that_of_the_specification(updates: int, spent: float) -> None:
    digits = 4 if updates == 1 else 3
    assert round(epsilon({UPDATE: updates}, DELTA), digits) == spent


# Independent computations


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle and Wang (2018): delta(eps) of the Gaussian mechanism in closed form, solved for eps."""

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - np.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - delta)

    return float(brentq(excess, 0, 300))


@pytest.mark.parametrize("noise", [6.0, 10.0, 30.0])
@pytest.mark.parametrize("updates", [1, 7, 50])
def test_full_batch_epsilon_is_the_gaussian_closed_form(noise: float, updates: int) -> None:
    event = gaussian(noise, steps=4)
    mu = math.sqrt(4 * updates) / noise
    for relation, shift in (("add or remove", mu), (SUBSTITUTE, 2 * mu)):
        truth = gaussian_epsilon(shift, DELTA)
        found = epsilon({event: updates}, DELTA, relation=relation)
        assert truth * (1 - 1e-9) <= found <= truth * 1.001 + 1e-3


def sampled_delta(eps: float, noise: float, rate: float, steps: int) -> float:
    """Delta of composed Poisson-sampled Gaussians, by numerical convolution of the privacy loss on a fine grid.

    Both directions, written from the definition, with rounding to the nearest grid point: an estimate, not a bound.
    """
    width, size = 1e-4, 2**16
    x = np.linspace(-12 * noise, 12 * noise + 1, 400_001)
    plain = norm.pdf(x, 0, noise)
    mixed = (1 - rate) * plain + rate * norm.pdf(x, 1, noise)
    deltas = []
    for upper, lower in ((mixed, plain), (plain, mixed)):
        loss = np.log(upper / lower)
        mass = upper * (x[1] - x[0])
        bins = np.round(loss / width).astype(int) + size // 2
        keep = (bins >= 0) & (bins < size)
        pmf = np.bincount(bins[keep], mass[keep], size)
        shifted = np.fft.fft(np.fft.ifftshift(pmf))
        composed = np.fft.fftshift(np.real(np.fft.ifft(shifted**steps)))
        grid = (np.arange(size) - size // 2) * width
        above = grid > eps
        deltas.append(float(np.sum(composed[above] * -np.expm1(eps - grid[above]))))
    return max(deltas)


@pytest.mark.parametrize("updates", [1, 69])
def test_pld_agrees_with_a_convolution_written_from_the_definition(updates: int) -> None:
    spent = epsilon({UPDATE: updates}, DELTA)
    assert sampled_delta(spent, 5.0, 0.02, 25 * updates) == pytest.approx(DELTA, rel=0.01)


def test_moments_accountant_is_the_binomial_sum_of_abadi() -> None:
    def log_moment(order: int) -> float:
        terms = [
            math.comb(order + 1, k) * 0.98 ** (order + 1 - k) * 0.02**k * math.exp((k * k - k) / (2 * 25))
            for k in range(order + 2)
        ]
        return math.log(math.fsum(terms))

    for updates in (1, 30, 31):
        truth = min((25 * updates * log_moment(order) + math.log(1e4)) / order for order in range(1, 33))
        assert epsilon({UPDATE: updates}, DELTA, "moments") == pytest.approx(truth, rel=1e-6)


# Padded batches


@pytest.mark.parametrize("rows", [390, 1172, 3907, 7424])
def test_padding_costs_next_to_nothing_and_never_less(rows: int) -> None:
    mechanism = PoissonGaussian()
    padded, plain = mechanism.event(rows, 25, 200), poisson_gaussian(5.0, mechanism.sampling_rate(rows), 25, 200)
    assert mechanism.capacity(rows) < 3 * mechanism.batch_size(rows)
    for accountant in ("pld", "rdp", "moments"):
        without, charged = (epsilon({event: 20}, DELTA, accountant) for event in (plain, padded))
        assert without <= charged <= without + 1e-4


@pytest.mark.parametrize("relation", ["add or remove", SUBSTITUTE])
@pytest.mark.parametrize(("rows", "capacity"), [(391, 50), (391, 46), (3908, 128), (3908, 125)])
def test_cutting_is_charged_at_least_as_much_as_dp_accounting_charges(rows: int, capacity: int, relation: str) -> None:
    """Its own analysis of truncated batches, which is slower, as an oracle."""
    import dp_accounting as dp

    rate = 20 / 390 if rows == 391 else 79 / 3907
    event = poisson_gaussian(5.0, rate, 25, 0, rows, capacity)
    neighbours = dp.NeighboringRelation
    accountant = dp.pld.PLDAccountant(
        neighbours.REPLACE_ONE if relation == SUBSTITUTE else neighbours.ADD_OR_REMOVE_ONE
    )
    accountant.compose(dp.TruncatedSubsampledGaussianDpEvent(rows, rate, capacity, 5.0), 25 * 5)
    truth = accountant.get_epsilon(1e-3)
    assert truth - 1e-6 <= epsilon({event: 5}, 1e-3, relation=relation) <= 1.15 * truth


def test_cutting_batches_often_is_refused() -> None:
    careless = poisson_gaussian(5.0, 0.02, 25, rows=3908, capacity=79)
    for accountant in ("pld", "rdp", "moments"):
        assert epsilon({careless: 20}, DELTA, accountant) == math.inf
        assert Budget(0.5, DELTA, accountant).most_updates(careless) == 0


def test_small_clients_are_full_batch_or_never_cut() -> None:
    assert PoissonGaussian().event(15, 25, 6) == gaussian(5.0, 25, 6) == FullBatchGaussian(5.0).event(15, 25, 6)
    assert PoissonGaussian(minimum=5).event(8, 25, 6) == poisson_gaussian(5.0, 5 / 8, 25, 6, rows=9)


# Laws

settings_of_events = {
    "noise": st.sampled_from([1.0, 2.0, 5.0, 9.0]),
    "rate": st.sampled_from([0.01, 0.05, 0.3, 1.0]),
    "eps": st.sampled_from([0.2, 1.0, 3.0]),
    "delta": st.sampled_from([1e-6, 1e-4, 1e-2]),
    "accountant": st.sampled_from(["pld", "rdp", "moments"]),
}


@settings(max_examples=12)
@given(**settings_of_events, changed=st.sampled_from(["noise", "rate", "eps", "delta"]), factor=st.floats(1.1, 2))
def test_admissible_updates_are_monotone(changed: str, factor: float, **values: Any) -> None:
    """More epsilon, more delta, more noise or rarer sampling never admit fewer updates."""
    more = dict(values)
    more[changed] = values[changed] / factor if changed == "rate" else values[changed] * factor

    def most(noise: float, rate: float, eps: float, delta: float, accountant: str) -> int:
        return Budget(eps, delta, accountant).most_updates(poisson_gaussian(noise, rate, 10))

    assert most(**more) >= most(**values)


@settings(max_examples=12)
@given(**settings_of_events)
def test_the_last_epsilon_is_below_and_the_next_above(
    noise: float, rate: float, eps: float, delta: float, accountant: str
) -> None:
    budget, event = Budget(eps, delta, accountant), poisson_gaussian(noise, rate, 10)
    most = budget.most_updates(event)
    assert budget.spent({event: most}) <= eps < budget.spent({event: most + 1})


@settings(max_examples=8)
@given(order=st.permutations([0, 0, 1, 2, 2, 2]))
def test_order_of_events_does_not_matter(order: list[int]) -> None:
    events = [UPDATE, gaussian(20.0), poisson_gaussian(3.0, 0.01, 5)]
    counts: dict[Any, int] = {}
    for index in order:
        counts[events[index]] = counts.get(events[index], 0) + 1
    assert epsilon(counts, DELTA) == epsilon({events[0]: 2, events[1]: 1, events[2]: 3}, DELTA)


def test_preprocessing_and_training_are_one_composition() -> None:
    first, second = gaussian(10.0), UPDATE
    both = epsilon({first: 1, second: 50}, DELTA)
    assert max(epsilon({first: 1}, DELTA), epsilon({second: 50}, DELTA)) < both
    assert both < epsilon({first: 1}, DELTA) + epsilon({second: 50}, DELTA)
    assert Budget(0.5, DELTA).most_updates(second, {first: 1}) < 69


# Calibration


@pytest.mark.parametrize("accountant", ["pld", "rdp", "moments"])
@pytest.mark.parametrize(("rate", "updates"), [(0.02, 69), (1.0, 50)])
def test_calibrated_noise_is_enough_and_hardly_more(accountant: str, rate: float, updates: int) -> None:
    plan = calibrate(
        epsilon=0.5,
        delta=DELTA,
        sampling_rate=rate,
        steps=25 if rate < 1 else 1,
        updates=updates,
        accountant=accountant,
    )
    assert plan.epsilon <= 0.5
    less = poisson_gaussian(0.998 * plan.noise_multiplier, rate, plan.steps, numbers=1000)
    assert epsilon({less: updates}, DELTA, accountant) > 0.5


def test_calibration_goes_in_every_direction() -> None:
    common: dict[str, Any] = {"delta": DELTA, "sampling_rate": 0.02, "steps": 25}
    by_noise = calibrate(epsilon=0.5, noise_multiplier=5.0, **common)
    assert (by_noise.updates, round(by_noise.epsilon, 3)) == (69, 0.497)
    by_updates = calibrate(epsilon=0.5, updates=69, **common)
    assert 4.9 < by_updates.noise_multiplier <= 5.0
    assert calibrate(noise_multiplier=5.0, updates=69, **common) == by_noise
    assert isinstance(by_noise, Calibration)
    assert by_noise.epsilon_substitute > 2 * by_noise.epsilon


def test_noise_can_be_calibrated_for_a_mechanism_of_one_client() -> None:
    budget = Budget(1.0).fixed(390)
    noise = noise_for(lambda value: PoissonGaussian(value).event(390, 25, 200), updates=30, budget=budget)
    assert budget.most_updates(PoissonGaussian(noise).event(390, 25, 200)) >= 30


@pytest.mark.parametrize(("rows", "delta"), [(390, 1e-3), (1000, 1e-3), (1001, 1e-4), (3907, 1e-4), (10, 0.1)])
def test_the_delta_of_the_paper_is_its_rule(rows: int, delta: float) -> None:
    assert Budget(1.0, "paper").delta_for(rows) == Budget(1.0, "paper").fixed(rows).delta == delta


@pytest.mark.parametrize(("rows", "delta"), [(1, 1e-5), (390, 1e-5), (10_000, 1e-5), (20_000, 5e-6), (10**6, 1e-7)])
def test_automatic_delta_is_at_most_a_tenth_of_a_row(rows: int, delta: float) -> None:
    assert Budget(1.0).delta_for(rows) == Budget(1.0).fixed(rows).delta == pytest.approx(delta, rel=1e-12)
    assert rows * Budget(1.0).delta_for(rows) <= 0.1 + 1e-12


# The paper's own rule


@pytest.mark.parametrize(
    ("rows", "updates"), [(3907, (31, 69, 122)), (390, (7, 14, 25)), (7424, (31, 71, 124)), (1172, (30, 68, 119))]
)
def test_published_rule_stops_where_the_published_runs_stopped(rows: int, updates: tuple[int, ...]) -> None:
    event = FixedSizeGaussian().event(rows, 25, 200)
    rules = [PublishedRule(eps).fixed(rows) for eps in (0.5, 0.75, 1.0)]
    assert tuple(rule.most_updates(event) for rule in rules) == updates
    assert all(rule.spent({event: made}) > rule.epsilon for rule, made in zip(rules, updates, strict=True))


# Events


@pytest.mark.parametrize(
    "event",
    [
        UPDATE,
        gaussian(2.0, 3),
        gaussian(2.0, 3, 14),
        poisson_gaussian(5.0, 0.02, 25, 14, 430),
        poisson_gaussian(1.0, 0.1, 2, 14, 100, 30),
    ],
)
def test_events_survive_json(event: Any) -> None:
    assert from_json(to_json(event)) == event
    assert hash(from_json(to_json(event))) == hash(event)
    assert str(to_json(event)["steps"]) in describe(event)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: epsilon({UPDATE: 1}, 0.0), "Expected 0 < delta"),
        (lambda: epsilon({UPDATE: 1}, 1.0), "Expected delta < 1"),
        (lambda: epsilon({UPDATE: 1}, DELTA, "magic"), "one of pld, rdp, moments, filter, got 'magic'"),
        (lambda: epsilon({UPDATE: 1}, DELTA, "rdp", SUBSTITUTE), "Expected accountant 'pld'"),
        (lambda: epsilon({"something": 1}, DELTA), "Expected an event made by fedvi"),
        (lambda: epsilon({to_json(UPDATE)["kind"]: 1}, DELTA), "Expected an event made by fedvi"),
        (lambda: from_json({"kind": "unknown"}), "Expected an event as written by fedvi"),
        (lambda: from_json({"kind": "gaussian", "noise": 1}), "Expected an event as written by fedvi"),
        (
            lambda: from_json({"kind": "gaussian", "noise_multiplier": 1.0, "sampling_rate": 0.5}),
            "Expected an event of",
        ),
        (lambda: poisson_gaussian(1.0, 1.0, 1, 0, 100, 30), "Expected rows and a sampling rate below 1 with capacity"),
        (lambda: gaussian(0.0), "Expected 0.001 <= noise_multiplier <= 1e.06, got 0.0"),
        (lambda: poisson_gaussian(1.0, 1.5), "sampling_rate <= 1, got 1.5"),
        (lambda: gaussian(1.0, 0), "Expected steps to be a whole number of at least 1, got 0"),
        (lambda: Budget(0.0), "Expected 0 < epsilon, got 0.0"),
        (lambda: gaussian(1.0, 1, -1), "Expected numbers to be a whole number of at least 0, got -1"),
        (lambda: Budget(1.0, "small"), "Expected delta to be one of auto, paper, got 'small'"),
        (lambda: Budget(1.0).delta_for(0), "Expected units of privacy to be a whole number of at least 1, got 0"),
        (lambda: Budget(1.0, "paper").delta_for(1), "Expected units of privacy to be a whole number of at least 2"),
        (lambda: Budget(1.0).spent({UPDATE: 1}), r"Use budget.fixed\(rows\)"),
        (lambda: Budget(1.0, DELTA).most_updates(NOT_PRIVATE), "Expected a private mechanism"),
        (lambda: Budget(1e-4, 1e-9, "filter").most_updates(UPDATE), "Expected a larger epsilon or delta"),
        (lambda: calibrate(epsilon=1.0, delta=DELTA, sampling_rate=0.1), "Expected two of epsilon, updates and noise"),
        (
            lambda: calibrate(epsilon=1e-6, updates=10**6, delta=1e-9, sampling_rate=1.0),
            "No noise multiplier up to 1e",
        ),
        (lambda: PoissonGaussian(noise_multiplier=0.0), "Expected 0 < noise_multiplier"),
        (lambda: PoissonGaussian(clips="all"), "one of likelihood, loss, got 'all'"),
    ],
)
def test_wrong_settings_are_refused(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_the_filter_sets_delta_aside_for_cut_batches() -> None:
    budget = Budget(0.5, DELTA, "filter")
    assert budget.most_updates(PoissonGaussian().event(3907, 25, 200)) in (53, 54)
    careless = PoissonGaussian(overflow=1e-7).event(3907, 25, 200)
    assert 0 < budget.most_updates(careless) < 10


@pytest.mark.parametrize("accountant", ["pld", "rdp", "moments"])
def test_accountants_fail_closed(accountant: str) -> None:
    assert epsilon({poisson_gaussian(0.001, 0.02): 1}, DELTA, accountant) > 20


@pytest.mark.parametrize("delta", [1e-9, 1e-10, 1e-12, 1e-14])
def test_tiny_deltas_are_not_undercut_by_rounding_in_convolutions(delta: float) -> None:
    """Twenty thousand steps that are sampled in name only: the Gaussian closed form is known."""
    event = poisson_gaussian(100.0, 1 - 1e-9, 20_000)
    assert epsilon({event: 1}, delta) >= gaussian_epsilon(math.sqrt(2), delta)


def test_what_is_not_private_costs_everything() -> None:
    assert epsilon({NOT_PRIVATE: 1, UPDATE: 1}, DELTA) == math.inf
    assert epsilon({}, DELTA) == epsilon({UPDATE: 0}, DELTA) == 0


def test_hopeless_settings_are_answered_at_once_with_a_bound() -> None:
    """Tiny noise and huge counts, for which exact accounting would fill the memory."""
    assert 20 < epsilon({gaussian(0.01): 10}, DELTA) < math.inf
    assert epsilon({poisson_gaussian(0.5, 0.5, 1000): 1000}, DELTA) > 20
    assert Budget(0.5, DELTA).most_updates(gaussian(0.01)) == 0
    assert Budget(500.0, 1e-5).most_updates(poisson_gaussian(1.0, 0.1)) > 1000


@pytest.mark.parametrize(
    ("mu", "delta"), [(2.5, 1e-10), (3.0, 1e-5), (4.0, 1e-2), (5.5, 0.5), (0.01, 1e-4), (0.2, 1e-9)]
)
@pytest.mark.parametrize("relation", ["add or remove", "substitute"])
def test_epsilon_of_gaussian_noise_alone_is_a_tight_bound(mu: float, delta: float, relation: str) -> None:
    """The closed form in logarithms, which holds where epsilon is large."""
    total = mu * (2 if relation == "substitute" else 1)
    found = epsilon({gaussian(2 / mu, 4): 1}, delta, "pld", relation)

    def log_delta(value: float) -> float:
        first, second = norm.logcdf(-value / total + total / 2), value + norm.logcdf(-value / total - total / 2)
        return float(first + np.log1p(-np.exp(second - first))) if second < first else -math.inf

    if found < 20 or relation == "substitute":
        assert log_delta(found) <= math.log(delta) + 1e-9
        assert found == 0 or log_delta(found - 1e-4) > math.log(delta - 1.1e-11) or relation == "add or remove"
