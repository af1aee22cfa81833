"""Likelihoods: one protocol, one file per likelihood."""

from fedvi.models.base import Conjugate, Model, RowSums
from fedvi.models.custom import CustomModel
from fedvi.models.expectation import GaussHermite, MonteCarlo
from fedvi.models.linear import LinearRegression
from fedvi.models.linear_predictor import LinearPredictorModel
from fedvi.models.logistic import LogisticRegression
from fedvi.models.predictive import Bernoulli, Categorical, Normal, Predictive
from fedvi.models.quadratic import Quadratic, QuadraticPart

__all__ = [
    "Bernoulli",
    "Categorical",
    "Conjugate",
    "CustomModel",
    "GaussHermite",
    "LinearPredictorModel",
    "LinearRegression",
    "LogisticRegression",
    "Model",
    "MonteCarlo",
    "Normal",
    "Predictive",
    "Quadratic",
    "QuadraticPart",
    "RowSums",
]
