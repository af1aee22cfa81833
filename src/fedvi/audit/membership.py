"""Audit of a whole update: can an adversary that sees everything tell whether the canary was there? And its picture.

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
import os
from pathlib import Path

import numpy as np

from fedvi.audit.subject import CANARY, Subject, everybody, silent, some
from fedvi.files import replacing
from fedvi.inference.local_problem import Draws
from fedvi.privacy import accounting

ALPHA = 1e-3
"""Probability with which a correct mechanism may be rejected, at most."""

HUGE = 1e4
"""Size of the canary: its gradient is far longer than any clip norm."""

RUNS = 25_000
"""Updates with the canary, and as many without: a bound on mu = 1 is then above .9, all but surely."""

WITHOUT, PRESENT, CLAIM = "#0072B2", "#D55E00", "#000000"  # of the colour-blind safe palette of Okabe and Ito


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


def audit_update(subject: Subject, runs: int = RUNS, delta: float = 1e-3) -> AuditResult:
    """Play the adversary against `runs` updates with the canary and as many without."""
    event, draws = subject.event, subject.draws(2 * runs)
    quiet = silent(some(draws, slice(1)))
    alone = quiet if subject.whole_client else everybody(quiet, CANARY + 1)
    unit = subject.clip_norm / subject.lattice.grid

    def pushed(target: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return a table whose canary has this target, what is seen without the canary, and what it adds."""
        x, y = subject.table(np.full(subject.dim, HUGE), target, others=0.0)
        nothing = np.mean(subject.look(x, y, quiet, present=False) / unit, axis=0)
        return x, y, nothing, subject.look(x, y, alone, present=True)[0] / unit - nothing

    x, y, nothing, push = max(map(pushed, (1.0, -1.0)), key=lambda found: float(np.linalg.norm(found[3])))

    def look(which: Draws, *, present: bool) -> np.ndarray:
        return subject.look(x, y, which, present=present) / unit

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
    odds = (1 - delta - false_positives) / false_negatives, (1 - delta - false_negatives) / false_positives
    return math.log(max(1.0, *odds))


def draw_audit(verdict: AuditResult, path: str | os.PathLike[str]) -> None:
    """Write the picture; the ending of the path chooses the format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)

        both = np.concatenate([verdict.without, verdict.present])
        bins = np.linspace(both.min(), both.max(), 50)
        left.hist(verdict.without, bins, color=WITHOUT, alpha=0.6, label="canary absent")
        left.hist(verdict.present, bins, color=PRESENT, alpha=0.6, label="canary present")
        left.axvline(verdict.threshold, color=CLAIM, ls="--", label="threshold, fixed in advance")
        left.set(xlabel="pull towards the canary, summed over an update [clip norms]", ylabel="updates")
        left.set_title("What the adversary sees")
        left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, fontsize=9)

        rates = np.linspace(1e-4, 1 - 1e-4, 500)
        least, claim = _least_misses(verdict, rates)
        right.fill_between(rates, 0, least, color="#DDDDDD")
        right.plot(rates, least, color=CLAIM, label=f"the claim, {claim}: no adversary below this line")
        thresholds = np.linspace(both.min(), both.max(), 400)
        alarms = [float(np.mean(verdict.without > level)) for level in thresholds]
        misses = [float(np.mean(verdict.present <= level)) for level in thresholds]
        right.plot(alarms, misses, color=PRESENT, lw=1, label="this adversary, at every threshold")
        right.plot(verdict.false_positives, verdict.false_negatives, "o", color=PRESENT, label="at the fixed threshold")
        outcome = "not contradicted" if verdict.passed else "CONTRADICTED"
        right.set(xlabel="false alarms", ylabel="misses", xlim=(0, 1), ylim=(0, 1), title=f"Claim {outcome}")
        right.legend(frameon=False, loc="upper right", fontsize=9)
        with replacing(path) as file:
            figure.savefig(file, format=Path(path).suffix[1:].lower() or "png", dpi=150)


def _least_misses(verdict: AuditResult, alarms: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the fewest misses that the claim leaves an adversary with so many false alarms, and the claim in words."""
    from scipy.stats import norm

    if np.isfinite(verdict.mu_claimed):
        return np.asarray(norm.cdf(norm.isf(alarms) - verdict.mu_claimed)), f"$\\mu$ = {verdict.mu_claimed:.3g}"
    factor = np.exp(verdict.epsilon_claimed)
    least = np.maximum(1 - verdict.delta - factor * alarms, (1 - verdict.delta - alarms) / factor)
    return np.maximum(least, 0), f"$\\epsilon$ = {verdict.epsilon_claimed:.3g}, $\\delta$ = {verdict.delta:g}"
