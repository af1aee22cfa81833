"""What sites say about the width of the posterior (`fedvi.models.base`), and how far one of them is believed.

A site's number is a sum over its rows of numbers between 0 and 1, with noise that follows from its budget. Nobody can
check it, nor the rows and the budget that the site declares. So each site has an average, its error and a weight,

    average = number / rows        error = noise / rows        weight = rows, but at most half of the description's

and what is far from the medians (by weight) of averages and errors is drawn towards them:

    reach = SPREAD + FAR median(errors)
    kept  = average within median(averages) +- reach                 result  = sum(weight kept) / sum(weight)
    loose = error up to reach                                        error^2 = sum(weight^2 loose^2) / sum(weight)^2

Of honest sites that differ by less than reach, none with most of the rows, the result is the sum of all numbers over
the number of all rows. A site that lies can move the medians only as far as what others say, and the result beyond
them only by its share of the weight times reach. That holds unless it weighs as much as all others together, as of two
sites either does; then the result is what it likes, within what is possible, as it would be by any rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from fedvi.errors import InputError
from fedvi.inference.spec import WIDTH
from fedvi.privacy.budget import Budget
from fedvi.privacy.sums import part_of

SPREAD = 0.25
"""How far the averages of honest sites may be from each other because their rows differ."""

FAR = 6.0
"""Standard deviations of noise that no honest number exceeds: one of 10^9 does."""


@dataclasses.dataclass(frozen=True)
class Said:
    """A site's number, the rows that it declares, and the standard deviation of the noise that its budget calls for."""

    number: float
    rows: int
    noise: float

    @classmethod
    def of(cls, number: float, rows: int, epsilon: float, delta: float) -> Said | None:
        """Return what a site has said, or None if it declares no rows, or a budget that admits no such number."""
        try:
            return cls(number, rows, part_of(Budget(epsilon, delta), WIDTH).noise_multiplier) if rows else None
        except InputError:
            return None

    @property
    def is_possible(self) -> bool:
        """Whether any table of so many rows could give the number."""
        return -FAR * self.noise <= self.number <= self.rows + FAR * self.noise


def combined(said: Sequence[Said], rows: int) -> tuple[float, float]:
    """Return the average over all sites' rows, and its standard error.

    rows: of all sites together, as the description has it.
    """
    declared = np.array([each.rows for each in said], float)
    averages = np.array([each.number for each in said]) / declared
    errors = np.array([each.noise for each in said]) / declared
    weights = np.minimum(declared, rows / 2)
    shares = weights / weights.sum()
    centre, reach = _median(averages, shares), SPREAD + FAR * _median(errors, shares)
    kept = np.clip(averages, centre - reach, centre + reach)
    return float(shares @ kept), float(np.linalg.norm(shares * np.minimum(errors, reach)))


def _median(values: Float[np.ndarray, " n"], shares: Float[np.ndarray, " n"]) -> float:
    """Return the value with half of the shares on either side; between two values, their mean."""
    order = np.argsort(values)
    below = np.cumsum(shares[order])
    low, high = np.searchsorted(below, (0.5 - 1e-9, 0.5 + 1e-9)).clip(max=len(values) - 1)
    return float(values[order[low]] + values[order[high]]) / 2
