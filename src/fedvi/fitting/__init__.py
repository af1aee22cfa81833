"""From a schema and tables to a posterior that predicts: fit, posterior files, predictions, coefficients."""

from fedvi.fitting.fit import fit
from fedvi.fitting.fitted import Coefficient, Fitted, Predictions, SiteRecord

__all__ = ["Coefficient", "Fitted", "Predictions", "SiteRecord", "fit"]
