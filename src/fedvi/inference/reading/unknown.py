"""A linear model's posterior where the curvature itself is uncertain: by drawing it.

With w = m + t, in units in which entries of E, what is unknown of the curvature G, are independent, the answers are

    y = (G + E) t + E u + e        e ~ N(0, K + V)        entries of E ~ N(0, left), G + E positive

E multiplies t. In a direction whose curvature is known to within its own size only (collinear columns under a wide
prior), y / (G + E) has long tails, which no normal approximation around one E sees. But given E, t is normal; and given
t, E is, cut to where curvatures are positive. So they are drawn in turn, always with the same random numbers: a reading
is a function of what was released. The mean and the covariance of t are those of the mixture of the normals.

Models that bend have draws of q instead (`full`): with 30 columns those are much better. On normal tables with weakly
correlated columns, what is unknown of the curvature is overstated, and the mixture is too wide. So it counts only where
it more than doubles the standard deviation of a direction, and only in that direction. Coverage of coefficients of
`diabetes`, on 40 tables for validation, was 82 % (eps 1 and 4) before, 86 % and 89 % with it. Where columns agree to
within a tenth, it is still lower: such fits say that they are not to be trusted.
"""

from __future__ import annotations

import numpy as np

from fedvi.inference.reading.base import Gaussian, symmetric
from fedvi.inference.reading.evidence import Around, Evidence, errors_of

WARMUP, DRAWS = 200, 600

MOVE = 0.4
"""How far E moves in one step, of all the way to a fresh draw: a longer way would leave the positive matrices."""

MUCH_WIDER = 4.0
"""Times the variance in a direction: then the mixture is taken."""


def widened(prior: Gaussian, evidence: Evidence, here: Around, q: Gaussian) -> tuple[Gaussian, bool]:
    """Return q, with the mixture over draws of the curvature in directions where that is much wider; and whether."""
    turn, scale = evidence.basis.T @ evidence.back, evidence.rows * evidence.unit
    back = np.linalg.inv(turn)
    start = Gaussian.of(back.T @ (prior.natural_mean - prior.precision @ q.mean), back.T @ prior.precision @ back)
    moved, covariance = drawn(
        start,
        gain=back.T @ here.gain @ back / scale,
        left=evidence.left,
        known=symmetric(back.T @ here.known @ back) / scale**2,
        seen=back.T @ here.residual / scale,
        way=turn @ here.way,
    )
    lower = turn @ np.linalg.cholesky(q.covariance)
    inside = np.linalg.solve(lower, np.linalg.solve(lower, covariance).T)
    values, vectors = np.linalg.eigh(symmetric(inside))
    wide, axes = values > MUCH_WIDER, back @ lower @ vectors
    mean = q.mean + axes @ (wide * (vectors.T @ np.linalg.solve(lower, moved)))
    covariance = (axes * np.where(wide, values, 1)) @ axes.T
    return Gaussian.at(mean, symmetric(np.linalg.inv(covariance))), bool(wide.any())


def drawn(
    prior: Gaussian, gain: np.ndarray, left: np.ndarray, known: np.ndarray, seen: np.ndarray, way: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of t. gain: G, known: K + V, seen: y, way: u. Others as in the module's text."""
    rng, columns = np.random.default_rng(17), len(seen)
    inverse, lower = np.linalg.inv(known), np.linalg.cholesky(known)
    t, unknown = np.zeros(columns), np.zeros_like(left)
    means, covariances = [], np.zeros_like(left)
    for number in range(WARMUP + DRAWS):
        at = way + t
        fresh = np.triu(rng.standard_normal(left.shape) * np.sqrt(left))
        fresh = fresh + np.triu(fresh, 1).T
        errors = known + errors_of(left, np.outer(at, at))
        missed = seen - gain @ t
        strange = fresh @ at + lower @ rng.standard_normal(columns)
        expected, surprise = (
            tilted(left, each, at) for each in np.linalg.solve(errors, np.stack([missed, strange]).T).T
        )
        moved = expected + np.sqrt(1 - MOVE**2) * (unknown - expected) + MOVE * (fresh - surprise)
        if np.linalg.eigvalsh(symmetric(gain) + moved)[0] > 0:
            unknown = moved
        through = (gain + unknown).T @ inverse
        covariance = symmetric(np.linalg.inv(prior.precision + through @ (gain + unknown)))
        mean = covariance @ (prior.natural_mean + through @ (seen - unknown @ way))
        t = mean + np.linalg.cholesky(covariance) @ rng.standard_normal(columns)
        if number >= WARMUP:
            means.append(mean)
            covariances += covariance / DRAWS
    return np.mean(means, axis=0), covariances + np.cov(np.array(means).T, bias=True)


def tilted(left: np.ndarray, force: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the covariance of E with E a, times a force: what E is expected to be by a linear observation of E a."""
    outer = np.outer(force, at)
    found: np.ndarray = left * (outer + outer.T - np.diag(np.diag(outer)))
    return found
