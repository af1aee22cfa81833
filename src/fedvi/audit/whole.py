"""Audit of a whole update: can an adversary that sees everything tell whether the canary was there?

Many updates are run with and without the canary. The adversary projects what it sees on the direction in which the
canary pushes, adds up over the steps, and says 'it was there' above a threshold that is fixed in advance, half way. Its
errors, with Clopper-Pearson bounds, give a lower bound on the privacy loss of the code as it is:

    mu >= quantile(1 - false_positives) - quantile(false_negatives)

For Gaussian mechanisms without sampling the claim is exact: T steps with noise multiplier s are mu-Gaussian-DP with
mu = sqrt(T) / s. The audit rejects if the lower bound exceeds the claim.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedvi.audit.subject import Subject, silent, some
from fedvi.errors import InputError
from fedvi.privacy import accounting
from fedvi.privacy.events import parts, to_json

ALPHA = 1e-3
"""Probability with which a correct mechanism may be rejected, at most."""

HUGE = 1e4
"""Size of the canary: its gradient is far longer than any clip norm."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the adversary achieved.

    without, present: its statistic for every update without and with the canary, which pushes by 1 in every step.
    mu_claimed, mu_found: Gaussian-DP parameter that the event claims, and the lower bound on what the code gives.
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
        return self.mu_found <= self.mu_claimed


def audit_update(subject: Subject, runs: int = 1000, delta: float = 1e-3) -> Verdict:
    """Play the adversary against `runs` updates with the canary and as many without."""
    claim = to_json(subject.event)
    if claim["kind"] != "gaussian":
        raise InputError("Expected a mechanism without sampling, whose claim is exact; use FullBatchGaussian(...).")
    _, steps = parts(subject.event)
    draws = subject.draws(2 * runs)
    quiet = silent(some(draws, slice(1)))
    without, present = subject.absent(), subject.present(HUGE)
    nothing = subject.observe(without, quiet)[0]
    push = subject.observe(present, quiet)[0] - nothing
    direction = push / np.maximum(np.linalg.norm(push, axis=-1, keepdims=True), 1e-30)

    def score(seen: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum((seen - nothing) * direction, axis=(1, 2)))

    low = score(subject.observe(without, some(draws, slice(runs))))
    high = score(subject.observe(present, some(draws, slice(runs, None))))
    threshold = steps / 2
    wrong = int(np.sum(low > threshold)), int(np.sum(high <= threshold))
    alarms, misses = (_upper_bound(count, runs) for count in wrong)
    return Verdict(
        without=low,
        present=high,
        threshold=threshold,
        false_positives=wrong[0] / runs,
        false_negatives=wrong[1] / runs,
        mu_claimed=math.sqrt(steps) / claim["noise_multiplier"],
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
