"""The picture of an audit: what the adversary saw, and how well it could do against how well it may do."""

from __future__ import annotations

import os

import numpy as np

from fedvi.audit.membership import AuditResult

WITHOUT, PRESENT, CLAIM = "#0072B2", "#D55E00", "#000000"  # of the colour-blind safe palette of Okabe and Ito


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
        left.set(
            xlabel="pull towards the canary, summed over an update [clip norms]",
            ylabel="updates",
            title="What the adversary sees",
        )
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
        right.set(
            xlabel="false alarms",
            ylabel="misses",
            xlim=(0, 1),
            ylim=(0, 1),
            title=f"Claim {outcome}",
        )
        right.legend(frameon=False, loc="upper right", fontsize=9)
        figure.savefig(path, dpi=150)


def _least_misses(verdict: AuditResult, alarms: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the fewest misses that the claim leaves an adversary with so many false alarms, and the claim in words."""
    from scipy.stats import norm

    if np.isfinite(verdict.mu_claimed):
        return np.asarray(norm.cdf(norm.isf(alarms) - verdict.mu_claimed)), f"$\\mu$ = {verdict.mu_claimed:.3g}"
    factor = np.exp(verdict.epsilon_claimed)
    least = np.maximum(1 - verdict.delta - factor * alarms, (1 - verdict.delta - alarms) / factor)
    return np.maximum(least, 0), f"$\\epsilon$ = {verdict.epsilon_claimed:.3g}, $\\delta$ = {verdict.delta:g}"
