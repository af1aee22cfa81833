"""All private answers about slopes as one: what `full` reads. Its letters are explained there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedvi.inference.reading.base import Answer, forms, symmetric
from fedvi.inference.reading.moments import Moments
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.models.outlook import Expected, Outlook

LOG_SPREAD = 0.5
"""Standard deviation of the logarithm of a noise's standard deviation, before anything is seen."""

APART = 0.4
"""Off-diagonals of the whitened curvature vary less than noise in moments says, since those were shrunk: measured."""

MISMATCH = 0.2
"""Simulated rows are not the rows: spread of the whitened curvature per row, all entries of a line together."""


@dataclass(frozen=True)
class Around:
    """Near a mean m: g - h(m), h' and the sum that it is made of (`total`), K + V (`known`), the distance u (`way`)."""

    residual: np.ndarray
    gain: np.ndarray
    total: float
    known: np.ndarray
    way: np.ndarray


@dataclass(frozen=True)
class Evidence:
    """All answers about slopes, beside simulated rows.

    asked: outlooks of the questions, weights: what simulated rows count in each (questions, rows).
    alpha: weights of answers; shares: alpha_k n_k / n. groups: numbers of rows that answered just the first 1, 2, ...
    slope, noise: g and V. correction: C. simulated: curvature per row, whitened. left: variance of what is unknown of
    it, in the eigenbasis `basis` of the last question's whitening, whose inverse is `back`. unit: mean over answers of
    1 / noise's sd.
    """

    x: np.ndarray
    rows: float
    asked: Outlook
    weights: np.ndarray
    alpha: np.ndarray
    shares: np.ndarray
    groups: np.ndarray
    slope: np.ndarray
    noise: np.ndarray
    simulated: np.ndarray
    correction: np.ndarray
    left: np.ndarray
    basis: np.ndarray
    back: np.ndarray
    unit: float
    extra: float
    extra_noise: float

    @classmethod
    def of(cls, model: LinearPredictorModel, seen: Sequence[Answer], moments: Moments, rate: float) -> Evidence:
        """Return the evidence of these answers. rate: of information to noise, a public number."""
        x, columns = moments.rows, moments.rows.shape[1]
        outlooks, weights, precisions, deviations, curvatures = [], [], [], [], []
        for each in seen:
            mapped = each.map(x)
            outlook = model.outlook(
                x @ each.centre.mean, forms(x, each.centre.covariance), each.number("noise_variance")
            )
            weight = each.weights(mapped, outlook.curvature, outlook.largest)
            simulated = (mapped.T * (weight * outlook.curvature)) @ mapped / len(x)
            precisions.append(each.rows**2 / each.variance("curvature"))
            deviations.append(each.curvature / each.rows - simulated)
            curvatures.append(simulated)
            outlooks.append(outlook)
            weights.append(weight)
        late = ramp(len(seen), rate)
        trust = late * precisions / (late @ precisions)
        deviation, simulated = (np.tensordot(trust, each, 1) for each in (deviations, curvatures))
        simulated = positive(simulated)
        precision = 1 / float(trust**2 @ (1 / np.array(precisions)))
        counts = np.array([each.rows for each in seen])
        units = np.array([1 / math.sqrt(each.number("noise_variance")) for each in seen])
        variances = np.array([each.variance("slope") for each in seen])
        alpha = counts * units / variances * late
        alpha = alpha * counts.max() / (alpha @ counts)
        shares = alpha * counts / counts.max()
        back = seen[-1].back
        values, basis = np.linalg.eigh(symmetric(back))
        size = weights[-1].mean() * outlooks[-1].curvature.mean()
        mixing = ((basis / values).T @ moments.basis) ** 2
        eye = np.eye(columns)
        before = (
            np.minimum(size**2 * mixing @ moments.left @ mixing.T, 1) * (APART + (1 - APART) * eye)
            + MISMATCH**2 / columns * (1 + eye) / 2
        )
        observed = (1 + eye) / (2 * precision)
        kept = before / (before + observed)
        shrunk = basis @ ((basis.T @ deviation @ basis) * kept) @ basis.T
        whole = positive(simulated + shrunk)
        extras = np.array([each.extra for each in seen])
        learned = model.assumed_noise_variance is not None
        return cls(
            x=x,
            rows=float(counts.max()),
            asked=Outlook.stacked(outlooks),
            weights=np.stack(weights),
            alpha=alpha,
            shares=shares,
            groups=np.maximum(counts - np.append(counts[1:], 0), 0),
            slope=sum(a * each.back.T @ each.slope for a, each in zip(alpha, seen, strict=True)),
            noise=sum(a**2 * v * each.back.T @ each.back for a, v, each in zip(alpha, variances, seen, strict=True)),
            simulated=simulated,
            correction=back.T @ np.linalg.solve(simulated, whole).T @ seen[-1].whitening.T,
            left=before * (1 - kept),
            basis=basis,
            back=back,
            unit=float(shares @ units),
            extra=float(alpha @ extras),
            extra_noise=sum(a**2 * each.variance("extra") for a, each in zip(alpha, seen, strict=True))
            if learned
            else 0,
        )

    def curvature_noise(self, second: np.ndarray) -> np.ndarray:
        """Return N(A), the covariance of E u for E[uu'] = A, where entries of E have the variances `left`."""
        turned = self.basis.T @ self.back @ second @ self.back.T @ self.basis
        matrix = self.back.T @ self.basis @ errors_of(self.left, turned) @ self.basis.T @ self.back
        return (self.rows * self.unit) ** 2 * matrix

    def way(self, slope: np.ndarray) -> np.ndarray:
        """Return the distance to the mean centre that would give such a slope if nothing bent, in units of x."""
        inside = np.linalg.solve(self.simulated, np.linalg.solve(self.back.T, slope))
        found: np.ndarray = np.linalg.solve(self.back, inside) / (self.rows * self.unit)
        return found

    def around(self, expected: Expected) -> Around:
        """Return what all answers say near the q whose expectations these are."""
        slope, (gain, total) = self.slope_of(expected), self.gain_of(expected)
        known = positive(self.correction @ self.sampling_of(expected)) + self.noise
        return Around(self.slope - self.correction @ slope, self.correction @ gain, total, known, self.way(slope))

    def slope_of(self, expected: Expected) -> np.ndarray:
        """Return h without C."""
        found: np.ndarray = (self.shares @ (self.weights * expected.slope)) @ self.x
        return self.rows / len(self.x) * found

    def gain_of(self, expected: Expected) -> tuple[np.ndarray, float]:
        """Return h' without C, and the sum over rows of what it is made of."""
        gain = self.shares @ (self.weights * expected.gain)
        return self.rows / len(self.x) * (self.x.T * gain) @ self.x, self.rows * float(gain.mean())

    def sampling_of(self, expected: Expected) -> np.ndarray:
        """Return K without C."""
        so_far = np.cumsum(self.alpha[:, None] * self.weights * np.sqrt(expected.spread), axis=0)
        return (self.x.T * (self.groups @ so_far**2)) @ self.x / len(self.x)

    def noise_variance(self, model: LinearPredictorModel, now: Outlook, assumed: float) -> float:
        """Return the noise variance of a linear model by a Newton step; its logarithm has a normal prior."""
        some = slice(None, None, max(1, len(self.x) // 500))
        asked, mean, variance = self.asked.some(some), now.mean[some], now.variance[some]
        weights, log_sd = self.weights[:, some], math.log(float(now.noise_variance.flat[0])) / 2

        def extra(move: float) -> tuple[float, float]:
            outlook = model.outlook(mean, variance, math.exp(2 * (log_sd + move)))
            centre, spread = model.expected_extra(asked, outlook)
            so_far = np.cumsum(self.alpha[:, None] * weights * np.sqrt(spread), axis=0)
            return self.rows * float((self.shares @ (weights * centre)).mean()), float(
                self.groups @ (so_far**2).mean(axis=1)
            )

        (low, sampling), (high, _) = extra(-0.05), extra(0.05)
        slope, errors = (high - low) / 0.1, sampling + self.extra_noise
        to_seen, to_prior = self.extra - (low + high) / 2, math.log(assumed) / 2 - log_sd
        step = (slope * to_seen / errors + to_prior / LOG_SPREAD**2) / (slope**2 / errors + LOG_SPREAD**-2)
        return math.exp(2 * (log_sd + float(np.clip(step, -0.7, 0.7))))


def errors_of(left: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the covariance of E a for E[aa'] = second, where entries of the symmetric E have the variances `left`."""
    found: np.ndarray = left * second
    np.fill_diagonal(found, left @ np.diag(second))
    return found


def ramp(count: int, rate: float) -> np.ndarray:
    """Return how much answers count: the first less, since their centres are far, and what is wrong grows with that.

    From public numbers. All answers are about the same rows, so that early ones help against privacy noise only: where
    there is little of it (a high rate), they may count little.
    """
    number = np.arange(count)
    middle = np.where(number < count // 2, (1 + rate) ** -0.3, 1)
    return np.where(number < count // 3, 0.2 * (1 + rate) ** -0.5, middle)


def positive(matrix: np.ndarray) -> np.ndarray:
    """Return the matrix with no eigenvalue below a thousandth of the largest."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    return (vectors * np.maximum(values, 1e-3 * values[-1])) @ vectors.T
