from fedvi.models.base import Conjugate as Conjugate
from fedvi.models.base import Model as Model
from fedvi.models.base import RowSums as RowSums
from fedvi.models.custom import CustomModel as CustomModel
from fedvi.models.expectations import GaussHermite as GaussHermite
from fedvi.models.expectations import MonteCarlo as MonteCarlo
from fedvi.models.linear import LinearRegression as LinearRegression
from fedvi.models.linear_predictor import LinearPredictorModel as LinearPredictorModel
from fedvi.models.logistic import LogisticRegression as LogisticRegression
from fedvi.models.predictive import (
    Bernoulli as Bernoulli,
)
from fedvi.models.predictive import (
    Categorical as Categorical,
)
from fedvi.models.predictive import (
    Normal as Normal,
)
from fedvi.models.predictive import (
    Predictive as Predictive,
)
