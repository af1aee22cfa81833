"""A budget, how many updates it admits, and what settings fit it.

With fixed, public settings the largest admissible number of updates does not depend on data: it is found once, and
whether one more update may be made is then a comparison of two whole numbers.

Nothing here ever answers with less privacy than was asked for: what is returned has been checked against the budget by
the accountant itself, and noise is rounded up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from fedvi.checks import one_of, positive, whole
from fedvi.errors import FewUnits, InputError
from fedvi.privacy import accounting
from fedvi.privacy.accounting import ACCOUNTANTS, SUBSTITUTE, Composition, check_delta, composition
from fedvi.privacy.events import LEAST_NOISE, MOST_NOISE, NOT_PRIVATE, AnyEvent, poisson_gaussian, with_noise

AUTO, PAPER = "auto", "paper"

FEW = 100
"""Units of privacy below which a promise is worth little: who is told so decides."""

MOST_UPDATES = 1_000_000
"""No budget admits more updates than this, however large it is."""


def default_delta(units: int) -> float:
    """Return min(1e-5, 1 / (10 n)) for n units of privacy: rows of a client, or clients.

    Publishing each row with probability delta would be (0, delta)-private, and expose n delta rows: a tenth at most.

    >>> default_delta(3907), default_delta(1_000_000)
    (1e-05, 1e-07)
    """
    whole("units of privacy", units, 1)
    return min(1e-5, 1 / (10 * units))


def paper_delta(units: int) -> float:
    """Return 10^floor(log10(1/N)), the rule of the DP-PVI paper, under which up to one row might be exposed."""
    whole("units of privacy", units, 2)
    return float(10.0 ** -len(str(units - 1)))


def warn_if_few(units: int, what: str = "rows") -> None:
    """Warn if there are so few units of privacy that a promise is worth little."""
    if units < FEW:
        warnings.warn(
            f"Only {units} {what}: the promise holds, but with so few the result is mostly noise, and who knows all "
            "others knows much already.",
            FewUnits,
            stacklevel=3,
        )


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a client is willing to spend: (epsilon, delta), and who does the accounting.

    delta: `auto` for `default_delta`, `paper` for the DP-PVI paper's rule 10^floor(log10(1/N)); N is the public number
        of units of privacy: a client's rows, or all clients.
    accountant: `pld` (default), `rdp`, `moments`, or `filter` if settings may depend on what was released.

    >>> Budget(0.5).delta_for(3907), Budget(0.5, "paper").delta_for(3907)
    (1e-05, 0.0001)
    """

    epsilon: float
    delta: float | str = AUTO
    accountant: str = "pld"
    caveat = ""

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        one_of("accountant", self.accountant, ACCOUNTANTS)
        if isinstance(self.delta, str):
            one_of("delta", self.delta, (AUTO, PAPER))
        else:
            check_delta(self.delta)

    def delta_for(self, units: int) -> float:
        """Return the delta for so many units of privacy, a public number."""
        if self.delta == AUTO:
            return default_delta(units)
        if self.delta == PAPER:
            return paper_delta(units)
        return float(self.delta)

    def fixed(self, units: int) -> Budget:
        """Return the same budget with delta as a number."""
        return dataclasses.replace(self, delta=self.delta_for(units))

    def beside(self, events: Mapping[Any, int]) -> Budget:
        """Return the same budget, of which these events take their part: what is left is for updates."""
        return SharedBudget(self.epsilon, self.delta, self.accountant, tuple(self.all_of(events).items()))

    def all_of(self, events: Mapping[Any, int]) -> dict[Any, int]:
        """Return what the budget pays for when these events happen."""
        return dict(events)

    def spent(self, events: Mapping[Any, int]) -> float:
        """Return the epsilon of these events at the budget's (fixed) delta."""
        return _spent(self, composition(events))

    def most_updates(self, event: AnyEvent, already: Mapping[Any, int] | None = None) -> int:
        """Return how many updates with this event fit beside what is spent or reserved already."""
        if event == NOT_PRIVATE:
            raise InputError(
                "Expected a private mechanism for a budget, got one without privacy. Use GradientSteps(..., "
                "mechanism=PoissonGaussian(...)) or PVI(..., client_level=ClientLevel(...))."
            )
        return _most_updates(self, event, composition(already or {}))


@dataclasses.dataclass(frozen=True)
class SharedBudget(Budget):
    """A budget that pays for something beside updates, such as private standardisation; made by `Budget.beside`.

    reserved: these events, with their counts. They are spent whether or not an update is made.
    """

    reserved: tuple[tuple[Any, int], ...] = ()

    def all_of(self, events: Mapping[Any, int]) -> dict[Any, int]:
        """Return these events and the reserved ones."""
        counts = dict(self.reserved)
        for event, count in events.items():
            counts[event] = counts.get(event, 0) + count
        return counts


def _spent(budget: Budget, events: Composition) -> float:
    if isinstance(budget.delta, str):
        raise InputError(f"Expected a number for delta here, got {budget.delta!r}. Use budget.fixed(rows).")
    paid = composition(budget.all_of(dict(events)))
    return accounting.epsilon(paid, float(budget.delta), budget.accountant, target=budget.epsilon)


@functools.lru_cache(maxsize=65536)
def _most_updates(budget: Budget, event: AnyEvent, already: Composition) -> int:
    def cost(updates: int) -> float:
        counts: dict[Any, int] = dict(already)
        counts[event] = counts.get(event, 0) + updates
        return _spent(budget, composition(counts))

    if cost(0) > budget.epsilon:
        return 0
    guess = 8
    if budget.accountant == "pld" and not budget.caveat:  # Rényi DP is fast, and admits a fifth fewer
        guess = 1 + math.ceil(1.22 * _most_updates(dataclasses.replace(budget, accountant="rdp"), event, already))
    return _largest_within(cost, budget.epsilon, MOST_UPDATES, guess)


def _largest_within(cost: Callable[[int], float], target: float, most: int, guess: int = 8) -> int:
    """Return the largest n in 0..most with `cost(n) <= target`, for a cost that grows about as the square root of n."""
    fits, exceeds = 0, most + 1
    while exceeds - fits > 1:
        guess = min(max(guess, fits + 1), exceeds - 1)
        value = cost(guess)
        if value <= target:
            fits = guess
        else:
            exceeds = guess
        growth = (target / value) ** 1.9 if 0 < value < math.inf else 0.5
        guess = math.floor(guess * min(growth, 64))
        if exceeds <= most and not fits < guess < exceeds - 1:
            guess = (fits + exceeds) // 2 if exceeds - fits > 4 else fits + 1
    return fits


def noise_for(event_with: Callable[[float], AnyEvent], updates: int, budget: Budget) -> float:
    """Return the least noise multiplier, to four digits and rounded up, with which so many updates fit the budget.

    event_with: from a noise multiplier to the event of one update.
    """
    whole("updates", updates, 1)

    def cost(noise: float) -> float:
        return budget.spent({event_with(noise): updates})

    too_little, enough, guess, slope = LEAST_NOISE, MOST_NOISE, 4.0, -1.0
    if budget.accountant == "pld":  # Rényi DP is fast, and not far off, where it can reach such an epsilon at all
        with contextlib.suppress(InputError):
            guess = 0.9 * noise_for(event_with, updates, dataclasses.replace(budget, accountant="rdp"))
    last: tuple[float, float] | None = None
    while enough / too_little > 1.0004 and too_little < MOST_NOISE:
        value = cost(guess)
        too_little, enough = (too_little, guess) if value <= budget.epsilon else (guess, enough)
        ratio = value / budget.epsilon if value else 0.0
        if last and 0 < ratio < math.inf and ratio != last[1]:  # log epsilon against log noise is nearly straight
            slope = min(-0.2, math.log(ratio / last[1]) / math.log(guess / last[0]))
        last = (guess, ratio) if 0 < ratio < math.inf else None
        aim = 0.99985 if ratio > 1 else 1.00015  # a little to the other side, to close in from both
        step = (ratio / aim) ** (-1 / slope) if last else 8.0 if ratio else 0.125
        guess *= min(max(step, 0.125), 8.0)
        if not too_little < guess < enough:
            guess = math.sqrt(too_little * enough)
    noise = _round_up(enough)
    if cost(noise) > budget.epsilon:
        raise InputError(
            f"No noise multiplier up to {MOST_NOISE:g} makes {updates} updates fit epsilon {budget.epsilon:g}: allow a "
            "larger epsilon or delta, or fewer updates."
        )
    return noise


@functools.lru_cache(maxsize=4096)
def least_noise(event: AnyEvent, updates: int, budget: Budget) -> float:
    """Return the least noise multiplier with which so many updates with an event like this one fit the budget."""
    return noise_for(lambda noise: with_noise(event, noise), updates, budget)


def _round_up(value: float) -> float:
    """Return the value with four digits, rounded up."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.ceil(round(value / unit, 6)) * unit:.4g}")


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Settings that fit together: so many updates with so much noise spend so much.

    epsilon: spent by all updates, if one example is added or removed; epsilon_substitute: if one is exchanged.
    """

    accountant: str
    updates: int
    epsilon: float
    epsilon_substitute: float
    delta: float
    noise_multiplier: float
    sampling_rate: float
    steps: int


def calibrate(
    *,
    delta: float,
    sampling_rate: float,
    steps: int = 1,
    epsilon: float | None = None,
    updates: int | None = None,
    noise_multiplier: float | None = None,
    accountant: str = "pld",
    numbers: int = 1000,
) -> Calibration:
    """Find the one of epsilon, updates and noise_multiplier that is not given.

    steps: private sums per update, each over rows drawn independently with probability sampling_rate (1: all rows).
    numbers: with noise in each sum, for the price of drawing them from random words; two per weight, often.

    >>> calibrate(epsilon=0.5, delta=1e-4, sampling_rate=0.02, noise_multiplier=5.0, steps=25).updates
    69
    """
    if (epsilon, updates, noise_multiplier).count(None) != 1:
        raise InputError(
            "Expected two of epsilon, updates and noise_multiplier, and the third is found; got "
            f"epsilon={epsilon}, updates={updates}, noise_multiplier={noise_multiplier}."
        )
    if updates is not None:
        whole("updates", updates, 1)
    check_delta(delta)
    budget = None if epsilon is None else Budget(epsilon, delta, accountant)

    def event_with(noise: float) -> AnyEvent:
        return poisson_gaussian(noise, sampling_rate, steps, numbers)

    if noise_multiplier is None and budget and updates:
        noise_multiplier = noise_for(event_with, updates, budget)
    assert noise_multiplier is not None
    event = event_with(noise_multiplier)
    if updates is None and budget:
        updates = budget.most_updates(event)
    assert updates is not None
    spent = {event: updates}
    return Calibration(
        accountant=accountant,
        updates=updates,
        epsilon=accounting.epsilon(spent, delta, accountant, target=epsilon),
        epsilon_substitute=accounting.epsilon(spent, delta, "pld", SUBSTITUTE),
        delta=delta,
        noise_multiplier=noise_multiplier,
        sampling_rate=sampling_rate,
        steps=steps,
    )
