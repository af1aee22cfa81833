"""Estimators for scikit-learn: `FederatedLogisticRegression(epsilon=1.0).fit(X, y, sites=groups)`.

They simulate a federation over the sites of one table, as `fedvi.fitting.fit` does, for columns that are numbers
already. Scales come from public bounds, never from the rows:

    low, high = bounds        x = (clip(X, low, high) - (low + high) / 2) / ((high - low) / 6)

The default bounds, -3 and 3, are those of columns that were standardised with public constants. A fitted estimator has
the whole posterior in `fitted_`, which can be saved (`fitted_.save`) and predicts from the command line too.

Needs scikit-learn: `pip install 'fedvi[sklearn]'`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from fedvi.errors import InputError
from fedvi.fitting.fit import fit
from fedvi.fitting.fitted import Fitted
from fedvi.tables.inferring.features import with_splines
from fedvi.tables.interactions import Interaction
from fedvi.tables.numbers import Number
from fedvi.tables.schema import Schema
from fedvi.tables.targets import BinaryTarget, NumberTarget, Predictions, Target

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "fedvi.fitting.sklearn needs scikit-learn. Install it with: pip install 'fedvi[sklearn]'"
    ) from error

Predicted = np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray]
"""Predictions, or these with both ends of their intervals."""

__all__ = ["FederatedLinearRegression", "FederatedLogisticRegression"]


class _Federated(BaseEstimator):
    """What both estimators have in common: sites, bounds, and the fit."""

    fitted_: Fitted
    converged_: bool

    def __init__(
        self,
        epsilon: float | Mapping[str, float] | None = 1.0,
        delta: float | str = "auto",
        bounds: tuple[ArrayLike, ArrayLike] = (-3.0, 3.0),
        questions: int | None = None,
        covariance: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        splines: Sequence[str | int] = (),
        interactions: Sequence[tuple[str | int, str | int]] = (),
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.questions = questions
        self.covariance = covariance
        self.random_state = random_state
        self.splines = splines
        self.interactions = interactions

    def _fit(self, x: np.ndarray, y: np.ndarray, target: Target, sites: ArrayLike | None) -> Self:
        low, high = _bounds("bounds", self.bounds, x.shape[1])
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{index}" for index in range(x.shape[1])] if names is None else list(map(str, names))
        if target.name in names:
            raise InputError(f"Expected no column named {target.name!r}, which is the target's name. Rename it.")
        ends = zip(names, map(float, low), map(float, high), strict=True)
        numbers = [Number(name, a, b, (a + b) / 2, (b - a) / 6) for name, a, b in ends]
        curved = [_named(column, names) for column in self.splines]
        columns = tuple(with_splines(number) if number.name in curved else number for number in numbers)
        pairs = (Interaction((_named(one, names), _named(other, names))) for one, other in self.interactions)
        schema = Schema(columns, target, interactions=tuple(pairs))
        tables = {
            site: {target.name: y[rows], **dict(zip(names, x[rows].T, strict=True))}
            for site, rows in _rows_of(sites, len(x)).items()
        }
        self.fitted_ = fit(
            schema,
            tables,
            epsilon=self.epsilon,
            delta=self.delta,
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            questions=self.questions,
            covariance=self.covariance,
            progress=False,
        )
        self.converged_ = bool(self.fitted_.converged)
        if not self.converged_:
            warnings.warn(self.fitted_.warnings[0], ConvergenceWarning, stacklevel=3)
        self.features_ = schema.features[1:]
        self.coef_, self.intercept_ = schema.in_units(np.asarray(self.fitted_.posterior.mean, np.float64))
        return self

    def _predict(self, X: ArrayLike, level: float) -> Predictions:
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        names = [column.name for column in self.fitted_.schema.columns]
        return self.fitted_.predict(dict(zip(names, x.T, strict=True)), level=level)

    @property
    def statement_(self) -> str:
        """What was promised about privacy, in plain words."""
        return self.fitted_.statement


class FederatedLogisticRegression(ClassifierMixin, _Federated):
    """Bayesian logistic regression for two classes, over sites that each keep a privacy budget.

    epsilon: every site's budget, or a dictionary of one per site; None for no privacy. delta: a number, `auto`
        for min(1e-5, 1 / (10 N)) of every site's N rows, or `paper` for 10^floor(log10(1/N)).
    bounds: public (low, high) of the columns, each a number or one per column; values beyond are clipped.
    questions: that every site answers; None for the plan's own number. covariance: `full` for true intervals,
        `diagonal` for predictions with many columns and little privacy, or `auto`.
    random_state: seeds the simulation, its noise too.
    splines: names or numbers of columns that may have a curve, with knots every sixth of their bounds.
    interactions: pairs of columns whose product is a feature. `features_` names all features of `coef_`.

    A fitted estimator has `converged_`; if it is false, `fit` has warned too.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sites: ArrayLike | None = None) -> Self:
        """Simulate the federation; `sites` names the site of every row, None for one site."""
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            raise InputError(f"Only binary classification is supported. The type of the target is {type_of_target(y)}.")
        if len(self.classes_) < 2:
            raise InputError(f"Expected two classes in y, got one class: {self.classes_[0]!r}.")
        target = BinaryTarget("target", (str(self.classes_[0]), str(self.classes_[1])))
        return self._fit(x, np.array(target.values)[codes], target, sites)

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probability of each of the two classes, averaged over the posterior."""
        positive = self._predict(X, 0.9).mean
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike, return_interval: bool = False, level: float = 0.9) -> Predicted:
        """Return the more probable class of every row.

        return_interval: also return low and high, the credible interval of the probability of `classes_[1]`.
        """
        predictions = self._predict(X, level)
        labels = self.classes_[(predictions.mean > 0.5).astype(int)]
        return (labels, predictions.low, predictions.high) if return_interval else labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = self.epsilon is not None  # scikit-learn's tests have 200 rows and less
        return tags


class FederatedLinearRegression(RegressorMixin, _Federated):
    """Bayesian linear regression over sites that each keep a privacy budget; the noise's variance is estimated.

    target_bounds: public (low, high) of y; values beyond are clipped. Everything else is as in
    `FederatedLogisticRegression`.
    """

    def __init__(
        self,
        epsilon: float | Mapping[str, float] | None = 1.0,
        delta: float | str = "auto",
        bounds: tuple[ArrayLike, ArrayLike] = (-3.0, 3.0),
        target_bounds: tuple[float, float] = (-3.0, 3.0),
        questions: int | None = None,
        covariance: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        splines: Sequence[str | int] = (),
        interactions: Sequence[tuple[str | int, str | int]] = (),
    ):
        super().__init__(epsilon, delta, bounds, questions, covariance, random_state, splines, interactions)
        self.target_bounds = target_bounds

    def fit(self, X: ArrayLike, y: ArrayLike, sites: ArrayLike | None = None) -> Self:
        """Simulate the federation; `sites` names the site of every row, None for one site."""
        x, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        low, high = (float(end[0]) for end in _bounds("target_bounds", self.target_bounds, 1))
        target = NumberTarget("target", low, high, (low + high) / 2, (high - low) / 6)
        return self._fit(x, targets, target, sites)

    def predict(self, X: ArrayLike, return_interval: bool = False, level: float = 0.9) -> Predicted:
        """Return the expected y of every row.

        return_interval: also return low and high, between which y itself is with probability `level`.
        """
        predictions = self._predict(X, level)
        return (predictions.mean, predictions.low, predictions.high) if return_interval else predictions.mean

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self.epsilon is not None
        return tags


def _named(column: str | int, names: list[str]) -> str:
    """Return the name of a column that is given by its name, or by its number from 0."""
    found = names[column] if isinstance(column, int | np.integer) and 0 <= column < len(names) else column
    if found not in names:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InputError(f"Expected a column by its name or number, one of {shown}; got {column!r}.")
    return str(found)


def _bounds(name: str, bounds: tuple[ArrayLike, ArrayLike], columns: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        low, high = (np.broadcast_to(np.asarray(end, np.float64), (columns,)) for end in bounds)
    except (TypeError, ValueError):
        raise InputError(f"Expected {name}=(low, high), each a number or one per column, got {bounds!r}.") from None
    if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        raise InputError(f"Expected low < high in {name}, both finite, got {bounds!r}.")
    return low, high


def _rows_of(sites: ArrayLike | None, rows: int) -> dict[str, np.ndarray]:
    """Return by site which rows it has."""
    names = np.full(rows, "site") if sites is None else np.asarray(sites)
    if names.shape != (rows,):
        raise InputError(f"Expected one site per row, {rows}, got sites of shape {names.shape}.")
    nameless = [row for row, name in enumerate(names.tolist()) if name is None or name != name]
    if nameless:
        raise InputError(f"Expected the name of a site for every row, got none for row {nameless[0] + 1}.")
    found, codes = np.unique(names.astype(str), return_inverse=True)
    return {str(name): codes == code for code, name in enumerate(found)}
