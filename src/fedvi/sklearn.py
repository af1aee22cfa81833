"""Estimators for scikit-learn: `from fedvi.sklearn import FederatedLogisticRegression`."""

from fedvi.fitting.sklearn import *  # noqa: F403
