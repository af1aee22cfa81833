"""Audit of a whole update: can an adversary that sees everything tell whether the canary was there?

Many updates are run with and without the canary. The adversary projects what it sees on the direction in which the
canary pushes, adds up over the steps, and says 'it was there' above a threshold that is fixed in advance, half way. Its
errors, with Clopper-Pearson bounds, give lower bounds on the privacy loss of the code as it is:

    mu      >= quantile(1 - false_positives) - quantile(false_negatives)
    epsilon >= log((1 - delta - false_negatives) / false_positives), or with the two exchanged

For Gaussian mechanisms without sampling the claim is exact: T steps with noise multiplier s are mu-Gaussian-DP with
mu = sqrt(T) / s. With sampling the claim is the accountant's epsilon. The audit rejects if a bound exceeds its claim.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedvi.audit.subject import CANARY, Subject, everybody, silent, some, without_canary
from fedvi.inference.local_problem import Draws
from fedvi.privacy import accounting

ALPHA = 1e-3
"""Probability with which a correct mechanism may be rejected, at most."""

HUGE = 1e4
"""Size of the canary: its gradient is far longer than any clip norm."""


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """What the adversary achieved.

    without, present: its statistic for every update without and with the canary, which pushes by 1 in every step.
    mu_claimed, mu_found: Gaussian-DP parameter that the event claims (infinite with sampling, where there is none), and
        the lower bound on what the code gives.
    epsilon_claimed, epsilon_found: the same as epsilon at `delta`.
    """

    without: np.ndarray
    present: np.ndarray
    threshold: float
    false_positives: float
    false_negatives: float
    mu_claimed: float
    mu_found: float
    epsilon_claimed: float
    epsilon_found: float
    delta: float

    @property
    def passed(self) -> bool:
        """Whether there is no evidence that the code spends more than it claims."""
        return self.mu_found <= self.mu_claimed and self.epsilon_found <= self.epsilon_claimed


RUNS = 25_000
"""Updates with the canary, and as many without: a bound on mu = 1 is then above .9, all but surely."""


def audit_update(subject: Subject, runs: int = RUNS, delta: float = 1e-3) -> AuditResult:
    """Play the adversary against `runs` updates with the canary and as many without."""
    event, draws = subject.event, subject.draws(2 * runs)
    x, y = subject.table(np.full(subject.dim, HUGE), others=0.0)
    here, there = subject.site(x, y), subject.site(x[1:], y[1:])
    quiet = silent(some(draws, slice(1)))
    unit = subject.clip_norm / subject.lattice.grid

    def look(which: Draws, *, present: bool) -> np.ndarray:
        if subject.whole_client:
            return subject.observe(here, which, present=present) / unit
        return subject.observe(here if present else there, which if present else without_canary(which)) / unit

    nothing = np.mean(look(quiet, present=False), axis=0)
    push = look(quiet if subject.whole_client else everybody(quiet, CANARY + 1), present=True)[0] - nothing
    direction = push / np.linalg.norm(push, axis=-1, keepdims=True)

    def score(which: slice, *, present: bool) -> np.ndarray:
        return np.asarray(np.sum((look(some(draws, which), present=present) - nothing) * direction, axis=(1, 2)))

    low = score(slice(runs), present=False)
    high = score(slice(runs, None), present=True)
    threshold = event.steps * event.sampling_rate / 2
    wrong = int(np.sum(low > threshold)), int(np.sum(high <= threshold))
    alarms, misses = (_upper_bound(count, runs) for count in wrong)
    return AuditResult(
        without=low,
        present=high,
        threshold=threshold,
        false_positives=wrong[0] / runs,
        false_negatives=wrong[1] / runs,
        mu_claimed=event.mu if event.sampling_rate == 1 else math.inf,
        mu_found=_mu(alarms, misses),
        epsilon_claimed=accounting.epsilon({subject.event: 1}, delta),
        epsilon_found=_epsilon(alarms, misses, delta),
        delta=delta,
    )


def _upper_bound(count: int, runs: int) -> float:
    """Return the Clopper-Pearson upper bound on a probability; both bounds of an audit hold with 1 - ALPHA."""
    from scipy.stats import beta

    return 1.0 if count == runs else float(beta.isf(ALPHA / 2, count + 1, runs - count))


def _mu(false_positives: float, false_negatives: float) -> float:
    from scipy.stats import norm

    return float(max(0.0, norm.isf(false_positives) - norm.ppf(false_negatives)))


def _epsilon(false_positives: float, false_negatives: float, delta: float) -> float:
    odds = [
        (1 - delta - first) / second
        for first, second in ((false_positives, false_negatives), (false_negatives, false_positives))
    ]
    return max(0.0, *(math.log(ratio) if ratio > 0 else 0.0 for ratio in odds))
