"""What events cost: epsilon for a given delta, by three accountants and one filter.

| accountant | what it is                                                     | good for                            |
|------------|----------------------------------------------------------------|-------------------------------------|
| `pld`      | privacy loss distributions (dp-accounting), tight upper bounds | everything that is fixed in advance |
| `rdp`      | Rényi DP (dp-accounting's orders)                              | the same, looser                    |
| `moments`  | Abadi et al. (2016), orders 1 to 32, as in the DP-PVI paper    | comparing with the paper            |
| `filter`   | Rényi DP at one order, fixed by epsilon and delta alone        | settings that depend on releases    |

The first three prove their epsilon for settings that were fixed before the first release, the number of updates being
at most what was planned. If settings depend on outputs, of these only the filter is valid (Feldman and Zrnic, 2021).

Relation: `add or remove` one unit of privacy (default), or `substitute` one by another, which only `pld` knows here.
The composition of events does not depend on their order: a composition is how often each event occurs.

Distance from the ideal. Noise and sampled rows are made of random words, not of real numbers. A number drawn by
`fedvi.privacy.lattice` has its probability within a factor 1 +- ETA but for a mass of TAU, and decisions of
`fedvi.privacy.sampling` are off by about FLIP. So what is (epsilon, delta) in theory is, with x the `distance` of all
events and T their numbers with noise, (epsilon + 2.1 x, delta (1 + 2.1 x) + (1 + e^epsilon) T TAU) in fact; also where
later questions depend on earlier answers. All accountants add this (`_exact`), and what padded batches cost.

Padded batches. A batch that overflows its room is cut to a random subset. Whether the *other* rows fill the room is a
coin that falls alike for both neighbours: tails is the plain sampled Gaussian, heads (probability t) may reveal all.
The hockey-stick divergence is jointly convex: T steps (epsilon, delta') uncut are (epsilon, delta' + T t) with cutting.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from fedvi.checks import in_range, one_of
from fedvi.errors import InputError
from fedvi.privacy.events import NOT_PRIVATE, TAU, AnyEvent, Event, known

Composition = frozenset[tuple[Event, int]]
"""Events and how often each occurs."""

LARGE = 20.0
"""Where Rényi DP says that epsilon exceeds this, its bound is taken for that of `pld`, whose grids would grow large."""

MOST = 700.0  # epsilons beyond this would overflow
LITTLE_NOISE = 0.05
"""The same for less noise than this in a single step."""

CONVOLUTION = 1e-11
"""Delta that is set aside for rounding in the convolutions of privacy loss distributions, which are off by 1e-13."""

FOR_CUTTING = 0.1
"""The part of delta that the filter sets aside for batches that were cut."""

ADD_OR_REMOVE, SUBSTITUTE = "add or remove", "substitute"
ACCOUNTANTS = ("pld", "rdp", "moments", "filter")

ORDERS = (*(order / 10 for order in range(11, 110)), *range(11, 64), 128, 256, 512, 1024)
"""Orders of Rényi DP at which a bound is looked for. Whole Gaussians need no library: it takes seconds to be loaded."""


def composition(counts: Mapping[Any, int]) -> Composition:
    """Return the events that occur at all, with their counts."""
    return frozenset((event, int(count)) for event, count in counts.items() if count)


def epsilon(
    events: Composition | Mapping[Any, int],
    delta: float,
    accountant: str = "pld",
    relation: str = ADD_OR_REMOVE,
    target: float | None = None,
) -> float:
    """Return an upper bound on epsilon after these events.

    target: the epsilon of the budget; the filter needs it to fix its order.

    >>> from fedvi.privacy.events import poisson_gaussian
    >>> update = poisson_gaussian(noise_multiplier=5.0, sampling_rate=0.02, steps=25)
    >>> round(epsilon({update: 69}, delta=1e-4), 3)
    0.497
    """
    one_of("accountant", accountant, ACCOUNTANTS)
    one_of("relation", relation, (ADD_OR_REMOVE, SUBSTITUTE))
    check_delta(delta)
    if relation == SUBSTITUTE and accountant != "pld":
        raise InputError(f"Expected accountant 'pld' for relation {SUBSTITUTE!r}, got {accountant!r}.")
    spent = composition(events) if isinstance(events, Mapping) else events
    if not spent:
        return 0.0
    if any(cast(AnyEvent, event) == NOT_PRIVATE for event, _ in spent):
        return math.inf
    for event, _ in spent:
        known(event)
    if accountant == "filter" and target is None:
        raise InputError("Expected the budget's epsilon as target for accountant 'filter', got None.")

    def ideal(left: float) -> float:
        match accountant:
            case "pld":
                return _pld_epsilon(spent, left, relation)
            case "rdp":
                return _rdp_epsilon(spent, left, _improved_conversion, ORDERS)
            case "moments":
                return _rdp_epsilon(spent, left, _moments_conversion, tuple(range(2, 34)))
            case _:
                return _filter_epsilon(spent, left, float(target or 0))

    return _exact(ideal, spent, delta)


def _exact(ideal: Callable[[float], float], spent: Composition, delta: float) -> float:
    """Return epsilon with the price of the distance from real normals and ideal coins.

    ideal: epsilon in theory for a given delta. The price in delta depends on epsilon: it is first taken from Rényi DP,
    which is fast, and taken again if the result is above that.
    """
    numbers = sum(count * event.steps * event.numbers for event, count in spent)
    distance = 2.1 * sum(count * event.distance for event, count in spent)
    if distance == 0:
        return ideal(delta)
    bound = _rdp_epsilon(spent, delta / 2, _improved_conversion, ORDERS)
    for _ in range(3):
        left = (delta - (1 + math.exp(min(bound, MOST))) * numbers * TAU) / (1 + distance)
        if left <= delta / 2:
            return math.inf
        found = ideal(left)
        if found <= bound:
            return found + distance
        bound = 1.01 * found  # a little more: the next left is a little less
    return math.inf


def check_delta(delta: object) -> None:
    """Raise unless delta is a probability strictly between 0 and 1."""
    in_range("delta", delta, 0, 1, open_low=True)
    if delta == 1:
        raise InputError("Expected delta < 1, got 1: that promises nothing.")


def _filter_epsilon(spent: Composition, delta: float, target: float) -> float:
    """Return epsilon at one order, with a part of delta set aside for cut batches: both are fixed in advance."""
    if _cut(spent) > FOR_CUTTING * delta:
        return math.inf
    kept = (1 - FOR_CUTTING) * delta
    order = filter_order(target, kept)
    return float(_divergences(spent, (order,))[0] + _improved_conversion(np.array([order]), kept)[0])


def filter_order(target: float, delta: float) -> float:
    """Return the order at which a budget of (target, delta) admits most Gaussian noise; uses no data and no output."""
    orders = np.array(ORDERS)
    room = (target - _improved_conversion(orders, delta)) / orders
    if np.max(room) <= 0:
        raise InputError(f"Expected a larger epsilon or delta for accountant 'filter', got {target:g} and {delta:g}.")
    return float(orders[np.argmax(room)])


# Privacy loss distributions


@functools.lru_cache(maxsize=4096)
def _pld_epsilon(spent: Composition, delta: float, relation: str) -> float:
    left = delta - _cut(spent) - CONVOLUTION
    rough = _rdp_epsilon(spent, delta, _improved_conversion, ORDERS)
    if left <= 0:
        return rough if relation == ADD_OR_REMOVE else math.inf
    if rough > LARGE or any(event.noise_multiplier < LITTLE_NOISE for event, _ in spent):
        return max(LARGE, rough) if relation == ADD_OR_REMOVE else math.inf
    if all(event.sampling_rate == 1 for event, _ in spent):
        information = sum(count * event.mu**2 for event, count in spent)
        return _gaussian_epsilon(math.sqrt(information) * (2 if relation == SUBSTITUTE else 1), left)
    distributions = [_pld(event, relation, count) for event, count in spent]
    total = functools.reduce(lambda first, second: first.compose(second), distributions)
    return float(total.get_epsilon_for_delta(left))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of Gaussian mechanisms alone, by their closed form: together they are one with noise 1 / mu.

    delta(epsilon) falls, so that the upper end of a bisection is a bound.
    """
    low, high = 0.0, 1.0
    if _gaussian_delta(mu, low) <= delta:
        return 0.0
    while _gaussian_delta(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Return delta(epsilon) of a Gaussian mechanism with noise 1 / mu (Balle and Wang, 2018, theorem 8)."""
    from scipy.special import log_ndtr, ndtr

    return max(0.0, float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))))


@functools.lru_cache(maxsize=64)
def _pld_of_step(noise_multiplier: float, sampling_rate: float, relation: str) -> Any:
    import dp_accounting as dp
    from dp_accounting.pld import privacy_loss_distribution as pld

    neighbours = dp.NeighboringRelation
    return pld.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=sampling_rate,
        neighboring_relation=neighbours.REPLACE_ONE if relation == SUBSTITUTE else neighbours.ADD_OR_REMOVE_ONE,
    )


def _pld(event: Event, relation: str, count: int) -> Any:
    """Return the privacy loss distribution of `count` updates."""
    times = event.steps * count
    if event.sampling_rate == 1:  # n Gaussians are one with less noise
        return _pld_of_step(event.noise_multiplier / math.sqrt(times), 1.0, relation)
    return _pld_of_step(event.noise_multiplier, event.sampling_rate, relation).self_compose(times)


# Rényi differential privacy

Conversion = Callable[[np.ndarray, float], np.ndarray]
"""From orders and delta to what is added to the Rényi divergence of each order to get epsilon."""


def _improved_conversion(orders: np.ndarray, delta: float) -> np.ndarray:
    """Canonne, Kamath and Steinke (2020), proposition 12."""
    return np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)


def _moments_conversion(orders: np.ndarray, delta: float) -> np.ndarray:
    """Abadi et al. (2016), theorem 2: epsilon = (log moment + ln(1/delta)) / lambda with lambda = order - 1."""
    return -np.log(delta) / (orders - 1)


@functools.lru_cache(maxsize=65536)
def _rdp_epsilon(spent: Composition, delta: float, conversion: Conversion, orders: tuple[float, ...]) -> float:
    left = delta - _cut(spent)
    if left <= 0:
        return math.inf
    epsilons = _divergences(spent, orders) + conversion(np.array(orders, float), left)
    return float(max(0.0, np.min(np.where(np.isnan(epsilons), np.inf, epsilons))))


def _divergences(spent: Composition, orders: tuple[float, ...]) -> np.ndarray:
    """Return the Rényi divergence of all events together, as if no batch were ever cut."""
    total = np.zeros(len(orders))
    for event, count in spent:
        total += count * event.steps * _rdp_of_step(event.noise_multiplier, event.sampling_rate, orders)
    return total


@functools.lru_cache(maxsize=256)
def _rdp_of_step(noise_multiplier: float, sampling_rate: float, orders: tuple[float, ...]) -> np.ndarray:
    if sampling_rate == 1:
        return np.asarray(orders) / (2 * noise_multiplier**2)
    import dp_accounting as dp

    step = dp.PoissonSampledDpEvent(sampling_rate, dp.GaussianDpEvent(noise_multiplier))
    accountant = dp.rdp.RdpAccountant(orders, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    with _without_warnings():  # orders that do not converge are left out, which is all that it warns of
        accountant.compose(step)
    found = np.asarray(accountant.rdp)
    return np.where(np.isnan(found), np.inf, found)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# Cut batches


def _cut(spent: Composition) -> float:
    """Return the delta that cutting costs: the probability that any batch had no room for one row more."""
    return sum(
        count * event.steps * _cut_probability(event.rows, event.sampling_rate, event.capacity)
        for event, count in spent
        if event.capacity
    )


@functools.lru_cache(maxsize=256)
def _cut_probability(rows: int, sampling_rate: float, capacity: int) -> float:
    from scipy.stats import binom

    return float(binom.sf(capacity - 1, rows - 1, sampling_rate))
