"""scikit-learn's own checks of the estimators."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedvi.fitting.sklearn import FederatedLinearRegression, FederatedLogisticRegression

NOT_APPLICABLE: dict[str, str] = {}
"""Checks of scikit-learn that do not apply, and why: none."""


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [Estimator(questions=20, random_state=0) for Estimator in (FederatedLogisticRegression, FederatedLinearRegression)],
    expected_failed_checks=lambda _: NOT_APPLICABLE,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::fedvi.errors.ValuesClipped")  # columns of these checks are not in units of 1
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
